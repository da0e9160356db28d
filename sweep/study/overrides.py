"""Layers of a study: what a variant and a setting override, and how the layers become one resolved spec. Pure."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from analysis.showing import visible
from trainables.spec import BUILTIN_DATA
from trainables.training_fields import TRAINING_FIELDS

Layer = Mapping[str, Any]
"""Overrides as plain values, with the study file's nesting and only what was given."""
LeafPath = tuple[str, ...]

GRID_HINT = "besides training fields, model.x, data.x, options.x and loss_args.x may be named; "
_BLOCKS = ("model", "data", "training", "options", "loss_args")
_DATA_SOURCE = ("revision", "train", "validation", "test", "columns", "label_range")
_CONSEQUENCES = {
    "loss": ("loss.layout", "loss.args", "loss.weight"),
    "model.name": ("model.revision",),
    "data.name": tuple(f"data.{field}" for field in _DATA_SOURCE),
    "data.train": ("data.name",),
    "data.test": ("data.name",),
}
"""Flat fields that change as a consequence of another."""


def grid_path(name: str) -> LeafPath | None:
    """Where a grid's name stands in the study's nesting: a bare training field, or `model.x`, `data.x`, `options.x`."""
    if name in TRAINING_FIELDS:
        return ("training", name)
    parts = tuple(name.split("."))
    return parts if len(parts) > 1 and all(parts) and parts[0] in ("model", "data", "options", "loss_args") else None


def grid_name(path: LeafPath) -> str:
    """The reverse of `grid_path`."""
    return path[-1] if path[0] == "training" else ".".join(path)


def nested(path: LeafPath, value: Any) -> dict[str, Any]:
    """("model", "prompt") and a value -> {model: {prompt: value}}."""
    head, *rest = path
    return {head: nested(tuple(rest), value) if rest else value}


def point_layer(point: Mapping[str, Any]) -> Layer:
    """A grid point as overrides."""
    layer: dict[str, Any] = {}
    for name, value in point.items():
        layer = merge(layer, nested(grid_path(name) or (name,), value))
    return layer


def grid_points(grid: Mapping[str, list[Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every combination of a grid of validated values, as (label, dotted name -> value).

    The label is `learning_rate=1e-05,batch_size=16`: names in the order of the file, values as Python writes them.
    """
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        yield ",".join(f"{name}={shown(value)}" for name, value in point.items()), point


def grid_size(grid: Mapping[str, list[Any]]) -> int:
    """Number of points."""
    return math.prod(len(values) for values in grid.values())


def shown(value: Any) -> str:
    """A value inside a label."""
    return visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def leaves(layer: Layer) -> Iterator[LeafPath]:
    """The fields a layer sets: `("loss",)`, `("training", "batch_size")`, `("data", "limit", "train")`."""
    for name, value in layer.items():
        if name not in _BLOCKS:
            yield (name,)
            continue
        for key, inner in value.items():
            if name == "data" and isinstance(inner, Mapping):
                yield from ((name, key, part) for part in inner)
            else:
                yield (name, key)


def overlap(a: Layer, b: Layer) -> LeafPath | None:
    """The first field of `b` that `a` sets too."""
    taken = set(leaves(a))
    for path in leaves(b):
        for other in taken:
            shorter = min(len(path), len(other))
            if path[:shorter] == other[:shorter]:
                return path
    return None


def flat_fields(layer: Layer) -> set[str]:
    """Flat names (as in TrainSpec.flat) of what a layer sets, and of what changes with it."""
    names: set[str] = set()
    for path in leaves(layer):
        if path[0] == "training":
            name = path[1]
        elif path[0] == "layout":
            name = "loss.layout"
        elif path[0] == "loss_args":
            name = "loss.args"
        else:
            name = ".".join(path[:2])
        names.add(name)
    return names | {other for name in names for other in _CONSEQUENCES.get(name, ())}


def merge(below: Layer, above: Layer) -> dict[str, Any]:
    """`above` laid over `below`; blocks field by field, everything else as a whole."""
    out = dict(below)
    for name, value in above.items():
        inner = out.get(name)
        if (
            isinstance(value, Mapping)
            and isinstance(inner, Mapping)
            and (name in _BLOCKS or name in ("limit", "columns"))
        ):
            out[name] = merge(inner, value)
        else:
            out[name] = value
    return out


def resolve(base: Layer, variant: Layer, setting: Layer) -> dict[str, Any]:
    """The fields of one cell. Variant and setting are disjoint, so their order does not matter.

    What describes a thing goes with it: another loss drops the base's layout and arguments, another model its
    revision, another dataset its revision, files, columns and label range.
    """
    above = merge(variant, setting)
    below = dict(base)
    if "loss" in above:
        below.pop("layout", None)
        below.pop("loss_args", None)
    if above.get("model", {}).get("name") is not None:
        below["model"] = _without(below.get("model", {}), ("revision",))
    data, given = below.get("data", {}), above.get("data", {})
    if given.get("name") is not None:
        below["data"] = _without(data, _DATA_SOURCE)
    elif data.get("name") in BUILTIN_DATA and (given.get("train") or given.get("test")):
        below["data"] = _without(data, ("name",))
    return merge(below, above)


def _without(layer: Layer, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in layer.items() if name not in names}


def loss_terms(fields: Layer) -> list[dict[str, Any]]:
    """The terms of the loss, with `layout` and `loss_args` put into the only term.

    Raises:
        ValueError: they are given without a loss, with several terms, or twice.
    """
    terms = [dict(term) for term in fields.get("loss") or ()]
    for name, inside in (("layout", "layout"), ("loss_args", "args")):
        value = fields.get(name)
        if value is None:
            continue
        if len(terms) != 1:
            allowed = "put it into a term of the list" if terms else "it goes with a loss"
            raise ValueError(f"{name}: {allowed}")
        if terms[0].get(inside) is not None:
            raise ValueError(f"{name}: the loss gives {inside} itself; keep one")
        terms[0][inside] = value
    return terms
