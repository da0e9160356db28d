"""Why a report is exploratory, and where a study file that was changed after the first run is not followed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.comparing.plan_in_force import file_differences
from analysis.comparing.study import compare
from analysis.plan import AnalysisPlan
from analysis.results.parquet import read_archive, write_archive
from tests.analysis.studies import study

FAIR: dict[str, Any] = {"split": "validation", "seeds": [100], "budget": {"a": 4, "b": 4}}
DECLARED = {**AnalysisPlan(primary=("test/spearman_8",), margin=0.002).model_dump(mode="json"), "baseline": "a"}
AS_DECLARED = "name: s\nbaseline: a\nanalysis: {primary: [test/spearman_8], margin: 2.0e-3}\n"


def reasons(search: dict[str, Any], endpoint: str = "test/spearman_64") -> tuple[str, ...]:
    scores = {"a": {endpoint: [0.80, 0.81, 0.79]}, "b": {endpoint: [0.81, 0.82, 0.80]}}
    plan = AnalysisPlan(primary=(endpoint,))
    rng = np.random.default_rng(0)
    return compare(
        study(scores, search=search), plan=plan, baseline=None, allow_unverified=False, rng=rng
    ).plan.exploratory


def test_a_fair_search_leaves_the_report_as_it_is() -> None:
    assert reasons(FAIR) == ()
    assert reasons(FAIR | {"budget": 4}) == ()


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"split": "test"}, "on the test split"),
        ({"split": "train"}, "on the train split"),
        ({"split": None}, "unknown split"),
        ({"seeds": []}, "seeds on which settings were chosen are unknown"),
        ({"seeds": [2, 100]}, "seeds 2 were also used"),
        ({"budget": None}, "budgets of the search are unknown"),
        ({"budget": {"a": 4, "b": 8}}, "budgets differ: a 4, b 8"),
    ],
)
def test_any_other_search_makes_it_exploratory(change: dict[str, Any], part: str) -> None:
    found = reasons(FAIR | change)
    assert len(found) == 1
    assert part in found[0]


def test_a_comparison_on_the_split_of_the_search_is_exploratory() -> None:
    found = reasons(FAIR, "validation/spearman_64")
    assert len(found) == 1
    assert "validation/spearman_64 is not on the test split" in found[0]


def in_file(folder: Path, text: str) -> list[str]:
    path = folder / "s.yaml"
    path.write_text(text)
    return [line.removeprefix(f"{path}: ") for line in file_differences(path, DECLARED)]


def test_a_file_as_recorded_gives_no_line(tmp_path: Path) -> None:
    assert in_file(tmp_path, AS_DECLARED) == []
    assert in_file(tmp_path, AS_DECLARED.replace("baseline: a\n", "")) == []  # not named: the first variant


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (("baseline: a", "baseline: b"), "baseline is b, recorded at the first run: a; the recorded one counts"),
        (
            ("spearman_8", "pearson_8"),
            "analysis.primary is test/pearson_8, recorded at the first run: test/spearman_8; the recorded one counts",
        ),
        (
            (", margin: 2.0e-3", ""),
            "analysis.margin is none, recorded at the first run: 0.002; the recorded one counts",
        ),
    ],
)
def test_a_changed_field_is_named(tmp_path: Path, changed: tuple[str, str], line: str) -> None:
    assert in_file(tmp_path, AS_DECLARED.replace(*changed)) == [line]


@pytest.mark.parametrize(
    ("field", "start"),
    [
        ("stopping: never", "analysis.stopping: 'never' is not valid ("),
        ("margn: 1", "analysis.margn: 1 is not valid ("),
        ("alpha: 2", "analysis.alpha: 2 is not valid ("),
    ],
)
def test_a_plan_that_is_not_valid_is_named(tmp_path: Path, field: str, start: str) -> None:
    (line,) = in_file(tmp_path, f"name: s\nanalysis: {{{field}}}\n")
    assert line.startswith(start)
    assert line.endswith("; the plan recorded at the first run counts")


def test_without_a_recorded_plan_nothing_differs(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(AS_DECLARED)
    assert file_differences(path, None) == []


def test_the_default_primary_is_the_one_the_study_recorded(tmp_path: Path) -> None:
    """Not the one that the scores alone would suggest; it lasts through an export."""
    scores = {v: {e: [0.1, 0.2] for e in ("aset/pearson_8", "jsquad/ndcg10_64", "jsquad/ndcg10_8")} for v in "ab"}
    for told, expected in (((), "aset/pearson_8"), (("jsquad/ndcg10_64",), "jsquad/ndcg10_64")):
        results = dataclasses.replace(study(scores), default_primary=told)
        write_archive(results, tmp_path / "results.parquet", [])
        for found in (results, read_archive(tmp_path / "results.parquet")):
            rng = np.random.default_rng(0)
            used = compare(found, plan=None, baseline=None, allow_unverified=False, rng=rng).plan
            assert used.primary == (expected,)
            assert used.default_primary
