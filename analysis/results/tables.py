"""A table that anybody made: one row per variant, seed, setting, metric and dim, as CSV in any of its dialects.

Nothing is dropped silently: a row that cannot be read refuses the file and is named by its line.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from analysis import schema
from analysis.errors import ResultsError
from analysis.results.column_map import some
from analysis.results.delimited import LineErrors, Place, RawTable, place
from analysis.results.fields import (
    FINISHED_STATES,
    LARGEST_PLAUSIBLE,
    NUMBER,
    Row,
    Settings,
    cell_name,
    failed_cell,
    number,
    whole_number,
)
from analysis.results.layouts import PLAIN
from analysis.results.mapped import Mapped, implausible
from analysis.results.model import CellRecord, Problem, Results
from analysis.results.proposal import proposal
from analysis.results.repeats import REPEAT_NAMES, Repeats, refuse_repeats
from analysis.results.runs import table

REQUIRED = (schema.COLUMN_VARIANT, schema.COLUMN_SEED, schema.COLUMN_METRIC, schema.COLUMN_VALUE)
GROUPED = frozenset(
    {"mean", "avg", "average", "median", "std", "sd", "stdev", "std_dev", "stddev", "sem", "stderr", "n", "count"}
)


def plain_rows(raw: RawTable) -> Mapped:
    """Rows of a table with our own columns.

    Raises:
        ResultsError: a grouped table, a missing column, wrong lines, or repeats inside a seed.
    """
    _refuse_grouped(raw)
    missing = [name for name in REQUIRED if name not in raw.header]
    if missing:
        raise ResultsError(
            f"{raw.path}: column {missing[0]!r} is missing; expected {', '.join(schema.PLAIN_COLUMNS)}"
            f" (setting may be absent); found {some(raw.original)}; or {proposal(raw, PLAIN)}"
        )
    errors, settings, left_out = LineErrors(raw.path), Settings(), Counter[str]()
    rows: list[Row] = []
    has_dim = schema.COLUMN_DIM in raw.header
    state = PLAIN.state_column(raw)
    known = {*schema.RESULT_COLUMNS, *([state] if state else []), ""}
    repeats = Repeats(raw.path, [name for name in raw.header if name not in known])
    failed: list[CellRecord] = []
    huge: list[str] = []
    endpoints: dict[tuple[str, str], schema.Endpoint] = {}
    for line, row in raw.rows:
        setting = settings.label(row.get(schema.COLUMN_SETTING, ""))
        variant = row[schema.COLUMN_VARIANT]
        if state is not None and row[state].lower() not in FINISHED_STATES:
            left_out[row[state] or "without state"] += 1
            failed += failed_cell(row[state], variant, row[schema.COLUMN_SEED], setting)
            continue
        if not variant:
            errors.add(line, "variant", variant, "a name")
        seed = whole_number(row[schema.COLUMN_SEED])
        if seed is None:
            errors.add(line, "seed", row[schema.COLUMN_SEED], "a whole number")
        named = (row[schema.COLUMN_METRIC], row[schema.COLUMN_DIM] if has_dim else "")
        endpoint = endpoints.get(named) or _endpoint(row, has_dim, line, errors)
        value = number(row[schema.COLUMN_VALUE])
        if value is None:
            errors.add(line, "value", row[schema.COLUMN_VALUE], NUMBER)
        elif endpoint is not None:
            errors.check_range(line, "value", row[schema.COLUMN_VALUE], endpoint, value)
            if abs(value) >= LARGEST_PLAUSIBLE:
                huge.append(f"{place(line)}: {row[schema.COLUMN_VALUE][:24]}")
                value = math.nan
        if variant and seed is not None and endpoint is not None and value is not None:
            endpoints[named] = endpoint
            rows.append((cell_name(variant, seed, setting), variant, seed, setting, *endpoint, value))
            repeats.add(line, rows[-1], row)
    errors.raise_if_any()
    _refuse_empty(raw, rows)
    if any(name in REPEAT_NAMES for name in repeats.apart):
        refuse_repeats(raw, PLAIN, repeats)
    extra = [name for name, lower in zip(raw.original, raw.header, strict=True) if lower not in known]
    unread = f"columns not read: {', '.join(extra)}"
    problems = [Problem(where=raw.path.name, reason=unread)] if extra else []
    counts = ", ".join(f"{count} {name}" for name, count in sorted(left_out.items()))
    if counts:
        reason = f"rows left out because column {state!r} does not say that they finished: {counts}"
        problems.append(Problem(where=raw.path.name, reason=reason))
    problems += implausible(raw.path.name, huge)
    return Mapped(rows=rows, failed=failed, problems=[*repeats.problems, *problems])


def _refuse_empty(raw: RawTable, rows: list[Row]) -> None:
    """A metric without one number is a mistake in the file, not a metric of failed models."""
    given = {row[4] for row in rows if not math.isnan(row[6])}
    empty = sorted({row[4] for row in rows} - given)
    if empty:
        count = sum(row[4] == empty[0] for row in rows)
        raise ResultsError(f"{raw.path}: metric {empty[0]!r} has no number in any of its {count} rows")


def _endpoint(row: dict[str, str], has_dim: bool, line: Place, errors: LineErrors) -> schema.Endpoint | None:
    metric = row[schema.COLUMN_METRIC]
    text = f"{metric}_{whole_number(row[schema.COLUMN_DIM])}" if has_dim else metric
    if has_dim and (whole_number(row[schema.COLUMN_DIM]) or 0) < 1:
        errors.add(line, "dim", row[schema.COLUMN_DIM], "a whole number from 1")
        return None
    try:
        return schema.parse_endpoint(text)
    except ValueError:
        allowed = "split/metric, such as test/spearman" + ("" if has_dim else "_256 (or a column dim)")
        errors.add(line, "metric", metric, allowed)
        return None


def _refuse_grouped(raw: RawTable) -> None:
    averaged = [name for name, lower in zip(raw.original, raw.header, strict=True) if lower in GROUPED]
    if averaged or (schema.COLUMN_SEED not in raw.header and schema.COLUMN_VARIANT in raw.header):
        why = f"it has the column {averaged[0]!r}" if averaged else "it has no column 'seed'"
        raise ResultsError(
            f"{raw.path}: this table is already averaged over seeds ({why}), and pairs cannot be made of averages;"
            f" give one row per seed, with the columns {', '.join(schema.PLAIN_COLUMNS)}"
        )


def results_of_rows(
    rows: list[Row],
    *,
    study: str,
    problems: tuple[Problem, ...],
    failed: Sequence[CellRecord] = (),
    warnings: tuple[str, ...] = (),
) -> Results:
    """Rows without fingerprints as Results; an order of variants as they come.

    A cell counts as failed where no other row of it finished.
    """
    cells = {
        row[0]: CellRecord(cell=row[0], variant=row[1], seed=row[2], setting=row[3], state=schema.STATE_FINISHED)
        for row in rows
    }
    for record in failed:
        cells.setdefault(record.cell, record)
    return Results(
        study=study,
        table=table(rows),
        cells=tuple(cells.values()),
        problems=problems,
        fingerprinted=False,
        warnings=warnings,
        variant_order=tuple(dict.fromkeys(cell.variant for cell in cells.values())),
    )
