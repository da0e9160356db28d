"""pydantic's errors -> one StudyError with the study file's own field path."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from sweep.errors import StudyError
from sweep.study.yaml_reader import MISSING, Document, FieldPath

_NAMED_FIELD = re.compile(r"^(?P<field>[a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)*): (?P<rest>.+)$", re.DOTALL)
_KINDS = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "text (put it in quotes if it looks like a number)",
    "string_too_short": "text that is not empty",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "mapping_type": "a mapping of names and values",
    "dict_type": "a mapping of names and values",
    "model_type": "a mapping of names and values",
    "too_long": "fewer items",
}
_OPTIONAL_TAGS = re.compile(r"^(function-|tuple\[|bool$|int$|float$|str$|\[key\]$)")


def as_study_error(
    document: Document,
    error: ValidationError,
    *,
    at: FieldPath = (),
    flatten: bool = False,
    locate: Callable[[FieldPath], FieldPath] = lambda path: path,
    suffix: str = "",
) -> StudyError:
    """The first of pydantic's errors, at the place where the user wrote the value.

    Args:
        document: The file, for lines.
        error: What pydantic found.
        at: Where the validated block stands in the file.
        flatten: The block was made from one value of a grid, at `at`; the error is shown there.
        locate: Field of a resolved spec -> where the file sets it.
        suffix: Added to what is allowed, such as which variant is meant.
    """
    first = error.errors(include_url=False)[0]
    path, value, allowed = _understood(first)
    if flatten:
        known = "there is no such field" in allowed
        where = at[:-1] if known else at
        return document.error(where, value, allowed + suffix)
    place = (*at, *locate(path))
    wrong_name = bool(place) and place[-1] == value
    return document.error(place, value if wrong_name else document.given(place, value), allowed + suffix)


def _understood(error: Any) -> tuple[FieldPath, Any, str]:
    path: FieldPath = tuple(part for part in error["loc"] if not _is_tag(part))
    value: Any = error["input"]
    kind: str = error["type"]
    context: dict[str, Any] = error.get("ctx") or {}
    if kind == "study":
        return (*path, *context["at"]), context.get("value", value), context["allowed"]
    if kind == "missing":
        return path, MISSING, "it is required"
    if kind == "value_error":
        return _named(path, value, str(context["error"]))
    if kind == "literal_error":
        return path, value, "expected one of " + str(context["expected"]).replace(" or ", ", ").replace("'", "")
    if kind in _KINDS:
        return path, value, f"expected {_KINDS[kind]}"
    message = str(error["msg"]).replace("Input should be greater", "Input should be a number greater")
    return (
        path,
        value,
        message.replace("should be less", "should be a number less").replace("Input should be", "expected"),
    )


def _is_tag(part: int | str) -> bool:
    return isinstance(part, str) and bool(_OPTIONAL_TAGS.match(part))


def _named(path: FieldPath, value: Any, message: str) -> tuple[FieldPath, Any, str]:
    """`field: what is wrong` of a validator over several fields -> that field, its value, and the rest."""
    found = _NAMED_FIELD.match(message)
    if found is None:
        return path, value, message
    for part in found["field"].split("."):
        path = (*path, part)
        value = value.get(part, MISSING) if isinstance(value, dict) else MISSING
    return path, value if value is not None else MISSING, found["rest"]
