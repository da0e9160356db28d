"""A table that anybody made: one row per variant, seed, setting, metric and dim, as CSV in any of its dialects.

Nothing is dropped silently: a row that cannot be read refuses the file and is named by its line.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from analysis import schema
from analysis.errors import ResultsError
from analysis.results.model import CellRecord, Problem, Results
from analysis.results.runs import table
from analysis.statistics.paired import TIE_TOLERANCE

DELIMITERS = (",", ";", "\t", "|")
SHOWN_ERRORS = 5
REQUIRED = (schema.COLUMN_VARIANT, schema.COLUMN_SEED, schema.COLUMN_METRIC, schema.COLUMN_VALUE)
NOT_A_NUMBER = frozenset({"", "nan", "na", "n/a", "null", "none", "-"})
GROUPED = frozenset(
    {"mean", "avg", "average", "median", "std", "sd", "stdev", "std_dev", "stddev", "sem", "stderr", "n", "count"}
)
STATE_COLUMNS = ("state", "status")
FINISHED_STATES = frozenset({"finished", "complete", "completed", "success", "succeeded", "terminated", "done", "ok"})
FAILED_STATES = frozenset({"failed", "fail", "failure", "crashed", "crash", "error", "errored", "diverged"})
"""The cell failed by itself; any other state that is not finished (killed, running, pruned) says nothing of it."""
NUMBER = "a number (1,200 could be 1.2 or 1200: write a decimal point, and no separator of thousands)"
_NUMERIC = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
Row = tuple[str, str, int, str, str, int, float]
Rows = tuple[list[Row], list[CellRecord], list[Problem]]
"""Scores, cells that failed by themselves, and what was not used."""


@dataclass(frozen=True, kw_only=True)
class RawTable:
    """A delimited file as text: lower-case header, rows with their line numbers."""

    path: Path
    header: tuple[str, ...]
    original: tuple[str, ...]
    """Header as written."""
    rows: tuple[tuple[int, dict[str, str]], ...]
    problems: tuple[Problem, ...] = ()


@dataclass
class LineErrors:
    """Collects what is wrong with a file's lines, so that all are told at once."""

    path: Path
    found: list[str] = field(default_factory=list)

    def add(self, line: int, column: str, value: str, allowed: str) -> None:
        """Remember one wrong value."""
        self.found.append(f"line {line}: {column}: {value[:60]!r} is not valid; expected {allowed}")

    def check_range(self, line: int, column: str, text: str, endpoint: schema.Endpoint, value: float) -> None:
        """Remember a value that its metric cannot have."""
        allowed = schema.out_of_range(endpoint.statistic, value)
        if allowed is not None:
            low, high = allowed
            self.add(line, column, text, f"a number from {low:g} to {high:g} for {endpoint.statistic}")

    def raise_if_any(self) -> None:
        """Refuse the file.

        Raises:
            ResultsError: at least one line is wrong.
        """
        if self.found:
            more = f"; and {len(self.found) - SHOWN_ERRORS} more" if len(self.found) > SHOWN_ERRORS else ""
            raise ResultsError(f"{self.path}: " + "; ".join(self.found[:SHOWN_ERRORS]) + more)


class Repeats:
    """Tells which rows give one score a second time with another value: neither is used, and a reader must find them.

    Args:
        path: The file.
        unread: Columns that are not read; where such rows differ in one of them (a step, a time), it is named.
    """

    def __init__(self, path: Path, unread: Sequence[str] = ()) -> None:
        self._path, self._unread = path, unread
        self._first: dict[tuple[str, str, int], tuple[int, float, Mapping[str, str]]] = {}
        self._found: list[Problem] = []

    def add(self, line: int, row: Row, fields: Mapping[str, str]) -> None:
        """Remember a row: its line, its score, and its fields as written."""
        cell, variant, seed, setting, metric, dim, value = row
        before, first, written = self._first.setdefault((cell, metric, dim), (line, value, fields))
        if before == line or same_score(first, value):
            return
        endpoint = schema.Endpoint(metric, dim)
        apart = [name for name in self._unread if written[name] != fields[name]]
        why = f"; they differ in {', '.join(apart)}, which is not read: leave one row of each cell" if apart else ""
        self._found.append(
            Problem(
                where=f"{self._path.name}, line {line}",
                reason=f"a second, different score {endpoint} of {variant}, seed {seed}, setting {setting}: "
                f"{_shown(value)} here and {_shown(first)} in line {before}, neither is used{why}",
            )
        )

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


def read_raw(path: Path) -> RawTable:
    """Text, dialect, header and rows of a file.

    Raises:
        ResultsError: the file cannot be read as a table.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read: {error.strerror}") from None
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ResultsError(f"{path}: line {line} is not UTF-8 text; save the file as UTF-8") from None
    if "\x00" in text:
        raise ResultsError(f"{path}: this is not a text file; expected CSV")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    first = next((line for line in text.split("\n") if line.strip()), "")
    if not first:
        raise ResultsError(f"{path}: the file is empty; expected the columns {', '.join(schema.PLAIN_COLUMNS)}")
    delimiter = max(DELIMITERS, key=first.count)
    return _split(path, text, delimiter)


def _split(path: Path, text: str, delimiter: str) -> RawTable:
    errors, problems = LineErrors(path), []
    original: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows = []
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    try:
        for cells in reader:
            line, values = reader.line_num, [without_guard(cell.strip()) for cell in cells]
            if not any(values):
                continue
            if not header:
                original, header = tuple(values), tuple(value.lower() for value in values)
                twice = sorted({name for name in header if name and header.count(name) > 1})
                if twice:
                    raise ResultsError(f"{path}: line {line}: the column {twice[0]!r} occurs twice")
                continue
            if tuple(value.lower() for value in values) == header:
                problems.append(Problem(where=f"{path.name}, line {line}", reason="the header is repeated; skipped"))
                continue
            while len(values) > len(header) and not values[-1]:
                values.pop()
            if len(values) != len(header):
                hint = " (a decimal comma needs quotes or another separator)" if len(values) > len(header) else ""
                errors.found.append(f"line {line}: {len(values)} values for {len(header)} columns{hint}")
                continue
            rows.append((line, dict(zip(header, values, strict=True))))
    except csv.Error as error:
        raise ResultsError(f"{path}: line {reader.line_num}: {error}") from None
    errors.raise_if_any()
    return RawTable(path=path, header=header, original=original, rows=tuple(rows), problems=tuple(problems))


def guarded(text: str) -> str:
    """Text that a spreadsheet will not take for a formula: an apostrophe is put before `= + - @`, tab and CR.

    >>> guarded("=1+1"), guarded("plain"), guarded("'=1+1")
    ("'=1+1", 'plain', "''=1+1")
    """
    return f"'{text}" if _FORMULA.match(text) else text


def without_guard(text: str) -> str:
    """The inverse of `guarded`."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def plain_rows(raw: RawTable) -> Rows:
    """Rows of a table with our own columns.

    Raises:
        ResultsError: a grouped table, a missing column, or wrong lines.
    """
    _refuse_grouped(raw)
    missing = [name for name in REQUIRED if name not in raw.header]
    if missing:
        raise ResultsError(
            f"{raw.path}: column {missing[0]!r} is missing; expected {', '.join(schema.PLAIN_COLUMNS)}"
            f" (setting may be absent); found {', '.join(raw.original)}"
        )
    errors, rows, settings, left_out = LineErrors(raw.path), [], Settings(), Counter[str]()
    has_dim = schema.COLUMN_DIM in raw.header
    state = next((name for name in STATE_COLUMNS if name in raw.header), None)
    known = {*schema.RESULT_COLUMNS, *([state] if state else []), ""}
    repeats = Repeats(raw.path, [name for name in raw.header if name not in known])
    failed = []
    for line, row in raw.rows:
        if state is not None and row[state].lower() not in FINISHED_STATES:
            left_out[row[state] or "without state"] += 1
            label = settings.label(row.get(schema.COLUMN_SETTING, ""))
            failed += failed_cell(row[state], row[schema.COLUMN_VARIANT], row[schema.COLUMN_SEED], label)
            continue
        variant, setting = row[schema.COLUMN_VARIANT], settings.label(row.get(schema.COLUMN_SETTING, ""))
        if not variant:
            errors.add(line, "variant", variant, "a name")
        seed = whole_number(row[schema.COLUMN_SEED])
        if seed is None:
            errors.add(line, "seed", row[schema.COLUMN_SEED], "a whole number")
        endpoint = _endpoint(row, has_dim, line, errors)
        value = number(row[schema.COLUMN_VALUE])
        if value is None:
            errors.add(line, "value", row[schema.COLUMN_VALUE], NUMBER)
        elif endpoint is not None:
            errors.check_range(line, "value", row[schema.COLUMN_VALUE], endpoint, value)
        if variant and seed is not None and endpoint is not None and value is not None:
            rows.append((cell_name(variant, seed, setting), variant, seed, setting, *endpoint, value))
            repeats.add(line, rows[-1], row)
    errors.raise_if_any()
    _refuse_empty(raw, rows)
    extra = [name for name, lower in zip(raw.original, raw.header, strict=True) if lower not in known]
    unread = f"columns not read: {', '.join(extra)}"
    problems = [Problem(where=raw.path.name, reason=unread)] if extra else []
    counts = ", ".join(f"{count} {name}" for name, count in sorted(left_out.items()))
    if counts:
        reason = f"rows left out because column {state!r} does not say that they finished: {counts}"
        problems.append(Problem(where=raw.path.name, reason=reason))
    return rows, failed, [*repeats.problems, *problems]


SETTING_WORDS = ("lr", "learning_rate", "batch_size", "epochs", "max_steps", "weight_decay", "warmup_ratio")
"""Columns by which tables of any tool say how a variant was trained."""
_PREFIXES = ("params.", "user_attrs_", "params_")


def setting_columns(raw: RawTable) -> tuple[str, list[str]]:
    """The column of variants, and those that say how they were trained."""
    bare = {name: name for name in raw.header}
    for prefix in _PREFIXES:
        bare |= {name: name.removeprefix(prefix) for name in raw.header if name.startswith(prefix)}
    found = [
        name for name in raw.header if bare[name] == schema.COLUMN_VARIANT or name.endswith((".variant", "_variant"))
    ]
    variant = found[0] if found else raw.header[0]
    return variant, [name for name in raw.header if bare[name] in SETTING_WORDS]


def settings_by_variant(raw: RawTable, variant_column: str, columns: Sequence[str]) -> tuple[str, ...]:
    """A sentence per column whose values differ between variants, though each variant has one: is it what is compared?

    Two variants and a column lr, 2e-5 in a and 3e-5 in b, give `lr differs between variants (a: 2e-5; b: 3e-5): ...`.
    """
    out = []
    for name in columns:
        by_variant: dict[str, dict[str, str]] = {}
        for _, row in raw.rows:
            if row[variant_column] and row[name]:
                text = row[name]
                by_variant.setdefault(row[variant_column], {}).setdefault(_NUMERIC.sub(_as_number, text), text)
        alike = {tuple(sorted(values)) for values in by_variant.values()}
        if len(by_variant) > 1 and len(alike) > 1 and all(len(values) == 1 for values in by_variant.values()):
            shown = "; ".join(f"{variant}: {next(iter(v.values()))}" for variant, v in by_variant.items())
            out.append(
                f"{name} differs between variants ({shown}): if that is not what they are compared for, the"
                " difference is not theirs."
            )
    return tuple(out)


def failed_cell(state: str, variant: str, seed_text: str, setting: str) -> list[CellRecord]:
    """The record of a row that says it failed by itself; nothing for any other state."""
    seed = whole_number(seed_text)
    if state.lower() not in FAILED_STATES or not variant or seed is None:
        return []
    return [
        CellRecord(
            cell=cell_name(variant, seed, setting),
            variant=variant,
            seed=seed,
            setting=setting,
            state=schema.STATE_FAILED,
            failure=f"its row says {state}",
            failure_kind=schema.FAILURE_CELL,
        )
    ]


def _refuse_empty(raw: RawTable, rows: list[Row]) -> None:
    """A metric without one number is a mistake in the file, not a metric of failed models."""
    given = {row[4] for row in rows if not math.isnan(row[6])}
    empty = sorted({row[4] for row in rows} - given)
    if empty:
        count = sum(row[4] == empty[0] for row in rows)
        raise ResultsError(f"{raw.path}: metric {empty[0]!r} has no number in any of its {count} rows")


def _endpoint(row: dict[str, str], has_dim: bool, line: int, errors: LineErrors) -> schema.Endpoint | None:
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


def cell_name(variant: str, seed: int, setting: str) -> str:
    """Identity of a cell in a table that records none."""
    return f"{variant}-s{seed}-{setting}"


def whole_number(text: str) -> int | None:
    """`3`, `3.0` or `3,0` -> 3, exact whatever its size; None for anything else."""
    match = re.fullmatch(r"([+-]?\d+)([.,]0*)?", text)
    if match is not None:
        return int(match[1])
    value = number(text)
    return int(value) if value is not None and abs(value) < 2**53 and value == int(value) else None


def number(text: str) -> float | None:
    """A number with decimal point or comma; NaN for an empty, undefined or infinite one; None for anything else.

    `1,200` is refused: it is 1.2 to one reader and 1200 to another.
    """
    if text.lower() in NOT_A_NUMBER:
        return math.nan
    if _THOUSANDS.fullmatch(text):
        return None
    if re.fullmatch(r"[+-]?\d*,\d+([eE][+-]?\d+)?", text):
        text = text.replace(",", ".")
    if not _NUMERIC.fullmatch(text):
        return math.nan if text.lower().lstrip("+-") in ("inf", "infinity") else None
    value = float(text)
    return value if abs(value) < schema.LARGEST_SCORE else math.nan


class Settings:
    """Names of settings: numbers that are equal are one setting, called as it is written first.

    >>> settings = Settings()
    >>> settings.label("lr=2e-5"), settings.label("lr=0.00002"), settings.label("")
    ('lr=2e-5', 'lr=2e-5', 'default')
    """

    def __init__(self) -> None:
        self._first: dict[str, str] = {}

    def label(self, text: str) -> str:
        """The setting's name."""
        if not text:
            return schema.DEFAULT_SETTING
        return self._first.setdefault(re.sub(r"[^=,;|\s]+", _as_number, text), text)


def _as_number(match: re.Match[str]) -> str:
    return repr(float(match[0])) if _NUMERIC.fullmatch(match[0]) else match[0]
