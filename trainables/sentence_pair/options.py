"""What is checked about a training of `sentence-pair` before torch is imported: its options, and batches of one."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainables.errors import InputError
from trainables.spec import TrainSpec

COMPARES_PAIRS: Final = frozenset(
    {
        "angle",
        "cosent",
        "AnglELoss",
        "CoSENTLoss",
        "MultipleNegativesRankingLoss",
        "MultipleNegativesSymmetricRankingLoss",
    }
)
"""Losses that compare the pairs of a batch with each other: a batch of one teaches them nothing."""


class SentencePairOptions(BaseModel):
    """How a cell is computed; what it computes stands elsewhere in the spec."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    length_aware: bool = Field(default=True, strict=True)
    """Encode a batch in slices of similar length where that pays; the same loss but for the order of sums."""
    deterministic: bool = Field(default=False, strict=True)
    """Only deterministic algorithms on a GPU; slower. On a CPU nothing changes."""


def sentence_pair_options(spec: TrainSpec) -> SentencePairOptions:
    """The checked options.

    Raises:
        InputError: an unknown option or a wrong value.
    """
    try:
        return SentencePairOptions.model_validate(dict(spec.options))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        known = ", ".join(SentencePairOptions.model_fields)
        allowed = f"options are {known}" if first["type"] == "extra_forbidden" else "expected true or false"
        raise InputError(where="study", field=f"options.{name}", value=first["input"], allowed=allowed) from None


def batches_of_one(spec: TrainSpec, rows: int) -> tuple[str, ...]:
    """Warnings about batches that hold a single pair, where a loss needs at least two.

    Args:
        spec: Its loss, batch size and steps.
        rows: Of the train split.

    Returns:
        One line, or none.
    """
    silent = [term.name for term in spec.loss if term.name in COMPARES_PAIRS]
    training = spec.training
    size = training["batch_size"]
    if not silent:
        return ()
    why = f"{' and '.join(dict.fromkeys(silent))} compares the pairs of a batch, so a batch of one gives no gradient"
    if size == 1:
        accumulates = training["gradient_accumulation_steps"] > 1
        hint = "; gradient_accumulation_steps does not change that" if accumulates else ""
        return (f"training.batch_size: 1: {why}{hint}",)
    taken = training["max_steps"] * training["gradient_accumulation_steps"] if training["max_steps"] > 0 else None
    reached = taken is None or taken >= -(-rows // size)
    plain = training["batch_sampler"] == "batch_sampler" and not training["dataloader_drop_last"]
    if plain and reached and rows % size == 1:
        return (
            f"training.batch_size: {rows} rows in batches of {size} leave a last batch of one: {why};"
            " dataloader_drop_last: true leaves it out",
        )
    return ()
