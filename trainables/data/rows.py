"""One sentence pair as read from anywhere, and the checks that every one must pass."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from trainables.errors import InputError

_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DECIMAL_COMMA: Final = re.compile(r"[+-]?[0-9]*,[0-9]+")


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
