"""Scores of a table whose columns are known: wide (a column per metric) or long (a column `metric`).

Only finished runs count. Several rows of one cell are refused with the column in which they differ, or averaged over it
where that was asked for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from analysis import schema
from analysis.errors import ResultsError
from analysis.results.column_map import Columns, written
from analysis.results.delimited import LineErrors, Place, RawTable, place
from analysis.results.fields import (
    LARGEST_PLAUSIBLE,
    NUMBER,
    Row,
    Settings,
    cell_name,
    failed_cell,
    number,
    whole_number,
)
from analysis.results.layouts import Layout
from analysis.results.model import CellRecord, Problem
from analysis.results.repeats import Repeats, averaged, refuse_repeats, refuse_seeds_of_seeds


@dataclass(frozen=True, kw_only=True)
class Mapped:
    """What a table says, once its columns are known."""

    rows: list[Row]
    failed: list[CellRecord]
    """Cells that failed by themselves."""
    problems: list[Problem]
    """What was not used."""
    warnings: tuple[str, ...] = ()
    """What a reader must know before the numbers."""


@dataclass(frozen=True, kw_only=True)
class _Read:
    """Rows with a score, beside what they were read from."""

    rows: list[Row]
    places: list[tuple[Place, Mapping[str, str]]]
    failed: list[CellRecord]
    problems: list[Problem]


def mapped_rows(raw: RawTable, layout: Layout, columns: Columns) -> Mapped:
    """Scores of the finished rows.

    Raises:
        ResultsError: a field that cannot be read, a metric without a number, or several rows of one cell.
    """
    refuse_seeds_of_seeds(raw, layout, seed=columns.seed, read=columns.read)
    found = _read(raw, layout, columns)
    rows = found.rows
    warnings: tuple[str, ...] = ()
    if columns.average_over:
        rows, said = averaged(raw, layout, found.rows, found.places, over=columns.average_over)
        warnings = (said,)
        repeated: list[Problem] = []
    else:
        unread = [name for name in raw.header if layout.may_say_how(name) and name not in columns.read]
        repeats = Repeats(raw.path, unread)
        for row, (line, fields) in zip(rows, found.places, strict=True):
            repeats.add(line, row, fields)
        refuse_repeats(raw, layout, repeats)
        repeated = repeats.problems
    return Mapped(
        rows=_with_numbers(raw, layout, columns, rows),
        failed=found.failed,
        problems=[*repeated, *found.problems],
        warnings=warnings,
    )


def _read(raw: RawTable, layout: Layout, columns: Columns) -> _Read:
    state = layout.state_column(raw)
    errors, settings, left_out = LineErrors(raw.path), Settings(), Counter[str]()
    rows: list[Row] = []
    places: list[tuple[Place, Mapping[str, str]]] = []
    failed: list[CellRecord] = []
    cell_of: dict[str, tuple[Place, str]] = {}
    nameless, huge = 0, []
    for line, row in raw.rows:
        if columns.only_metrics and written(row[schema.COLUMN_METRIC]) not in columns.only_metrics:
            continue
        setting = settings.label(columns.label(row, layout))
        variant, seed = row[columns.variant], whole_number(row[columns.seed])
        if state is not None:
            ended = row[state].rpartition("TrialState.")[2]
            if ended.lower() not in layout.finished:
                left_out[ended.upper() or "without state"] += 1
                failed += failed_cell(ended, variant, row[columns.seed], setting)
                continue
        if not variant and not row[columns.seed]:
            nameless += 1
            continue
        if not variant:
            errors.add(line, columns.variant, variant, "a name")
        if seed is None:
            errors.add(line, columns.seed, row[columns.seed], "a whole number")
        if not variant or seed is None:
            continue
        cell = cell_name(variant, seed, setting)
        if layout.run is not None and row[layout.run]:
            before, told = cell_of.setdefault(row[layout.run], (line, cell))
            if told != cell:
                errors.add(line, layout.run, row[layout.run], f"another run than {place(before)}, which says {told}")
        for column, name in columns.scores.items():
            endpoint, value = name.of(row), number(row[column])
            if endpoint is None:
                errors.add(line, str(name.dim_column), row[str(name.dim_column)], "a whole number from 1")
                continue
            if value is None:
                errors.add(line, column, row[column], NUMBER)
                continue
            errors.check_range(line, column, row[column], endpoint, value)
            if abs(value) >= LARGEST_PLAUSIBLE:
                huge.append(f"{place(line)}, {column}: {row[column][:24]}")
                value = math.nan
            rows.append((cell, variant, seed, setting, *endpoint, value))
            places.append((line, row))
    errors.raise_if_any()
    problems = []
    counts = ", ".join(f"{count} {name}" for name, count in sorted(left_out.items()))
    if counts:
        wanted = "/".join(sorted(layout.finished)).upper() if layout.must_say_state else "finished"
        reason = f"{layout.noun} left out because only {wanted} ones count: {counts}"
        problems.append(Problem(where=raw.path.name, reason=reason))
    if nameless:
        reason = f"{layout.noun} left out because they name neither variant nor seed: {nameless}"
        problems.append(Problem(where=raw.path.name, reason=reason))
    problems += implausible(raw.path.name, huge)
    return _Read(rows=rows, places=places, failed=failed, problems=problems)


def implausible(where: str, found: list[str]) -> list[Problem]:
    """The problem of scores of a magnitude that no metric has; none where there are none."""
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    reason = f"larger than any metric, taken as undefined: {'; '.join(found[:3])}{more}"
    return [Problem(where=where, reason=reason)] if found else []


def _with_numbers(raw: RawTable, layout: Layout, columns: Columns, rows: list[Row]) -> list[Row]:
    """An empty field is a NaN that was logged, unless this variant never has a number there.

    Raises:
        ResultsError: a metric without one number.
    """
    numbers = {(row[1], row[4], row[5]) for row in rows if not math.isnan(row[6])}
    kept = [row for row in rows if (row[1], row[4], row[5]) in numbers]
    found = {(metric, dim) for _, metric, dim in numbers}
    empty = next((schema.Endpoint(row[4], row[5]) for row in rows if (row[4], row[5]) not in found), None)
    if empty is None:
        return kept
    column = next((c for c, n in columns.scores.items() if n.metric is not None and n.of_name(n.metric) == empty), None)
    what = f"metric {str(empty)!r}" if column is None else f"column {column!r}"
    raise ResultsError(f"{raw.path}: {what} is empty in all finished {layout.noun}; take it out")
