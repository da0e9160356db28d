"""The report for a terminal: at most 100 columns, colours only where they are wanted."""

from __future__ import annotations

import io
import os
import sys
import textwrap
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from analysis.report.document import Block, Bullets, Document, FigureSlot, Paragraph, Table

WIDTH = 100
GAP = "  "
HARD_HEADING = 8
"""Columns that a heading gets at least, where it must be broken inside its words."""
INDENT = 4
"""Columns left for a name that stands on its own line."""


def to_text(document: Document, *, colour: bool = False) -> str:
    """The report as text; without colour it holds no control characters at all."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=WIDTH,
        force_terminal=colour,
        no_color=not colour,
        color_system="standard" if colour else None,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
        force_jupyter=False,  # else, in a notebook, the text would be shown there and the stream stay empty
    )
    _print(console, document.headline, style="bold")
    for notice in document.notices:
        _print(console, f"! {notice}", style="yellow", hanging="  ")
    for section in document.sections:
        console.print()
        console.print(Text(printable(section.title), style="bold underline" if colour else ""))
        if not colour:
            console.print("-" * min(WIDTH, len(section.title)))
        for block in section.blocks:
            _block(console, block)
    # Padding on the right says nothing and makes comparing two reports hard.
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def wants_colour() -> bool:
    """A terminal, and NO_COLOR not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def printable(text: str) -> str:
    """Without control characters: a name must not steer the terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _print(console: Console, text: str, *, style: str = "", hanging: str = "") -> None:
    lines = textwrap.wrap(
        printable(text), WIDTH, subsequent_indent=hanging, break_on_hyphens=False, break_long_words=True
    )
    for line in lines or [""]:
        console.print(Text(line, style=style), soft_wrap=True)


def _block(console: Console, block: Block) -> None:
    match block:
        case Paragraph():
            _print(console, block.text, style="bold" if block.strong else "")
        case Bullets():
            for item in block.items:
                _print(console, f"- {item}", hanging="  ")
        case Table():
            console.print()
            _print(console, block.title, style="italic")
            for line in _table(block):
                console.print(Text(line), soft_wrap=True)
            if block.caption:
                _print(console, block.caption, style="dim")
        case FigureSlot():
            pass


def _table(block: Table) -> list[str]:
    """Lines of a table, at most WIDTH wide.

    A name is never broken: where it does not fit it gets its own line. Columns that do not fit go below, with the
    first column again.
    """
    rows = [tuple(printable(cell) for cell in row) for row in block.rows]
    widths = [max((cell_len(row[i]) for row in rows), default=0) for i in range(len(block.columns))]
    headings = [_narrow(column.heading, width) for column, width in zip(block.columns, widths, strict=True)]
    if _total([max(w, *map(cell_len, lines)) for w, lines in zip(widths, headings, strict=True)]) > WIDTH:
        pairs = zip(block.columns, widths, strict=True)
        headings = [_narrow(column.heading, width, hard=True) for column, width in pairs]
    heads = [max(map(cell_len, lines)) for lines in headings]
    widths = [max(pair) for pair in zip(widths, heads, strict=True)]
    left = [column.align == "left" for column in block.columns]
    if left[0] and _total(widths) > WIDTH:
        widths[0] = min(widths[0], max(INDENT, heads[0]))
    out: list[str] = []
    for columns in _parts(widths):
        height = max(len(headings[i]) for i in columns)
        chosen, aligned = [widths[i] for i in columns], [left[i] for i in columns]
        padded = [[""] * (height - len(headings[i])) + headings[i] for i in columns]
        out += [_line(cells, chosen, aligned) for cells in zip(*padded, strict=True)]
        out.append("\u2500" * _total(chosen))
        for row in rows:
            cells = [row[i] for i in columns]
            if cell_len(cells[0]) > chosen[0]:
                out += textwrap.wrap(cells[0], WIDTH, break_on_hyphens=False)
                cells[0] = ""
            out.append(_line(cells, chosen, aligned))
    return out


def _parts(widths: Sequence[int]) -> list[list[int]]:
    """Columns that fit beside each other, each part beginning with the first."""
    parts = [[0]]
    for i in range(1, len(widths)):
        if len(parts[-1]) > 1 and _total([widths[j] for j in (*parts[-1], i)]) > WIDTH:
            parts.append([0])
        parts[-1].append(i)
    return parts


def _line(cells: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> str:
    padded = []
    for cell, width, on_the_left in zip(cells, widths, left, strict=True):
        space = " " * (width - cell_len(cell))
        padded.append(cell + space if on_the_left else space + cell)
    return GAP.join(padded)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _narrow(heading: str, width: int, *, hard: bool = False) -> list[str]:
    """A heading broken at its spaces to the width of what stands below it; `hard`: inside words too."""
    text = printable(heading)
    least = HARD_HEADING if hard else max(map(len, text.split(" ")))
    return textwrap.wrap(text, max(width, least), break_on_hyphens=False) or [""]
