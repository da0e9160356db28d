"""Read a study file: YAML text -> plain values, knowing the line of every field.

Stricter and safer than YAML 1.1 where that bites people who run studies:
keys are text as written (a variant may be called `no`, `on` or `1`), `2e-5` is a number, dates and `1:30` stay text,
a key given twice is an error instead of a silent overwrite, and numbers are finite and fit in 64 bits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from analysis.showing import visible
from sweep.errors import StudyError

FieldPath = tuple[str | int, ...]

COMMAND_LINE = "command line"
"""Stands for the file of a field that was given there."""
MAX_BYTES = 1_000_000
MAX_VALUES = 100_000
"""Values in one file after aliases are expanded: a bound against files that expand without end."""

_TAG = "tag:yaml.org,2002:"
_INT = re.compile(r"[-+]?[0-9][0-9_]*\Z")
_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?\Z|[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z"
)
_TRUE = ("yes", "true", "on")


class _Missing:
    def __repr__(self) -> str:
        return "(missing)"


MISSING = _Missing()
"""Stands for the value of a field that is not there."""


def field_name(path: Sequence[str | int]) -> str:
    """("variants", "a", "loss", 0) -> `variants.a.loss[0]`."""
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else part
    return visible(out)


@dataclass(frozen=True, kw_only=True)
class Document:
    """A study file as read, before its fields are checked."""

    path: Path
    text: str
    data: Mapping[str, Any]
    lines: Mapping[FieldPath, int]
    """Field -> line, from 1."""
    written: Mapping[FieldPath, str]
    """Field -> its scalar as it stands in the file (`no` is read as False)."""
    overridden: tuple[FieldPath, ...] = ()
    """Fields that were given on the command line instead."""

    def given(self, path: Sequence[str | int], validated: Any) -> Any:
        """The value as it stands in the file, where a validated one may look different (a tuple, a default)."""
        found: Any = self.data
        for part in path:
            in_list = isinstance(found, list) and isinstance(part, int) and part < len(found)
            if not in_list and not (isinstance(found, dict) and part in found):
                return MISSING if validated in (None, [], {}, ()) else validated
            found = found[part]
        return validated if isinstance(found, dict) and not isinstance(validated, dict) else found

    def error(self, path: Sequence[str | int], value: object, allowed: str) -> StudyError:
        """An error at a field, with the line of the field or of the nearest block around it."""
        parts = tuple(path)
        if any(parts[: len(one)] == one for one in self.overridden):
            return _error(Path(COMMAND_LINE), None, field_name(parts), value, allowed)
        near = next((self.lines[parts[:n]] for n in range(len(parts), 0, -1) if parts[:n] in self.lines), None)
        where = str(self.path) if near is None else f"{self.path}:{near}"
        return StudyError(
            file=where, field=field_name(parts) or "study", value=value, allowed=" ".join(allowed.split())
        )


class _Loader(yaml.SafeLoader):
    """SafeLoader whose plain scalars are null, bool, int, float or text; no dates, octals or sexagesimals."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in found if tag.rpartition(":")[2] in ("null", "bool", "merge")]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(_TAG + "int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver(_TAG + "float", _FLOAT, list("-+.0123456789"))


def read_document(path: Path) -> Document:
    """Read a study file.

    Raises:
        StudyError: no such file, not UTF-8, not YAML, a key given twice, a number that is not finite, not a mapping.
    """
    return read_text(path, _read_text(path))


def read_text(path: Path, text: str) -> Document:
    """The same for text that stands at `path`, or is said to."""
    try:
        node = _compose(path, text)
        if node is None:
            raise _error(path, None, "study", MISSING, "the file is empty; `sweep init` writes one to start from")
        reader = _Reader(path)
        data = reader.value(node, ())
    except RecursionError:
        raise _error(path, None, "study", "...", "it is nested too deeply") from None
    if not isinstance(data, dict):
        allowed = "expected fields and values, such as `name: my-study`"
        raise _error(path, node.start_mark, "study", data, allowed)
    return Document(path=path, text=text, data=data, lines=reader.lines, written=reader.written)


def _read_text(path: Path) -> str:
    try:
        if path.is_dir():
            raise _error(path, None, "study", str(path), "it is a folder; expected a study file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)  # bounded: it may be a device without end
        if len(content) > MAX_BYTES:
            raise _error(path, None, "study", "...", f"expected at most {MAX_BYTES} bytes")
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise _error(path, None, "study", str(path), "there is no such file") from None
    except UnicodeDecodeError as error:
        value = error.object[error.start : error.start + 1]
        allowed = f"expected UTF-8 text (byte {error.start})"
        raise _error(path, None, "study", value, allowed) from None
    except (OSError, ValueError) as error:
        raise _error(path, None, "study", str(path), f"it cannot be read: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _compose(path: Path, text: str) -> yaml.Node | None:
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        where = StudyError(
            file=f"{path}:{line}",
            field="study",
            value=text[error.position : error.position + 1],
            allowed="expected printable text",
        )
        raise where from None
    try:
        return loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line_text = text.splitlines()[mark.line] if mark is not None and mark.line < len(text.splitlines()) else ""
        indent = line_text[: len(line_text) - len(line_text.lstrip())]
        if "\t" in indent:
            allowed = "indent with spaces, not with tabs"
        elif error.problem and "but found another document" in error.problem:
            allowed = "expected one document, without a second `---`"
        else:
            allowed = "it is not YAML: " + ", ".join(part for part in (error.context, error.problem) if part)
        raise _error(path, mark, "study", line_text.strip(), allowed) from None
    except (yaml.YAMLError, ValueError) as error:
        raise _error(path, None, "study", "...", f"it is not YAML: {error}") from None
    finally:
        loader.dispose()


def _error(path: Path, mark: yaml.Mark | None, field: str, value: object, allowed: str) -> StudyError:
    where = str(path) if mark is None else f"{path}:{mark.line + 1}"
    return StudyError(file=where, field=field, value=value, allowed=" ".join(allowed.split()))


class _Reader:
    """Turns YAML nodes into plain values and notes where each stood."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[FieldPath, int] = {}
        self.written: dict[FieldPath, str] = {}
        self._open: list[yaml.Node] = []
        self._count = 0

    def value(self, node: yaml.Node, at: FieldPath) -> Any:
        self._count += 1
        if self._count > MAX_VALUES:
            raise self._wrong(node, at, "...", f"it holds more than {MAX_VALUES} values")
        if any(node is outer for outer in self._open):
            raise self._wrong(node, at, "*alias", "an alias may not contain itself")
        if at:
            self.lines.setdefault(at, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            self.written[at] = node.value
            return self._scalar(node, at)
        self._open.append(node)
        try:
            if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
                return [self.value(item, (*at, index)) for index, item in enumerate(node.value)]
            if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
                return self._mapping(node, at)
        finally:
            self._open.pop()
        raise self._wrong(node, at, node.tag, "YAML tags are not used in a study file")

    def _scalar(self, node: yaml.ScalarNode, at: FieldPath) -> Any:
        text: str = node.value
        kind = node.tag.removeprefix(_TAG)
        if kind == "null":
            return None
        if kind == "bool" and text.lower() in (*_TRUE, "no", "false", "off"):
            return text.lower() in _TRUE
        if kind == "int" and _INT.match(text):
            digits = text.replace("_", "")
            if len(digits) > 20 or abs(int(digits)) >= 2**63:
                raise self._wrong(node, at, text, "expected a number that fits in 64 bits")
            return int(digits)
        if kind in ("int", "float") and _FLOAT.match(text):
            number = float(text.lower().replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
            if not math.isfinite(number):
                raise self._wrong(node, at, text, "expected a finite number")
            return number
        if kind == "str":
            return text
        raise self._wrong(node, at, text, f"YAML tags are not used in a study file ({node.tag})")

    def _mapping(self, node: yaml.MappingNode, at: FieldPath) -> dict[str, Any]:
        out: dict[str, Any] = {}
        first: dict[str, int] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                for source in self._merge_sources(value_node, at):
                    merged = {**self._mapping(source, at), **merged}
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._wrong(key_node, at, "{...}", "expected text as the name of a field")
            key: str = key_node.value
            line = key_node.start_mark.line + 1
            if key in first:
                allowed = f"it is given twice (first on line {first[key]}); keep one"
                raise self._wrong(key_node, (*at, key), self._shown(value_node), allowed)
            first[key] = line
            self.lines[(*at, key)] = line
            out[key] = self.value(value_node, (*at, key))
        return {**merged, **out}

    def _merge_sources(self, node: yaml.Node, at: FieldPath) -> Iterator[yaml.MappingNode]:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for source in sources:
            if not isinstance(source, yaml.MappingNode):
                raise self._wrong(source, (*at, "<<"), self._shown(source), "expected a mapping to merge")
            if any(source is outer for outer in self._open):
                raise self._wrong(source, (*at, "<<"), "*alias", "an alias may not contain itself")
            yield source

    def _shown(self, node: yaml.Node) -> object:
        return node.value if isinstance(node, yaml.ScalarNode) else "..."

    def _wrong(self, node: yaml.Node, at: FieldPath, value: object, allowed: str) -> StudyError:
        return _error(self.path, node.start_mark, field_name(at) or "study", value, allowed)
