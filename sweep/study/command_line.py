"""Fields of a study given on the command line: `training.epochs=1` is read as if it stood in the file."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from sweep.errors import StudyError
from sweep.study.yaml_reader import COMMAND_LINE, Document, FieldPath, read_text


def with_overrides(document: Document, given: Sequence[str]) -> Document:
    """The document with fields replaced, and a text that says so and reads as what it now means.

    Args:
        document: A study file.
        given: `FIELD=VALUE` each: a dotted field, and a value as YAML writes it. Later ones win.

    Raises:
        StudyError: no `=`, no YAML, or a field inside of what is no block.

    Example:
        with_overrides(document, ["training.epochs=1", "seeds=[0, 4]"])
    """
    data = copy.deepcopy(dict(document.data))
    lines, written = dict(document.lines), dict(document.written)
    paths: list[FieldPath] = []
    for one in given:
        name, equals, text = one.partition("=")
        path = _path(name)
        if not equals or not all(path):
            raise _error(one, one, "expected FIELD=VALUE, such as training.epochs=1")
        try:
            read = read_text(Path(COMMAND_LINE), f"value: {text.strip() or 'null'}\n")
        except StudyError as error:
            raise _error(name.strip(), text, error.allowed) from None
        _put(data, path, read.data["value"], one)
        for known in (lines, written):
            for old in [at for at in known if at[: len(path)] == path]:
                del known[old]
        written.update({(*path, *at[1:]): scalar for at, scalar in read.written.items() if at[:1] == ("value",)})
        paths.append(path)
    text = f"# overridden on the command line: {' '.join(given)}\n{_dumped(data, written)}"
    return replace(document, text=text, data=data, lines=lines, written=written, overridden=tuple(paths))


def _path(name: str) -> tuple[str, ...]:
    parts = tuple(name.strip().split("."))
    # A grid's own names have dots: `settings.grid.model.prompt`.
    return (*parts[:2], ".".join(parts[2:])) if parts[:2] == ("settings", "grid") and len(parts) > 2 else parts


def _put(data: dict[str, Any], path: Sequence[str], value: Any, one: str) -> None:
    block = data
    for depth, part in enumerate(path[:-1], start=1):
        inner = block.get(part)
        if inner is None:
            inner = block[part] = {}
        if not isinstance(inner, dict):
            field = ".".join(path[:depth])
            raise _error(".".join(path), one.partition("=")[2], f"{field} is {inner!r} in the file, not a block")
        block = inner
    block[path[-1]] = value


def _dumped(data: dict[str, Any], written: dict[FieldPath, str]) -> str:
    if ("baseline",) in written:  # `baseline: no` names the variant `no`
        data = {**data, "baseline": written["baseline",]}
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


def _error(field: str, value: object, allowed: str) -> StudyError:
    return StudyError(file=COMMAND_LINE, field=field, value=value, allowed=allowed)
