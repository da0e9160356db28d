"""What the documentation says about files, options and other pages is so."""

from __future__ import annotations

import importlib
from pathlib import Path

import click
import pytest

from tests.docs.pages import PAGES, ROOT, anchors, blocks, links

NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
COMMANDS = [
    (program, name, command)
    for program in ("sweep", "analysis")
    for name, command in importlib.import_module(f"{program}.cli").main.commands.items()
]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in links(page):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            broken.append(target)
    assert not broken, f"{page.name}: {broken}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_quotations_are_what_the_files_say(page: Path) -> None:
    for block in blocks(page):
        if block.quoted_from is not None:
            assert block.text in block.quoted_from.read_text(encoding="utf-8"), f"{page.name}:{block.line}"


def test_readme_names_every_page_of_the_documentation() -> None:
    named = {(ROOT / target).resolve() for target in links(ROOT / "README.md") if "://" not in target}
    pages = {page.resolve() for page in (ROOT / "docs").glob("*.md")}
    assert pages <= named


def test_the_japanese_readme_links_to_the_same_pages() -> None:
    english, japanese = (set(links(ROOT / name)) for name in ("README.md", "README.ja.md"))
    assert english - {"README.ja.md"} == japanese - {"README.md"}


@pytest.mark.parametrize(("program", "name", "command"), COMMANDS, ids=[f"{p} {n}" for p, n, _ in COMMANDS])
class TestCommands:
    def test_help_has_an_example(self, program: str, name: str, command: click.Command) -> None:
        shown = command.get_help(click.Context(command, info_name=f"{program} {name}"))
        _, heading, example = shown.partition("Example")
        assert heading, shown
        assert f"{program} {name}" in example

    def test_documentation_mentions_it(self, program: str, name: str, command: click.Command) -> None:
        assert any(f"{program} {name}" in page.read_text(encoding="utf-8") for page in PAGES)

    def test_every_option_says_what_it_does(self, program: str, name: str, command: click.Command) -> None:
        silent = [one.name for one in command.params if isinstance(one, click.Option) and not one.help]
        assert not silent
