from __future__ import annotations

import json
import time
import uuid
from dataclasses import asdict
from pathlib import Path

import pytest

from analysis import schema
from sweep.record.ledger import RecordedRun, changed_versions
from sweep.record.recording import Recording, cell_tags, recording_of
from sweep.record.spool import Spool, Spooled
from sweep.record.study_lock import Owner
from sweep.record.study_run import chosen_for_rerun, history_of, record_spooled, settle
from sweep.record.tracking import Tracking
from sweep.study.cells import Cell
from tests.sweep.runs import a_cell, a_run
from trainables.spec import TrainResult


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Tracking:
    return Tracking(f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}", wait_s=5)


def begin(store: Tracking, study: str, cell: Cell, *, complete: bool, launch: str | None = None) -> str:
    """A run left RUNNING, as a dead driver leaves it."""
    experiment = store.open_experiment(study)
    run = store.create_cell_run(experiment, "parent", cell.run_name, cell_tags(study, cell), launch or uuid.uuid4().hex)
    if complete:
        store.record(run, a_recording(cell), complete=True)
    return run.run_id


def a_recording(cell: Cell) -> Recording:
    return recording_of(cell, TrainResult(scores={"test/spearman_8": 1 / 3}), time_ms=1)


def by_id(runs: list[RecordedRun]) -> dict[str, RecordedRun]:
    return {run.run_id: run for run in runs}


def test_complete_runs_of_a_dead_driver_are_finished_and_the_others_killed(store: Tracking) -> None:
    done = begin(store, "settle", a_cell(seed=0), complete=True)
    lost = begin(store, "settle", a_cell(seed=1), complete=False)
    settled = settle(store, store.recorded_runs("settle"), by="me")
    assert (settled.adopted, settled.killed) == (1, 1)
    now = by_id(store.recorded_runs("settle"))
    assert {run.run_id: run.status for run in settled.runs} == {done: "FINISHED", lost: "KILLED"}
    assert (now[done].status, now[lost].status) == ("FINISHED", "KILLED")
    assert now[lost].tags[schema.TAG_SUPERSEDED_BY] == "me"
    assert now[lost].tags[schema.TAG_FAILURE_KIND] == schema.FAILURE_INFRASTRUCTURE


def test_what_a_dead_driver_left_open_ended_with_its_last_heartbeat(store: Tracking) -> None:
    """Not when the next driver found it, perhaps days later: that time was never spent."""
    begin(store, "late", a_cell(seed=0), complete=True)
    begin(store, "late", a_cell(seed=1), complete=False)
    runs = store.recorded_runs("late")
    alive_s = max(run.start_ms for run in runs) / 1000 + 1.5
    me = asdict(Owner.here())
    time.sleep(2)
    settle(store, runs, by="me", last_beat=json.dumps({**me, "time": alive_s, "beat": 3}))
    assert {run.end_ms for run in store.recorded_runs("late")} == {int(alive_s * 1000)}


def test_a_heartbeat_older_than_a_run_gives_it_no_time(store: Tracking) -> None:
    begin(store, "older", a_cell(), complete=False)
    (run,) = store.recorded_runs("older")
    settle(store, [run], by="me", last_beat=json.dumps({**asdict(Owner.here()), "time": 1.0, "beat": 3}))
    (now,) = store.recorded_runs("older")
    assert (now.status, now.end_ms) == ("KILLED", run.start_ms)


def test_of_two_complete_runs_of_a_cell_one_is_finished(store: Tracking) -> None:
    for _ in range(2):
        begin(store, "two", a_cell(), complete=True)
    settle(store, store.recorded_runs("two"), by="me")
    assert sorted(run.status for run in store.recorded_runs("two")) == ["FINISHED", "KILLED"]


@pytest.mark.parametrize("begun", [True, False])
def test_a_waiting_result_is_recorded_once(store: Tracking, tmp_path: Path, begun: bool) -> None:
    """In the run that was begun for it; in a store that has none, in a new one."""
    study, cell, launch = f"spool {begun}", a_cell(), uuid.uuid4().hex
    experiment = store.open_experiment(study)
    if begun:
        begin(store, study, cell, complete=False, launch=launch)
    tags = {**cell_tags(study, cell), schema.TAG_LAUNCH: launch, schema.TAG_ATTEMPT: "1"}
    waiting = Spooled(
        study=study, cell=cell.key, run_name=cell.run_name, tags=tags, run_id=None, recording=a_recording(cell)
    )
    spool = Spool(tmp_path)
    spool.put(cell.key, waiting.pack())
    (tmp_path / "other.result.zip").write_bytes(b"PK damaged")
    said: list[str] = []

    def again(wanted: set[str], finished: set[str]) -> int:
        recovered = record_spooled(
            store,
            spool,
            experiment_id=experiment,
            parent_run_id="parent",
            wanted=wanted,
            finished=finished,
            say=said.append,
        )
        return recovered.recorded

    assert again(wanted=set(), finished=set()) == 0  # of another version of the study: it waits on
    assert again(wanted={cell.key}, finished=set()) == 1
    assert again(wanted={cell.key}, finished={cell.key}) == 0
    (run,) = store.recorded_runs(study)
    assert (run.status, run.complete, run.metrics["test/spearman_8"]) == ("FINISHED", True, 1 / 3)
    assert list(tmp_path.glob("*.zip")) == []
    assert len(said) == 1
    assert "its cell is trained again" in said[0]


def test_a_waiting_result_of_a_finished_cell_is_dropped(store: Tracking, tmp_path: Path) -> None:
    cell = a_cell()
    waiting = Spooled(study="s", cell=cell.key, run_name="n", tags={}, run_id=None, recording=a_recording(cell))
    spool = Spool(tmp_path)
    spool.put(cell.key, waiting.pack())
    done = record_spooled(
        store, spool, experiment_id="0", parent_run_id="p", wanted={cell.key}, finished={cell.key}, say=print
    )
    assert (done.recorded, list(tmp_path.iterdir())) == (0, [])


def test_cells_for_a_rerun_are_named_in_several_ways() -> None:
    cells = [a_cell("a", 0), a_cell("b", 0), a_cell("a", 1), a_cell("a", 0, "x=1")]
    assert chosen_for_rerun(cells, ["a:0"]) == [cells[0], cells[3]]
    assert chosen_for_rerun(cells, ["a:0:default"]) == [cells[0]]
    assert chosen_for_rerun(cells, ["b-s0-default", cells[2].key[:12]]) == [cells[1], cells[2]]
    with pytest.raises(ValueError, match="'c:0' fits no cell; expected VARIANT:SEED"):
        chosen_for_rerun(cells, ["c:0"])


def test_history_is_read_in_order_and_damage_is_skipped() -> None:
    tags = {"h.0001": '{"seeds": [0, 1]}', "h.0000": '{"seeds": [0]}', "h.0002": "damaged", "other": "{}"}
    assert history_of(tags, "h.") == [{"seeds": [0]}, {"seeds": [0, 1]}]


def test_other_versions_of_finished_cells_are_named() -> None:
    import platform

    here = platform.python_version()
    tag = {"fingerprint.software": f"python={here} pytest=0.1 no-such-library=1"}
    runs = [a_run(a_cell(), "FINISHED", **tag), a_run(a_cell(seed=1), "KILLED", **{"fingerprint.software": "ray=0"})]
    first, second = changed_versions(runs)
    assert first.startswith("no-such-library: 1 finished cell was trained with 1, here is none")
    assert second.startswith("pytest: 1 finished cell was trained with 0.1, here is")
