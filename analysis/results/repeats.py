"""Several rows of one cell: told, refused with the column in which they differ, or averaged over it.

Rows inside a seed are no seeds: 20 episodes of 5 seeds are 5 units of evidence, not 100.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from analysis import schema
from analysis.errors import ResultsError
from analysis.results.delimited import SHOWN_ERRORS, Place, RawTable, place
from analysis.results.fields import Row
from analysis.results.layouts import Layout
from analysis.results.model import Problem
from analysis.statistics.paired import TIE_TOLERANCE


class Repeats:
    """Tells which rows give one score a second time with another value: neither is used, and a reader must find them.

    Args:
        path: The file.
        unread: Columns that are not read; where such rows differ in one of them (a step, a time), it is named.
    """

    def __init__(self, path: Path, unread: Sequence[str] = ()) -> None:
        self._path, self._unread = path, unread
        self._first: dict[tuple[str, str, int], tuple[Place, float, Mapping[str, str]]] = {}
        self._found: list[Problem] = []
        self._apart: dict[str, int] = {}
        self.first: tuple[Place, str] | None = None
        """Of the rows that were there before: the place of the first, and its score in words."""

    def add(self, line: Place, row: Row, fields: Mapping[str, str]) -> None:
        """Remember a row: its line, its score, and its fields as written."""
        cell, variant, seed, setting, metric, dim, value = row
        before, first, written = self._first.setdefault((cell, metric, dim), (line, value, fields))
        if before == line or same_score(first, value):
            return
        endpoint = schema.Endpoint(metric, dim)
        apart = [name for name in self._unread if written[name] != fields[name]]
        for name in apart:
            self._apart[name] = self._apart.get(name, 0) + 1
        self.first = self.first or (before, f"{variant}, seed {seed}, setting {setting}, {endpoint}")
        why = f"; they differ in {', '.join(apart)}, which is not read: leave one row of each cell" if apart else ""
        self._found.append(
            Problem(
                where=f"{self._path.name}, {place(line)}",
                reason=f"a second, different score {endpoint} of {variant}, seed {seed}, setting {setting}: "
                f"{_shown(value)} here and {_shown(first)} in {place(before)}, neither is used{why}",
            )
        )

    @property
    def apart(self) -> list[str]:
        """Columns in which all such rows differ from the first of their cell."""
        return [name for name, count in self._apart.items() if count == len(self._found)]

    @property
    def problems(self) -> list[Problem]:
        """The first of them, and how many more there are."""
        more = len(self._found) - SHOWN_ERRORS
        rest = [Problem(where=self._path.name, reason=f"{more} more rows give a second, different score")]
        return [*self._found[:SHOWN_ERRORS], *(rest if more > 0 else [])]


def same_score(one: float, other: float) -> bool:
    """Whether two records of a score say the same; two that are undefined do."""
    return (math.isnan(one) and math.isnan(other)) or abs(one - other) <= TIE_TOLERANCE


def _shown(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:.10g}"


SEED_NAMES = frozenset({"seed", "random_seed", "random_state", "rng_seed", "training_seed", "train_seed"})
REPEAT_NAMES = frozenset(
    {"episode", "episodes", "fold", "run", "repeat", "repetition", "replicate", "rep", "trial", "attempt", "sample"}
)
"""Columns that count what was done again inside a seed."""


def refuse_repeats(raw: RawTable, layout: Layout, repeats: Repeats) -> None:
    """Refuse a table in which rows of one cell differ in a column that is not read: it is a setting, or a repeat.

    Raises:
        ResultsError: names the column and the option.
    """
    apart = repeats.apart
    if not apart:
        return
    repeat = next((name for name in apart if layout.bare(name).lower() in REPEAT_NAMES), None)
    line, what = repeats.first or ("", "")
    told = f"{raw.path}: {what}: several rows, first {place(line)}, which differ in"
    if repeat is not None:
        raise ResultsError(
            f"{told} column {repeat!r}: rows inside a seed are no seeds; average them with --average-over {repeat}, or"
            " leave one row of each cell"
        )
    steps = [name for name in apart if layout.bare(name).lower().strip("_") in _STEPS]
    options = " ".join(f"--setting {name}" for name in apart[:3] if name not in steps)
    if options:
        shown = ", ".join(apart[:3])
        raise ResultsError(
            f"{told} {shown}, which is not read: name a setting with {options}, or leave one row of each cell"
        )


_STEPS = frozenset({"step", "epoch", "iteration", "training_iteration", "timestamp", "time", "runtime", "date"})


def refuse_seeds_of_seeds(raw: RawTable, layout: Layout, *, seed: str, read: frozenset[str]) -> None:
    """Refuse a column that counts more finely than the seeds that stand beside it: 100 episodes of 5 seeds are 5.

    Raises:
        ResultsError: another column holds the seeds.
    """
    if layout.bare(seed).lower() in SEED_NAMES:
        return
    other = next((n for n in raw.header if n not in read and layout.bare(n).lower() in SEED_NAMES), None)
    if other is None:
        return
    fine, seeds = ({row[name] for _, row in raw.rows if row[name]} for name in (seed, other))
    if 0 < len(seeds) < len(fine):
        raise ResultsError(
            f"{raw.path}: --seed {seed}: its {len(fine)} values come from {len(seeds)} seeds (column {other!r}), which"
            f" are the evidence; give --seed {other} --average-over {seed}"
        )


def averaged(
    raw: RawTable,
    layout: Layout,
    rows: Sequence[Row],
    places: Sequence[tuple[Place, Mapping[str, str]]],
    *,
    over: Sequence[str],
) -> tuple[list[Row], str]:
    """One score per cell and endpoint: the mean over its repeats; undefined where one of them is.

    Args:
        raw: The table.
        layout: Whose it is.
        rows: Scores of single repeats.
        places: Line and fields of each.
        over: Columns that tell the repeats of a cell apart.

    Returns:
        The averaged rows, and a sentence that says over how many.

    Raises:
        ResultsError: a repeat is there twice with different scores.
    """
    found: dict[tuple[str, str, int], dict[tuple[str, ...], float]] = {}
    first: dict[tuple[str, str, int], Row] = {}
    for row, (line, fields) in zip(rows, places, strict=True):
        key, repeat = (row[0], row[4], row[5]), tuple(fields[name] for name in over)
        first.setdefault(key, row)
        known = found.setdefault(key, {})
        if not same_score(known.setdefault(repeat, row[6]), row[6]):
            named = ", ".join(f"{name} {value}" for name, value in zip(over, repeat, strict=True))
            raise ResultsError(
                f"{raw.path}: {place(line)}: a second, different score {schema.Endpoint(row[4], row[5])} of {row[1]},"
                f" seed {row[2]}, setting {row[3]}, {named}: --average-over must name all that tells them apart"
            )
    out = [(*first[key][:6], math.fsum(known.values()) / len(known)) for key, known in found.items()]
    counts = sorted({len(known) for known in found.values()})
    number = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    what = " x ".join(layout.bare(name) for name in over)
    unequal = ", not of as many in every cell," if len(counts) > 1 else ""
    said = f"Each score is the mean over {what} inside its seed ({number} rows){unequal}: the seed counts once."
    return out, said
