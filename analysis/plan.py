"""The analysis plan: the study file's `analysis:` block, declared before data exist."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from analysis.schema import parse_endpoint


def _not_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("expected a number, not true or false")
    return value


Probability = Annotated[float, BeforeValidator(_not_bool), Field(gt=0, lt=1)]


class AnalysisPlan(BaseModel):
    """What is compared, at which error rate, and when the study stops."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    primary: tuple[str, ...] = ()
    """Such as `test/spearman_512`. Empty: the largest dim's test Spearman, and the report says so."""
    alpha: Probability = 0.05
    """Error rate of the two-sided tests."""
    margin: Annotated[float, BeforeValidator(_not_bool), Field(gt=0, allow_inf_nan=False)] | None = None
    """Differences smaller than this do not matter, in units of the metric. None: no equivalence verdict."""
    stopping: Literal["fixed", "sequential"] = "fixed"
    """Whether seeds are added until the study is decided (`sequential`) or not."""
    max_seeds: Annotated[int, BeforeValidator(_not_bool), Field(ge=1)] | None = None
    """Sequential only: seeds at which the study stops undecided."""

    @field_validator("primary", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("primary")
    @classmethod
    def _endpoints(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            parse_endpoint(text)
        if len(set(value)) != len(value):
            raise ValueError(f"{list(value)} names an endpoint twice")
        return value

    @model_validator(mode="after")
    def _sequential(self) -> AnalysisPlan:
        if self.max_seeds is not None and self.stopping != "sequential":
            raise ValueError("max_seeds: goes with stopping: sequential only")
        return self
