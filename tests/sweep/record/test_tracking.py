from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from analysis import schema
from sweep.errors import TrackingError, TrackingUnavailable
from sweep.record.recording import Metric, cell_tags, failure_recording, recording_of
from sweep.record.tracking import CellRun, Tracking
from sweep.record.tracking_uri import absolute_uri, default_uri
from tests.sweep.runs import a_cell
from trainables.errors import NonFiniteScore
from trainables.spec import DatasetRecord, Predictions, TrainResult


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Tracking:
    return Tracking(f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}", wait_s=5)


def a_result() -> TrainResult:
    return TrainResult(
        scores={"test/spearman_8": 0.1 + 0.2, "test/spearman_16": 0.5, "own": 7.0},
        predictions={"test": Predictions(labels=np.array([0.1, 0.9]), by_dim={8: np.array([0.25, 1 / 3])})},
        loss_curve=tuple((step, 1.0 / (step + 1)) for step in range(1500)),
        fingerprint={"device": "cpu"},
        times={"train_s": 2.5},
        memory_peak_mb=12.0,
        datasets=(DatasetRecord(split="test", source="toy", digest="d" * 64, rows=2),),
        notes=("3% of the tokens are unknown",),
    )


def a_new_run(store: Tracking, study: str, seed: int = 0) -> tuple[str, CellRun]:
    experiment = store.open_experiment(study)
    cell = a_cell(seed=seed)
    return experiment, store.create_cell_run(
        experiment, "parent", cell.run_name, cell_tags(study, cell), uuid.uuid4().hex
    )


def test_a_file_that_is_no_database_is_one_clear_line_at_once(tmp_path: Path) -> None:
    file = tmp_path / "mlflow.db"
    file.write_bytes(b"not a database at all " * 200)
    with pytest.raises(TrackingError) as caught:
        Tracking(f"sqlite:///{file}", wait_s=30).experiment_id("any")
    assert str(caught.value) == f"tracking store sqlite:///{file}: {file} cannot be read as an MLflow database"


@pytest.mark.parametrize("how", ["emptied", "removed"])
def test_a_database_that_is_lost_in_use_is_one_clear_line_at_once(tmp_path: Path, how: str) -> None:
    file = tmp_path / "mlflow.db"
    store = Tracking(f"sqlite:///{file}", wait_s=30)
    _, run = a_new_run(store, "lost")
    if how == "emptied":
        os.truncate(file, 0)
    else:
        file.unlink()
    began = time.monotonic()
    with pytest.raises(TrackingError) as caught:
        store.set_tags(run.run_id, {"any": "value"})
    assert time.monotonic() - began < 15
    what = "has lost its tables" if how == "emptied" else "cannot be written: read-only, or moved or removed in use"
    assert f"{file} {what}" in str(caught.value)
    assert "SQL" not in str(caught.value)


def test_everything_about_a_cell_comes_back_by_its_names(store: Tracking) -> None:
    cell = a_cell()
    _, run = a_new_run(store, "names")
    recording = recording_of(cell, a_result(), time_ms=5)
    store.record(run, recording, complete=True)
    store.record(run, recording, complete=True)  # twice: an answer may get lost
    store.close(run.run_id, "FINISHED")
    (found,) = store.recorded_runs("names")
    assert (found.status, found.complete, found.key) == ("FINISHED", True, cell.key)
    assert found.metrics["test/spearman_8"] == 0.1 + 0.2  # bit-equal
    assert found.metrics[schema.METRIC_MEMORY_PEAK] == 12.0
    assert found.metrics["time/train_s"] == 2.5
    assert found.metrics["own"] == 7.0
    assert found.tags["fingerprint.device"] == "cpu"
    assert found.fields == cell.spec.flat()
    assert json.loads(found.tags[schema.TAG_NOTES]) == ["3% of the tokens are unknown"]
    client = store._client
    by_dim = client.get_metric_history(run.run_id, "test/spearman_by_dim")
    assert {(point.step, point.value) for point in by_dim} == {(8, 0.1 + 0.2), (16, 0.5)}
    assert len(by_dim) == 2
    assert len(client.get_metric_history(run.run_id, schema.METRIC_LOSS)) == 1500
    stored = client.get_run(run.run_id)
    assert stored.data.params["options.sleep_s"] == "0.0"
    assert stored.data.params["trainable"] == "noop"
    (dataset,) = stored.inputs.dataset_inputs
    assert (dataset.dataset.name, dataset.dataset.digest) == ("toy", "d" * 36)
    table = pq.read_table(client.download_artifacts(run.run_id, schema.predictions_artifact("test")))
    assert table.column_names == ["label", "cosine_8"]
    assert table["cosine_8"].to_pylist() == [0.25, 1 / 3]


def test_the_same_dataset_recorded_by_many_at_once_costs_no_cell(store: Tracking) -> None:
    """MLflow looks a dataset up, then inserts it: whoever comes second meets its unique constraint."""
    workers = 6
    writers = [Tracking(store.uri, wait_s=20) for _ in range(workers)]
    runs = [a_new_run(store, "at once", seed)[1] for seed in range(workers)]
    recordings = [recording_of(a_cell(seed=seed), a_result(), time_ms=5) for seed in range(workers)]
    for writer in writers:
        writer.experiment_id("at once")  # opens the store, which must not be what they wait for
    start = threading.Barrier(workers)
    troubles: list[Exception] = []

    def record(number: int) -> None:
        start.wait()
        try:
            writers[number].record(runs[number], recordings[number], complete=True)
        except Exception as error:
            troubles.append(error)

    threads = [threading.Thread(target=record, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert troubles == []
    for run in runs:
        (dataset,) = store._client.get_run(run.run_id).inputs.dataset_inputs
        assert dataset.dataset.digest == "d" * 36


def test_a_creation_whose_answer_was_lost_is_found_again(store: Tracking, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = store.open_experiment("lost answer")
    create = store._client.create_run
    answers = iter([True, False])

    def losing(*args: object, **kwargs: object) -> object:
        run = create(*args, **kwargs)
        if next(answers):
            raise ConnectionError("connection reset by peer")
        return run

    monkeypatch.setattr(store._client, "create_run", losing)
    cell = a_cell()
    run = store.create_cell_run(experiment, "parent", cell.run_name, cell_tags("lost answer", cell), uuid.uuid4().hex)
    assert [one.run_id for one in store.recorded_runs("lost answer")] == [run.run_id]


def test_a_locked_database_is_waited_for_and_given_up_at_the_bound(store: Tracking, tmp_path: Path) -> None:
    file = tmp_path / "locked.db"
    locked = Tracking(f"sqlite:///{file}", wait_s=0.5)
    _, run = a_new_run(locked, "locked")
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(3.0, lambda: other.execute("ROLLBACK"))
    release.start()
    locked.wait_s = 30.0
    began = time.monotonic()
    locked.set_tags(run.run_id, {"t": "1"})
    assert time.monotonic() - began >= 2.5
    release.join()
    other.close()
    assert locked.run(run.run_id).tags["t"] == "1"


def test_a_server_that_is_not_there_is_given_up_at_the_bound() -> None:
    away = Tracking("http://127.0.0.1:9", wait_s=0.3)
    with pytest.raises(TrackingUnavailable, match="not back within 0 s"):
        away.recorded_runs("any")


def test_a_request_that_is_refused_is_not_repeated(store: Tracking) -> None:
    began = time.monotonic()
    with pytest.raises(TrackingError, match="not found"):
        store.run("0" * 32)
    assert time.monotonic() - began < 4


def test_asking_an_absent_database_creates_none(tmp_path: Path) -> None:
    file = tmp_path / "none.db"
    assert Tracking(f"sqlite:///{file}").recorded_runs("any") == []
    assert not file.exists()


def test_a_failure_keeps_its_reason_in_one_line_and_its_story_as_artifact(store: Tracking) -> None:
    _, run = a_new_run(store, "failure")
    recording = failure_recording(a_cell(), reason="NonFiniteLoss: nan", kind="cell", detail="Traceback\n  line")
    store.record(run, recording, complete=False)
    store.close(run.run_id, "FAILED")
    (found,) = store.recorded_runs("failure")
    assert (found.status, found.complete) == ("FAILED", False)
    assert found.tags[schema.TAG_FAILURE] == "NonFiniteLoss: nan"
    assert found.tags[schema.TAG_FAILURE_KIND] == schema.FAILURE_CELL
    with open(store._client.download_artifacts(run.run_id, "failure.txt"), encoding="utf-8") as file:  # noqa: PTH123
        assert file.read() == "Traceback\n  line"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_score_that_is_no_number_is_never_recorded(value: float) -> None:
    with pytest.raises(NonFiniteScore, match="test/spearman_8 is"):
        recording_of(a_cell(), TrainResult(scores={"test/spearman_8": value}), time_ms=0)


def test_a_loss_that_is_no_number_leaves_a_gap_in_the_curve_only() -> None:
    result = replace(a_result(), loss_curve=((1, 1.0), (2, float("nan"))))
    curve = [one for one in recording_of(a_cell(), result, time_ms=0).metrics if one.name == schema.METRIC_LOSS]
    assert curve == [Metric(name=schema.METRIC_LOSS, value=1.0, step=1, time_ms=0)]


def test_uris(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert default_uri() == f"sqlite:///{tmp_path}/mlflow.db"
    assert absolute_uri("sqlite:///mlflow.db") == f"sqlite:///{tmp_path}/mlflow.db"
    assert absolute_uri("http://host:5000/") == "http://host:5000"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://host:5000")
    assert default_uri() == "http://host:5000"


@pytest.mark.parametrize("uri", ["./mlruns", "file:///tmp/mlruns", "", "ftp://x"])
def test_a_store_that_cannot_be_used_is_named(uri: str) -> None:
    with pytest.raises(TrackingError, match=r"is not valid; use http://HOST:PORT"):
        absolute_uri(uri)


def test_processes_that_make_a_new_database_at_the_same_moment_all_get_through(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    code = (
        "import sys; from sweep.record.tracking import Tracking; "
        "Tracking(sys.argv[1], wait_s=60).open_experiment(sys.argv[2])"
    )
    names = ["first", "second", "third"]
    started = [
        subprocess.Popen([sys.executable, "-c", code, uri, name], stderr=subprocess.PIPE, text=True) for name in names
    ]
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    store = Tracking(uri, wait_s=5)
    assert all(store.experiment_id(name) for name in names)
