"""What a running sweep shows: a live bar on a terminal, plain lines elsewhere. Always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from analysis import schema
from analysis.showing import counted, hide_credentials
from sweep.run.worker import WorkerStatus

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

    from sweep.record.ledger import RecordedRun
    from sweep.study import Study
    from sweep.study.cells import Cell

STALLED_S: Final = 120.0
"""Of a cell that has told nothing new for so long, that is shown."""
QUIET_S: Final = 30.0
"""Without a terminal: longest silence before a line says what is going on."""
LONGEST_BAR: Final = 30
SHORTEST_BAR: Final = 8
MOST_RUNNING: Final = 4
"""Running cells that the line names at most."""
MOST_LINES: Final = 6
"""On a terminal: of who is ahead, while the bar stands."""
MARK: Final = "so far, not a verdict:"
TIE: Final = 1e-12
"""As in the analysis: smaller differences are ties."""


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
    seconds: float = 0.0
    """Sum over the cells finished since, each from its begin to its record."""

    @property
    def done(self) -> int:
        """Cells that need no more work."""
        return self.before + self.finished + self.failed


def eta_s(count: Count, slots: int) -> float | None:
    """Seconds left if a cell takes as long as the finished ones did; None before one has finished.

    Args:
        count: How far the sweep is.
        slots: Cells that run at once.
    """
    if not count.finished:
        return None
    rounds = -(-(count.total - count.done) // max(1, slots))
    return rounds * count.seconds / count.finished


class Progress:
    """Shows one sweep. Not thread-safe by itself where it draws; rich and print are."""

    def __init__(self, count: Count, tally: Tally, *, gpus: float = 0.0, began: float | None = None) -> None:
        """Prepare.

        Args:
            count: How far the sweep is when it begins.
            tally: Who is ahead; shown as what it is.
            gpus: GPUs that one cell holds.
            began: When the user began to wait, on the monotonic clock; None: now.
        """
        self.count, self._tally, self._gpus = count, tally, gpus
        self.slots = 1
        """Cells that run at once."""
        self._told: dict[str, tuple[WorkerStatus | None, float]] = {}
        """Of each running cell its latest status, and since when it is the same."""
        self._begun = False
        """Whether anything has run yet."""
        self._said: list[str] = []
        self._waits: dict[str, str] = {}
        self._spoke = time.monotonic()
        self._began = self._spoke if began is None else began
        self._live = sys.stderr.isatty()
        self._shown_live: Any = None

    def start(self) -> None:
        """Begin to show."""
        self._spoke = time.monotonic()
        if not self._live:
            return
        from rich.console import Console
        from rich.live import Live

        self._shown_live = Live(self, console=Console(stderr=True), transient=True, refresh_per_second=4)
        self._shown_live.start()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What stands on the terminal while cells run: one line, and who is ahead."""
        from rich.text import Text

        yield self._line(options.max_width, plain=options.ascii_only)
        for line in self._tally.lines()[:MOST_LINES]:
            yield Text(line, no_wrap=True, overflow="ellipsis")

    def _line(self, width: int, *, plain: bool = False) -> Text:
        """Count, bar, time left and what runs, in that order; what does not fit is dropped from the end."""
        from rich.cells import cell_len
        from rich.text import Text

        left = None if self._waits else eta_s(self.count, self.slots)
        most = min(MOST_RUNNING, max(1, len(self._told)))
        what = [self._shown(most=n) for n in range(most, 0, -1)] if self._begun else ["starting"]
        if self._told:
            name = self._shown(most=1, brief=True)
            what += [name, *(f"{name[:n]}..." for n in (60, 40, 24) if len(name) > n + 3)]
        count = f"{self.count.done}/{counted(self.count.total, 'cell')}"
        bar = " " * (LONGEST_BAR if width >= 160 else 16 if width >= 100 else SHORTEST_BAR)
        parts = fitted(
            [
                [count, f"{self.count.done}/{self.count.total}"],
                [bar],
                [f"about {duration(left)} left"] if left else [],
                what,
                [self._gpu_hours().removeprefix(", ")] if self._gpus else [],
            ],
            width,
            length=cell_len,
        )
        line = Text(no_wrap=True, overflow="crop")
        for number, part in enumerate(parts):
            line.append("  " if number else "")
            if part and not part.strip():
                full = round(len(part) * self.count.done / max(1, self.count.total))
                line.append(("#" if plain else "\u2501") * full, style="green")
                line.append(("-" if plain else "\u2501") * (len(part) - full), style="bright_black")
            else:
                line.append(part)
        return line

    def say(self, line: str) -> None:
        """One line that stays."""
        line = hide_credentials(line)
        self._spoke = time.monotonic()
        if self._shown_live is not None:
            self._shown_live.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)

    def finished(self, cell: Cell, *, scores: Mapping[str, float], seconds: float) -> None:
        """A cell is finished; the first of its scores is shown."""
        self.count.finished += 1
        self.count.seconds += seconds
        self._tally.add(cell, scores)
        shown = next((f"  {name} {score:.4f}" for name, score in scores.items()), "")
        self.say(f"{self._head()} finished {cell.run_name}{shown}  in {duration(seconds)}{self._left()}")

    def failed(self, name: str, reason: str) -> None:
        """A cell has failed for good."""
        self.count.failed += 1
        self.say(f"{self._head()} FAILED {name}: {reason}")

    def retry(self, name: str, reason: str, pause_s: float) -> None:
        """An attempt was lost and will be repeated."""
        self.count.retried += 1
        self.say(f"{self._head()} lost {name}: {reason}; again in {duration(pause_s)}")

    def running(self, statuses: Mapping[str, WorkerStatus | None]) -> None:
        """What runs now: name -> status. What is waited for is said at once, each cause once."""
        waits = {name: status.waiting for name, status in statuses.items() if status is not None and status.waiting}
        for name, cause in waits.items():
            if self._waits.get(name) != cause:
                self.say(f"{name} cannot be recorded yet: {cause}; nothing new is started meanwhile")
        self._waits = waits
        self._told = {
            name: seen if (seen := self._told.get(name)) and seen[0] == status else (status, time.monotonic())
            for name, status in statuses.items()
        }
        self._begun = self._begun or bool(statuses)
        if self._shown_live is None and time.monotonic() - self._spoke > QUIET_S:
            self.say(f"{self._head()} running {self._shown(most=4)}{self._left()}")
            self._say_who_is_ahead()

    def stop(self) -> None:
        """Stop drawing; what was trained and who is ahead stays on the screen."""
        if self._shown_live is not None:
            self._shown_live.stop()
            self._shown_live = None
        if self.count.finished:
            self.say(f"{self.count.finished} trained in {duration(time.monotonic() - self._began)}{self._gpu_hours()}")
            self._say_who_is_ahead()

    def _say_who_is_ahead(self) -> None:
        """Unless that has been said already."""
        lines = self._tally.lines()
        if lines != self._said:
            self._said = lines
            for line in lines:
                self.say(line)

    def _shown(self, *, most: int, brief: bool = False) -> str:
        """The running cells, those that are stalled first; in brief by name alone."""
        now = time.monotonic()
        cells = sorted(
            ((name, status, now - since if now - since > STALLED_S else 0.0)
             for name, (status, since) in self._told.items()),
            key=lambda cell: -cell[2],
        )  # fmt: skip
        more = len(cells) - most
        shown = ", ".join(cell[0] if brief else _one(*cell) for cell in cells[:most])
        return (shown or "nothing") + (f" and {more} more" if more > 0 else "")

    def _gpu_hours(self) -> str:
        return f", {self.count.seconds * self._gpus / 3600:.2g} GPU-hours" if self._gpus else ""

    def _head(self) -> str:
        width = len(str(self.count.total))
        return f"[{self.count.done:{width}d}/{self.count.total}]"

    def _left(self) -> str:
        left = None if self._waits else eta_s(self.count, self.slots)
        return f", about {duration(left)} left" if left else ""


def fitted(
    parts: Sequence[Sequence[str]], width: int, *, between: int = 2, length: Callable[[str], int] = len
) -> list[str]:
    """What fits on a line, most important first: of each part its first form that does, and nothing after one that
    has none.

    Args:
        parts: Forms of each part, longest first; a part without forms has nothing to say.
        width: Columns.
        between: Columns between two parts.
        length: Columns of a text.

    Example:
        fitted([["1/4 cells", "1/4"], ["about 3 min left"]], 12)  ->  ["1/4 cells"]
    """
    out: list[str] = []
    used = 0
    for forms in parts:
        if not forms:
            continue
        room = width - used - (between if out else 0)
        form = next((form for form in forms if length(form) <= room), None)
        if form is None:
            break
        used = width - room + length(form)
        out.append(form)
    return out


def _one(name: str, status: WorkerStatus | None, stalled_s: float) -> str:
    if status is None:
        return name if not stalled_s else f"{name} (nothing heard for {duration(stalled_s)})"
    where = f" {status.step}/{status.total_steps}" if status.total_steps else ""
    loss = "" if status.loss is None else f", loss {status.loss:.3g}"
    waiting = ", waiting" if status.waiting else ""
    stalled = ""
    if stalled_s and not waiting:
        what = "stalled: no step" if status.phase == "train" else "nothing new"
        stalled = f", {what} for {duration(stalled_s)}"
    return f"{name} ({status.phase}{where}{loss}{waiting}{stalled})"


class Tally:
    """Who is ahead, pair by pair, in the primary endpoints: a look at a table that fills up, never a verdict."""

    def __init__(self, endpoints: Sequence[str], variants: Iterable[str], baseline: str) -> None:
        self._endpoints, self._baseline = tuple(endpoints), baseline
        self._treatments = tuple(variant for variant in variants if variant != baseline)
        self._scores: dict[tuple[str, str], dict[tuple[int, str], float]] = {}
        """(endpoint, variant) -> (seed, setting) -> score."""

    def add(self, cell: Cell, scores: Mapping[str, float]) -> None:
        """A cell is finished; of its scores those of the primary endpoints count."""
        for endpoint in self._endpoints:
            if endpoint in scores:
                pairs = self._scores.setdefault((endpoint, cell.variant), {})
                pairs[cell.seed, cell.setting] = float(scores[endpoint])

    def lines(self) -> list[str]:
        """One line for each primary endpoint and treatment that has a complete pair."""
        return [
            f"{MARK} {endpoint}: {line}"
            for endpoint in self._endpoints
            for treatment in self._treatments
            if (line := self._line(endpoint, treatment))
        ]

    def _line(self, endpoint: str, treatment: str) -> str | None:
        base = self._scores.get((endpoint, self._baseline), {})
        other = self._scores.get((endpoint, treatment), {})
        # A copy: the terminal is drawn by a thread of its own, while cells are added.
        differences = [other[pair] - score for pair, score in list(base.items()) if pair in other]
        if not differences:
            return None
        ahead = sum(difference > TIE for difference in differences)
        tied = sum(abs(difference) <= TIE for difference in differences)
        pairs = f"{len(differences)} pair" + ("s" if len(differences) > 1 else "")
        return f"{treatment} ahead of {self._baseline} in {ahead} of {pairs}" + (f", {tied} tied" if tied else "")


def tally_of(study: Study, kind: str, cells: Iterable[Cell], runs: Iterable[RecordedRun]) -> Tally:
    """A tally that begins with what is recorded.

    Args:
        study: Names primary endpoints, variants and baseline.
        kind: Of the cells; trials of a search are not compared, and give an empty tally.
        cells: Of the study as it stands.
        runs: What is recorded; only finished runs of these cells count.
    """
    tally = Tally(study.primary if kind == schema.KIND_CELL else (), study.variants, study.baseline)
    by_key = {cell.key: cell for cell in cells}
    for run in runs:
        if run.status == "FINISHED" and run.key in by_key:
            tally.add(by_key[run.key], run.metrics)
    return tally
