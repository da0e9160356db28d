"""The fields of a study file as pydantic models: what may stand where, and of which type.

The blocks `model`, `data` and `loss` may be given in parts (a variant overrides one field of them), so each is
checked here field by field; whether the parts make a whole is for TrainSpec to say, once they are put together.
What pydantic finds becomes one StudyError here.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from sweep.errors import StudyError
from sweep.study.yaml_reader import MISSING, Document, FieldPath
from trainables.spec import TRAINABLE_NAMES, DataSpec, LossSpec, ModelSpec
from trainables.tasks import WrongSource, read_sources
from trainables.training_fields import LIBRARY_NAMES, TRAINING_FIELDS, expected, validate_training

MAX_SEEDS = 10_000
MAX_SEED = 2**32 - 1
MAX_DIM = 1_000_000
"""Of an embedding; far beyond any model's, which is what is checked once the model is looked at."""

_IMPORT_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*\Z")
_FORBIDDEN_IN_LABELS = "/\\'\"`"
_SYSTEM_OWNED = {
    "seed": "seeds: gives the seeds",
    "data_seed": "seeds: gives the seeds",
    "output_dir": "the system owns it",
    "eval_strategy": "evaluation uses the final state of training",
    "save_strategy": "no checkpoints are kept",
    "load_best_model_at_end": "evaluation uses the final state of training",
    "per_device_eval_batch_size": "it does not change a score",
}

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


def wrong(allowed: str, *, at: Iterable[str | int] = (), value: object = ...) -> PydanticCustomError:
    """An error at a place below the one that is being validated; `value` defaults to what was given there."""
    context: dict[str, Any] = {"allowed": allowed, "at": tuple(at)}
    if value is not ...:
        context["value"] = value
    return PydanticCustomError("study", "wrong", context)


ALIASES: Final = {
    "lr": "learning_rate",
    "bs": "batch_size",
    "batch": "batch_size",
    "epoch": "epochs",
    "wd": "weight_decay",
    "warmup": "warmup_ratio",
    "scheduler": "lr_scheduler_type",
    "dim": "matryoshka_dims",
    "dims": "matryoshka_dims",
    "seed": "seeds",
}
"""What people call a field elsewhere -> what it is called here."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """`did you mean 'loss'? `, or nothing."""
    names = list(known)
    alias = ALIASES.get(name)
    close = [alias] if alias in names else difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}? " if close else ""


def unknown_field(name: str, known: Iterable[str], hint: str = "") -> str:
    """What is allowed instead of a field that does not exist."""
    names = sorted(known)
    return f"there is no such field; {suggestion(name, names)}{hint}allowed here: {', '.join(names)}"


def known_fields(model: type[BaseModel], given: Any, hints: Mapping[str, str] | None = None) -> Any:
    """Refuse unknown fields of a mapping with a suggestion; an empty block is an empty mapping."""
    if isinstance(given, BaseModel):
        return given
    if given is None:
        return {}
    names = list(model.model_fields)
    if not isinstance(given, Mapping):
        raise wrong(f"expected a mapping with any of: {', '.join(names)}")
    for name, value in given.items():
        if name not in model.model_fields:
            hint = (hints or {}).get(name, "")
            raise wrong(unknown_field(name, names, hint), at=(name,), value=value)
    return dict(given)


class Block(BaseModel):
    """A block of a study file: unknown fields are refused with a suggestion."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, given: Any) -> Any:
        return known_fields(cls, given)


def _parts_of(spec: type[BaseModel], doc: str) -> Any:
    """A model with the same fields, none of them required: a block that may be given in parts."""
    fields: dict[str, Any] = {
        name: (info.rebuild_annotation() | None, Field(default=None)) for name, info in spec.model_fields.items()
    }
    return create_model(spec.__name__.replace("Spec", ""), __base__=Block, __doc__=doc, **fields)


ModelFields = _parts_of(ModelSpec, "Which encoder; any part of it in an override.")
DataFields = _parts_of(DataSpec, "Which sentence pairs; any part of it in an override.")
LossFields = _parts_of(LossSpec, "One term of a loss.")


def _read_loss(given: Any) -> Any:
    if given is None:
        return None
    terms = given if isinstance(given, list) else [given]
    if not terms:
        raise wrong("expected a loss by name, or a list of terms such as {name: cosent, weight: 1.0}")
    out = []
    for index, term in enumerate(terms):
        at = (index,) if isinstance(given, list) else ()
        if isinstance(term, Mapping):
            out.append(dict(term))
            at, name = (*at, "name"), term.get("name", MISSING)
        elif isinstance(term, str):
            out.append({"name": term})
            name = term
        else:
            raise wrong("expected a loss by name, or a term such as {name: cosent, weight: 1.0}", at=at, value=term)
        if not isinstance(name, str) or not name.strip():
            raise wrong("expected a loss by name", at=at, value=name)
        if ":" in name and not _IMPORT_PATH.match(name):
            raise wrong("expected the import path of a loss as module:Class", at=at, value=name)
    return tuple(out)


def _read_training(given: Any) -> Any:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise wrong("expected a mapping of training fields, such as {learning_rate: 2e-5}")
    ours = {library: short for short, library in LIBRARY_NAMES.items()}
    out = {}
    for name, value in given.items():
        if name not in TRAINING_FIELDS:
            hint = f"it is called {ours[name]!r} here; " if name in ours else ""
            hint = hint or (f"{_SYSTEM_OWNED[name]}; " if name in _SYSTEM_OWNED else "")
            raise wrong(unknown_field(name, TRAINING_FIELDS, hint), at=(name,), value=value)
        try:
            out[name] = validate_training({name: value})[name]
        except (ValueError, OverflowError):
            allowed = f"expected {expected(TRAINING_FIELDS[name])}"
            raise wrong(allowed, at=(name,), value=value) from None
    return out


def _read_mapping(given: Any) -> Any:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise wrong("expected a mapping of names and values")
    return given


def _read_evaluate(given: Any) -> Any:
    if given is None:
        return {}
    try:
        sources = read_sources(given)
    except WrongSource as error:
        raise wrong(error.allowed, at=error.path, value=error.value) from None
    return {name: source.model_dump(exclude_unset=True) for name, source in sources.items()}


def _read_trained_dims(given: Any) -> Any:
    return () if given == [] else _read_dims(given)


def _read_dims(given: Any) -> Any:
    if not isinstance(given, list) or not given:
        raise wrong("expected a list of embedding sizes, such as [64, 128, 256]")
    for index, dim in enumerate(given):
        if isinstance(dim, bool) or not isinstance(dim, int) or dim < 1:
            raise wrong("expected a whole number not below 1", at=(index,), value=dim)
        if dim > MAX_DIM:
            allowed = f"expected a size not larger than the model's embedding size, and never above {MAX_DIM}"
            raise wrong(allowed, at=(index,), value=dim)
        if dim in given[:index]:
            raise wrong("it is listed twice", at=(index,), value=dim)
    return tuple(given)


def _read_seeds(given: Any) -> Any:
    form = "expected a count, such as 5, or a list, such as [0, 1, 2]"
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        if not isinstance(given, int) or not 1 <= given <= MAX_SEEDS:
            raise wrong(f"expected a whole number of seeds from 1 to {MAX_SEEDS}, or a list of seeds")
        return tuple(range(given))
    if isinstance(given, tuple):
        given = list(given)
    if not isinstance(given, list):
        raise wrong(form)
    if not given:
        raise wrong("expected at least one seed")
    if len(given) > MAX_SEEDS:
        raise wrong(f"expected at most {MAX_SEEDS} seeds", value=f"{len(given)} seeds")
    seen: set[int] = set()
    for index, seed in enumerate(given):
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
            raise wrong(f"expected whole numbers from 0 to {MAX_SEED}", at=(index,), value=seed)
        if seed in seen:
            raise wrong("it is listed twice", at=(index,), value=seed)
        seen.add(seed)
    return tuple(given)


def label_problem(label: str) -> str | None:
    """Why a name cannot be used as a label of a run, or None."""
    if not label or label != label.strip():
        return "expected a name that is not empty, without blanks around it"
    if len(label) > 100:
        return "expected at most 100 characters"
    if not label.isprintable() or any(char in _FORBIDDEN_IN_LABELS for char in label):
        return "expected a name without slashes, quotes or control characters"
    return None


def look_alike(labels: Iterable[str]) -> tuple[str, str] | None:
    """The first two labels that differ only in how Unicode writes their characters (`é` as one or as two)."""
    seen: dict[str, str] = {}
    for label in labels:
        other = seen.setdefault(unicodedata.normalize("NFC", label), label)
        if other != label:
            return other, label
    return None


def _read_label(given: Any) -> Any:
    if not isinstance(given, str):
        raise wrong("expected text (put it in quotes if it looks like a number)")
    problem = label_problem(given)
    if problem:
        raise wrong(problem)
    return given


def read_labelled(given: Any) -> Any:
    """A mapping of labels that runs can carry."""
    if not isinstance(given, Mapping) or not given:
        raise wrong("expected a mapping: label -> what it overrides, such as {a: {loss: cosent}}")
    for label in given:
        problem = label_problem(label)
        if problem:
            raise wrong(f"{problem} as label", at=(label,), value=label)
    if twins := look_alike(given):
        other, label = twins
        allowed = f"{label!a} differs from {other!a} only in Unicode normalisation; choose another label"
        raise wrong(allowed, at=(label,), value=label)
    return given


def _read_trainable(given: Any) -> Any:
    if given in TRAINABLE_NAMES or (isinstance(given, str) and _IMPORT_PATH.match(given)):
        return given
    hint = suggestion(given, TRAINABLE_NAMES) if isinstance(given, str) else ""
    raise wrong(f"{hint}expected {', '.join(TRAINABLE_NAMES)}, or module:function")


def _training_schema() -> dict[str, Any]:
    names = {int: "integer", float: "number", bool: "boolean", str: "string", dict: "object"}
    properties: dict[str, Any] = {}
    for name, spec in TRAINING_FIELDS.items():
        kind = names[spec.type]
        entry: dict[str, Any] = {"type": [kind, "null"] if spec.optional else kind, "default": spec.default}
        bounds = {"minimum": spec.low, "exclusiveMinimum": spec.above, "maximum": spec.high}
        entry.update({key: value for key, value in bounds.items() if value is not None})
        if spec.excluded is not None:
            entry["not"] = {"const": spec.excluded}
        if spec.choices is not None:
            entry["enum"] = list(spec.choices)
        properties[name] = entry
    return {"type": "object", "additionalProperties": False, "properties": properties}


_INTEGER = {"type": "integer", "minimum": 0, "maximum": MAX_SEED}
_SEEDS_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": MAX_SEEDS},
        {"type": "array", "items": _INTEGER, "minItems": 1, "uniqueItems": True},
    ]
}
_LOSS_TERM_SCHEMA = {
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string"},
        "layout": {"enum": ["chunked", "interleaved", "interleaved_swapped"]},
        "weight": {"type": "number", "not": {"const": 0}},
        "args": {"type": "object"},
    },
}
_LOSS_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        _LOSS_TERM_SCHEMA,
        {"type": "array", "minItems": 1, "items": {"anyOf": [{"type": "string"}, _LOSS_TERM_SCHEMA]}},
    ]
}
_DIMS_SCHEMA = {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 1, "uniqueItems": True}

Loss = Annotated[tuple[LossFields, ...], BeforeValidator(_read_loss), WithJsonSchema(_LOSS_SCHEMA)]  # type: ignore[valid-type]
Training = Annotated[dict[str, Any], BeforeValidator(_read_training), WithJsonSchema(_training_schema())]
Dims = Annotated[tuple[int, ...], BeforeValidator(_read_dims), WithJsonSchema(_DIMS_SCHEMA)]
TrainedDims = Annotated[
    tuple[int, ...], BeforeValidator(_read_trained_dims), WithJsonSchema({**_DIMS_SCHEMA, "minItems": 0})
]
Evaluate = Annotated[
    dict[str, dict[str, Any]],
    BeforeValidator(_read_evaluate),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "object"}}),
]
FreeMapping = Annotated[dict[str, Any], BeforeValidator(_read_mapping)]
Seeds = Annotated[tuple[int, ...], BeforeValidator(_read_seeds), WithJsonSchema(_SEEDS_SCHEMA)]
Label = Annotated[str, BeforeValidator(_read_label)]
TrainableName = Annotated[str, BeforeValidator(_read_trainable)]


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
