"""Trainables that train nothing: `noop` for overhead and scheduling, `closed-form` for planted effects.

Both are deterministic functions of the spec. Their settings stand in `options:`; those that make a cell slow or
make it fail are the same for both.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Final, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from analysis.schema import (
    FINGERPRINT_DATA,
    FINGERPRINT_DEVICE,
    FINGERPRINT_DTYPE,
    FINGERPRINT_EXAMPLE_ORDER,
    FINGERPRINT_INITIAL_WEIGHTS,
    FINGERPRINT_SOFTWARE,
)
from trainables.errors import CollapsedModel, InputError, NonFiniteLoss, NonFiniteScore, OutOfGpuMemory
from trainables.spec import DatasetRecord, Predictions, Progress, Report, TrainResult, TrainSpec

DEFAULT_DIMS: Final = (8, 16)
"""Used where the study names no matryoshka_dims."""

_FAILURES: Final[Mapping[str, Callable[[], Exception]]] = {
    "non_finite_loss": lambda: NonFiniteLoss("training loss is nan at step 1 (planted)"),
    "non_finite_score": lambda: NonFiniteScore("test/spearman is nan (planted)"),
    "collapsed_model": lambda: CollapsedModel("all predictions of test are equal (planted)"),
    "out_of_gpu_memory": lambda: OutOfGpuMemory("out of memory at a peak of 1 MiB (planted)"),
    "error": lambda: RuntimeError("planted error"),
}


class NoopOptions(BaseModel):
    """Options of `noop`, and those that `closed-form` shares with it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sleep_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Seconds that a cell takes."""
    fail_on_seeds: tuple[int, ...] = ()
    """Seeds whose cells fail."""
    fail: Literal[
        "non_finite_loss", "non_finite_score", "collapsed_model", "out_of_gpu_memory", "error", "exit", "kill"
    ] = "error"
    """How they fail; `exit` ends the process, `kill` has it killed as the system does when memory runs short."""


class ClosedFormOptions(NoopOptions):
    """Options of `closed-form`.

    The cosine of example j at dim d is r y_j + sqrt(1 - r^2) e_j + example_sd v_j + cell_sd w_j, where y are the
    standardised labels, e is noise that all cells share, v differs between variants but not between seeds, w is
    the cell's own, and r = base + effect + dim_gain log2(d / largest d) + seed_sd g(seed) + effect_sd h(seed, variant).
    """

    base: Annotated[float, Field(gt=-1, lt=1)] = 0.7
    """Correlation with the labels at the largest dim."""
    effect: Annotated[float, Field(gt=-2, lt=2)] = 0.0
    """Added to it: the planted difference."""
    dim_gain: Annotated[float, Field(ge=0, lt=1)] = 0.02
    """Lost with each halving of the dim."""
    seed_sd: Annotated[float, Field(ge=0, lt=1)] = 0.01
    """Spread between seeds that the variants of a seed share."""
    effect_sd: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Spread of the effect between seeds."""
    example_sd: Annotated[float, Field(ge=0)] = 0.0
    """Example noise of a variant that its seeds share: more seeds do not average it away, more examples do."""
    cell_sd: Annotated[float, Field(ge=0)] = 0.0
    """Example noise of the cell alone."""
    examples: Annotated[int, Field(ge=3)] = 200
    """Rows of each evaluation split."""


_Options = TypeVar("_Options", bound=NoopOptions)


def _options(kind: type[_Options], spec: TrainSpec) -> _Options:
    try:
        return kind.model_validate(dict(spec.options))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        known = ", ".join(kind.model_fields)
        allowed = f"options are {known}" if first["type"] == "extra_forbidden" else first["msg"]
        raise InputError(where="study", field=f"options.{name}", value=first["input"], allowed=allowed) from None


def check_options(spec: TrainSpec) -> None:
    """Check `options:` of a synthetic trainable before anything runs.

    Raises:
        InputError: an unknown option or a value out of range.
    """
    _options(ClosedFormOptions if spec.trainable == "closed-form" else NoopOptions, spec)


def _pretend(spec: TrainSpec, options: NoopOptions, report: Report) -> None:
    report(Progress(phase="train", step=0, total_steps=1))
    if options.sleep_s:
        time.sleep(options.sleep_s)
    if spec.seed in options.fail_on_seeds:
        if options.fail == "exit":
            os._exit(1)
        if options.fail == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise _FAILURES[options.fail]()
    report(Progress(phase="train", step=1, total_steps=1, loss=1.0))


def _key(*parts: object) -> np.random.Generator:
    text = json.dumps(parts, sort_keys=True, default=str)
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))


def _fingerprint(spec: TrainSpec, data: str) -> dict[str, str]:
    return {
        FINGERPRINT_INITIAL_WEIGHTS: "none",
        FINGERPRINT_EXAMPLE_ORDER: hashlib.sha256(f"order {spec.seed}".encode()).hexdigest(),
        FINGERPRINT_DATA: data,
        FINGERPRINT_SOFTWARE: "synthetic",
        FINGERPRINT_DEVICE: "cpu",
        FINGERPRINT_DTYPE: "float64",
    }


def noop(spec: TrainSpec, report: Report) -> TrainResult:
    """Train nothing, at once: what is left is the cost of scheduling and recording.

    Raises:
        InputError: an option is wrong.
        CellFailed: the options plant a failure for this seed.
    """
    options = _options(NoopOptions, spec)
    _pretend(spec, options, report)
    scores = {}
    for dim in spec.matryoshka_dims or DEFAULT_DIMS:
        value = float(_key("noop", spec.seed, dim, dict(spec.options)).uniform(0.4, 0.6))
        scores[f"test/spearman_{dim}"] = value
    return TrainResult(
        scores=scores,
        fingerprint=_fingerprint(spec, "none"),
        times={"train_s": options.sleep_s},
        loss_curve=((1, 1.0),),
    )


def _standardised(values: np.ndarray) -> np.ndarray:
    return np.asarray((values - values.mean()) / values.std(), dtype=np.float64)


def _predictions(spec: TrainSpec, options: ClosedFormOptions, split: str) -> Predictions:
    dims = spec.matryoshka_dims or DEFAULT_DIMS
    m = options.examples
    variant = options.model_dump(mode="json", exclude={"sleep_s", "fail_on_seeds", "fail"})
    labels = _key("labels", split, m).uniform(0.0, 1.0, m)
    y = _standardised(labels)
    noise = _key("noise", split, m).standard_normal(m)
    # Orthogonal to the labels, so that r is the correlation itself and not one more random number.
    e = _standardised(noise - (noise @ y) / (y @ y) * y)
    v = _key("variant", split, variant).standard_normal(m)
    w = _key("cell", split, variant, spec.seed).standard_normal(m)
    g = _key("seed", spec.seed).standard_normal()
    h = _key("effect", variant, spec.seed).standard_normal()
    by_dim = {}
    for dim in dims:
        r = options.base + options.effect + options.dim_gain * math.log2(dim / max(dims))
        r = float(np.clip(r + options.seed_sd * g + options.effect_sd * h, -0.999, 0.999))
        raw = r * y + math.sqrt(1 - r * r) * e + options.example_sd * v + options.cell_sd * w
        by_dim[dim] = np.tanh(raw / 4)  # monotone, into the range of a cosine
    return Predictions(labels=labels, by_dim=by_dim)


def closed_form(spec: TrainSpec, report: Report) -> TrainResult:
    """Scores and predictions with a planted effect, from a formula (see ClosedFormOptions).

    Raises:
        InputError: an option is wrong.
        CellFailed: the options plant a failure for this seed.
    """
    from trainables.sentence_pair.evaluation import correlations

    options = _options(ClosedFormOptions, spec)
    _pretend(spec, options, report)
    predictions = {split: _predictions(spec, options, split) for split in ("validation", "test")}
    scores: dict[str, float] = {}
    for split, one in predictions.items():
        scores.update(correlations(split, one))
    report(Progress(phase="evaluate", step=1, total_steps=1))
    data = hashlib.sha256(f"closed-form {options.examples}".encode()).hexdigest()
    return TrainResult(
        scores=scores,
        predictions=predictions,
        fingerprint=_fingerprint(spec, data),
        times={"train_s": options.sleep_s, "eval_s": 0.0},
        loss_curve=((1, 1.0),),
        datasets=tuple(
            DatasetRecord(split=split, source="closed-form", digest=data, rows=options.examples)
            for split in predictions
        ),
    )
