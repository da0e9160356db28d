"""From a search to a frozen study file: what it keeps, what it changes, what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.errors import StudyError, SweepError
from sweep.study import load_study
from sweep.study.search_block import SearchedBy
from sweep.study.warnings import study_warnings
from sweep.study.yaml_reader import read_document
from sweep.tune.tune import _checked_output, _write, frozen_path, frozen_study, tune
from tests.sweep.in_process import InProcess

SEARCHED = """\
version: 1
name: searched
trainable: closed-form
matryoshka_dims: [16, 64]
variants:
  plain:
  "no": {options: {effect: 0.01, note: "1e5"}, training: {epochs: 2}}
baseline: plain
seeds: 3
training: {learning_rate: 2e-5}
search:
  space: {learning_rate: {low: 1e-6, high: 1e-4, log: true}, batch_size: [16, 32]}
  trials: 4
  seeds: [100, 101]
"""


@pytest.fixture
def searched(tmp_path: Path) -> Path:
    path = tmp_path / "searched.yaml"
    path.write_text(SEARCHED)
    return path


def record(**changes: object) -> SearchedBy:
    given = {
        "study": "searched",
        "split": "validation",
        "endpoint": "validation/spearman_64",
        "seeds": [100, 101],
        "budget": {"plain": 4, "no": 4},
        "failed": {"plain": 0, "no": 1},
        "sampler_seed": 0,
        "startup": 5,
        "parallel": 1,
        "space": {"learning_rate": {"low": 1e-6, "high": 1e-4, "log": True}, "batch_size": [16, 32]},
        "chosen": {
            "plain": {"learning_rate": 1e-5, "batch_size": 16},
            "no": {"learning_rate": 2.34567e-5, "batch_size": 32},
        },
        "chosen_trial": {"plain": 3, "no": 0},
        "best": {"plain": 0.8, "no": 0.8123456789012345},
    }
    return SearchedBy.model_validate({**given, **changes})


def test_the_frozen_study_is_the_study_with_the_chosen_settings(searched: Path) -> None:
    path = frozen_path(searched)
    path.write_text(frozen_study(searched.name, read_document(searched).data, record()))
    assert path.name == "searched.tuned.yaml"
    before, after = load_study(searched), load_study(path)
    assert (after.name, after.seeds, after.baseline) == ("searched-tuned", before.seeds, before.baseline)
    assert after.search is None
    assert after.searched_by == record()
    assert after.variants["plain"] == {"training": {"learning_rate": 1e-5, "batch_size": 16}}
    assert after.variants["no"] == {
        "options": {"effect": 0.01, "note": "1e5"},
        "training": {"epochs": 2.0, "learning_rate": 2.34567e-5, "batch_size": 32},
    }
    # Declared by the variants, so that the report lists them as differences and pairs stay verified.
    assert {"learning_rate", "batch_size"} <= set(after.variant_fields)


def test_the_file_is_written_once_and_never_over_an_edited_one(searched: Path) -> None:
    study, path = load_study(searched), frozen_path(searched)
    _write(path, study, record())
    text = path.read_text()
    _write(path, study, record())
    assert path.read_text() == text
    path.write_text(text.replace("seeds: 3", "seeds: 6"))
    with pytest.raises(SweepError, match="says something else; move it away or give --output"):
        _write(path, study, record())
    assert "seeds: 6" in path.read_text()


def test_the_output_lies_beside_the_study_and_is_not_the_study(searched: Path, tmp_path: Path) -> None:
    study = load_study(searched)
    assert _checked_output(study, None) == frozen_path(searched)
    with pytest.raises(StudyError, match="relative paths start there"):
        _checked_output(study, tmp_path / "elsewhere" / "x.yaml")
    with pytest.raises(StudyError, match="it is the study itself"):
        _checked_output(study, searched)


def test_a_study_without_a_search_is_refused(searched: Path) -> None:
    searched.write_text(SEARCHED.partition("search:")[0])
    with pytest.raises(StudyError, match=r"search: \(missing\) is not valid; `sweep tune` needs this block"):
        tune(load_study(searched), InProcess())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds: 3", "seeds: [0, 101]", r"search\.seeds: \[100, 101\] is not valid; the study itself uses seed 101"),
        ("epochs: 2", "batch_size: 8", r"search\.space\.batch_size: .* variant 'no' sets it"),
        (
            "seeds: 3",
            "seeds: 3\nsettings: {grid: {warmup_ratio: [0, 0.1]}}",
            "settings: .* a search goes with a study without",
        ),
        ("trials: 4", "trials: none", r"search\.trials: 'none' is not valid; expected a whole number"),
        ("trials: 4", "trails: 4", r"search\.trails: 4 is not valid; .*did you mean 'trials'"),
    ],
)
def test_a_search_that_cannot_be_fair_is_named(searched: Path, old: str, new: str, message: str) -> None:
    assert old in SEARCHED
    searched.write_text(SEARCHED.replace(old, new))
    with pytest.raises(StudyError, match=message):
        load_study(searched)


def test_what_will_make_the_report_exploratory_is_said_before(searched: Path) -> None:
    def warnings(text: str) -> str:
        path = searched.with_name("frozen.yaml")
        path.write_text(text)
        return "\n".join(study_warnings(load_study(path)))

    fresh = frozen_study(searched.name, read_document(searched).data, record())
    assert "exploratory" not in warnings(fresh)
    assert "seed 100 was used for tuning" in warnings(fresh.replace("seeds: 3\n", "seeds: [0, 100]\n"))
    on_test = record(endpoint="test/spearman_64", split="test")
    assert "a test score" in warnings(frozen_study(searched.name, read_document(searched).data, on_test))
    unequal = record(budget={"plain": 4, "no": 8})
    assert "different budgets" in warnings(frozen_study(searched.name, read_document(searched).data, unequal))
