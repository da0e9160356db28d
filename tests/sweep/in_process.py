"""A scheduler for tests: one cell after another in this process, without Ray. What is recorded is real."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

from sweep.run.backend import Say, SessionRequest, Workload
from sweep.run.finisher import LOST
from sweep.run.preflight import check_resources
from sweep.run.training import Ended, Job, failure_of, train_job
from sweep.run.worker import Assignment, CellWorker, WorkerStatus
from trainables.spec import Progress


class _WorkerDies(BaseException):
    """Ends an attempt as if its process were gone."""


class _StopRequested(BaseException):
    """Ends a training on request."""


class TrainsHere:
    """Trains in this process: cells reach each other."""

    def train(self, job: Job, report: Callable[[Progress], None], stop_requested: Callable[[], bool]) -> Ended:
        def told(progress: Progress) -> None:
            if stop_requested():
                raise _StopRequested
            report(progress)

        try:
            return Ended(result=train_job(job, told))
        except _StopRequested:
            return Ended()
        except Exception as error:
            return Ended(failure=failure_of(error, job))


@dataclass
class InProcess:
    """A backend with one machine."""

    dies: Callable[[Assignment], bool] = lambda work: False
    """Attempts whose worker dies while it trains."""
    on_told: Callable[[Assignment, WorkerStatus], None] = lambda work, status: None
    """Called with everything that a worker tells."""
    room: int = 1
    """Cells that it says it can run at once; it runs one."""
    sessions: int = 0
    """How often it was started."""
    ran: list[str] = field(default_factory=list)
    """Names of the attempts' cells, in order."""
    name = "cells in this process"
    machines = 1

    @contextmanager
    def session(self, request: SessionRequest) -> Iterator[InProcess]:
        self.sessions += 1
        self._request = request
        with mock.patch.dict(os.environ):  # a worker sets numbers of threads
            yield self

    def slots(self, *, cpus: int, gpus: float) -> int:
        return self.room

    def check_machines(self, recorded: Sequence[str], say: Say) -> None:
        check_resources(self._request.study, [{"CPU": 4.0, "GPU": 2.0}])

    def train(self, work: Workload) -> None:
        worker = CellWorker(work.place, TrainsHere())
        work.queue.set_slots(1)
        while not work.queue.is_finished():
            if work.stop_asked():
                work.queue.stop()
            assignment = work.queue.take()
            if assignment is None:
                work.queue.wait_closed(0.01)  # a retry's pause, or the last cell's end
                continue
            self.ran.append(assignment.cell.run_name)
            self._run(worker, assignment, work)

    def _run(self, worker: CellWorker, assignment: Assignment, work: Workload) -> None:
        told: list[WorkerStatus] = []

        def tell(status: WorkerStatus) -> None:
            told.append(status)
            self.on_told(assignment, status)
            work.progress.running({assignment.cell.run_name: status})
            if status.phase == "train" and self.dies(assignment):
                raise _WorkerDies

        try:
            work.finisher.ended(assignment, worker.run(assignment, tell, work.stop_asked))
        except _WorkerDies:
            work.finisher.lost(assignment, told[-1].run_id, LOST)
