"""A trainable's name -> the trainable. Lazy: only the one that is asked for is imported."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Final, cast

from trainables.errors import InputError
from trainables.spec import BUILTIN_TRAINABLE, Trainable
from trainables.user_code import is_import_path, load_object

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
_LIKELY: Final = ("torch", "transformers", "sentence_transformers")


def modules_of(name: str) -> tuple[str, ...]:
    """Modules that a training with that trainable needs, apart from the user's own, which may change what they import.

    Args:
        name: A built-in name or an import path.
    """
    return (*_EVERY, *_IMPORTED.get(name, _LIKELY))


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
