"""A report before it has a format: headings, paragraphs, lists, tables and figures, all plain text.

`show_...` write numbers, alike in every format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from analysis.comparing.wording import signed

NONE = "-"
"""Where a number is not defined."""


@dataclass(frozen=True, kw_only=True)
class Paragraph:
    """A sentence or several."""

    text: str
    strong: bool = False


@dataclass(frozen=True, kw_only=True)
class Bullets:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Column:
    """Heading and alignment of a table's column."""

    heading: str
    align: Literal["left", "right"] = "right"


@dataclass(frozen=True, kw_only=True)
class Table:
    """Cells as text, formatted alike in every format of the report."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    key: bool = False
    """One of the tables that a paper would print: the LaTeX report has these only."""


@dataclass(frozen=True, kw_only=True)
class FigureSlot:
    """Where a figure stands, by its file name without ending."""

    name: str
    caption: str


Block = Paragraph | Bullets | Table | FigureSlot


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading and what stands under it."""

    title: str
    blocks: tuple[Block, ...]
    level: int = 2
    detail: bool = False
    """Folded where a format can fold."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """The whole report; its first line is the headline."""

    study: str
    headline: str
    notices: tuple[str, ...]
    sections: tuple[Section, ...]
    figures: tuple[FigureSlot, ...] = field(default=())


def show_score(value: float | None) -> str:
    """A score or a spread, four decimals."""
    return NONE if value is None else f"{value:.4f}"


def show_mean_sd(mean: float | None, sd: float | None) -> str:
    """`0.8123±0.0021`."""
    if mean is None:
        return NONE
    return f"{mean:.4f}" if sd is None else f"{mean:.4f}±{sd:.4f}"


def show_difference(value: float | None) -> str:
    """A difference, always with its sign; as many decimals as it needs to show one."""
    return NONE if value is None else signed(value)


def show_size(value: float) -> str:
    """A width or a spread, without a sign."""
    return signed(abs(value)).removeprefix("+")


def show_p(value: float | None) -> str:
    """Four decimals, `<.0001` below."""
    if value is None:
        return NONE
    return "<.0001" if value < 1e-4 else f"{value:.4f}"


def show_interval(bounds: Sequence[float] | None) -> str:
    """`[+0.0011, +0.0060]`."""
    return NONE if bounds is None else f"[{signed(bounds[0])}, {signed(bounds[1])}]"


def show_wins(win: int, loss: int, tie: int) -> str:
    """`5/0/0`."""
    return f"{win}/{loss}/{tie}"


def show_small(value: float | None, digits: int = 3) -> str:
    """A quantity without a unit of its own."""
    return NONE if value is None else f"{value:.{digits}g}"
