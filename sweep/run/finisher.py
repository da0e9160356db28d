"""The one finisher: ends the runs of cells as FINISHED, FAILED or KILLED, off the path that schedules.

Only the driver has one. It also decides, once the store has told what a lost worker left, whether a cell is
trained again.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from analysis import schema
from sweep.errors import SweepError, TrackingUnavailable
from sweep.record.recording import attempt_tags, failure_recording
from sweep.record.spool import Spool
from sweep.record.tracking import CellRun, Tracking
from sweep.run.cell_queue import CellQueue
from sweep.run.progress import Progress
from sweep.run.worker import Assignment, Outcome, Place
from sweep.study.cells import Cell

LOST: Final = "its worker died"
NODE_LOST: Final = "its machine is gone"
AGAIN_S: Final = 5.0
"""Longest wait for a store that was away for the whole bound before."""


@dataclass(kw_only=True)
class Results:
    """How the cells of one launch ended, by cell key."""

    finished: dict[str, str] = field(default_factory=dict)
    """Cell key -> run id."""
    failed: dict[str, tuple[Cell, str]] = field(default_factory=dict)
    """Cell key -> reason."""
    spooled: dict[str, str] = field(default_factory=dict)
    """Cell key -> file that waits to be recorded."""
    unclosed: list[str] = field(default_factory=list)
    """Runs that are recorded or dead but could not be ended; the next command ends them."""
    troubles: list[str] = field(default_factory=list)
    """What kept this launch from going on, in a line each."""


class Finisher:
    """Works off the ends of attempts in a thread of its own, in the order in which they come."""

    def __init__(
        self,
        place: Place,
        cells: CellQueue,
        spool: Spool,
        progress: Progress,
        *,
        replaces: Mapping[str, str],
        on_finished: Callable[[Cell, str], None] = lambda cell, run_id: None,
    ) -> None:
        """Begin.

        Args:
            place: Where the sweep records.
            cells: Learns which attempts are closed or to be repeated.
            spool: Keeps what could not be recorded.
            progress: Shows what happens.
            replaces: Cell key -> finished run that the new one supersedes (a rerun on request).
            on_finished: Called once a cell's run is FINISHED.
        """
        self.results = Results()
        self._place, self._cells, self._spool, self._progress = place, cells, spool, progress
        self._replaces, self._on_finished = dict(replaces), on_finished
        self._earlier: dict[str, list[str]] = {}
        """Cell key -> runs of lost attempts, which get to know what superseded them."""
        self._inbox: queue.SimpleQueue[tuple[Assignment, Outcome] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name="finisher", daemon=True)
        self._thread.start()

    @property
    def _tracking(self) -> Tracking:
        return self._place.tracking

    def ended(self, work: Assignment, outcome: Outcome) -> None:
        """An attempt ended as its worker says."""
        if outcome.kind == "unrecorded" or outcome.waited:
            self._cells.stop()  # now, not once it is its turn: the next cell would wait in vain, too
        self._cells.ended(work.launch)
        self._inbox.put((work, outcome))

    def lost(self, work: Assignment, run_id: str | None, reason: str, *, stopped: bool = False) -> None:
        """An attempt ended with its worker: nobody says how far it came."""
        kind = schema.FAILURE_INFRASTRUCTURE
        lost = Outcome(kind="stopped" if stopped else "failed", run_id=run_id, reason=reason, failure_kind=kind)
        self.ended(work, lost)

    def drain(self) -> Results:
        """Wait until everything handed in is done."""
        self._inbox.put(None)
        self._thread.join()
        return self.results

    def _loop(self) -> None:
        while (item := self._inbox.get()) is not None:
            work, outcome = item
            try:
                if outcome.stops:
                    self._trouble(outcome.stops)
                self._close(work, outcome)
            except SweepError as error:
                if isinstance(error, TrackingUnavailable):
                    self._tracking.wait_s = min(self._tracking.wait_s, AGAIN_S)  # its wait is over for all
                self.results.unclosed.append(outcome.run_id or work.cell.run_name)
                self._trouble(str(error))
            except Exception as error:
                # A bug here must not leave the sweep waiting for a thread that is gone.
                self._trouble(f"{work.cell.run_name}: could not be closed ({type(error).__name__}: {error})")
            finally:
                self._cells.closed(work.launch)

    def _trouble(self, line: str) -> None:
        self._cells.stop()
        if line not in self.results.troubles:
            self.results.troubles.append(line)
            self._progress.say(line)

    def _close(self, work: Assignment, outcome: Outcome) -> None:
        match outcome.kind:
            case "recorded" if outcome.run_id is not None:
                self._finish(work, outcome, outcome.run_id)
            case "unrecorded":
                self._keep(work, outcome)
            case "failed" if outcome.failure_kind == schema.FAILURE_CELL:
                run_id = outcome.run_id
                if outcome.detail:
                    with self._tracking.waiting_at_most(AGAIN_S if outcome.waited else self._tracking.wait_s):
                        run_id = self._record_failure(work, outcome)
                if run_id is not None:
                    self._tracking.close(run_id, "FAILED")
                self._fail(work, outcome.reason)
            case _:
                self._lost(work, outcome)

    def _finish(self, work: Assignment, outcome: Outcome, run_id: str) -> None:
        key = work.cell.key
        for earlier in self._earlier.pop(key, []):
            self._tracking.set_tags(earlier, {schema.TAG_SUPERSEDED_BY: run_id})
        replaced = self._replaces.pop(key, None)
        if replaced is not None:
            # Before the new one is finished: should this process die in between, the next one finds one complete
            # run and finishes it; the other way round there would be two finished runs of one cell.
            ended_ms = self._tracking.run(replaced).end_ms  # stays: it was not trained until now
            self._tracking.close(replaced, "KILLED", {schema.TAG_SUPERSEDED_BY: run_id}, ended_ms=ended_ms)
        self._tracking.close(run_id, "FINISHED")
        self.results.finished[key] = run_id
        self._progress.finished(work.cell, scores=outcome.scores, seconds=outcome.seconds)
        self._on_finished(work.cell, run_id)

    def _keep(self, work: Assignment, outcome: Outcome) -> None:
        """Spool a result that could not be recorded, and schedule nothing more: the store is not usable."""
        name = work.cell.run_name
        try:
            path = self._spool.put(work.cell.key, outcome.packed or b"")
        except SweepError as error:
            self.results.failed[work.cell.key] = (work.cell, f"neither recorded ({outcome.reason}) nor kept ({error})")
            self._progress.failed(name, f"neither recorded nor kept: {error}")
        else:
            self.results.spooled[work.cell.key] = str(path)
            self._progress.say(f"{name} is trained but not recorded; kept in {path}")
        self._trouble(outcome.reason)

    def _lost(self, work: Assignment, outcome: Outcome) -> None:
        stopped = outcome.kind == "stopped"
        run_id = outcome.run_id
        if run_id is None:
            found = self._tracking.launched(self._place.experiment_id, work.launch)
            run_id = found.run_id if found is not None else None
        recorded = None if run_id is None else self._tracking.run(run_id)
        if recorded is not None and recorded.complete:  # it died after its last word was stored
            self._finish(work, replace(outcome, scores=recorded.metrics), recorded.run_id)
            return
        pause = None if stopped else self._cells.retry(work.launch, machine_lost=outcome.reason == NODE_LOST)
        final = pause is None and not stopped and not self._cells.stopped
        if run_id is not None:
            tags = {schema.TAG_FAILURE: outcome.reason, schema.TAG_FAILURE_KIND: schema.FAILURE_INFRASTRUCTURE}
            if pause is not None:
                tags[schema.TAG_SUPERSEDED_BY] = f"attempt {work.attempt + 1}"
                self._earlier.setdefault(work.cell.key, []).append(run_id)
            self._tracking.close(run_id, "FAILED" if final else "KILLED", tags)
        if pause is not None:
            self._progress.retry(work.cell.run_name, outcome.reason, pause)
        elif final:
            if run_id is None:
                self._tracking.close(self._record_failure(work, outcome), "FAILED")
            self._fail(work, outcome.reason)

    def _record_failure(self, work: Assignment, outcome: Outcome) -> str:
        place, cell = self._place, work.cell
        tags = attempt_tags(place.study, cell, attempt=work.attempt, owner=place.owner, launch=work.launch)
        run = (
            CellRun(run_id=outcome.run_id, artifact_uri=self._tracking.artifact_uri(outcome.run_id))
            if outcome.run_id is not None
            else self._tracking.create_cell_run(
                place.experiment_id, place.parent_run_id, cell.run_name, tags, work.launch
            )
        )
        detail = outcome.detail or outcome.reason
        recording = failure_recording(cell, reason=outcome.reason, kind=outcome.failure_kind, detail=detail)
        self._tracking.record(run, recording, complete=False)
        return run.run_id

    def _fail(self, work: Assignment, reason: str) -> None:
        self.results.failed[work.cell.key] = (work.cell, reason)
        self._progress.failed(work.cell.run_name, reason)
