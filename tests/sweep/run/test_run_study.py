"""Whole launches with a real store and without Ray: what runs, what is recorded, what the next launch does."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from analysis import schema
from analysis.report.report import Question, report_on_study
from sweep.console import EXIT_INTERRUPTED
from sweep.errors import ChangedStudyError, PreflightError, SweepError
from sweep.record.ledger import RecordedRun
from sweep.record.retry import Backoff
from sweep.record.tracking import Tracking
from sweep.run import cell_queue
from sweep.run import run_study as module
from sweep.run.launch import RunOptions
from sweep.study import Study
from tests.sweep.in_process import InProcess
from tests.sweep.studies import two_seeds


def run_study(study: Study, backend: InProcess | None = None, **options: Any) -> int:
    return module.run_study(study, backend or InProcess(), RunOptions(**options))


class Recorded:
    """The recorded runs of the test's study."""

    def __init__(self, store: Tracking, study: str) -> None:
        self._store, self._study = store, study

    def __call__(self) -> list[RecordedRun]:
        return self._store.recorded_runs(self._study)


@pytest.fixture
def recorded(store: Tracking, tmp_path: Path) -> Recorded:
    return Recorded(store, tmp_path.name)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_queue, "RETRY_BACKOFF", Backoff(first_s=0.0, most_s=0.0))


def names(runs: list[RecordedRun], status: str) -> list[str]:
    return sorted(f"{run.label[0]}{run.label[1]}" for run in runs if run.status == status)


def test_the_same_command_runs_only_what_is_missing(
    tmp_path: Path, store: Tracking, recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    study = two_seeds(tmp_path)
    assert run_study(study) == 0
    first = recorded()
    assert names(first, "FINISHED") == ["a0", "a1", "b0", "b1"]
    assert len(first) == 4
    assert run_study(study) == 0
    assert recorded() == first
    assert run_study(study.with_seeds(3)) == 0
    runs = recorded()
    assert names(runs, "FINISHED") == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert len(runs) == 6
    assert {run.tags[schema.TAG_ATTEMPT] for run in runs} == {"1"}
    parent = store.study_run(tmp_path.name)
    assert parent is not None
    assert parent.status == "FINISHED"
    assert {run.tags["mlflow.parentRunId"] for run in runs} == {parent.run_id}
    seeds = [json.loads(parent.tags[name])["seeds"] for name in sorted(parent.tags) if "history.seeds" in name]
    assert seeds == [[0, 1], [0, 1, 2]]
    assert "6 of 6 cells finished" in capsys.readouterr().err


def test_the_plan_of_the_first_run_stays(tmp_path: Path, store: Tracking) -> None:
    assert run_study(two_seeds(tmp_path, seeds=1, analysis={"primary": "test/spearman_8", "alpha": 0.05})) == 0
    again = two_seeds(tmp_path, seeds=[0, 1], analysis={"primary": "test/spearman_8", "alpha": 0.2})
    assert run_study(again) == 0
    parent = store.study_run(tmp_path.name)
    assert parent is not None
    path = store._client.download_artifacts(parent.run_id, schema.PLAN_ARTIFACT)
    declared = json.loads(Path(path).read_text(encoding="utf-8"))
    assert declared["plan"]["alpha"] == 0.05
    assert (declared["baseline"], declared["variants"]) == ("a", ["a", "b"])


def test_a_cell_that_fails_by_itself_is_named_and_the_others_go_on(
    tmp_path: Path, recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    planted = {"fail_on_seeds": [1], "fail": "non_finite_loss"}
    study = two_seeds(tmp_path, variants={"a": {}, "b": {"options": planted}})
    assert run_study(study) == 1
    runs = recorded()
    assert names(runs, "FINISHED") == ["a0", "a1", "b0"]
    (failed,) = [run for run in runs if run.status == "FAILED"]
    assert failed.tags[schema.TAG_FAILURE] == "NonFiniteLoss: training loss is nan at step 1 (planted)"
    assert failed.tags[schema.TAG_FAILURE_KIND] == schema.FAILURE_CELL
    shown = capsys.readouterr().err
    assert "failed: b-s1-default: NonFiniteLoss" in shown
    assert "Traceback" not in shown
    assert run_study(study) == 1  # not tried again
    assert len(recorded()) == 4


def test_a_changed_study_is_extended_only_when_that_is_accepted(tmp_path: Path, recorded: Recorded) -> None:
    assert run_study(two_seeds(tmp_path, seeds=1)) == 0
    changed = two_seeds(tmp_path, seeds=1, variants={"a": {}, "b": {"options": {"sleep_s": 0.02}}})
    with pytest.raises(ChangedStudyError, match=r"b has changed \(options.sleep_s\): 1 cell to train as b@2"):
        run_study(changed)
    assert len(recorded()) == 2
    assert run_study(changed, accept_changes=True) == 0
    assert len(recorded()) == 3


def test_a_renamed_variant_is_no_other_cell_and_everything_reads_under_the_new_name(
    tmp_path: Path,
    recorded: Recorded,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PAIRSWEEP_CACHE", str(tmp_path / "cache"))
    plain, better, best = ({"options": {"effect": effect}} for effect in (0.0, 0.05, 0.1))

    def told(seeds: int, baseline: str, **variants: Any) -> tuple[list[str], str | None, list[tuple[str, str, int]]]:
        """Variants, baseline and pairs of the report after a run with these names."""
        study = two_seeds(tmp_path, trainable="closed-form", variants=variants, baseline=baseline, seeds=seeds)
        assert run_study(study) == 0
        found = report_on_study(study.name, Question()).findings
        assert not any("baseline" in reason for reason in found.plan.exploratory)
        pairs = [(one.treatment, one.baseline, one.endpoints[0].n_pairs) for one in found.comparisons]
        return [count.variant for count in found.cells], found.plan.baseline, pairs

    assert told(2, "a", a=plain, b=better) == (["a", "b"], "a", [("b", "a", 2)])
    first = recorded()
    assert told(2, "aa", b=better, aa=plain) == (["aa", "b"], "aa", [("b", "aa", 2)])
    assert "a is now called aa: 2 recorded cells renamed, none trained again" in capsys.readouterr().err
    assert {run.run_id for run in recorded()} == {run.run_id for run in first}
    assert names(recorded(), "FINISHED") == ["aa0", "aa1", "b0", "b1"]
    assert {run.tags["mlflow.runName"] for run in recorded() if run.label[0] == "aa"} == {
        "aa-s0-default", "aa-s1-default",
    }  # fmt: skip
    # Two names exchanged, and a name given again to another variant: the baseline stays what it was.
    assert told(3, "b", aa=better, b=plain) == (["b", "aa"], "b", [("aa", "b", 3)])
    assert told(2, "base", aa=better, base=plain, a=best) == (
        ["base", "aa", "a"], "base", [("aa", "base", 3), ("a", "base", 2)],
    )  # fmt: skip
    assert len(recorded()) == 8
    assert {run.label[0] for run in recorded()} == {"base", "aa", "a"}


def test_a_rerun_on_request_supersedes_the_old_run(tmp_path: Path, recorded: Recorded) -> None:
    study = two_seeds(tmp_path, seeds=1)
    assert run_study(study) == 0
    (old,) = [run for run in recorded() if run.label[0] == "a"]
    assert run_study(study, rerun=["a:0"]) == 0
    runs = {run.run_id: run for run in recorded() if run.label[0] == "a"}
    (new,) = [run for run in runs.values() if run.status == "FINISHED"]
    assert runs[old.run_id].status == "KILLED"
    assert runs[old.run_id].tags[schema.TAG_SUPERSEDED_BY] == new.run_id
    assert runs[old.run_id].end_ms == old.end_ms
    assert new.metrics == {**old.metrics, **{k: v for k, v in new.metrics.items() if k.startswith("time/")}}
    with pytest.raises(SweepError, match="'c:0' fits no cell"):
        run_study(study, rerun=["c:0"])


def test_a_lost_attempt_is_repeated_and_given_up_after_the_retries(
    tmp_path: Path, recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = InProcess(dies=lambda work: work.cell.variant == "b")
    assert run_study(two_seeds(tmp_path, seeds=1), backend, retries=1) == 1
    runs = recorded()
    assert names(runs, "FINISHED") == ["a0"]
    ended = [(run.attempt, run.status) for run in runs if run.label[0] == "b"]
    assert ended == [(1, "KILLED"), (2, "FAILED")]
    assert {run.tags[schema.TAG_FAILURE_KIND] for run in runs if run.label[0] == "b"} == {"infrastructure"}
    assert "its worker died" in capsys.readouterr().err


def test_what_the_infrastructure_lost_is_trained_by_the_next_launch(
    tmp_path: Path, recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    study = two_seeds(tmp_path, seeds=1)
    assert run_study(study, InProcess(dies=lambda work: work.cell.variant == "b"), retries=0) == 1
    assert "the same command continues with what is missing" in capsys.readouterr().err
    again = InProcess()
    assert run_study(study, again) == 0
    assert again.ran == ["b-s0-default"]
    assert [(run.attempt, run.status) for run in recorded() if run.label[0] == "b"] == [(1, "FAILED"), (2, "FINISHED")]


def test_a_retry_knows_the_run_that_it_supersedes(tmp_path: Path, recorded: Recorded) -> None:
    backend = InProcess(dies=lambda work: work.cell.variant == "b" and work.attempt == 1)
    assert run_study(two_seeds(tmp_path, seeds=1), backend) == 0
    lost, done = sorted((run for run in recorded() if run.label[0] == "b"), key=lambda run: run.attempt)
    assert (lost.status, done.status) == ("KILLED", "FINISHED")
    assert lost.tags[schema.TAG_SUPERSEDED_BY] == done.run_id


def test_stopped_in_the_middle_of_a_cell_and_continued(
    tmp_path: Path, store: Tracking, recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(work: Any, status: Any) -> None:
        if work.cell.run_name == "a-s1-default" and status.phase == "train":
            os.kill(os.getpid(), signal.SIGINT)

    study = two_seeds(tmp_path)
    assert run_study(study, InProcess(on_told=interrupt)) == EXIT_INTERRUPTED
    assert "stopped; the same command continues where it stood" in capsys.readouterr().err
    assert names(recorded(), "FINISHED") == ["a0", "b0"]
    assert names(recorded(), "KILLED") == ["a1"]
    parent = store.study_run(study.name)
    assert parent is not None
    assert parent.status == "KILLED"
    again = InProcess()
    assert run_study(study, again) == 0
    assert again.ran == ["a-s1-default", "b-s1-default"]


def test_no_machines_are_started_where_nothing_is_missing(tmp_path: Path, store: Tracking) -> None:
    study, backend = two_seeds(tmp_path, seeds=1), InProcess()
    assert run_study(study, backend) == 0
    assert run_study(study, backend) == 0
    assert backend.sessions == 1


def test_machines_that_cannot_hold_a_cell_are_refused_before_anything_is_recorded(
    tmp_path: Path, recorded: Recorded
) -> None:
    with pytest.raises(PreflightError, match=r"resources.cpus: 9 is not valid; expected at most 4"):
        run_study(two_seeds(tmp_path, resources={"cpus": 9}))
    assert recorded() == []
