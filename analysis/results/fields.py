"""Single fields of tables: numbers as people and tools write them, labels, names of cells, states of runs."""

from __future__ import annotations

import math
import re

from analysis import schema
from analysis.results.model import CellRecord

NOT_A_NUMBER = frozenset({"", "nan", "na", "n/a", "null", "none", "-"})
STATE_COLUMNS = ("state", "status")
FINISHED_STATES = frozenset({"finished", "complete", "completed", "success", "succeeded", "terminated", "done", "ok"})
FAILED_STATES = frozenset({"failed", "fail", "failure", "crashed", "crash", "error", "errored", "diverged"})
"""The cell failed by itself; any other state that is not finished (killed, running, pruned) says nothing of it."""
NUMBER = "a number (1,200 could be 1.2 or 1200: write a decimal point, and no separator of thousands)"
_NUMERIC = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
LARGEST_PLAUSIBLE = 1e30
"""No metric has such a magnitude: some tools write one for infinity, others let one overflow."""
Row = tuple[str, str, int, str, str, int, float]
"""Cell, variant, seed, setting, metric, dim, value."""


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


def guarded(text: str) -> str:
    """Text that a spreadsheet will not take for a formula: an apostrophe is put before `= + - @`, tab and CR.

    >>> guarded("=1+1"), guarded("plain"), guarded("'=1+1")
    ("'=1+1", 'plain', "''=1+1")
    """
    return f"'{text}" if _FORMULA.match(text) else text


def without_guard(text: str) -> str:
    """The inverse of `guarded`."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


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


def same_number(text: str) -> str:
    """Text as it is compared: numbers that are equal become the same text.

    >>> same_number("2e-5") == same_number("0.00002"), same_number("cosine")
    (True, 'cosine')
    """
    return _NUMERIC.sub(_as_number, text) if _NUMERIC.fullmatch(text) else text
