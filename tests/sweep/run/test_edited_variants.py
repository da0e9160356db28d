"""Change a variant, rerun, look: what is shown is what the study file means, and nothing else is lost."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from analysis import schema
from analysis.cli import main as analysis
from analysis.results.load import load
from sweep.cli import main as sweep
from sweep.errors import ChangedStudyError, SweepError
from sweep.record.tracking import Tracking
from sweep.retire import retire
from sweep.run import run_study as module
from sweep.run.launch import RunOptions
from sweep.study import Study, load_study
from tests.sweep.in_process import InProcess
from tests.sweep.studies import write

CODE = """
from trainables.synthetic import closed_form

def train(spec, report):
    plain = spec.model_copy(update={{"trainable": "closed-form", "options": {{"effect": {effect}, "cell_sd": 0.05}}}})
    return closed_form(plain, report)
"""


class Editor:
    """A study of a baseline and a variant whose code and fields are edited."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.module = folder, f"own_{folder.name.replace('-', '_')}"

    def study(self, *, effect: float = 0.05, seeds: Any = 3, **changes: Any) -> Study:
        (self.folder / f"{self.module}.py").write_text(CODE.format(effect=effect), encoding="utf-8")
        sys.modules.pop(self.module, None)
        given = {
            "version": 1,
            "name": "edited",
            "matryoshka_dims": [8, 16],
            "variants": {
                "base": {"trainable": "closed-form", "options": {"cell_sd": 0.05}},
                "mine": {"trainable": f"{self.module}:train"},
            },
            "seeds": seeds,
            "analysis": {"primary": ["test/spearman_16"]},
            **changes,
        }
        return load_study(write(self.folder, given))

    @property
    def file(self) -> str:
        return str(self.folder / "study.yaml")


@pytest.fixture
def editor(tmp_path: Path, store: Tracking, monkeypatch: pytest.MonkeyPatch) -> Iterator[Editor]:
    monkeypatch.setenv("PAIRSWEEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    editor = Editor(tmp_path)
    yield editor
    sys.modules.pop(editor.module, None)
    sys.path[:] = [one for one in sys.path if one != str(tmp_path)]


def run(study: Study, **options: Any) -> list[str]:
    backend = InProcess()
    assert module.run_study(study, backend, RunOptions(**options)) == 0
    return backend.ran


def report(editor: Editor, *options: str) -> dict[str, Any]:
    done = CliRunner().invoke(analysis, ["report", editor.file, "--format", "json", *options])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def endpoint(found: dict[str, Any]) -> dict[str, Any]:
    (comparison,) = found["comparisons"]
    (primary,) = [one for one in comparison["endpoints"] if one["primary"]]
    return {**primary, "treatment": comparison["treatment"], "baseline": comparison["baseline"]}


def notices(found: dict[str, Any]) -> str:
    return " | ".join(notice["text"] for notice in found["notices"])


def test_an_edited_loss_is_a_new_revision_and_the_report_follows_the_file(editor: Editor) -> None:
    run(editor.study(effect=0.05))
    first = endpoint(report(editor))
    edited = editor.study(effect=-0.2)
    stale = report(editor)
    assert f"it differs in module {editor.module}. Shown is mine@1" in notices(stale)
    assert endpoint(stale) == first
    with pytest.raises(
        ChangedStudyError, match=r"mine has changed \(digest of module:own_\w+\): 3 cells to train as mine@2"
    ):
        run(edited)
    assert run(edited, accept_changes=True) == ["mine-s0-default", "mine-s1-default", "mine-s2-default"]
    second = report(editor)
    assert endpoint(second)["n_pairs"] == 3
    assert endpoint(second)["mean_difference"] < -0.1 < 0.01 < first["mean_difference"]
    assert "mine was edited: shown is mine@2" in notices(second)
    assert "mine@1 (3 finished cells" in notices(second)
    # More seeds of an edited variant are no further change.
    assert run(editor.study(effect=-0.2, seeds=4)) == ["base-s3-default", "mine-s3-default"]
    # Back to the first: nothing is trained but what is missing, and the first verdict is there again.
    back = editor.study(effect=0.05)
    assert run(back) == []
    assert endpoint(report(editor)) == first
    by_name = {cell.cell for cell in load("edited").cells}
    assert by_name == {cell.cell for cell in load(editor.file).cells}


def test_two_revisions_of_a_variant_are_compared(editor: Editor) -> None:
    run(editor.study(effect=0.05))
    run(editor.study(effect=0.12), accept_changes=True)
    found = report(editor, "--variants", "mine@1,mine@2")
    assert (endpoint(found)["baseline"], endpoint(found)["treatment"]) == ("mine@1", "mine@2")
    assert endpoint(found)["n_pairs"] == 3
    assert endpoint(found)["mean_difference"] > 0.03
    assert f"mine@2 differs from mine@1 in module {editor.module}" in notices(found)
    assert endpoint(report(editor, "--variants", "base,mine@1"))["treatment"] == "mine@1"
    refused = CliRunner().invoke(analysis, ["report", editor.file, "--variants", "mine@7"])
    assert refused.exit_code == 2
    assert "--variants: 'mine@7' is not recorded; recorded: base@1, mine@1, mine@2" in refused.output


def test_a_field_that_both_variants_share_is_compared_across_revisions_too(editor: Editor) -> None:
    run(editor.study())
    run(editor.study(matryoshka_dims=[4, 8, 16]), accept_changes=True)
    now = report(editor)
    assert now["settings"] == ["default"]
    assert "base was edited" in notices(now)
    found = endpoint(report(editor, "--variants", "base@1,base@2"))
    assert (found["n_pairs"], found["mean_difference"]) == (3, 0.0)


def test_the_file_differs_in_its_plan_and_the_first_screen_says_so(editor: Editor) -> None:
    run(editor.study())
    editor.study(analysis={"primary": ["test/spearman_8"], "margin": 0.1})
    done = CliRunner().invoke(analysis, ["report", editor.file])
    shown = " ".join("".join(done.stdout.splitlines(keepends=True)[:14]).split())
    assert "analysis.primary is test/spearman_8, recorded at the first run: test/spearman_16" in shown
    assert "analysis.margin is 0.1, recorded at the first run: none; the recorded one counts." in shown


def test_a_file_that_is_broken_still_gives_the_recorded_verdict_and_says_so(editor: Editor) -> None:
    run(editor.study())
    path = Path(editor.file)
    path.write_text(path.read_text(encoding="utf-8").replace("seeds: 3", "seeds: zero"), encoding="utf-8")
    found = report(editor)
    assert endpoint(found)["n_pairs"] == 3
    assert "study.yaml cannot be read" in notices(found)
    assert "'zero' is not valid" in notices(found)


def test_the_edited_variant_can_be_seen_in_status_and_plan(editor: Editor) -> None:
    run(editor.study(effect=0.05))
    editor.study(effect=0.2)
    plan = CliRunner().invoke(sweep, ["plan", editor.file])
    assert f"mine has changed (digest of module:{editor.module}): 3 cells to train as mine@2" in plan.stderr
    run(load_study(Path(editor.file)), accept_changes=True)
    status = CliRunner().invoke(sweep, ["status", editor.file])
    assert "mine@1: 3 finished cells of another revision" in status.stderr
    assert "the study file means mine@2" in status.stderr
    assert "not described" not in status.stderr


def test_retired_cells_are_out_of_sight_and_come_back(editor: Editor, store: Tracking) -> None:
    run(editor.study(effect=0.05))
    run(editor.study(effect=0.2), accept_changes=True)
    before = report(editor)
    done = CliRunner().invoke(sweep, ["retire", editor.file, "mine@1"])
    assert done.exit_code == 0, done.output
    assert "3 runs retired" in done.stdout
    assert "would train them again" not in done.stdout
    assert "mine@1" not in notices(report(editor))
    assert endpoint(report(editor)) == endpoint(before)
    assert run(load_study(Path(editor.file))) == []
    back = CliRunner().invoke(sweep, ["retire", editor.file, "--undo"])
    assert back.stdout == "3 runs brought back\n"
    assert notices(report(editor)) == notices(before)
    assert not [run.run_id for run in store.recorded_runs("edited") if schema.TAG_RETIRED in run.tags]


def test_a_retired_cell_that_the_file_means_is_trained_again(editor: Editor) -> None:
    study = editor.study()
    run(study)
    lines = retire(study, ["mine:1"], tracking_uri=RunOptions().tracking_uri or _uri())
    assert "the study file still means 1 of their cells" in lines[1]
    assert run(study) == ["mine-s1-default"]
    with pytest.raises(SweepError, match=r"'mine@4' fits no recorded cell; .*recorded: base@1, mine@1"):
        retire(study, ["mine@4"], tracking_uri=_uri())


def _uri() -> str:
    from sweep.record.tracking_uri import default_uri

    return default_uri()
