"""What a training depends on besides its spec: the contents of data, model and user modules. Imports no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trainables.downloads import PINNED, pinned_digest
from trainables.errors import InputError
from trainables.locations import file_digest, folder_digest, hub_commit, locate_model
from trainables.spec import SPLITS, DataSpec, TrainSpec
from trainables.user_code import is_import_path, module_digest

_HERE: Final = Path(__file__).parent
_TOY_DATA_SOURCE: Final = ("toy_pairs.py",)
_TOY_MODEL_SOURCE: Final = ("toy_pairs.py", "toy_encoder.py")


@dataclass(frozen=True, kw_only=True)
class Digests:
    """Digests of what a spec names; None where it names nothing or where the contents cannot be read."""

    data: str | None = None
    model: str | None = None
    evaluate: Mapping[str, str] = field(default_factory=dict)
    """Named test set -> identity of its contents."""
    modules: Mapping[str, str] = field(default_factory=dict)
    """Import path of a user's module -> sha256 of its source."""
    unresolved: tuple[str, ...] = ()
    """`data`, `model`, `evaluate:<name>` or `module:<name>`: named by the spec, but not readable here."""


def source_digest(*files: str) -> str:
    """sha256 over source files of this package."""
    return hashlib.sha256(b"\0".join((_HERE / name).read_bytes() for name in files)).hexdigest()


def toy_data_digest() -> str:
    """Identity of the built-in toy pairs: the source that generates them."""
    return source_digest(*_TOY_DATA_SOURCE)


def toy_model_digest(name: str) -> str:
    """Identity of a built-in toy encoder: the source that builds it."""
    return f"{name}-{source_digest(*_TOY_MODEL_SOURCE)}"


def _data_digest(spec: TrainSpec, data: DataSpec) -> str | None:
    if data.name in PINNED:
        return pinned_digest(data.name)
    if data.name == "toy":
        return toy_data_digest()
    if data.name is not None:
        return hub_commit(data.name, data.revision, kind="datasets")
    lines = []
    for split in SPLITS:
        name = getattr(data, split)
        if name is None or (split != "train" and split not in data.scored):
            continue
        path = spec.resolve_path(name)
        if not path.is_file():
            return None
        lines.append(f"{split} {file_digest(path)}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _model_digest(spec: TrainSpec) -> str | None:
    try:
        location = locate_model(spec)
    except InputError:
        return None  # named by preflight; here it is only unresolved
    if location.kind == "toy":
        return toy_model_digest(location.name)
    if location.folder is not None:
        return folder_digest(location.folder)
    assert spec.model is not None
    return hub_commit(location.name, spec.model.revision, kind="models")


def user_modules(spec: TrainSpec) -> tuple[str, ...]:
    """Names of the users' own modules that a spec names, sorted."""
    named = (spec.trainable, *(term.name for term in spec.loss))
    return tuple(sorted({name.partition(":")[0] for name in named if is_import_path(name)}))


def resolve_digests(spec: TrainSpec) -> Digests:
    """Digests of everything a spec names, without a network and without running a user's module."""
    unresolved = []
    data = model = None
    if spec.data is not None:
        data = _data_digest(spec, spec.data)
        if data is None:
            unresolved.append("data")
    if spec.model is not None:
        model = _model_digest(spec)
        if model is None:
            unresolved.append("model")
    evaluate = {}
    for name, source in spec.evaluate.items():
        digest = source.digest(spec.root)
        if digest is None:
            unresolved.append(f"evaluate:{name}")
        else:
            evaluate[name] = digest
    modules = {}
    for name in user_modules(spec):
        digest = module_digest(name, spec.root)
        if digest is None:
            unresolved.append(f"module:{name}")
        else:
            modules[name] = digest
    return Digests(data=data, model=model, evaluate=evaluate, modules=modules, unresolved=tuple(unresolved))
