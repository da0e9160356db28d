"""`options:` of the built-in trainable `sentence-pair`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainables.errors import InputError
from trainables.spec import TrainSpec


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
