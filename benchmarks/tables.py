"""Both sides of a comparison as a Markdown table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.measure import Measured, Spread, surroundings

OURS = "pairsweep"


@dataclass(kw_only=True)
class Sides:
    """Measurements of several ways to do one work; ours among them, repeats in the same order for all."""

    measured: dict[str, list[Measured]] = field(default_factory=dict)

    def add(self, side: str, measured: Measured) -> None:
        """One repeat of one side."""
        self.measured.setdefault(side, []).append(measured)

    def seconds(self, side: str) -> Spread:
        """Spread of the wall clock."""
        return Spread.of([one.seconds for one in self.measured[side]])

    def ratio(self, side: str) -> Spread:
        """How many times as long as ours: the spread of the ratios of paired repeats."""
        return Spread.of(
            [
                theirs.seconds / ours.seconds
                for theirs, ours in zip(self.measured[side], self.measured[OURS], strict=True)
            ]
        )

    def rows(self, cells: int) -> list[list[str]]:
        """Rows for `table`; seconds are for all `cells` cells."""
        out = []
        for side, runs in self.measured.items():
            seconds = self.seconds(side)
            out.append(
                [
                    side,
                    seconds.text(),
                    f"{seconds.median / cells:.3g}",
                    "1" if side == OURS else self.ratio(side).text(2),
                    f"{max(one.peak_mb for one in runs):.0f}",
                ]
            )
        return out


COMPARISON_HEADER = ("side", "seconds: median (min-max)", "seconds a cell", "x ours", "peak memory, MiB")


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; the first column to the left, numbers to the right."""
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join([":--", *["--:"] * (len(header) - 1)]) + "|"]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines)


def section(title: str, what: str, body: str, notes: Sequence[str] = ()) -> str:
    """A benchmark's part of a report."""
    parts = [f"### {title}", what, body, *(f"- {note}" for note in notes), f"_{surroundings()}._"]
    return "\n\n".join(parts[:3]) + "\n\n" + "\n".join(parts[3:-1]) + ("\n\n" if notes else "") + parts[-1] + "\n"


Scores = Mapping[tuple[str, int], Mapping[str, float]]
"""(variant, seed) -> score name -> value."""


def disagreement(ours: Scores, theirs: Scores) -> float:
    """Largest absolute difference between two sides' scores.

    Raises:
        SystemExit: a cell or a score of theirs is missing in ours, or theirs has none.
    """
    if not theirs or set(theirs) - set(ours):
        raise SystemExit(f"cells differ: {sorted(ours)} and {sorted(theirs)}")
    worst = 0.0
    for cell, scores in theirs.items():
        missing = set(scores) - set(ours[cell])
        if missing or not scores:
            raise SystemExit(f"{cell}: scores {sorted(missing)} are missing")
        worst = max(worst, *(abs(ours[cell][name] - value) for name, value in scores.items()))
    return worst
