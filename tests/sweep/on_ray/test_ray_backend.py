"""What only a real Ray shows: placement, lost workers, reused processes; and that all kinds of runs go through it.

This Ray is told of two GPUs.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis import schema
from sweep.errors import PreflightError
from sweep.on_ray.ray_backend import RayBackend
from sweep.record.retry import Backoff
from sweep.record.tracking import Tracking
from sweep.run import cell_queue
from sweep.run import run_study as module
from sweep.run.launch import RunOptions
from sweep.study import Study, load_study
from sweep.tune.tune import tune
from tests.sweep.studies import two_seeds

STUDIES = Path(__file__).parents[3] / "studies"

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
        fingerprint={"data": "d"},
        scores={"test/spearman_8": 0.5, "own/at_once_1": at_once, "own/process_1": os.getpid()},
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


def run_study(study: Study, **options: Any) -> int:
    return module.run_study(study, RayBackend(), RunOptions(**options))


def where_am_i(folder: Path, *, gpus: float) -> Study:
    """Four cells that wait for each other and note what they see."""
    (folder / "where_am_i.py").write_text(OWN_TRAINABLE, encoding="utf-8")
    marks = folder / "marks"
    marks.mkdir()
    return two_seeds(
        folder,
        trainable="where_am_i:where",
        variants={name: {"options": {"folder": str(marks), "variant": name}} for name in "ab"},
        resources={"cpus": 1, "gpus": gpus},
    )


def test_a_killed_training_is_repeated_and_given_up_after_the_retries(
    tmp_path: Path, store: Tracking, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cell_queue, "RETRY_BACKOFF", Backoff(first_s=0.0, most_s=0.0))
    planted = {"fail_on_seeds": [0], "fail": "kill"}
    assert run_study(two_seeds(tmp_path, seeds=1, variants={"a": {}, "b": {"options": planted}}), retries=1) == 1
    runs = store.recorded_runs(tmp_path.name)
    assert [run.label[0] for run in runs if run.status == "FINISHED"] == ["a"]
    ended = [(run.attempt, run.status) for run in runs if run.label[0] == "b"]
    assert ended == [(1, "KILLED"), (2, "FAILED")]
    assert {run.tags[schema.TAG_FAILURE_KIND] for run in runs if run.label[0] == "b"} == {"infrastructure"}
    assert "the training was killed by SIGKILL: out of memory? (peak memory " in capsys.readouterr().err


def test_a_training_that_ends_its_process_fails_by_itself_at_once(tmp_path: Path, store: Tracking) -> None:
    planted = {"fail_on_seeds": [0], "fail": "exit"}
    assert run_study(two_seeds(tmp_path, seeds=1, variants={"a": {}, "b": {"options": planted}})) == 1
    runs = store.recorded_runs(tmp_path.name)
    assert [(run.label[0], run.attempt, run.status) for run in runs if run.status != "FINISHED"] == [("b", 1, "FAILED")]
    [failed] = [run for run in runs if run.label[0] == "b"]
    assert failed.tags[schema.TAG_FAILURE] == "the training ended with exit status 1"
    assert failed.tags[schema.TAG_FAILURE_KIND] == schema.FAILURE_CELL


@pytest.mark.endtoend
def test_without_a_gpu_a_cell_sees_none_of_the_machine_s(tmp_path: Path, store: Tracking) -> None:
    assert run_study(where_am_i(tmp_path, gpus=0)) == 0
    notes = [json.loads(run.tags[schema.TAG_NOTES]) for run in store.recorded_runs(tmp_path.name)]
    assert notes == [["", "1"]] * 4


@pytest.mark.endtoend
def test_half_a_gpu_a_cell_runs_four_at_once_and_each_sees_one_device(tmp_path: Path, store: Tracking) -> None:
    assert run_study(where_am_i(tmp_path, gpus=0.5)) == 0
    runs = store.recorded_runs(tmp_path.name)
    assert {run.metrics["own/at_once_1"] for run in runs} == {4}
    assert len({run.metrics["own/process_1"] for run in runs}) == 4
    devices = [json.loads(run.tags[schema.TAG_NOTES])[0] for run in runs]
    assert Counter(devices) == {"0": 2, "1": 2}
    assert {json.loads(run.tags[schema.TAG_NOTES])[1] for run in runs} == {"1"}


def test_a_cell_that_no_machine_can_hold_is_refused_before_it_waits(tmp_path: Path, store: Tracking) -> None:
    began = time.monotonic()
    with pytest.raises(PreflightError, match=r"resources.cpus: 9 is not valid; expected at most 4"):
        run_study(two_seeds(tmp_path, resources={"cpus": 9}))
    assert time.monotonic() - began < 30
    assert store.recorded_runs(tmp_path.name) == []


def test_processes_are_reused_and_scores_do_not_depend_on_it(tmp_path: Path, store: Tracking) -> None:
    many = tmp_path / "many"
    alone = tmp_path / "alone"
    for folder in (many, alone):
        folder.mkdir()
    options = {"trainable": "closed-form", "variants": {"a": {}, "b": {"options": {"effect": 0.1}}}}
    assert run_study(two_seeds(many, seeds=5, **options)) == 0
    assert run_study(two_seeds(alone, seeds=[4, 1], **options), max_concurrent=1) == 0
    scores = {run.label: run.metrics["test/spearman_8"] for run in store.recorded_runs("many")}
    again = {run.label: run.metrics["test/spearman_8"] for run in store.recorded_runs("alone")}
    assert len(again) == 4
    assert again == {label: scores[label] for label in again}


def test_a_sequential_study(tmp_path: Path, store: Tracking, capsys: pytest.CaptureFixture[str]) -> None:
    study = load_study(shutil.copy(STUDIES / "closed_form_sequential.yaml", tmp_path))
    assert run_study(study, max_concurrent=1) == 0
    assert "stopped: decided after 7 seeds" in capsys.readouterr().err
    assert Counter(run.status for run in store.recorded_runs(study.name)) == {"FINISHED": 14}


def test_a_search(tmp_path: Path, store: Tracking) -> None:
    search = {"space": {"batch_size": [16, 32]}, "trials": 2, "seeds": [100], "endpoint": "test/spearman_8"}
    study = two_seeds(tmp_path, search=search, resources={"cpus": 1})
    assert tune(study, RayBackend(), max_concurrent=2) == 0
    runs = store.recorded_runs(study.name, schema.KIND_SEARCH)
    assert Counter((run.label[0], run.status) for run in runs) == {("a", "FINISHED"): 2, ("b", "FINISHED"): 2}
    assert (tmp_path / "study.tuned.yaml").is_file()
