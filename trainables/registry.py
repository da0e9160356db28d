"""A trainable's name -> the trainable. Lazy: only the one that is asked for is imported."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Final, cast

from trainables.errors import InputError
from trainables.spec import BUILTIN_TRAINABLE, Trainable
from trainables.user_code import is_import_path, load_object, module_file

BUILTIN_TRAINABLES: Final = {
    BUILTIN_TRAINABLE: "trainables.sentence_pair.train:train",
    "noop": "trainables.synthetic:noop",
    "closed-form": "trainables.synthetic:closed_form",
}

_EVERY: Final = ("trainables.encoder.fetch", "trainables.runtime")
_IMPORTED: Final = {
    BUILTIN_TRAINABLE: ("trainables.sentence_pair.train", "transformers.modeling_layers", "transformers.masking_utils"),
    "noop": ("trainables.synthetic",),
    "closed-form": ("trainables.synthetic", "trainables.sentence_pair.evaluation", "scipy.stats"),
}
_SAFE: Final = ("torch", "transformers", "datasets", "numpy", "sentence_transformers", "scipy", "trainables")
"""Packages that start no thread and touch no device when they are imported."""
_WHOLE: Final = ("sentence_transformers", "scipy", "trainables")
"""Of these also each part by itself."""


def modules_of(name: str, root: Path | None = None) -> tuple[str, ...]:
    """Modules to import before it is known which cell comes; never the user's own, which may do anything.

    Args:
        name: A built-in name or an import path; of the module behind one, the source says what it imports.
        root: Folder of the study file.
    """
    return (*_EVERY, *(_IMPORTED.get(name) or _imports_of(name, root)))


def _imports_of(name: str, root: Path | None) -> tuple[str, ...]:
    module = name.partition(":")[0]
    # For a part of a package, finding it would run the package.
    file = None if "." in module else module_file(module, root)
    try:
        source = ast.parse(file.read_text(encoding="utf-8")) if file is not None else ast.Module([], [])
    except (OSError, ValueError, SyntaxError):
        return ()  # told when it is loaded
    found: dict[str, None] = {}
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            found.update(dict.fromkeys(alias.name for alias in node.names))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found[node.module] = None
    packages = [(one, one.partition(".")[0]) for one in found]
    safe = [one if package in _WHOLE else package for one, package in packages if package in _SAFE]
    return tuple(dict.fromkeys(safe))


def load_trainable(name: str, root: Path | None = None) -> Trainable:
    """The trainable with that name, or at that import path (`module:function`).

    Args:
        name: A built-in name or an import path.
        root: Folder of the study file; users' modules are found there too.

    Raises:
        InputError: neither a built-in name nor an import path that leads to something callable.
    """
    path = BUILTIN_TRAINABLES.get(name)
    if path is not None:
        module, _, attribute = path.partition(":")
        return cast(Trainable, getattr(importlib.import_module(module), attribute))
    if not is_import_path(name):
        names = ", ".join(BUILTIN_TRAINABLES)
        raise InputError(where="study", field="trainable", value=name, allowed=f"one of {names}, or module:function")
    found = load_object(name, field="trainable", root=root)
    if not callable(found):
        raise InputError(where="study", field="trainable", value=name, allowed="must be a function of (spec, report)")
    return cast(Trainable, found)
