"""What a scheduler must be able to do to run a study. Ray is behind it in `sweep.on_ray.ray_backend`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sweep.record.tracking import Tracking
from sweep.run.cell_queue import CellQueue
from sweep.run.finisher import Finisher
from sweep.run.progress import Progress
from sweep.run.worker import Place
from sweep.study import Study

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class SessionRequest:
    """What a launch wants machines for."""

    study: Study
    """Its resources are those of one cell."""
    tracking: Tracking
    """Where cells are recorded; a backend may open it while it starts."""
    cells: int
    """How many wait, or may be trained at once if that is less."""
    scratch: Path
    """Folder for files that are gone after the launch."""
    owner: str
    """Whose launch it is; unique to it."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The cells of one launch on their way from the queue to the finisher."""

    place: Place
    queue: CellQueue
    finisher: Finisher
    progress: Progress
    stop_asked: Callable[[], bool]


class Session(Protocol):
    """Machines that are up for one launch."""

    @property
    def machines(self) -> int:
        """How many there are now."""

    def check_machines(self, recorded: Sequence[str], say: Say) -> None:
        """Check every machine before the first cell, and keep the study on one kind of them.

        Args:
            recorded: Device (as in the fingerprint) of every finished cell of the study.
            say: Gets what the user should know.

        Raises:
            SweepError: no machine can hold a cell, or one must not be used: one line a machine.
        """

    def train(self, work: Workload) -> None:
        """Train what the queue gives until it is finished or a stop is asked for.

        A backend tells the queue its slots, hands each assignment to a `CellWorker` and each end of one to the
        finisher: `ended` with the worker's outcome, or `lost` with the run that the worker last told of. It shows what
        workers tell. Once `stop_asked` is true it stops the queue and the workers; those that do not end within a
        grace are killed and handed in as `lost(..., stopped=True)`.
        """


class Backend(Protocol):
    """A scheduler."""

    @property
    def name(self) -> str:
        """For people, as in `starting Ray`."""

    def session(self, request: SessionRequest) -> AbstractContextManager[Session]:
        """Join or start machines, and leave them as they were found.

        Raises:
            ClusterError: they cannot be had.
        """

    def slots(self, *, cpus: int, gpus: float) -> int:
        """How many cells of that size can run at once; before a session, how many this machine has room for."""
