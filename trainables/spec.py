"""What one training needs (TrainSpec) and what it returns (TrainResult). Light: imports no torch.

A TrainSpec is complete: defaults are filled in, numbers are numbers, so that two specs which mean the same
training are equal, have the same canonical JSON and hence the same cell key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    model_validator,
)

from analysis.schema import AngleLayout
from trainables.tasks import EvaluationSource, read_sources
from trainables.training_fields import ALWAYS_RECORDED, TRAINING_FIELDS, validate_training

if TYPE_CHECKING:
    import numpy as np

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

BUILTIN_TRAINABLE = "sentence-pair"
TRAINABLE_NAMES = (BUILTIN_TRAINABLE, "noop", "closed-form")
"""What may be named without an import path; trainables.registry says where each lives."""
TOY_MODELS = ("toy", "toy-random")
BUILTIN_DATA = ("jsts", "stsb-en", "toy")
SPLITS = ("train", "validation", "test")
EVALUATION_SPLITS: tuple[Literal["validation", "test"], ...] = ("validation", "test")


def _not_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("expected a number, not true or false")
    return value


PositiveInt = Annotated[int, BeforeValidator(_not_bool), Field(ge=1)]
Number = Annotated[float, BeforeValidator(_not_bool), Field(allow_inf_nan=False)]


def _does_something(weight: float) -> float:
    if weight == 0:
        raise ValueError("a term of weight 0 does nothing; leave it out")
    return weight


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelSpec(_Frozen):
    """Which encoder: a hub id, a local folder, `toy` or `toy-random`."""

    name: str = Field(min_length=1)
    """Hub id, folder (relative to the study file) or a built-in toy encoder."""
    revision: str | None = None
    """Branch, tag or commit on the hub; resolved to a commit before anything runs."""
    prompt: str | None = None
    """Text put before every sentence, in training and evaluation. Default: none, also where the model names one."""
    prompts: Mapping[Literal["query", "passage"], str] | None = None
    """Text put before the queries and the passages of a search instead. Default: `prompt` before both."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Number format of weights and activations."""
    max_seq_length: PositiveInt | None = None
    """Tokens; longer sentences are cut. Default: the model's own."""

    def prompt_of(self, kind: Literal["query", "passage"]) -> str | None:
        """Text put before a query or a passage."""
        return (self.prompts or {}).get(kind, self.prompt)


class DataSpec(_Frozen):
    """Which sentence pairs: a built-in set, local files, or a hub dataset with a column mapping."""

    name: str | None = None
    """`jsts`, `stsb-en`, `toy`, or a hub dataset's id; absent for local files."""
    revision: str | None = None
    """Branch, tag or commit of a hub dataset."""
    train: str | None = None
    """Local file (CSV, TSV, JSON lines, Parquet), or the split's name in a hub dataset."""
    validation: str | None = None
    """The same, for the split that a search may look at."""
    test: str | None = None
    """The same, for the split that the verdict rests on."""
    columns: Mapping[Literal["sentence1", "sentence2", "label"], str] | None = None
    """Our column -> the file's column. Default: the same names."""
    label_range: tuple[Number, Number] | None = None
    """Lowest and highest label; labels are scaled from it to 0..1."""
    bad_rows: Literal["drop"] | None = None
    """`drop` leaves out rows with an empty text or a wrong label, and counts them in the record. Default: refused."""
    limit: Mapping[Literal["train", "validation", "test"], PositiveInt] | None = None
    """Rows to use, per split, evenly spread over the file (many are sorted by source); others stay whole."""
    splits: tuple[Literal["train", "validation", "test"], ...] | None = None
    """Which of its splits to use, such as `[train]` where `evaluate` names all test sets. Default: all it has."""

    @property
    def scored(self) -> tuple[Literal["validation", "test"], ...]:
        """The splits that an encoder is scored on, where the data have them."""
        return tuple(split for split in EVALUATION_SPLITS if self.splits is None or split in self.splits)

    @model_validator(mode="after")
    def _one_source(self) -> DataSpec:
        if self.splits is not None:
            if "train" not in self.splits:
                raise ValueError("splits: train must be among them")
            if len(set(self.splits)) != len(self.splits):
                raise ValueError(f"splits: {list(self.splits)} names a split twice")
        if self.name is None and not (self.train and (self.test or "test" not in self.scored)):
            raise ValueError("give a name (jsts, stsb-en, toy or a hub dataset) or the files train: and test:")
        if self.name in BUILTIN_DATA:
            for own in ("train", "validation", "test", "columns", "label_range", "bad_rows", "revision"):
                if getattr(self, own) is not None:
                    raise ValueError(f"{own}: does not go with the built-in dataset {self.name!r}")
        elif self.label_range is None:
            what = "your own data" if self.name is None else f"a hub dataset (built in are {', '.join(BUILTIN_DATA)})"
            raise ValueError(f"label_range: is required for {what}, such as [0, 5]")
        if self.label_range is not None and not self.label_range[0] < self.label_range[1]:
            raise ValueError(f"label_range: {list(self.label_range)} must go from low to high")
        return self


class LossSpec(_Frozen):
    """One term of the training loss."""

    name: str = Field(min_length=1)
    """`angle`, `cosent`, `cosine`, any sentence-transformers loss class, or `module:Class`."""
    layout: AngleLayout | None = None
    """How AnglE splits an embedding into real and imaginary part; only for `angle` (default chunked)."""
    weight: Annotated[Number, AfterValidator(_does_something)] = 1.0
    """Factor of this term in the sum; not 0."""
    args: Mapping[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the loss's constructor."""

    @model_validator(mode="before")
    @classmethod
    def _fill_layout(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("name") == "angle" and data.get("layout") is None:
            return {**data, "layout": "chunked"}
        return data

    @model_validator(mode="after")
    def _layout_only_for_angle(self) -> LossSpec:
        if self.layout is not None and self.name != "angle":
            raise ValueError(f"layout: goes with loss 'angle' only, not with {self.name!r}")
        return self


class TrainSpec(_Frozen):
    """Everything one training depends on, besides the contents of data, model and user modules.

    `root` (the folder that relative paths start from) is where things lie today, not what is trained: it is
    left out of equality of meaning, of `flat()` and of `canonical_json()`.
    """

    trainable: str = BUILTIN_TRAINABLE
    """`sentence-pair`, `noop`, `closed-form`, or `module:function`."""
    model: ModelSpec | None = None
    data: DataSpec | None = None
    loss: tuple[LossSpec, ...] = ()
    matryoshka_dims: tuple[PositiveInt, ...] = ()
    """Embedding sizes trained and evaluated, ascending."""
    trained_dims: tuple[PositiveInt, ...] | None = None
    """Sizes that the loss is applied at, ascending, where they are not those evaluated; none: at the full size only,
    without MatryoshkaLoss."""
    evaluate: Mapping[str, SerializeAsAny[EvaluationSource]] = Field(default_factory=dict)
    """Named test sets, beside the splits of `data`."""
    training: Mapping[str, Any] = Field(default_factory=dict)
    """Fields of SentenceTransformerTrainingArguments (`epochs` and `batch_size` for the two long names)."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Free settings of a trainable of one's own."""
    seed: Annotated[int, BeforeValidator(_not_bool), Field(ge=0, lt=2**32)]
    root: Path | None = Field(default=None, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _fill_training(cls, data: Any) -> Any:
        if isinstance(data, dict):
            data = {**data, "training": validate_training(data.get("training") or {})}
            for name in ("matryoshka_dims", "trained_dims"):
                dims = data.get(name)
                if isinstance(dims, (list, tuple)):
                    # Order means nothing; one order makes equal specs equal.
                    numbers = all(isinstance(d, int) for d in dims)
                    data[name] = tuple(sorted(dims)) if numbers else tuple(dims)
            if data.get("trained_dims") == data.get("matryoshka_dims"):
                data.pop("trained_dims", None)
            data["evaluate"] = read_sources(data.get("evaluate") or {})
        return data

    @model_validator(mode="after")
    def _complete(self) -> TrainSpec:
        for name in ("matryoshka_dims", "trained_dims"):
            dims = getattr(self, name) or ()
            if len(set(dims)) != len(dims):
                raise ValueError(f"{name}: {list(dims)} names a size twice")
        if self.trainable == BUILTIN_TRAINABLE:
            for required in ("model", "data", "loss", "matryoshka_dims"):
                if not getattr(self, required):
                    raise ValueError(f"{required}: is required by the trainable {BUILTIN_TRAINABLE!r}")
            if self.data is not None and not self.data.scored and not self.evaluate:
                raise ValueError("evaluate: nothing would be scored; name a test set, or let data.splits have test")
        odd = [d for d in self.loss_dims if d % 2]
        if odd and any(term.name == "angle" for term in self.loss):
            name = "matryoshka_dims" if self.trained_dims is None else "trained_dims"
            raise ValueError(f"{name}: {odd[0]} is odd; AnglE pairs indices, so every size must be even")
        return self

    @property
    def loss_dims(self) -> tuple[int, ...]:
        """Sizes that the loss is applied at, ascending; empty: at the full size alone."""
        return self.matryoshka_dims if self.trained_dims is None else self.trained_dims

    def flat(self) -> dict[str, Json]:
        """Dotted name -> value, defaults left out except for what people always ask for.

        Training fields stand without prefix (`learning_rate`), as a settings grid names them.
        """
        dumped = self.model_dump(mode="json")
        out: dict[str, Json] = {"trainable": dumped["trainable"], "seed": dumped["seed"]}
        for group in ("model", "data", "options"):
            for key, value in (dumped[group] or {}).items():
                if value is not None:
                    out[f"{group}.{key}"] = value
        if dumped["matryoshka_dims"]:
            out["matryoshka_dims"] = dumped["matryoshka_dims"]
        if dumped["trained_dims"] is not None:
            out["trained_dims"] = dumped["trained_dims"]
        for name, source in dumped["evaluate"].items():
            out[f"evaluate.{name}"] = {key: value for key, value in source.items() if value is not None}
        terms: list[Json] = [
            {k: v for k, v in term.items() if v not in (None, {}) and not (k == "weight" and v == 1.0)}
            for term in dumped["loss"]
        ]
        if len(terms) == 1 and isinstance(terms[0], dict):
            for key, value in terms[0].items():
                out["loss" if key == "name" else f"loss.{key}"] = value
        elif terms:
            out["loss"] = terms
        out.update(
            (key, value)
            for key, value in dumped["training"].items()
            if key in ALWAYS_RECORDED or value != TRAINING_FIELDS[key].default
        )
        return out

    def canonical_json(self) -> str:
        """The text that identity is a hash of: sorted keys, no spaces, numbers as Python writes them."""
        return json.dumps(self.flat(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def resolve_path(self, path: str) -> Path:
        """A path as the study file means it: relative to `root`."""
        return Path(path) if self.root is None else self.root / path


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a training stands; sent now and then, and always at the end of a phase."""

    phase: Literal["load", "train", "evaluate"]
    step: int = 0
    total_steps: int = 0
    loss: float | None = None


Report = Callable[[Progress], None]


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """Per-example results of one test set: similarities to correlate with labels, values to average, or both."""

    labels: np.ndarray[Any, np.dtype[np.float64]] | None = None
    """Gold similarity scaled to 0..1, shape (examples,); goes with `by_dim`."""
    by_dim: Mapping[int, np.ndarray[Any, np.dtype[np.float64]]] = field(default_factory=dict)
    """Dim -> predicted cosine similarity, shape (examples,), in the order of `labels`."""
    values: Mapping[tuple[str, int], np.ndarray[Any, np.dtype[np.float64]]] = field(default_factory=dict)
    """(statistic, dim), such as ("accuracy", 64) -> each example's value, shape (examples,). Where the score
    `split/accuracy_64` is the mean of these, it gets an interval over test examples."""
    ids: tuple[str, ...] | None = None
    """Name of each example, unique; examples of two cells are paired by it. None: by their order."""
    clusters: tuple[str, ...] | None = None
    """What examples belong together, such as the article of a question. None: each stands for itself."""


@dataclass(frozen=True, kw_only=True)
class DatasetRecord:
    """What data a cell saw, for the record."""

    split: str
    source: str
    digest: str
    rows: int


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """What one training returns: everything that is to be recorded about it."""

    scores: Mapping[str, float]
    """`split/metric_dim` (such as `test/spearman_256`) -> value; all finite."""
    predictions: Mapping[str, Predictions] = field(default_factory=dict)
    """Split -> per-example predictions."""
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    """What must be equal between the two cells of a pair (see trainables.sentence_pair.fingerprint)."""
    times: Mapping[str, float] = field(default_factory=dict)
    """Seconds, such as `train_s`, `eval_s`, `load_s`."""
    memory_peak_mb: float | None = None
    """Peak of the device on a GPU, of the process on a CPU; MiB."""
    loss_curve: tuple[tuple[int, float], ...] = ()
    """(step, training loss)."""
    datasets: tuple[DatasetRecord, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader should know, such as the share of unknown tokens."""
    save: Callable[[Path], None] | None = field(default=None, compare=False, repr=False)
    """Writes the final model into an existing, empty folder; called once, under `keep: {model: last}` only."""


Trainable = Callable[[TrainSpec, Report], TrainResult]
"""A trainable: a function of spec and progress callback. Fails by raising trainables.errors.CellFailed."""
