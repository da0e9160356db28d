"""Which cell is trained next: order, concurrency, retries with a pause. Knows no Ray; safe between threads."""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable
from typing import Final

from sweep.record.retry import Backoff
from sweep.run.cell_source import CellSource
from sweep.run.worker import Assignment
from sweep.study.cells import Cell

RETRY_BACKOFF: Final = Backoff(first_s=2.0, most_s=60.0)
MOST_ATTEMPTS: Final = 50
"""Of one cell: one that takes every machine with it must end too."""


class CellQueue:
    """Cells to train, handed out as assignments.

    A cell is waiting, handed out, being closed (its attempt ended, and the store is being told), or done.
    """

    def __init__(
        self,
        *,
        retries: int,
        max_concurrent: int | None = None,
        source: CellSource | None = None,
    ) -> None:
        """An empty queue.

        Args:
            retries: How often an attempt lost to infrastructure is repeated.
            max_concurrent: Most cells at once; None: as many as fit.
            source: Asked once all cells are done for those that are needed next; None: nothing follows.
        """
        self.retries = retries
        self._source = source
        self.max_concurrent = max_concurrent
        self._lock = threading.Condition()
        self._ready: deque[tuple[Cell, int, int]] = deque()
        """(cell, attempt, retries used)"""
        self._paused: list[tuple[float, Cell, int, int]] = []
        self._out: dict[str, tuple[Assignment, int]] = {}
        """launch -> what was handed out."""
        self._closing: dict[str, tuple[Assignment, int]] = {}
        self._stopped = False
        self._held = False
        self._slots = 1

    def add(self, cells: Iterable[tuple[Cell, int]]) -> None:
        """More cells, each with the number of attempts so far."""
        with self._lock:
            self._ready.extend((cell, before + 1, 0) for cell, before in cells)

    def set_slots(self, slots: int) -> None:
        """How many cells can run at once, by resources."""
        with self._lock:
            self._slots = max(1, slots)

    def take(self) -> Assignment | None:
        """The next cell to train; None when all slots are taken or nothing is ready yet."""
        with self._lock:
            limit = self._slots if self.max_concurrent is None else min(self._slots, self.max_concurrent)
            if self._stopped or self._held or len(self._out) >= limit:
                return None
            due = [one for one in self._paused if one[0] <= time.monotonic()]
            if due:
                self._paused.remove(due[0])
                _, cell, attempt, used = due[0]
            elif self._ready:
                cell, attempt, used = self._ready.popleft()
            else:
                return None
            work = Assignment(cell=cell, attempt=attempt, launch=uuid.uuid4().hex)
            self._out[work.launch] = (work, used)
            return work

    def ended(self, launch: str) -> None:
        """An attempt has ended; its cell is now being closed."""
        with self._lock:
            self._closing[launch] = self._out.pop(launch)

    def closed(self, launch: str) -> None:
        """The store knows how the attempt ended; the cell needs nothing more."""
        with self._lock:
            self._closing.pop(launch, None)
            self._lock.notify_all()

    def retry(self, launch: str, *, machine_lost: bool = False) -> float | None:
        """Train the cell again after a pause.

        Args:
            launch: Of the attempt that was lost.
            machine_lost: It was lost with its machine, as spot machines go: that uses up none of the retries.

        Returns:
            Seconds of the pause; None when all retries are used up or the queue is stopped.
        """
        with self._lock:
            work, used = self._closing.pop(launch)
            again = used < self.retries or (machine_lost and self.retries and work.attempt < MOST_ATTEMPTS)
            if not again or self._stopped:
                return None
            used += not machine_lost
            pause = RETRY_BACKOFF.pause_s(max(1, used))
            self._paused.append((time.monotonic() + pause, work.cell, work.attempt + 1, used))
            self._lock.notify_all()
            return pause

    def hold(self, held: bool) -> None:
        """Hand out nothing for now, or again: a worker waits for a store that may come back."""
        with self._lock:
            self._held = held

    def stop(self) -> None:
        """Hand out nothing more."""
        with self._lock:
            self._stopped = True
            self._lock.notify_all()

    def wait_closed(self, most_s: float) -> None:
        """Wait until no cell is being closed, at most that many seconds."""
        with self._lock:
            self._lock.wait_for(lambda: not self._closing, timeout=most_s)

    @property
    def stopped(self) -> bool:
        """Whether nothing more is handed out."""
        return self._stopped

    def is_finished(self) -> bool:
        """Whether nothing is, or will be, handed out; asks for more cells before it says yes."""
        if not self._idle():
            return False
        if self._source is not None and not self._stopped:
            self.add((cell, 0) for cell in self._source.next_cells())
        return self._idle()

    def _idle(self) -> bool:
        with self._lock:
            waiting = (self._ready or self._paused) and not self._stopped
            return not (waiting or self._out or self._closing)

    def out(self) -> list[Assignment]:
        """Assignments handed out and not ended."""
        with self._lock:
            return [work for work, _ in self._out.values()]
