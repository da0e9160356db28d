"""A report before it has a format: headings, paragraphs, lists, tables and figures, all plain text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


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
