"""Whole launches on a real Ray that is told of two GPUs."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis import schema
from analysis.report.report import Question, report_on_study
from sweep.errors import ChangedStudyError, PreflightError, SweepError
from sweep.record.ledger import RecordedRun
from sweep.record.tracking import Tracking
from sweep.run.run_study import run_study
from sweep.study import Study, load_study

OWN_TRAINABLE = """
import json, os, time
from pathlib import Path
from trainables.spec import TrainResult

def where(spec, report):
    began = time.time()
    deadline = began + 60
    mark = Path(spec.options["folder"]) / f"{spec.options['variant']}-{spec.seed}"
    mark.touch()
    while len(list(mark.parent.iterdir())) < 4 and time.time() < deadline:
        time.sleep(0.05)
    at_once = len(list(mark.parent.iterdir()))
    return TrainResult(
        scores={"test/spearman_8": 0.5, "own/at_once": at_once, "own/process": os.getpid()},
        notes=(os.environ.get("CUDA_VISIBLE_DEVICES", "none"), os.environ["OMP_NUM_THREADS"]),
    )
"""


@pytest.fixture(scope="module", autouse=True)
def _ray() -> Iterator[None]:
    import ray

    ray.init(
        address="local",
        num_cpus=4,
        num_gpus=2,
        include_dashboard=False,
        object_store_memory=100 * 1024 * 1024,
        log_to_driver=False,
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Tracking:
    """One database for all studies here; making one takes seconds."""
    return Tracking(f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}")


@pytest.fixture(autouse=True)
def _own_places(store: Tracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEP_SPOOL_DIR", str(tmp_path / "spool"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.uri)


def a_study(folder: Path, **changes: Any) -> Study:
    given = {
        "version": 1,
        "name": folder.name,
        "trainable": "noop",
        "matryoshka_dims": [8],
        "variants": {"a": {}, "b": {"options": {"sleep_s": 0.01}}},
        "baseline": "a",
        "seeds": 2,
        "resources": {"cpus": 2},
        **changes,
    }
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(given, sort_keys=False), encoding="utf-8")
    return load_study(path)


@pytest.fixture
def recorded(store: Tracking, tmp_path: Path) -> Callable[[], list[RecordedRun]]:
    return lambda: store.recorded_runs(tmp_path.name)


def names(runs: list[RecordedRun], status: str) -> list[str]:
    return sorted(f"{run.label[0]}{run.label[1]}" for run in runs if run.status == status)


def test_the_same_command_runs_only_what_is_missing(
    tmp_path: Path, store: Tracking, recorded: Callable[[], list[RecordedRun]], capsys: pytest.CaptureFixture[str]
) -> None:
    study = a_study(tmp_path)
    assert run_study(study) == 0
    first = recorded()
    assert names(first, "FINISHED") == ["a0", "a1", "b0", "b1"]
    assert len(first) == 4
    assert run_study(study) == 0
    assert recorded() == first
    assert run_study(study, seeds=3) == 0
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
    assert run_study(a_study(tmp_path, seeds=1, analysis={"primary": "test/spearman_8", "alpha": 0.05})) == 0
    again = a_study(tmp_path, seeds=[0, 1], analysis={"primary": "test/spearman_8", "alpha": 0.2})
    assert run_study(again, max_concurrent=1) == 0
    parent = store.study_run(tmp_path.name)
    assert parent is not None
    path = store._client.download_artifacts(parent.run_id, schema.PLAN_ARTIFACT)
    declared = json.loads(Path(path).read_text(encoding="utf-8"))
    assert declared["plan"]["alpha"] == 0.05
    assert (declared["baseline"], declared["variants"]) == ("a", ["a", "b"])


def test_a_cell_that_fails_by_itself_is_named_and_the_others_go_on(
    tmp_path: Path, recorded: Callable[[], list[RecordedRun]], capsys: pytest.CaptureFixture[str]
) -> None:
    planted = {"fail_on_seeds": [1], "fail": "non_finite_loss"}
    study = a_study(tmp_path, variants={"a": {}, "b": {"options": planted}})
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


def test_a_worker_that_dies_is_replaced_and_given_up_after_the_retries(
    tmp_path: Path, recorded: Callable[[], list[RecordedRun]], capsys: pytest.CaptureFixture[str]
) -> None:
    planted = {"fail_on_seeds": [0], "fail": "exit"}
    assert run_study(a_study(tmp_path, seeds=1, variants={"a": {}, "b": {"options": planted}}), retries=1) == 1
    runs = recorded()
    assert names(runs, "FINISHED") == ["a0"]
    ended = [(run.attempt, run.status) for run in runs if run.label[0] == "b"]
    assert ended == [(1, "KILLED"), (2, "FAILED")]
    assert {run.tags[schema.TAG_FAILURE_KIND] for run in runs if run.label[0] == "b"} == {"infrastructure"}
    assert "its worker died" in capsys.readouterr().err


def test_a_changed_study_is_extended_only_when_that_is_accepted(
    tmp_path: Path, recorded: Callable[[], list[RecordedRun]]
) -> None:
    assert run_study(a_study(tmp_path, seeds=1)) == 0
    changed = a_study(tmp_path, seeds=1, variants={"a": {}, "b": {"options": {"sleep_s": 0.02}}})
    with pytest.raises(ChangedStudyError, match=r"changed: options.sleep_s \(1 cells\)"):
        run_study(changed)
    assert len(recorded()) == 2
    assert run_study(changed, accept_changes=True, max_concurrent=1) == 0
    assert len(recorded()) == 3


def test_a_renamed_variant_is_no_other_cell_and_everything_reads_under_the_new_name(
    tmp_path: Path,
    recorded: Callable[[], list[RecordedRun]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PAIRSWEEP_CACHE", str(tmp_path / "cache"))
    plain, better, best = ({"options": {"effect": effect}} for effect in (0.0, 0.05, 0.1))

    def told(seeds: int, baseline: str, **variants: Any) -> tuple[list[str], str | None, list[tuple[str, str, int]]]:
        """Variants, baseline and pairs of the report after a run with these names."""
        study = a_study(tmp_path, trainable="closed-form", variants=variants, baseline=baseline, seeds=seeds)
        assert run_study(study, max_concurrent=2) == 0
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


def test_a_rerun_on_request_supersedes_the_old_run(tmp_path: Path, recorded: Callable[[], list[RecordedRun]]) -> None:
    study = a_study(tmp_path, seeds=1)
    assert run_study(study) == 0
    (old,) = [run for run in recorded() if run.label[0] == "a"]
    assert run_study(study, rerun=["a:0"], max_concurrent=1) == 0
    runs = {run.run_id: run for run in recorded() if run.label[0] == "a"}
    (new,) = [run for run in runs.values() if run.status == "FINISHED"]
    assert runs[old.run_id].status == "KILLED"
    assert runs[old.run_id].tags[schema.TAG_SUPERSEDED_BY] == new.run_id
    assert new.metrics == {**old.metrics, **{k: v for k, v in new.metrics.items() if k.startswith("time/")}}
    with pytest.raises(SweepError, match="'c:0' fits no cell"):
        run_study(study, rerun=["c:0"])


def test_half_a_gpu_a_cell_runs_four_at_once_and_each_sees_one_device(
    tmp_path: Path, recorded: Callable[[], list[RecordedRun]]
) -> None:
    (tmp_path / "where_am_i.py").write_text(OWN_TRAINABLE, encoding="utf-8")
    marks = tmp_path / "marks"
    marks.mkdir()
    study = a_study(
        tmp_path,
        trainable="where_am_i:where",
        variants={name: {"options": {"folder": str(marks), "variant": name}} for name in "ab"},
        resources={"cpus": 1, "gpus": 0.5},
    )
    assert run_study(study) == 0
    runs = recorded()
    assert {run.metrics["own/at_once"] for run in runs} == {4}
    assert len({run.metrics["own/process"] for run in runs}) == 4
    devices = [json.loads(run.tags[schema.TAG_NOTES])[0] for run in runs]
    assert Counter(devices) == {"0": 2, "1": 2}
    assert {json.loads(run.tags[schema.TAG_NOTES])[1] for run in runs} == {"1"}


def test_a_cell_that_no_machine_can_hold_is_refused_before_it_waits(
    tmp_path: Path, recorded: Callable[[], list[RecordedRun]]
) -> None:
    began = time.monotonic()
    with pytest.raises(PreflightError, match=r"resources.gpus: 3 is not valid; expected at most 2"):
        run_study(a_study(tmp_path, resources={"cpus": 1, "gpus": 3}))
    assert time.monotonic() - began < 30
    assert recorded() == []


def test_processes_are_reused_and_scores_do_not_depend_on_it(tmp_path: Path, store: Tracking) -> None:
    many = tmp_path / "many"
    alone = tmp_path / "alone"
    for folder in (many, alone):
        folder.mkdir()
    options = {"trainable": "closed-form", "variants": {"a": {}, "b": {"options": {"effect": 0.1}}}}
    assert run_study(a_study(many, seeds=5, **options)) == 0
    assert run_study(a_study(alone, seeds=[4, 1], **options), max_concurrent=1) == 0
    scores = {run.label: run.metrics["test/spearman_8"] for run in store.recorded_runs("many")}
    again = {run.label: run.metrics["test/spearman_8"] for run in store.recorded_runs("alone")}
    assert len(again) == 4
    assert again == {label: scores[label] for label in again}
