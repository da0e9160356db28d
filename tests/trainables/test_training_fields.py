from __future__ import annotations

import dataclasses

import pytest
from sentence_transformers import SentenceTransformerTrainingArguments
from transformers.training_args import OptimizerNames

from trainables.training_fields import LIBRARY_NAMES, TRAINING_FIELDS, validate_training


def test_defaults_against_library() -> None:
    library = {field.name: field for field in dataclasses.fields(SentenceTransformerTrainingArguments)}
    for name, ours in TRAINING_FIELDS.items():
        if name == "warmup_ratio":
            continue  # the library has folded it into warmup_steps
        default = library[LIBRARY_NAMES.get(name, name)].default
        shown = getattr(default, "value", default)
        assert ours.default == shown or not (ours.default or shown), name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epoch": 1}, "training.epoch: unknown field"),
        ({"batch_size": 0}, "training.batch_size: 0 is not valid; expected a whole number"),
        ({"batch_size": 1.5}, "training.batch_size: 1.5 is not valid"),
        ({"learning_rate": "fast"}, "training.learning_rate: 'fast' is not valid; expected a number"),
        ({"learning_rate": float("nan")}, "training.learning_rate: nan is not valid"),
        ({"bf16": 1}, "training.bf16: 1 is not valid; expected true or false"),
        ({"lr_scheduler_type": "steps"}, "expected one of linear"),
        ({"max_steps": 0}, "training.max_steps: 0 is not valid; expected a whole number not below -1 and not 0"),
        ({"optim": "adam"}, "training.optim: 'adam' is not valid; expected one of adamw_torch, "),
        ({"bf16": True, "fp16": True}, "training.fp16: it does not go with bf16: true"),
        ({"epochs": None}, "training.epochs: empty is not valid"),
    ],
)
def test_wrong_field(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match="training") as caught:
        validate_training(given)
    assert message in str(caught.value)


def test_optimizers_against_library() -> None:
    ours = TRAINING_FIELDS["optim"].choices
    assert ours is not None
    assert {"adamw_torch", "adamw_torch_fused", "sgd", "adafactor", "adagrad", "rmsprop"} <= set(ours)
    assert set(ours) <= {one.value for one in OptimizerNames}


@pytest.mark.parametrize("steps", [-1, 1])
def test_steps_without_and_with_a_limit(steps: int) -> None:
    assert validate_training({"max_steps": steps})["max_steps"] == steps


def test_text_numbers_become_numbers() -> None:
    assert validate_training({"learning_rate": "2e-5", "batch_size": "32"})["learning_rate"] == 2e-5
