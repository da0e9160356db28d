"""The smaller records that findings are made of; import them from `analysis.comparing.findings`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal[
    "cannot_decide",
    "mixed",
    "different_but_negligible",
    "different_but_negligible_on_this_test_set",
    "better",
    "worse",
    "better_on_this_test_set",
    "worse_on_this_test_set",
    "equivalent",
    "equivalent_on_this_test_set",
    "undecided_underpowered",
    "undecided",
]
Interval = tuple[float, float]
"""(low, high)."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something a reader must know before the numbers; shown on top of the report."""

    kind: Literal["failed_by_itself", "unverified", "exploratory", "default_primary", "baseline", "data", "correlation"]
    text: str
    """One sentence, no markup."""


@dataclass(frozen=True, kw_only=True)
class PlanUsed:
    """The analysis plan that this analysis followed, beside the declared one."""

    primary: tuple[str, ...]
    """Endpoints, such as `test/spearman_512`; never empty when anything was compared."""
    default_primary: bool
    """True when the primaries were not named by anyone but chosen by the stated default."""
    alpha: float
    margin: float | None
    stopping: Literal["fixed", "sequential"]
    max_seeds: int | None
    baseline: str | None
    exploratory: tuple[str, ...]
    """Why this report is exploratory, one sentence each; empty when it is not."""
    declared: Mapping[str, Any] | None
    """What the first run recorded (primary, alpha, margin, stopping, baseline); None when nothing was recorded."""


@dataclass(frozen=True, kw_only=True)
class DroppedSeed:
    """A seed that is not used in a comparison, and why."""

    seed: int
    reason: str
    loss_for: str | None = None
    """The variant that failed by itself on this seed: the seed counts as its loss in the sign test."""


@dataclass(frozen=True, kw_only=True)
class DeclaredDifference:
    """A field that differs inside the pairs because a variant declares it."""

    field: str
    treatment: Any
    baseline: Any


@dataclass(frozen=True, kw_only=True)
class CrossedFinding:
    """Seeds and test examples as two sources of variance (method.md); units of the metric, variances squared."""

    mean: float
    """Mean difference that the intervals are centred on: the recorded scores' where there are some."""
    n_seeds: int
    n_examples: int
    seed_variance_of_mean: float
    """s^2 / n."""
    shared_example_variance: float
    """Part of the mean's variance that no further seed removes."""
    interaction_variance_per_seed: float
    total_variance: float
    df: float | None
    ci95: Interval | None
    ci90: Interval | None
    half_width_infinite_seeds: float
    """Half width of the 95% interval that infinitely many seeds would leave."""
    examples_needed: int | None
    """About how many test examples would bring the half width of `ci95_joint` that infinitely many seeds leave below
    |mean|; None when |mean| is 0."""
    ci95_joint: Interval | None = None
    """The interval that the verdict looks at: 95% for all primaries and comparisons at once (Bonferroni); with one
    primary and one treatment it is `ci95`."""
    blocked_by_examples: bool
    """True when |mean| lies inside that half width of `ci95_joint`: more seeds cannot make it `better`, more examples
    may."""


@dataclass(frozen=True, kw_only=True)
class EquivalenceFinding:
    """Equivalence against the declared margin."""

    margin: float
    exact_p: float | None
    """Larger of the two exact shifted one-sided sign-flip p-values; None in a sequential study."""
    tost_p: float | None
    """The same by t (two one-sided tests)."""
    t_ci90: Interval | None
    equivalent: bool
    """exact_p <= alpha, or both e-values at their threshold in a sequential study."""
    e_lower: float | None
    """Sequential only: e-value against `difference <= -margin`."""
    e_upper: float | None
    """Sequential only: e-value against `difference >= margin`."""
    e_threshold: float | None


@dataclass(frozen=True, kw_only=True)
class OnePairFinding:
    """One trained pair only: how far test examples alone explain the difference. Says nothing about seeds."""

    n_examples: int
    correlation_treatment: float
    correlation_baseline: float
    correlation_between: float
    """Correlation of the two variants' predictions."""
    zou_ci95: Interval | None
    steiger_z: float | None
    steiger_p: float | None
    """None in a sequential study, as every fixed-n p-value."""
    williams_t: float | None
    williams_p: float | None
    jackknife_se: float | None
