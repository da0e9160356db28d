"""What a running sweep shows: a live bar on a terminal, plain lines elsewhere. Always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sweep.worker import Standing

if TYPE_CHECKING:
    from rich.progress import TaskID

QUIET_S: Final = 30.0
"""Without a terminal: longest silence before a line says what is going on."""


def duration(seconds: float) -> str:
    """`47 s`, `12 min`, `3 h 05 min`, `2 d 4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    if minutes < 90:
        return f"{minutes:.0f} min"
    hours = int(minutes // 60)
    if hours < 48:
        return f"{hours} h {int(minutes % 60):02d} min"
    return f"{hours // 24} d {hours % 24} h"


@dataclass(kw_only=True)
class Count:
    """How far a sweep is."""

    total: int
    before: int
    """Finished when it began."""
    finished: int = 0
    failed: int = 0
    retried: int = 0

    @property
    def done(self) -> int:
        """Cells that need no more work."""
        return self.before + self.finished + self.failed


def eta_s(count: Count, elapsed_s: float) -> float | None:
    """Seconds left at the pace so far; None before there is a pace."""
    ended = count.finished + count.failed
    left = count.total - count.done
    return None if not ended else elapsed_s / ended * left


class Progress:
    """Shows one sweep. Not thread-safe by itself where it draws; rich and print are."""

    def __init__(self, count: Count) -> None:
        self.count = count
        self._began = self._spoke = time.monotonic()
        self._live = sys.stderr.isatty()
        self._bar: Any = None
        self._task: TaskID | None = None

    def start(self) -> None:
        """Begin to show."""
        self._began = self._spoke = time.monotonic()
        if not self._live:
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("cells"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("cells", total=self.count.total, completed=self.count.done, note="starting")
        self._bar.start()

    def say(self, line: str) -> None:
        """One line that stays."""
        self._spoke = time.monotonic()
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)

    def finished(self, name: str, *, score: tuple[str, float] | None, seconds: float) -> None:
        """A cell is finished."""
        self.count.finished += 1
        shown = f"  {score[0]} {score[1]:.4f}" if score else ""
        self.say(f"{self._head()} finished {name}{shown}  in {duration(seconds)}{self._left()}")
        self._draw()

    def failed(self, name: str, reason: str) -> None:
        """A cell has failed for good."""
        self.count.failed += 1
        self.say(f"{self._head()} FAILED {name}: {reason}")
        self._draw()

    def retry(self, name: str, reason: str, pause_s: float) -> None:
        """An attempt was lost and will be repeated."""
        self.count.retried += 1
        self.say(f"{self._head()} lost {name}: {reason}; again in {duration(pause_s)}")

    def running(self, standings: Mapping[str, Standing | None]) -> None:
        """What runs now: name -> standing."""
        if self._bar is None:
            if time.monotonic() - self._spoke > QUIET_S:
                self.say(f"{self._head()} running {_running(standings, most=4)}{self._left()}")
            return
        self._draw(_running(standings, most=2))

    def stop(self) -> None:
        """Stop drawing."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _draw(self, note: str | None = None) -> None:
        if self._bar is not None and self._task is not None:
            fields = {} if note is None else {"note": note + self._left()}
            self._bar.update(self._task, completed=self.count.done, **fields)

    def _head(self) -> str:
        width = len(str(self.count.total))
        return f"[{self.count.done:{width}d}/{self.count.total}]"

    def _left(self) -> str:
        left = eta_s(self.count, time.monotonic() - self._began)
        return f", about {duration(left)} left" if left else ""


def _running(standings: Mapping[str, Standing | None], *, most: int) -> str:
    if not standings:
        return "nothing"
    shown = [_one(name, standing) for name, standing in list(standings.items())[:most]]
    more = len(standings) - most
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _one(name: str, standing: Standing | None) -> str:
    if standing is None:
        return name
    if standing.total_steps:
        return f"{name} ({standing.phase} {100 * standing.step // standing.total_steps}%)"
    return f"{name} ({standing.phase})"
