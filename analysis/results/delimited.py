"""A delimited file as text, in any of its dialects: header, rows with their line numbers, and what is wrong with them.

Nothing is dropped silently: a row that cannot be read refuses the file and is named by its line.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field, replace
from pathlib import Path

from analysis import schema
from analysis.errors import ResultsError
from analysis.results.fields import without_guard
from analysis.results.model import Problem

DELIMITERS = (",", ";", "\t", "|")
SHOWN_ERRORS = 5
Place = int | str
"""Line of a file, or what else tells a row apart: the folder of a run."""


@dataclass(frozen=True, kw_only=True)
class RawTable:
    """A delimited file as text: lower-case header, rows with their line numbers."""

    path: Path
    header: tuple[str, ...]
    original: tuple[str, ...]
    """Header as written."""
    rows: tuple[tuple[Place, dict[str, str]], ...]
    problems: tuple[Problem, ...] = ()

    def with_rows(self, rows: tuple[tuple[Place, dict[str, str]], ...]) -> RawTable:
        """The same table with other rows."""
        return replace(self, rows=rows)


@dataclass
class LineErrors:
    """Collects what is wrong with a file's lines, so that all are told at once."""

    path: Path
    found: list[str] = field(default_factory=list)

    def add(self, line: Place, column: str, value: str, allowed: str) -> None:
        """Remember one wrong value."""
        self.found.append(f"{place(line)}: {column}: {value[:60]!r} is not valid; expected {allowed}")

    def check_range(self, line: Place, column: str, text: str, endpoint: schema.Endpoint, value: float) -> None:
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


def place(line: Place) -> str:
    """`line 3`, or the folder of a run as it is."""
    return f"line {line}" if isinstance(line, int) else line
