"""What waits in the spool is for its owner alone, stays inside its run, and one bad file stops nothing."""

from __future__ import annotations

import os
import stat
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from analysis import schema
from sweep.errors import RefusedRecord
from sweep.files import spool_folder
from sweep.record.recording import Metric, Recording, cell_tags, recording_of
from sweep.record.spool import Spool, Spooled
from sweep.record.tracking import CellRun, Tracking
from sweep.run.preflight import resolved_cells
from sweep.run.run_study import run_study
from sweep.study import Study
from sweep.study.cells import Cell
from tests.sweep.in_process import InProcess
from tests.sweep.runs import a_cell
from tests.sweep.studies import two_seeds
from trainables.spec import TrainResult


def waiting(cell: Cell, study: str = "s", **changes: object) -> Spooled:
    recording = recording_of(cell, TrainResult(scores={"test/spearman_8": 1 / 3}), time_ms=1)
    recording = replace(recording, **changes)  # type: ignore[arg-type]
    tags = cell_tags(study, cell)
    return Spooled(study=study, cell=cell.key, run_name=cell.run_name, tags=tags, run_id=None, recording=recording)


def with_score(folder: Path, score: str) -> Study:
    """A study whose second variant is a trainable of one's own that returns this score."""
    own = f"own_{uuid.uuid4().hex}"  # a module is imported once a process
    code = (
        f"from trainables.spec import TrainResult\ndef own(spec, report):\n    return TrainResult(scores={{{score}}})\n"
    )
    (folder / f"{own}.py").write_text(code)
    return two_seeds(folder, variants={"a": {}, "b": {"trainable": f"{own}:own"}}, seeds=1)


OUTSIDE = ["../../../x", "a/../../x", "/tmp/x", "", ".", "a//b", "predictions/..", "a\\..\\x", "a\0b"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_an_artifact_outside_its_run_is_refused_from_the_spool_and_when_written(path: str, tmp_path: Path) -> None:
    packed = waiting(a_cell(), artifacts={path: b"content"}).pack()
    if "\0" not in path:  # which a ZIP cannot hold
        with pytest.raises(ValueError, match=r"without `\.\.`"):
            Spooled.unpack(packed)
    place = CellRun(run_id="r", artifact_uri=(tmp_path / "a" / "b" / "c").as_uri())
    with pytest.raises(RefusedRecord, match="cannot be recorded"):
        Tracking(f"sqlite:///{tmp_path / 'mlflow.db'}").put_artifact(place, path, b"content")
    assert list(tmp_path.rglob("*")) == []


def test_a_trainable_that_names_such_a_split_fails_its_cell() -> None:
    import numpy as np

    from trainables.spec import Predictions

    one = Predictions(labels=np.array([0.1, 0.9]), by_dim={8: np.array([0.25, 0.5])})
    with pytest.raises(ValueError, match=r"artifact 'predictions/../../x.parquet' cannot be recorded"):
        recording_of(a_cell(), TrainResult(scores={"a/b_1": 1.0}, predictions={"../../x": one}), time_ms=0)


@pytest.mark.parametrize("made_before", [True, False])
def test_only_the_owner_can_read_what_waits(made_before: bool, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        folder = tmp_path / "spool" / "study"
        if made_before:
            folder.mkdir(parents=True)
        path = Spool(folder).put("key", b"content")
        Tracking(f"sqlite:///{tmp_path / 'new.db'}").open()
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(one.stat().st_mode) for one in (folder, path, tmp_path / "new.db")]
    assert modes == [0o700, 0o600, 0o600]


def test_a_store_that_is_there_keeps_its_permissions(tmp_path: Path) -> None:
    file = tmp_path / "shared.db"
    file.touch()
    file.chmod(0o664)
    Tracking(f"sqlite:///{file}").open()
    assert stat.S_IMODE(file.stat().st_mode) == 0o664


def test_bad_files_stop_nothing_and_are_named_in_the_summary(
    tmp_path: Path, store: Tracking, capsys: pytest.CaptureFixture[str]
) -> None:
    study = two_seeds(tmp_path, seeds=3)
    cells = resolved_cells(study)
    spool = Spool(spool_folder(study.name))
    bad_metric = (Metric(name="test/spear?man_8", value=0.5, step=0, time_ms=1),)
    # Refused by the store only: nobody here knows the rule it breaks.
    bad_value = (Metric(name="test/spearman_8", value="much", step=0, time_ms=1),)  # type: ignore[arg-type]
    for cell, changes in zip(
        cells, ({"artifacts": {"../../../x": b"x"}}, {"metrics": bad_metric}, {"metrics": bad_value}), strict=False
    ):
        spool.put(cell.key, waiting(cell, study.name, **changes).pack())
    spool.put(cells[3].key, waiting(cells[3], study.name).pack()[:-50])
    (spool.folder / "0-a-folder.result.zip").mkdir()
    spool.put(cells[5].key, waiting(cells[5], study.name).pack())
    backend = InProcess()
    assert run_study(study, backend) == 0
    assert backend.ran == [cell.run_name for cell in cells[:5]]  # the last one was recorded from its file
    runs = store.recorded_runs(study.name)
    assert sorted(run.key for run in runs if run.status == "FINISHED") == sorted(cell.key for cell in cells)
    assert all(run.status in ("FINISHED", "FAILED") for run in runs)
    shown = capsys.readouterr().err
    assert "1 kept from before: recorded without training" in shown
    kept = [line for line in shown.splitlines() if line.startswith("kept, but not usable: ")]
    assert len(kept) == 5
    for cell in cells[:4]:
        assert any(f"{cell.key}.result.unreadable: " in line for line in kept), kept
        assert (spool.folder / f"{cell.key}.result.unreadable").is_file()
    assert list(tmp_path.rglob("x")) == []


@pytest.mark.parametrize(
    "name",
    ["test/spear?man_8", "test/a#b_8", "test/" + "x" * 250 + "_8", "../x_8", "/x_8", "test//x_8", "test/ä😀_8"],
)
def test_a_score_whose_name_is_refused_fails_its_cell_at_once(
    name: str, tmp_path: Path, store: Tracking, capsys: pytest.CaptureFixture[str]
) -> None:
    assert schema.name_problem(name) is not None
    study = with_score(tmp_path, f"{name!r}: 0.5")
    assert run_study(study, InProcess()) == 1
    runs = store.recorded_runs(study.name)
    assert sorted(run.status for run in runs) == ["FAILED", "FINISHED"]
    (failed,) = [run for run in runs if run.status == "FAILED"]
    reason = failed.tags[schema.TAG_FAILURE]
    no_endpoint = f"a score named {name!r}; expected split/metric_size"
    assert "cannot be recorded; expected a name" in reason or no_endpoint in reason
    assert failed.tags[schema.TAG_FAILURE_KIND] == schema.FAILURE_CELL
    assert not list((tmp_path / "spool").rglob("*.zip"))
    assert "kept in" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["test/spearman_8", "own metric: a.b-c_1", "a/" + "x" * 231, "prüfung/spearman_8", "über"]
)
def test_a_name_that_passes_is_one_that_the_store_takes(name: str, store: Tracking) -> None:
    assert schema.name_problem(name) is None
    run = store.create_cell_run(store.open_experiment("names"), "parent", "n", {}, "launch")
    points = tuple(Metric(name=one, value=1.0, step=0, time_ms=1) for one in (name, schema.by_dim_metric(name)))
    store.record(run, Recording(metrics=points, params={name: "x"}, tags={name: "x"}), complete=True)
    assert store.run(run.run_id).metrics[name] == 1.0


@pytest.mark.parametrize("value", ["float('nan')", "-float('inf')", "1.797e308", "-1.7976931348623157e308"])
def test_a_score_that_a_store_takes_for_infinite_fails_its_cell(value: str, tmp_path: Path, store: Tracking) -> None:
    study = with_score(tmp_path, f"'test/spearman_8': {value}")
    assert run_study(study, InProcess()) == 1
    (failed,) = [run for run in store.recorded_runs(study.name) if run.status == "FAILED"]
    assert failed.tags[schema.TAG_FAILURE].startswith("NonFiniteScore: test/spearman_8 is ")
