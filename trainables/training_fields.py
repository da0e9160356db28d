"""Fields of `training:` in a study file.

They are fields of SentenceTransformerTrainingArguments with the library's defaults, listed here so that a study
can be read in milliseconds, without importing torch; a test compares this table with the library.
Left out on purpose: what the system owns (seed, output and logging places, saving, evaluation during training,
device placement), because a comparison would not survive a user setting it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LIBRARY_NAMES = {"epochs": "num_train_epochs", "batch_size": "per_device_train_batch_size"}
"""Our short name -> the library's name; every other field keeps the library's name."""

ALWAYS_RECORDED = ("epochs", "batch_size", "learning_rate", "warmup_ratio", "weight_decay", "lr_scheduler_type")
"""Recorded with every cell even at their defaults."""


@dataclass(frozen=True, kw_only=True)
class TrainingField:
    """One field: its type, its default, the allowed range or choices (None: not limited here)."""

    type: type
    default: Any
    optional: bool = False
    low: float | None = None
    above: float | None = None
    high: float | None = None
    choices: tuple[str, ...] | None = None
    excluded: float | None = None
    """One value inside the range that is not allowed."""


_SCHEDULERS = (
    "linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup",
    "inverse_sqrt", "cosine_with_min_lr", "warmup_stable_decay",
)  # fmt: skip

_OPTIMIZERS = ("adamw_torch", "adamw_torch_fused", "sgd", "adafactor", "adagrad", "rmsprop")
"""The library's optimizers that need no further package."""

TRAINING_FIELDS: dict[str, TrainingField] = {
    "epochs": TrainingField(type=float, default=3.0, above=0),
    "batch_size": TrainingField(type=int, default=8, low=1),
    "max_steps": TrainingField(type=int, default=-1, low=-1, excluded=0),
    "learning_rate": TrainingField(type=float, default=5e-5, low=0),
    "lr_scheduler_type": TrainingField(type=str, default="linear", choices=_SCHEDULERS),
    "lr_scheduler_kwargs": TrainingField(type=dict, default=None, optional=True),
    "warmup_ratio": TrainingField(type=float, default=0.0, low=0, high=1),
    "warmup_steps": TrainingField(type=int, default=0, low=0),
    "optim": TrainingField(type=str, default="adamw_torch_fused", choices=_OPTIMIZERS),
    "optim_args": TrainingField(type=str, default=None, optional=True),
    "weight_decay": TrainingField(type=float, default=0.0, low=0),
    "adam_beta1": TrainingField(type=float, default=0.9, low=0, high=1),
    "adam_beta2": TrainingField(type=float, default=0.999, low=0, high=1),
    "adam_epsilon": TrainingField(type=float, default=1e-8, low=0),
    "gradient_accumulation_steps": TrainingField(type=int, default=1, low=1),
    "max_grad_norm": TrainingField(type=float, default=1.0, low=0),
    "bf16": TrainingField(type=bool, default=False),
    "fp16": TrainingField(type=bool, default=False),
    "tf32": TrainingField(type=bool, default=None, optional=True),
    "gradient_checkpointing": TrainingField(type=bool, default=False),
    "neftune_noise_alpha": TrainingField(type=float, default=None, optional=True, above=0),
    "dataloader_drop_last": TrainingField(type=bool, default=False),
    "batch_sampler": TrainingField(
        type=str, default="batch_sampler", choices=("batch_sampler", "no_duplicates", "group_by_label")
    ),
}


def _checked(name: str, value: Any, spec: TrainingField) -> Any:
    if value is None:
        if spec.optional:
            return None
        raise ValueError(f"training.{name}: empty is not valid; expected {expected(spec)}")
    bad = ValueError(f"training.{name}: {value!r} is not valid; expected {expected(spec)}")
    if spec.type in (int, float):
        if isinstance(value, bool):
            raise bad
        try:
            number = float(value)  # YAML reads 2e-5 as text
        except (TypeError, ValueError):
            raise bad from None
        if not math.isfinite(number) or (spec.type is int and number != int(number)):
            raise bad
        too_low = (spec.low is not None and number < spec.low) or (spec.above is not None and number <= spec.above)
        if too_low or (spec.high is not None and number > spec.high) or number == spec.excluded:
            raise bad
        return int(number) if spec.type is int else number
    if not isinstance(value, spec.type) or (spec.choices is not None and value not in spec.choices):
        raise bad
    return value


def expected(spec: TrainingField) -> str:
    """What a field allows, in words: `a number not below 0`."""
    if spec.choices is not None:
        return "one of " + ", ".join(spec.choices)
    kind = {int: "a whole number", float: "a number", bool: "true or false", str: "text", dict: "a mapping"}[spec.type]
    parts = [kind]
    if spec.above is not None:
        parts.append(f"above {spec.above:g}")
    if spec.low is not None and spec.high is not None:
        parts.append(f"from {spec.low:g} to {spec.high:g}")
    elif spec.low is not None:
        parts.append(f"not below {spec.low:g}")
    if spec.excluded is not None:
        parts.append(f"and not {spec.excluded:g}")
    return " ".join(parts)


def validate_training(given: Mapping[str, Any]) -> dict[str, Any]:
    """Check and complete `training:`; every field of the result has its type.

    Raises:
        ValueError: names the field, its value and what is allowed.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"training: {given!r} is not valid; expected a mapping of training fields")
    for name in given:
        if name not in TRAINING_FIELDS:
            raise ValueError(f"training.{name}: unknown field; allowed: {', '.join(sorted(TRAINING_FIELDS))}")
    complete = {
        name: _checked(name, given[name], spec) if name in given else spec.default
        for name, spec in TRAINING_FIELDS.items()
    }
    if complete["bf16"] and complete["fp16"]:
        raise ValueError("training.fp16: it does not go with bf16: true; choose one of the two number types")
    return complete
