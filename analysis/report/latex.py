"""The tables that a paper would print, for booktabs."""

from __future__ import annotations

from analysis.report.document import Document, Table
from analysis.report.text import printable

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "²": r"$^2$",
    '"': r"\textquotedbl{}",
}


def to_latex(document: Document) -> str:
    """The key tables; needs `\\usepackage{booktabs}` and a UTF-8 engine. The verdict stands in a comment."""
    lines = ["% Needs \\usepackage[T1]{fontenc} and \\usepackage{booktabs}.", f"% {_comment(document.headline)}"]
    lines += [f"% ! {_comment(notice)}" for notice in document.notices]
    for section in document.sections:
        for block in section.blocks:
            if isinstance(block, Table) and block.key:
                lines += ["", *_table(section.title, block)]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_SPECIAL.get(char, char) for char in printable(text))


def _comment(text: str) -> str:
    return " ".join(printable(text).split())


def _table(section: str, table: Table) -> list[str]:
    alignment = "".join("l" if column.align == "left" else "r" for column in table.columns)
    return [
        r"\begin{table}",
        r"\centering\small",
        rf"\caption{{{escape(section)}. {escape(table.title)}. {escape(table.caption)}}}",
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        " & ".join(escape(column.heading) for column in table.columns) + r" \\",
        r"\midrule",
        *(" & ".join(_cell(cell) for cell in row) + r" \\" for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def _cell(text: str) -> str:
    # A hyphen before a digit is a minus sign.
    escaped = escape(text)
    return f"${escaped}$" if text[:1] in "+-" and text[1:2].isdigit() else escaped
