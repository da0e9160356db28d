"""One sentence pair as read from anywhere, the checks that every one must pass, and what happens to those that fail."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from trainables.errors import InputError

_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DECIMAL_COMMA: Final = re.compile(r"[+-]?[0-9]*,[0-9]+")
_SHOWN: Final = 5
"""Bad rows that a message names one by one."""
_SHOWN_CHARACTERS: Final = 60


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Our columns -> the names they have in the user's data."""

    sentence1: str = "sentence1"
    sentence2: str = "sentence2"
    label: str = "label"

    @property
    def names(self) -> tuple[str, str, str]:
        """The user's names, in our order."""
        return (self.sentence1, self.sentence2, self.label)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One pair; `line` is its line in a text file, or its row elsewhere, from 1."""

    line: int
    sentence1: str
    sentence2: str
    label: float


@dataclass(kw_only=True)
class RowChecks:
    """Collects the bad rows of one file or dataset, so that all are told at once, or left out.

    >>> checks = RowChecks(drop=True)
    >>> with checks.row(3):
    ...     make_row(("a", "b", "?"), where="x.csv", line=3, columns=Columns(), label_range=(0, 1))
    >>> checks.finish("x.csv", kept=10)
    'x.csv: 1 of 11 rows left out (data.bad_rows: drop), line 3'
    """

    drop: bool = False
    """Leave bad rows out and say so, instead of refusing the data."""
    bad: list[tuple[int, InputError]] = field(default_factory=list)
    """Line (or row number) and what is wrong there."""

    @contextmanager
    def row(self, line: int) -> Iterator[None]:
        """Inside, an InputError is about this row alone; it is kept, and reading goes on."""
        try:
            yield
        except InputError as error:
            self.bad.append((line, error))

    def finish(self, where: str, *, kept: int) -> str | None:
        """After the last row.

        Returns:
            A note on what was left out; None where nothing was.

        Raises:
            InputError: there are bad rows, and they are not to be left out. A single one is told as it is.
        """
        if not self.bad:
            return None
        if self.drop:
            lines = ", ".join(str(line) for line, _ in self.bad[:_SHOWN])
            more = f" and {len(self.bad) - _SHOWN} more" if len(self.bad) > _SHOWN else ""
            plural = "line" if len(self.bad) == 1 else "lines"
            total = kept + len(self.bad)
            return f"{where}: {len(self.bad)} of {total} rows left out (data.bad_rows: drop), {plural} {lines}{more}"
        if len(self.bad) == 1:
            raise self.bad[0][1]
        raise BadRows(where=where, bad=self.bad[:_SHOWN], count=len(self.bad), total=kept + len(self.bad))


class BadRows(InputError):
    """More than one bad row: the first five and the count, in one line."""

    def __init__(self, *, where: str, bad: list[tuple[int, InputError]], count: int, total: int) -> None:
        told = "; ".join(f"line {line}: {error.field}: {_short(error.value)}, {error.allowed}" for line, error in bad)
        more = f"; and {count - len(bad)} more" if count > len(bad) else ""
        super().__init__(where=where, field="rows", value=f"{count} of {total}", allowed=f"{told}{more}")

    def __str__(self) -> str:
        return f"{self.where}: {self.value} rows are bad: {self.allowed} (data.bad_rows: drop leaves them out)"


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN_CHARACTERS else shown[: _SHOWN_CHARACTERS - 3] + "..."


def parse_number(text: str) -> float | None:
    """The number that a label's text stands for, with a decimal point or a decimal comma; None if it is none."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    if _DECIMAL_COMMA.fullmatch(text):
        return float(text.replace(",", "."))
    return None


def has_decimal_comma(text: str) -> bool:
    """True for a number written with a decimal comma."""
    return _DECIMAL_COMMA.fullmatch(text.strip()) is not None


def make_row(
    values: tuple[object, object, object], *, where: str, line: int, columns: Columns, label_range: tuple[float, float]
) -> Row:
    """A checked row from what stands in the three columns.

    Raises:
        InputError: a text is missing or empty, or the label is no number in the range.
    """
    place = f"{where}:{line}"
    first, second, label = values
    for name, text in ((columns.sentence1, first), (columns.sentence2, second)):
        if not isinstance(text, str):
            raise InputError(where=place, field=name, value=text, allowed="expected text")
    number: float | None
    if isinstance(label, bool):
        number = None
    elif isinstance(label, (int, float)):
        number = float(label)
    else:
        number = parse_number(label) if isinstance(label, str) else None
    if number is None:
        low, high = label_range
        raise InputError(
            where=place, field=columns.label, value=label, allowed=f"expected a number from {low:g} to {high:g}"
        )
    row = Row(line=line, sentence1=str(first), sentence2=str(second), label=number)
    check_row(row, where=where, label_range=label_range, columns=columns)
    return row


def check_row(row: Row, *, where: str, label_range: tuple[float, float], columns: Columns | None = None) -> None:
    """Check one row.

    Raises:
        InputError: an empty text, or a label that is NaN or outside the range.
    """
    names = columns or Columns()
    place = f"{where}:{row.line}"
    for name, text in ((names.sentence1, row.sentence1), (names.sentence2, row.sentence2)):
        if not text.strip():
            raise InputError(where=place, field=name, value=text, allowed="an empty text cannot be compared")
    low, high = label_range
    if not (math.isfinite(row.label) and low <= row.label <= high):
        raise InputError(
            where=place, field=names.label, value=row.label, allowed=f"expected a number from {low:g} to {high:g}"
        )
