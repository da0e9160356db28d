"""The report as one HTML file that needs nothing beside it: images inlined, everything escaped."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from html import escape

from analysis.report.document import Block, Bullets, Document, FigureSlot, Paragraph, Section, Table
from analysis.report.text import printable

_CODE = re.compile(r"`([^`\n]+)`")
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; line-height: 1.35; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.study { opacity: .7; margin: 0; } .notice { border-left: 4px solid #e69f00; padding: .2rem .8rem; margin: .5rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .88rem; }
caption { text-align: left; font-style: italic; padding: .6rem 0 .3rem; }
th, td { padding: .2rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #8884; }
th { border-bottom: 2px solid #888; } .left { text-align: left; } .note { font-size: .85rem; opacity: .8; }
figure { margin: 1rem 0; } figure img { max-width: 100%; background: white; } summary { cursor: pointer; }
"""


def to_html(document: Document, images: Mapping[str, bytes] | None = None) -> str:
    """The report as a page.

    Args:
        document: What to show.
        images: Name of a figure -> PNG; a figure without one is left out.
    """
    pictures = images or {}
    body = [f'<p class="study">{_text(document.study)}</p>', f"<h1>{_text(document.headline)}</h1>"]
    body += [f'<p class="notice">{_text(notice)}</p>' for notice in document.notices]
    body += [_section(section, pictures) for section in document.sections]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_plain(document.study)}: report</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _text(text: str) -> str:
    """Escaped; what stands between backticks is code."""
    return _CODE.sub(r"<code>\1</code>", _plain(text))


def _plain(text: str) -> str:
    return escape(printable(text))


def _section(section: Section, pictures: Mapping[str, bytes]) -> str:
    blocks = "\n".join(_block(block, pictures) for block in section.blocks)
    if section.detail:
        return f"<details><summary>{_text(section.title)}</summary>\n{blocks}\n</details>"
    return f"<section><h{section.level}>{_text(section.title)}</h{section.level}>\n{blocks}\n</section>"


def _block(block: Block, pictures: Mapping[str, bytes]) -> str:
    match block:
        case Paragraph():
            inner = f"<strong>{_text(block.text)}</strong>" if block.strong else _text(block.text)
            return f"<p>{inner}</p>"
        case Bullets():
            return "<ul>" + "".join(f"<li>{_text(item)}</li>" for item in block.items) + "</ul>"
        case FigureSlot():
            return _figure(block, pictures.get(block.name))
        case Table():
            return _table(block)


def _figure(slot: FigureSlot, png: bytes | None) -> str:
    if png is None:
        return ""
    source = "data:image/png;base64," + base64.b64encode(png).decode()
    alt = _plain(slot.caption)
    return (
        f'<figure><img src="{source}" alt="{alt}"><figcaption class="note">{_text(slot.caption)}</figcaption></figure>'
    )


def _table(block: Table) -> str:
    kinds = ["left" if column.align == "left" else "" for column in block.columns]

    def cells(tag: str, texts: tuple[str, ...]) -> str:
        return "".join(
            f"<{tag}{f' class={kind!r}' if kind else ''}>{_text(text)}</{tag}>"
            for kind, text in zip(kinds, texts, strict=True)
        )

    head = cells("th", tuple(column.heading for column in block.columns))
    rows = "".join(f"<tr>{cells('td', row)}</tr>" for row in block.rows)
    note = f'<p class="note">{_text(block.caption)}</p>' if block.caption else ""
    return (
        f'<div class="scroll"><table><caption>{_text(block.title)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{note}"
    )
