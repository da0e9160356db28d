"""Reading the documentation: its commands, files, quotations and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "README.ja.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)
SHELL = ("console", "sh", "bash", "shell")
PROGRAMS = ("sweep", "analysis", "mlflow", "ray", "make", "python")

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w.-]*)\s*$")
_COMMENT = re.compile(r"^<!-- (?P<text>.*?) -->$")
_FILE = re.compile(r"^# (?P<name>[\w.-]+\.(?:py|yaml|csv))\b")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_IMAGE = re.compile(r"!\[[^\]]*\]\((?P<target>[^)\s]+)\)")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One block of code, fenced or indented."""

    page: Path
    line: int
    language: str
    text: str
    remark: str | None
    """What the HTML comment directly above it says."""

    @property
    def not_run(self) -> str | None:
        """Why its commands are not run; None where they are."""
        return self.remark.removeprefix("not run:").strip() if (self.remark or "").startswith("not run:") else None

    @property
    def quoted_from(self) -> Path | None:
        """The file that it is a part of."""
        return ROOT / self.remark.removeprefix("from ") if (self.remark or "").startswith("from ") else None

    @property
    def is_shell(self) -> bool:
        return self.language in SHELL

    @property
    def is_file(self) -> str | None:
        """The name of the file that the reader is to write, if the first line is a comment with it."""
        found = _FILE.match(self.text)
        return found["name"] if found and self.language in ("python", "yaml", "csv") else None

    @property
    def content(self) -> str:
        """The text of the file that the reader is to write; CSV knows no comments, so its name is no part of it."""
        return self.text.partition("\n")[2] if self.language == "csv" else self.text

    def commands(self) -> list[str]:
        """Lines after `$ ` where there are any, else all lines."""
        lines = self.text.replace("\\\n", " ").splitlines()
        marked = [line[2:] for line in lines if line.startswith("$ ")]
        return marked or [line for line in lines if line.strip() and not line.startswith("#")]

    def output(self) -> list[str]:
        """What the block says is printed; empty where it shows commands only."""
        lines = self.text.splitlines()
        if not any(line.startswith("$ ") for line in lines):
            return []
        return [line for line in lines if line.strip() not in ("", "...") and not line.startswith("$ ")]


def blocks(page: Path) -> Iterator[Block]:
    """Fenced blocks, and indented ones that begin with one of our programs."""
    lines = page.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if fence is not None:
            end = next(i for i in range(at + 1, len(lines)) if lines[i].strip() == "```")
            indent = len(fence["indent"])
            text = "\n".join(line[indent:] for line in lines[at + 1 : end])
            yield _block(page, lines, at, fence["language"], text)
            at = end + 1
            continue
        words = lines[at].split()
        if lines[at].startswith("    ") and words and words[0] in PROGRAMS and (at == 0 or not lines[at - 1].strip()):
            end = next((i for i in range(at, len(lines)) if not lines[i].startswith("    ")), len(lines))
            yield _block(page, lines, at, "console", "\n".join(line[4:] for line in lines[at:end]))
            at = end
            continue
        at += 1


def _block(page: Path, lines: list[str], at: int, language: str, text: str) -> Block:
    above = next((lines[i] for i in range(at - 1, -1, -1) if lines[i].strip()), "")
    comment = _COMMENT.match(above.strip())
    return Block(page=page, line=at + 1, language=language, text=text, remark=comment["text"] if comment else None)


def links(page: Path) -> list[str]:
    """Targets of links and images, outside code."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "", text)
    return [found["target"] for pattern in (_LINK, _IMAGE) for found in pattern.finditer(text)]


def anchors(page: Path) -> set[str]:
    """The names under which a page's headings can be linked to."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
