"""Runs one cell: begin a run, have it trained, record. Knows no Ray.

A worker records everything about its cell but never ends a run: that is the driver's. It trains nothing itself: what a
training does to its process must not reach the next one.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from sweep.errors import RefusedRecord, SweepError, TrackingUnavailable
from sweep.files import scratch_folder
from sweep.record.recording import NO_MODEL_STORED, Recording, attempt_tags, failure_recording, recording_of
from sweep.record.spool import Spooled
from sweep.record.tracking import CellRun, Tracking
from sweep.run.training import Failure, Job, Trainer, failure_of
from sweep.study.cells import Cell
from trainables.registry import BUILTIN_TRAINABLES
from trainables.spec import Progress, TrainResult, TrainSpec

BEGIN_WAIT_S: Final = 15.0
"""Longest wait for a run to be created before training goes ahead without one; it is created when recording."""

Phase = Literal["begin", "load", "train", "evaluate", "record"]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a sweep's cells are recorded, and as whose."""

    study: str
    tracking: Tracking
    experiment_id: str
    parent_run_id: str
    owner: str
    threads: int
    gpus: float = 0.0
    """Of one cell."""
    memory_bytes: int | None = None
    """Most that a cell may allocate; None: what its share of the machine is, where that is known."""
    memory_declared: bool = False
    """The study names it."""
    max_concurrent: int | None = None
    """Most cells at once; None: as many as fit."""
    time_limit_s: float | None = None
    """Longest training of a cell."""
    modules: tuple[str, ...] = ()
    """What the cells need imported."""
    keeps_models: bool = False
    """Each cell's final model is stored with its run."""
    only_split: str | None = None
    """The split whose scores are recorded, where that is one: a search must not see the test scores of its trials."""
    allow_unverified: bool = False
    """Go on with a trainable of one's own that gives no fingerprint."""
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
    waited: bool = False
    """That recording was waited for in vain: the store is not usable."""
    seconds: float = 0.0
    scores: Mapping[str, float] = field(default_factory=dict)
    """What is shown of its scores."""
    stops: str = ""
    """Why no further cell is worth its time; empty where it is."""
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
    node: str = ""
    """Which machine it is on, as the scheduler names it."""


def no_fingerprint(trainable: str) -> str:
    """What is said of a trainable whose results have no fingerprint."""
    return (
        f"stopped: trainable {trainable!r} gives no fingerprint, so no pair of its cells can be verified; return "
        "TrainResult(..., fingerprint={'data': ...}), or go on with `sweep run --allow-unverified` (the report then "
        "needs --allow-unverified too)"
    )


Tell = Callable[[WorkerStatus], None]


class CellWorker:
    """Works off cells one after another."""

    def __init__(self, place: Place, trainer: Trainer) -> None:
        """Prepare.

        Args:
            place: Where the cells are recorded.
            trainer: Trains them, each in a process of its own.
        """
        self.place, self._trainer = place, trainer

    def run(self, work: Assignment, tell: Tell, stop_requested: Callable[[], bool]) -> Outcome:
        """Train and record one cell; never raises for what a cell does wrong.

        Args:
            work: The cell and which attempt it is.
            tell: Gets the worker's status, often.
            stop_requested: Asked while training; True ends the training.
        """
        with self._model_folder() as folder:
            return self._run(work, tell, stop_requested, folder)

    @contextmanager
    def _model_folder(self) -> Iterator[Path | None]:
        """An empty folder for a cell's model, gone afterwards; None where none is kept."""
        if not self.place.keeps_models:
            yield None
            return
        # A launch removes this scratch at its end, should the worker be killed before.
        scratch = scratch_folder(self.place.study, self.place.tracking.uri)
        scratch.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="model-", dir=scratch, ignore_cleanup_errors=True) as folder:
            yield Path(folder)

    def _run(self, work: Assignment, tell: Tell, stop_requested: Callable[[], bool], folder: Path | None) -> Outcome:
        began = time.monotonic()
        tell(WorkerStatus(phase="begin"))
        run = self._begin(work)
        run_id = run.run_id if run else None

        def report(progress: Progress) -> None:
            tell(
                WorkerStatus(
                    phase=progress.phase,
                    run_id=run_id,
                    step=progress.step,
                    total_steps=progress.total_steps,
                    loss=progress.loss,
                )
            )

        def waits(cause: str) -> None:
            tell(WorkerStatus(phase="record", run_id=run_id, waiting=cause))

        job = self._job(work.cell, folder)
        ended = self._trainer.train(job, report, stop_requested)
        if ended.failure is not None:
            return self._failed(work, run, ended.failure, ended.output, waits)
        if ended.result is None:
            return Outcome(kind="stopped", run_id=run_id, reason="stopped while training")
        result = _seen(ended.result, self.place.only_split)
        try:
            recording = recording_of(work.cell, result, time_ms=int(time.time() * 1000), output=ended.output)
        except Exception as error:
            return self._failed(work, run, failure_of(error, job), ended.output, waits)
        tell(WorkerStatus(phase="record", run_id=run_id))
        seconds = time.monotonic() - began
        scores = {name: result.scores[name] for name in self.place.primary if name in result.scores}
        scores = scores or dict(list(result.scores.items())[:1])
        model = folder if folder is not None and folder.is_dir() and any(folder.iterdir()) else None
        try:
            with self.place.tracking.telling(waits) as tracking:
                run = run or self._create(work, tracking)
                tracking.record(run, recording, complete=True, model=model)
        except RefusedRecord as error:
            return self._failed(work, run, failure_of(error, job), ended.output, waits)
        except (SweepError, OSError) as error:
            return Outcome(
                kind="unrecorded",
                run_id=run.run_id if run else None,
                reason=str(error),
                seconds=seconds,
                packed=self._pack(work, run, recording if model is None else recording.with_note(NO_MODEL_STORED)),
            )
        return Outcome(
            kind="recorded",
            run_id=run.run_id,
            seconds=seconds,
            scores=scores,
            stops=self._unverified(work.cell, result),
        )

    def _unverified(self, cell: Cell, result: TrainResult) -> str:
        if result.fingerprint or self.place.allow_unverified or cell.spec.trainable in BUILTIN_TRAINABLES:
            return ""
        return no_fingerprint(cell.spec.trainable)

    def _job(self, cell: Cell, folder: Path | None) -> Job:
        place = self.place
        return Job(
            spec=cell.spec,
            digests=cell.digests,
            threads=place.threads,
            hides_gpus=place.gpus == 0,
            memory_bytes=place.memory_bytes,
            memory_declared=place.memory_declared,
            time_limit_s=place.time_limit_s,
            model_folder=folder,
        )

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

    def _failed(
        self, work: Assignment, run: CellRun | None, failure: Failure, output: bytes, waits: Callable[[str], None]
    ) -> Outcome:
        outcome = Outcome(
            kind="failed",
            run_id=run.run_id if run else None,
            reason=failure.reason,
            failure_kind=failure.kind,
            detail=failure.detail or failure.reason,
            stops=f"stopped: {failure.reason}" if failure.every_cell else "",
        )
        try:
            recording = failure_recording(
                work.cell, reason=failure.reason, kind=failure.kind, detail=outcome.detail, output=output
            )
            with self.place.tracking.telling(waits) as tracking:
                run = run or self._create(work, tracking)
                tracking.record(run, recording, complete=False)
        except (SweepError, OSError) as error:
            return replace(outcome, waited=isinstance(error, TrackingUnavailable))  # the driver will try
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


def _seen(result: TrainResult, split: str | None) -> TrainResult:
    """The result with scores and predictions of that split only."""
    if split is None:
        return result
    return replace(
        result,
        scores={name: value for name, value in result.scores.items() if name.startswith(f"{split}/")},
        predictions={name: one for name, one in result.predictions.items() if name == split},
    )


def untrained_scores(spec: TrainSpec) -> dict[str, float]:
    """Test scores of a spec's encoder before any training (trainables.sentence_pair.evaluation)."""
    from trainables.sentence_pair.evaluation import untrained_scores as scores

    return scores(spec)
