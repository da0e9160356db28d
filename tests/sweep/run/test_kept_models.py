"""`keep: {model: last}`: what is kept is what was evaluated, and keeping it changes nothing else. Real trainings."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from mlflow.tracking import MlflowClient
from sentence_transformers import SentenceTransformer

from analysis import schema
from sweep.errors import TrackingUnavailable
from sweep.files import scratch_folder
from sweep.record.ledger import RecordedRun
from sweep.record.recording import NO_MODEL_GIVEN, NO_MODEL_STORED
from sweep.record.tracking import Tracking
from sweep.run.launch import RunOptions
from sweep.run.run_study import run_study
from sweep.status import study_status
from sweep.study import Study, load_study
from sweep.study.cells import expand
from tests.mlflow_server import mlflow_server
from tests.sweep.in_process import InProcess
from tests.sweep.studies import toy, two_seeds, write
from trainables.data.load import load_split
from trainables.digests import resolve_digests
from trainables.sentence_pair.evaluation import cosines_by_dim

KEEP = {"model": "last"}


def a_study(folder: Path, *, model: dict[str, Any] | None = None, **changes: Any) -> Study:
    given = toy(
        name="kept",
        model={"name": "toy", **(model or {})},
        data={"name": "toy", "limit": {"train": 64, "validation": 20, "test": 40}},
        matryoshka_dims=[16, 64],
        training={"epochs": 1, "batch_size": 32, "learning_rate": 1e-3},
        seeds=1,
        **changes,
    )
    return load_study(write(folder, given))


def launched(study: Study, uri: str) -> list[RecordedRun]:
    assert run_study(study, InProcess(), RunOptions(tracking_uri=uri)) == 0
    assert not list(scratch_folder(study.name, uri).glob("model-*"))
    return [run for run in Tracking(uri).recorded_runs(study.name) if run.status == "FINISHED"]


def notes(run: RecordedRun) -> list[str]:
    found: list[str] = json.loads(run.tags.get(schema.TAG_NOTES, "[]"))
    return found


@pytest.fixture
def served(tmp_path: Path, store: Tracking, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with mlflow_server(tmp_path / "mlflow.db", tmp_path / "artifacts") as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        yield address


@pytest.fixture
def uri(request: pytest.FixtureRequest, store: Tracking) -> str:
    return str(request.getfixturevalue("served")) if request.param == "server" else store.uri


@pytest.mark.parametrize(
    ("uri", "prompt"), [("sqlite", None), ("sqlite", "the "), ("server", "the ")], indirect=["uri"]
)
def test_a_kept_model_gives_the_recorded_predictions(
    tmp_path: Path, uri: str, prompt: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    study = a_study(tmp_path, model={"prompt": prompt}, keep=KEEP)
    runs = launched(study, uri)
    assert len(runs) == 2
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    client = MlflowClient()
    for run in runs:
        assert run.tags[schema.TAG_MODEL] == "last"
        assert not [note for note in notes(run) if "model" in note]
        artifact = f"runs:/{run.run_id}/model"
        folder = Path(client.download_artifacts(run.run_id, "model", str(tmp_path)))
        loaded = mlflow.sentence_transformers.load_model(artifact)
        plain = SentenceTransformer(str(folder / "model.sentence_transformer"), device="cpu")
        for split in ("validation", "test"):
            table = pq.read_table(client.download_artifacts(run.run_id, schema.predictions_artifact(split)))
            pairs = load_split(study.spec("a", "default", 0), split)
            for model in (loaded, plain):
                columns = [model.encode(list(one)) for one in (pairs.sentence1, pairs.sentence2)]
                for dim, cosines in cosines_by_dim(columns[0], columns[1], [16, 64]).items():
                    recorded = table[schema.prediction_column(dim)].to_numpy()
                    assert np.abs(cosines - recorded).max() <= 1e-6
        version = mlflow.register_model(artifact, run.label[0])
        again = mlflow.sentence_transformers.load_model(f"models:/{version.name}/{version.version}")
        assert np.array_equal(again.encode("one sentence"), loaded.encode("one sentence"))


def test_keeping_changes_no_score_and_no_key(tmp_path: Path, store: Tracking) -> None:
    """And what was trained without stays finished."""
    plain = a_study(tmp_path)
    without = launched(plain, store.uri)
    keeping = a_study(tmp_path, keep=KEEP)
    assert [cell.key for cell in expand(keeping, resolve_digests)] == [
        cell.key for cell in expand(plain, resolve_digests)
    ]
    found = study_status(keeping, store.uri)
    assert found.disk_use is None
    assert "keep: 2 finished cells have no kept model; `sweep run --rerun CELL` trains one again" in found.warnings
    assert launched(keeping, store.uri) == without
    assert not any(schema.TAG_MODEL in run.tags for run in without)

    elsewhere = f"sqlite:///{tmp_path / 'other.db'}"
    assert study_status(keeping, elsewhere).disk_use == "keep: about 0.7 MiB for 2 cells"
    kept = launched(keeping, elsewhere)
    assert not [line for line in study_status(keeping, elsewhere).warnings if line.startswith("keep")]
    assert {run.key: scores(run) for run in kept} == {run.key: scores(run) for run in without}


def scores(run: RecordedRun) -> dict[str, float]:
    return {name: value for name, value in run.metrics.items() if name.startswith(("test/", "validation/"))}


def test_a_model_is_kept_in_the_number_format_and_length_it_was_trained_with(tmp_path: Path, store: Tracking) -> None:
    study = a_study(tmp_path, model={"dtype": "bfloat16", "max_seq_length": 7}, keep=KEEP)
    run = launched(study, store.uri)[0]
    folder = Path(MlflowClient().download_artifacts(run.run_id, "model"))
    model = SentenceTransformer(str(folder / "model.sentence_transformer"), device="cpu")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert model.max_seq_length == 7


def test_a_trainable_without_a_model_is_a_note(tmp_path: Path, store: Tracking) -> None:
    study = two_seeds(tmp_path, keep=KEEP)
    runs = launched(study, store.uri)
    assert [notes(run) for run in runs] == [[NO_MODEL_GIVEN]] * 4
    assert not any(schema.TAG_MODEL in run.tags for run in runs)
    assert not [line for line in study_status(study, store.uri).warnings if line.startswith("keep")]


OWN = """
from trainables.spec import TrainResult

def _whole(folder):
    (folder / "deep").mkdir()
    (folder / "deep" / "weights.bin").write_bytes(bytes([spec_seed]))

def _fails(folder):
    (folder / "half").write_text("half")
    raise RuntimeError("no room")

def train(spec, report):
    global spec_seed
    spec_seed = spec.seed
    save = {"whole": _whole, "fails": _fails, "nothing": lambda folder: None}[spec.options["save"]]
    return TrainResult(scores={"test/spearman_8": spec.seed / 10}, fingerprint={"data": "none"}, save=save)
"""


def test_a_model_that_cannot_be_saved_costs_no_result(tmp_path: Path, store: Tracking) -> None:
    (tmp_path / "own_saves.py").write_text(OWN)
    variants = {name: {"options": {"save": name}} for name in ("whole", "fails", "nothing")}
    study = two_seeds(tmp_path, trainable="own_saves:train", keep=KEEP, variants=variants, baseline="whole", options={})
    assert study_status(study, store.uri).disk_use == (
        "keep: unknown disk use for 6 cells: the size of the model cannot be read here"
    )
    runs = {run.label: run for run in launched(study, store.uri)}
    assert len(runs) == 6
    client = MlflowClient()
    weights = client.download_artifacts(runs["whole", "1", "default"].run_id, "model/deep/weights.bin")
    assert Path(weights).read_bytes() == b"\1"
    for name, said in (("fails", "it cannot be saved (RuntimeError: no room)"), ("nothing", "save wrote nothing")):
        run = runs[name, "1", "default"]
        (note,) = notes(run)
        assert said in note
        assert schema.TAG_MODEL not in run.tags
        assert "model" not in [one.path for one in client.list_artifacts(run.run_id)]
    warnings = study_status(study, store.uri).warnings
    assert "keep: 4 finished cells have no kept model; `sweep run --rerun CELL` trains one again" in warnings


def test_a_result_that_waits_to_be_recorded_says_that_its_model_is_lost(
    tmp_path: Path, store: Tracking, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = a_study(tmp_path, keep=KEEP)

    def away(*given: Any) -> None:
        raise TrackingUnavailable("it is away")

    with monkeypatch.context() as patched:
        patched.setattr(Tracking, "put_model", away)
        assert run_study(study, InProcess(), RunOptions(tracking_uri=store.uri)) == 1
    runs = launched(study, store.uri)
    (waited,) = [run for run in runs if NO_MODEL_STORED in notes(run)]
    assert schema.TAG_MODEL not in waited.tags
    assert sum(schema.TAG_MODEL in run.tags for run in runs) == 1
