"""The study file as a whole: blocks and their types, as pydantic models. Its reference is generated from here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, model_validator

from analysis.plan import AnalysisPlan
from sweep.study.fields import (
    ALIASES,
    Block,
    DataFields,
    Dims,
    Evaluate,
    FreeMapping,
    Label,
    Loss,
    ModelFields,
    Seeds,
    TrainableName,
    TrainedDims,
    Training,
    known_fields,
    read_labelled,
    unknown_field,
    wrong,
)
from sweep.study.search_block import SearchBlock, SearchedBy
from trainables.spec import Number, PositiveInt
from trainables.training_fields import TRAINING_FIELDS

LEAST_MEMORY: Final = 64 * 2**20


def _read_version(given: Any) -> Any:
    if isinstance(given, bool) or given != 1:
        raise wrong("expected 1, the version of this format")
    return 1


def _read_plan(given: Any) -> Any:
    return known_fields(AnalysisPlan, given)


def _read_memory(given: Any) -> Any:
    """Bytes."""
    if given is None:
        return None
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt])(i?)b", str(given).strip().lower())
    size = 0.0
    if found is not None:
        number, unit, binary = found.groups()
        size = float(number) * (1024 if binary else 1000) ** ("kmgt".index(unit) + 1)
    if not LEAST_MEMORY <= size < 2**60:
        raise wrong("expected at least 64MiB, as a number with MiB, GiB, MB or GB, such as 8GiB")
    return int(size)


def _read_time(given: Any) -> Any:
    """Seconds."""
    if given is None:
        return None
    text = str(given).strip().lower()
    found = re.fullmatch(r"(?:([0-9.]+)d)?\s*(?:([0-9.]+)h)?\s*(?:([0-9.]+)m)?\s*(?:([0-9.]+)s)?", text)
    try:
        parts = [float(part or 0) for part in found.groups()] if found is not None and text else []
    except ValueError:
        parts = []
    seconds = sum(part * unit for part, unit in zip(parts, (86400, 3600, 60, 1), strict=False))
    if not 0 < seconds < float("inf"):
        raise wrong("expected a time above 0, such as 2h, 90m, 1h 30m or 45s")
    return seconds


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
    trained_dims: TrainedDims | None = None
    """Sizes that the loss is applied at, where they are not those evaluated; `[]`: at the full size only, without
    MatryoshkaLoss."""
    evaluate: Evaluate | None = None
    """Named test sets, beside the splits of `data`; endpoints begin with their names. Replaced as a whole."""
    training: Training | None = None
    """Fields of SentenceTransformerTrainingArguments, with the library's defaults."""
    options: FreeMapping | None = None
    """Free settings of a trainable of one's own."""

    @model_validator(mode="before")
    @classmethod
    def _training_is_nested(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            for name, value in given.items():
                field = name if name in TRAINING_FIELDS else ALIASES.get(name)
                if name not in cls.model_fields and field in TRAINING_FIELDS:
                    hint = f"it goes under `training: {{{field}: ...}}`; "
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
    """What one cell occupies while it trains, and what it may at most."""

    cpus: PositiveInt = 1
    """Processor cores, and the number of threads."""
    gpus: Annotated[Number, Field(ge=0)] = 0.0
    """0, 1, or a fraction, so that cells share one GPU. At 0 a cell sees no GPU."""
    memory: Annotated[int | None, BeforeValidator(_read_memory)] = None
    """Most main memory beyond the libraries, such as `8GiB`. Default: an equal share of the machine's."""
    time_limit: Annotated[float | None, BeforeValidator(_read_time)] = None
    """Longest time, downloads included, such as `2h`, `90m` or `45s`; a longer cell fails. Default: none."""

    @model_validator(mode="after")
    def _one_gpu(self) -> Resources:
        if self.gpus > 1:
            raise wrong(
                "expected 0, 1 or a fraction: a cell trains on one GPU, so that its batch and its seed mean the same "
                "everywhere; more GPUs train more cells at once",
                at=("gpus",),
                value=self.gpus,
            )
        return self


class Keep(Block):
    """What is kept of a cell beyond its scores and predictions."""

    model: Literal["last"] | None = None
    """`last`: the final encoder of every cell, as the artifact folder `model` of its run. Default: none."""


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
    keep: Keep = Keep()
    """What is kept beyond scores and predictions."""
    analysis: Annotated[AnalysisPlan, BeforeValidator(_read_plan)] = AnalysisPlan()
    """What is compared, declared before there are results."""
    search: SearchBlock | None = None
    """For `sweep tune`."""
    searched_by: SearchedBy | None = None
    """Written by `sweep tune`."""
