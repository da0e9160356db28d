"""What a study file may declare about tuning: the `search:` block, the record that a frozen study carries, and
what is checked and warned about both.

No optuna here, so that a study file can be read in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from analysis.schema import DEFAULT_SETTING, Endpoint, parse_endpoint
from sweep.study.fields import Block, Seeds, unknown_field, wrong
from sweep.study.overrides import Layer, leaves
from sweep.study.yaml_reader import Document
from trainables.spec import Number, PositiveInt
from trainables.training_fields import TRAINING_FIELDS, expected, validate_training

Scalar = None | bool | int | float | str
Point = dict[str, Scalar]
"""One point of a search space: training field -> value."""

SIGNIFICANT_DIGITS = 6
"""Sampled numbers are rounded to these: readable, and equal wherever they are equal on purpose."""


def _whole(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong("expected a whole number not below 0")
    return value


Seed = Annotated[int, BeforeValidator(_whole), Field(ge=0, lt=2**32)]


class Range(BaseModel):
    """An interval of a number, both ends included; `low < high` is checked where a study file is read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    low: Number
    high: Number
    log: bool = False
    """Sample the logarithm uniformly: for a learning rate."""


class SearchBlock(Block):
    """`sweep tune`: one search per variant, with the same budget each."""

    space: Mapping[str, Range | tuple[Scalar, ...]] = Field(min_length=1)
    """Training field -> {low, high, log} or a list of choices."""
    trials: PositiveInt
    """Trials per variant; a trial that fails counts."""
    seeds: Seeds
    """Tuning seeds: a trial's value is the mean over them. The study's own seeds must be others."""
    endpoint: str | None = None
    """What is maximised; default: Spearman on the validation split at the largest size."""
    sampler_seed: Seed = 0
    """Seed of the sampler: the same search again finds the same points."""
    startup: PositiveInt = 5
    """First trials drawn at random, the same ones for every variant; TPE proposes the rest."""
    parallel: PositiveInt = 1
    """Trials of a variant proposed at once. Part of the search: another number finds other points."""
    storage: str | None = Field(default=None, min_length=1)
    """SQLAlchemy URL of the Optuna storage (SQLite, PostgreSQL, ...); default: optuna.db beside the tracking file."""

    @field_validator("space", mode="before")
    @classmethod
    def _space(cls, space: Any) -> Any:
        if not isinstance(space, Mapping):
            raise wrong("expected a mapping of training field -> {low, high, log} or a list of choices")
        return {name: _domain(str(name), domain) for name, domain in space.items()}

    @field_validator("endpoint")
    @classmethod
    def _endpoint(cls, endpoint: str | None) -> str | None:
        if endpoint is not None:
            try:
                parse_endpoint(endpoint)
            except ValueError:
                raise wrong("expected split/metric_dim, such as validation/spearman_64") from None
        return endpoint

    @field_validator("storage")
    @classmethod
    def _storage(cls, storage: str | None) -> str | None:
        if storage is not None and "://" not in storage:
            raise wrong("expected an SQLAlchemy URL, such as sqlite:///optuna.db or postgresql://HOST/NAME")
        return storage

    @model_validator(mode="after")
    def _budget_fits(self) -> SearchBlock:
        size = number_of_points(self.space)
        if size is not None and self.trials > size:
            raise wrong(f"the space has only {size} different points", at=("trials",), value=self.trials)
        return self


class SearchedBy(Block):
    """Where the settings of the variants come from, when a search chose them; written by `sweep tune`."""

    study: str
    """Name of the study that declared the search."""
    split: str
    """Evaluation split that the search maximised on."""
    endpoint: str
    """What the search maximised."""
    seeds: Seeds
    """Tuning seeds: used up; a comparison on one of them is exploratory."""
    budget: Mapping[str, PositiveInt]
    """Variant -> trials that were run, failed ones included."""
    failed: Mapping[str, int]
    """Variant -> how many of these failed."""
    sampler: Literal["tpe"] = "tpe"
    """How points were proposed."""
    sampler_seed: Seed
    """As in `search`."""
    startup: PositiveInt
    """As in `search`."""
    parallel: PositiveInt
    """As in `search`."""
    space: Mapping[str, Range | tuple[Scalar, ...]]
    """As in `search`."""
    chosen: Mapping[str, Mapping[str, Scalar]]
    """Variant -> training field -> chosen value."""
    chosen_trial: Mapping[str, int]
    """Variant -> number of the trial that was chosen."""
    best: Mapping[str, float]
    """Variant -> mean of the endpoint over the tuning seeds; the best of many, so it flatters."""


def _domain(name: str, domain: Any) -> Any:
    """Check one field's domain against the training field of that name; numbers become numbers."""
    field = TRAINING_FIELDS.get(name)
    if field is None:
        raise wrong(unknown_field(name, TRAINING_FIELDS), at=(name,), value=domain)
    if isinstance(domain, Range):
        return domain
    if isinstance(domain, Mapping):
        if field.type not in (int, float):
            raise wrong("a range does not fit this field; give a list of choices", at=(name,), value=dict(domain))
        return _range(name, domain)
    if isinstance(domain, Sequence) and not isinstance(domain, str):
        if field.type is dict:
            raise wrong("a field that holds a mapping cannot be searched", at=(name,), value=list(domain))
        choices = tuple(_checked(name, choice, index) for index, choice in enumerate(domain))
        if len(choices) < 2:
            raise wrong("expected at least two choices", at=(name,), value=list(domain))
        for index, choice in enumerate(choices):
            if choice in choices[:index]:
                raise wrong("it is listed twice", at=(name, index), value=choice)
        return choices
    raise wrong("expected {low, high, log} or a list of choices", at=(name,), value=domain)


def _range(name: str, given: Mapping[str, Any]) -> Range:
    for key in given:
        if key not in Range.model_fields:
            raise wrong(unknown_field(key, Range.model_fields), at=(name, key), value=given[key])
    for end in ("low", "high"):
        if end not in given:
            raise wrong(f"expected {{low, high, log}}; {end} is missing", at=(name,), value=dict(given))
    low, high = (_checked(name, given[end], end) for end in ("low", "high"))
    log = given.get("log", False)
    if not isinstance(log, bool):
        raise wrong("expected true or false", at=(name, "log"), value=log)
    if not low < high:
        raise wrong(f"expected a number below high: {high:g}", at=(name, "low"), value=low)
    if log and low <= 0:
        raise wrong("log: true needs a low above 0", at=(name, "low"), value=low)
    return Range(low=low, high=high, log=log)


def _checked(name: str, value: Any, place: str | int) -> Any:
    try:
        return validate_training({name: value})[name]
    except (ValueError, OverflowError):
        raise wrong(f"expected {expected(TRAINING_FIELDS[name])}", at=(name, place), value=value) from None


def number_of_points(space: Mapping[str, Range | tuple[Scalar, ...]]) -> int | None:
    """Different points of a finite space; None where a continuous range makes it infinite."""
    sizes = []
    for name, domain in space.items():
        if isinstance(domain, tuple):
            sizes.append(len(domain))
        elif TRAINING_FIELDS[name].type is int:
            sizes.append(int(domain.high) - int(domain.low) + 1)
        else:
            return None
    return math.prod(sizes)


def rounded(value: Scalar, domain: Range | tuple[Scalar, ...]) -> Scalar:
    """A sampled value at SIGNIFICANT_DIGITS, still inside its range; choices and whole numbers stay."""
    if isinstance(domain, tuple) or not isinstance(value, float):
        return value
    return min(max(float(f"{value:.{SIGNIFICANT_DIGITS}g}"), domain.low), domain.high)


def check_search(
    document: Document,
    search: SearchBlock,
    *,
    seeds: Iterable[int],
    variants: Mapping[str, Layer],
    settings: Iterable[str],
) -> None:
    """Refuse a search that could not lead to a fair comparison.

    Raises:
        StudyError: a tuning seed that the comparison uses, a searched field that a variant sets, a study with settings.
    """
    if set(settings) != {DEFAULT_SETTING}:
        allowed = "a search goes with a study without settings; tune first, then add settings to the frozen study"
        raise document.error(("settings",), list(settings), allowed)
    shared = sorted(set(search.seeds) & set(seeds))
    if shared:
        allowed = f"the study itself uses seed {shared[0]}; the comparison needs seeds that the search has not seen"
        raise document.error(("search", "seeds"), list(search.seeds), allowed)
    for variant, layer in variants.items():
        own = {path[1] for path in leaves(layer) if path[0] == "training"}
        for name in search.space:
            if name in own:
                allowed = f"variant {variant!r} sets it; a field is set by a variant or searched, not both"
                raise document.error(("search", "space", name), name, allowed)


def search_endpoint(search: SearchBlock, common_dims: tuple[int, ...]) -> str:
    """What the search maximises: as declared, else Spearman on the validation split at the largest common size.

    Raises:
        ValueError: none is declared, and the variants have no size in common.
    """
    if search.endpoint is not None:
        return search.endpoint
    if not common_dims:
        raise ValueError("name one, such as validation/spearman_64; the variants have no embedding size in common")
    return str(Endpoint("validation/spearman", max(common_dims)))


def endpoint_warnings(endpoint: str) -> list[str]:
    """What the choice of the searched endpoint does to the report."""
    if parse_endpoint(endpoint).split != "test":
        return []
    return [f"the search maximises {endpoint}, a test score: the report of the comparison will be exploratory"]


def search_warnings(search: SearchBlock | None, searched_by: SearchedBy | None, seeds: Iterable[int]) -> list[str]:
    """What a search, to come or done, does to the report of a study; said before anything runs."""
    out = []
    if search is not None:
        out.append("search: is for `sweep tune`; `sweep run` trains the study as it stands, without tuned settings")
        out += endpoint_warnings(search.endpoint) if search.endpoint is not None else []
    if searched_by is not None:
        out += endpoint_warnings(searched_by.endpoint)
        shared = sorted(set(searched_by.seeds) & set(seeds))
        if shared:
            out.append(
                f"seed {', '.join(map(str, shared))} was used for tuning: the report will be exploratory; "
                "use seeds that the search has not seen"
            )
        if len(set(searched_by.budget.values())) > 1:
            out.append("the variants were tuned with different budgets: the report will be exploratory")
    return out
