"""The study file as a whole: blocks and their types, as pydantic models. Its reference is generated from here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from analysis.plan import AnalysisPlan
from sweep.study.fields import (
    Block,
    DataFields,
    Dims,
    FreeMapping,
    Label,
    Loss,
    ModelFields,
    Seeds,
    TrainableName,
    Training,
    known_fields,
    read_labelled,
    unknown_field,
    wrong,
)
from sweep.study.search_block import SearchBlock, SearchedBy
from trainables.spec import Number, PositiveInt
from trainables.training_fields import TRAINING_FIELDS


def _read_version(given: Any) -> Any:
    if isinstance(given, bool) or given != 1:
        raise wrong("expected 1, the version of this format")
    return 1


def _read_plan(given: Any) -> Any:
    return known_fields(AnalysisPlan, given)


class Overrides(Block):
    """What a variant or a named setting may override, with the study file's own nesting."""

    trainable: TrainableName | None = None
    """`sentence-pair` (the default), `noop`, `closed-form`, or one's own `module:function`."""
    model: ModelFields | None = None
    """Which encoder."""
    data: DataFields | None = None
    """Which sentence pairs."""
    loss: Loss | None = None
    """`angle`, `cosent`, `cosine`, a sentence-transformers class, `module:Class`, or a list of terms with weights."""
    layout: Literal["chunked", "interleaved", "interleaved_swapped"] | None = None
    """How AnglE splits an embedding; goes with `loss: angle`."""
    loss_args: FreeMapping | None = None
    """Arguments of the loss's constructor; goes with a single loss."""
    matryoshka_dims: Dims | None = None
    """Embedding sizes trained and evaluated."""
    training: Training | None = None
    """Fields of SentenceTransformerTrainingArguments, with the library's defaults."""
    options: FreeMapping | None = None
    """Free settings of a trainable of one's own."""

    @model_validator(mode="before")
    @classmethod
    def _training_is_nested(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            for name, value in given.items():
                if name not in cls.model_fields and name in TRAINING_FIELDS:
                    hint = f"it goes under `training: {{{name}: ...}}`; "
                    raise wrong(unknown_field(name, cls.model_fields, hint), at=(name,), value=value)
        return given


class Settings(Block):
    """Crossed with variants and seeds: every point of the grid, and every named setting."""

    grid: Mapping[str, Any] | None = None
    """Training field (or `model.x`, `data.x`, `loss_args.x`, `options.x`) -> list of values; all combinations."""
    named: Annotated[Mapping[str, Overrides | None], BeforeValidator(read_labelled)] | None = None
    """Label -> overrides. An empty mapping is the study as it stands."""

    @model_validator(mode="after")
    def _something(self) -> Settings:
        if not self.grid and not self.named:
            raise wrong("expected grid: or named:, or leave settings out")
        return self


class Resources(Block):
    """What one cell occupies while it trains."""

    cpus: PositiveInt = 1
    """Processor cores, and the number of threads."""
    gpus: Annotated[Number, Field(ge=0)] = 0.0
    """GPUs; may be a fraction below 1, so that cells share one."""

    @model_validator(mode="after")
    def _whole_gpus(self) -> Resources:
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise wrong("expected a whole number, or a fraction below 1", at=("gpus",), value=self.gpus)
        return self


class StudyFile(Overrides):
    """A study file, version 1."""

    version: Annotated[Literal[1], BeforeValidator(_read_version)] = 1
    """Version of this format."""
    name: Label
    """Name of the study, and of its MLflow experiment."""
    variants: Annotated[Mapping[str, Overrides | None], BeforeValidator(read_labelled)]
    """Label -> what this variant overrides."""
    baseline: str | None = None
    """The variant that the others are compared with. Default: the first one."""
    seeds: Seeds
    """How many (0, 1, ..., n - 1), or a list."""
    settings: Settings | None = None
    """Optional: other conditions to compare the variants under."""
    resources: Resources = Resources()
    """What one cell occupies."""
    analysis: Annotated[AnalysisPlan, BeforeValidator(_read_plan)] = AnalysisPlan()
    """What is compared, declared before there are results."""
    search: SearchBlock | None = None
    """For `sweep tune`."""
    searched_by: SearchedBy | None = None
    """Written by `sweep tune`."""
