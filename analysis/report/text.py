"""The report for a terminal: at most 100 columns, colours only where they are wanted."""

from __future__ import annotations

import io
import os
import sys
import textwrap

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from analysis.report.document import Block, Bullets, Document, FigureSlot, Paragraph, Table

WIDTH = 100


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
    )
    _print(console, document.headline, style="bold")
    for notice in document.notices:
        _print(console, f"! {notice}", style="yellow", hanging="  ")
    for section in document.sections:
        if section.detail:
            continue
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
            console.print(_table(block))
            if block.caption:
                _print(console, block.caption, style="dim")
        case FigureSlot():
            pass


def _table(block: Table) -> RichTable:
    widths = [max((cell_len(printable(row[i])) for row in block.rows), default=0) for i in range(len(block.columns))]
    headings = [_narrow(column.heading, width) for column, width in zip(block.columns, widths, strict=True)]
    needed = [max(width, *map(cell_len, lines)) + 1 for width, lines in zip(widths, headings, strict=True)]
    fits = sum(needed) <= WIDTH
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for column, lines in zip(block.columns, headings, strict=True):
        left = column.align == "left"
        table.add_column(
            Text("\n".join(lines)),
            justify="left" if left else "right",
            overflow="fold",
            # Numbers stay whole; where a table is too wide, its names are folded.
            no_wrap=fits or not left,
        )
    for row in block.rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def _narrow(heading: str, width: int) -> list[str]:
    """A heading broken at its spaces to the width of what stands below it."""
    words = printable(heading).split(" ")
    return textwrap.wrap(heading, max(width, *map(len, words)), break_on_hyphens=False) or [""]
