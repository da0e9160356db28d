"""The report as Markdown (GitHub's tables)."""

from __future__ import annotations

import re

from analysis.report.document import Block, Bullets, Document, FigureSlot, Paragraph, Table
from analysis.report.text import printable


def to_markdown(document: Document) -> str:
    """The report as Markdown; figures are linked as PNG files beside it."""
    parts = [f"**{escape(document.headline)}**"]
    parts += [f"> {escape(notice)}" for notice in document.notices]
    for section in document.sections:
        parts.append(f"{'#' * section.level} {escape(section.title)}")
        parts += [_block(block) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Text that Markdown and HTML show as it is."""
    plain = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_|\[\]#~])", r"\\\1", plain)


def _block(block: Block) -> str:
    match block:
        case Paragraph():
            return f"**{escape(block.text)}**" if block.strong else escape(block.text)
        case Bullets():
            return "\n".join(f"- {escape(item)}" for item in block.items)
        case FigureSlot():
            return f"![{escape(block.caption)}]({block.name}.png)\n\n*{escape(block.caption)}*"
        case Table():
            lines = [
                _row([column.heading for column in block.columns]),
                "|" + "|".join(":---" if column.align == "left" else "---:" for column in block.columns) + "|",
                *(_row(list(row)) for row in block.rows),
            ]
            caption = f"\n\n{escape(block.caption)}" if block.caption else ""
            return f"{escape(block.title)}\n\n" + "\n".join(lines) + caption


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(escape(cell) for cell in cells) + " |"
