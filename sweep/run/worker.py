"""Runs one cell inside a worker process: begin a run, train, record. Knows no Ray.

A worker records everything about its cell but never ends a run: that is the driver's.
"""

from __future__ import annotations

import errno
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from analysis import schema
from sweep.console import one_line
from sweep.errors import RefusedRecord, SweepError
from sweep.record.recording import Recording, attempt_tags, failure_recording, recording_of
from sweep.record.spool import Spooled
from sweep.record.tracking import CellRun, Tracking
from sweep.study.cells import Cell
from trainables.spec import Progress, TrainResult, TrainSpec

BEGIN_WAIT_S: Final = 15.0
"""Longest wait for a run to be created before training goes ahead without one; it is created when recording."""
_PASSING: Final = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE)

Phase = Literal["begin", "load", "train", "evaluate", "record"]


class StopRequested(BaseException):
    """Raised inside a training whose sweep is being stopped; no trainable's `except Exception` may catch it."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a sweep's cells are recorded, and as whose."""

    study: str
    tracking: Tracking
    experiment_id: str
    parent_run_id: str
    owner: str
    threads: int
    primary: tuple[str, ...] = ()
    """Endpoints shown while the sweep runs; where a cell lacks them, its first score."""


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """One attempt at one cell."""

    cell: Cell
    attempt: int
    launch: str
    """Random id of this attempt."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How an attempt ended."""

    kind: Literal["recorded", "failed", "stopped", "unrecorded"]
    run_id: str | None = None
    reason: str = ""
    failure_kind: str = ""
    """`cell` or `infrastructure`, for a failure."""
    detail: str = ""
    """The whole story of a failure whose recording did not succeed; empty where it did."""
    seconds: float = 0.0
    scores: Mapping[str, float] = field(default_factory=dict)
    """What is shown of its scores."""
    packed: bytes | None = None
    """A result that could not be recorded, as a spool file."""


@dataclass(frozen=True, kw_only=True)
class WorkerStatus:
    """What a worker tells while it works."""

    phase: Phase
    run_id: str | None = None
    step: int = 0
    total_steps: int = 0
    loss: float | None = None
    waiting: str = ""
    """What it waits for, and how long: a store that is away, a disk that is full."""


Tell = Callable[[WorkerStatus], None]


class CellWorker:
    """Works off cells one after another in one process, paying imports once."""

    def __init__(self, place: Place) -> None:
        self.place = place
        from trainables.runtime import configure

        configure(place.threads)

    def run(self, work: Assignment, tell: Tell, stop_requested: Callable[[], bool]) -> Outcome:
        """Train and record one cell; never raises for what a cell does wrong.

        Args:
            work: The cell and which attempt it is.
            tell: Gets the worker's status, often.
            stop_requested: Asked while training; True ends the training.
        """
        began = time.monotonic()
        tell(WorkerStatus(phase="begin"))
        run = self._begin(work)
        run_id = run.run_id if run else None

        def report(progress: Progress) -> None:
            if stop_requested():
                raise StopRequested
            tell(
                WorkerStatus(
                    phase=progress.phase,
                    run_id=run_id,
                    step=progress.step,
                    total_steps=progress.total_steps,
                    loss=progress.loss,
                )
            )

        try:
            result = self._train(work.cell, report)
            recording = recording_of(work.cell, result, time_ms=int(time.time() * 1000))
        except StopRequested:
            return Outcome(kind="stopped", run_id=run_id, reason="stopped while training")
        except Exception as error:
            return self._failed(work, run, error)
        tell(WorkerStatus(phase="record", run_id=run_id))
        seconds = time.monotonic() - began
        scores = {name: result.scores[name] for name in self.place.primary if name in result.scores}
        scores = scores or dict(list(result.scores.items())[:1])
        try:
            waits = lambda line: tell(WorkerStatus(phase="record", run_id=run_id, waiting=line))  # noqa: E731
            with self.place.tracking.telling(waits) as tracking:
                run = run or self._create(work, tracking)
                tracking.record(run, recording, complete=True)
        except RefusedRecord as error:
            return self._failed(work, run, error)
        except (SweepError, OSError) as error:
            return Outcome(
                kind="unrecorded",
                run_id=run.run_id if run else None,
                reason=str(error),
                seconds=seconds,
                packed=self._pack(work, run, recording),
            )
        return Outcome(kind="recorded", run_id=run.run_id, seconds=seconds, scores=scores)

    def _train(self, cell: Cell, report: Callable[[Progress], None]) -> TrainResult:
        from trainables.encoder.fetch import fetch_model, pinned
        from trainables.registry import load_trainable
        from trainables.runtime import configure, settle
        from trainables.user_code import add_to_import_path

        add_to_import_path(cell.spec.root)
        spec = pinned(cell.spec, cell.digests)
        fetch_model(spec)
        trainable = load_trainable(spec.trainable, spec.root)
        configure(self.place.threads)  # again: loading it may have imported torch
        settle()
        return trainable(spec, report)

    def _tags(self, work: Assignment) -> dict[str, str]:
        return attempt_tags(
            self.place.study, work.cell, attempt=work.attempt, owner=self.place.owner, launch=work.launch
        )

    def _create(self, work: Assignment, tracking: Tracking) -> CellRun:
        place = self.place
        return tracking.create_cell_run(
            place.experiment_id, place.parent_run_id, work.cell.run_name, self._tags(work), work.launch
        )

    def _begin(self, work: Assignment) -> CellRun | None:
        """A run that shows the cell as running; None where the store is away, since training need not wait for it."""
        try:
            with self.place.tracking.waiting_at_most(BEGIN_WAIT_S) as tracking:
                return self._create(work, tracking)
        except SweepError:
            return None

    def _failed(self, work: Assignment, run: CellRun | None, error: Exception) -> Outcome:
        infrastructure = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _PASSING)
        kind = schema.FAILURE_INFRASTRUCTURE if infrastructure else schema.FAILURE_CELL
        reason = one_line(error)
        detail = "".join(traceback.format_exception(error))
        outcome = Outcome(
            kind="failed", run_id=run.run_id if run else None, reason=reason, failure_kind=kind, detail=detail
        )
        try:
            run = run or self._create(work, self.place.tracking)
            recording = failure_recording(work.cell, reason=reason, kind=kind, detail=detail)
            self.place.tracking.record(run, recording, complete=False)
        except (SweepError, OSError):
            return outcome  # the driver will try
        return replace(outcome, run_id=run.run_id, detail="")

    def _pack(self, work: Assignment, run: CellRun | None, recording: Recording) -> bytes:
        return Spooled(
            study=self.place.study,
            cell=work.cell.key,
            run_name=work.cell.run_name,
            tags=self._tags(work),
            run_id=run.run_id if run else None,
            recording=recording,
        ).pack()


def untrained_scores(spec: TrainSpec) -> dict[str, float]:
    """Test scores of a spec's encoder before any training (trainables.sentence_pair.evaluation)."""
    from trainables.sentence_pair.evaluation import untrained_scores as scores

    return scores(spec)
