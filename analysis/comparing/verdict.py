"""The verdict: of one endpoint, of a comparison, across settings. The first rule that applies (docs/method.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from analysis.comparing.findings import Interval, Verdict
from analysis.schema import Endpoint
from analysis.statistics import sequential
from analysis.statistics.closed_forms import e_threshold, p_floor, reached, seeds_for_e_value
from analysis.statistics.equivalence import effect_at_margin, equivalence
from analysis.statistics.joint import joint_sign_flip
from analysis.statistics.paired import Floats, Random, SignTest, finite, sign_test, snap_ties
from analysis.statistics.power import minimum_seeds, power_t, seeds_needed_t

Side = Literal["treatment", "baseline"]
WANTED_POWER = 0.8


@dataclass(frozen=True, kw_only=True)
class Criteria:
    """What a study declared for its verdicts."""

    alpha: float
    margin: float | None
    hypotheses: int = 1
    """Primaries x comparisons: m of a sequential study, and for how many the crossed intervals hold at once."""
    sequential: bool = False
    """E-values take the place of p-values."""

    @property
    def e_threshold(self) -> float | None:
        """m / alpha, in a sequential study."""
        return e_threshold(self.hypotheses, self.alpha) if self.sequential else None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the rules look at for one primary endpoint, in one setting or over all, corrected for multiplicity."""

    endpoint: Endpoint
    criteria: Criteria
    differences: Floats = field(repr=False)
    """(pairs,), all finite."""
    sign: SignTest
    """Seeds on which one side failed by itself count."""
    adjusted_p: float
    """Step-down p of the joint test, after Holm over the comparisons."""
    factor: int = 1
    """Holm's factor: comparisons still in play; multiplies the floor."""
    equivalent: bool
    """By exact shifted flips, or by e-values in a sequential study; False without a margin."""
    weights: tuple[float, ...] | None = field(default=None, repr=False)
    """As in `equivalence`."""
    crossed_ci95: Interval | None = None
    """For all hypotheses at once; None where there is none."""
    crossed_ci90: Interval | None = None
    examples_needed: int | None = None
    """About how many test examples give 80% power, where more seeds cannot make it `better`; else None."""
    examples_at_margin: int | None = None
    """The same for a difference as large as the margin, where more seeds cannot show that one either; else None."""
    conflict: str | None = None
    """Which key has two different scores; None: none has."""
    failed: frozenset[Side] = frozenset()
    """Which side failed by itself on a seed that the other finished."""
    untrained: frozenset[Side] = frozenset()
    """Which side had no gradient in any step on some seed: it cannot be called equivalent."""
    repeated: bool = False
    """Every seed gave the same two scores: nothing is claimed beyond this test set."""
    opposed_settings: str | None = None
    """Over settings: what shows that some favour the treatment and others the baseline; None: nothing does."""

    @property
    def n_pairs(self) -> int:
        """Pairs, or distinct seeds over settings."""
        return int(self.differences.size)

    @property
    def mean(self) -> float | None:
        """Mean difference."""
        return float(self.differences.mean()) if self.n_pairs else None

    @property
    def all_zero(self) -> bool:
        """No difference is larger than rounding."""
        return not np.any(snap_ties(self.differences))

    @property
    def floor(self) -> float:
        """The least that `adjusted_p` could be."""
        return joint_floor(self.differences, self.factor)

    @property
    def e_value(self) -> float:
        """E-value of the sign test."""
        return sequential.e_value(self.sign.wins, self.sign.losses)

    @property
    def significant(self) -> bool:
        """p <= alpha, or E at its threshold."""
        threshold = self.criteria.e_threshold
        if threshold is None:
            return self.adjusted_p <= self.criteria.alpha
        return reached(self.e_value, threshold)

    @property
    def can_be_significant(self) -> bool:
        """The floor does not exceed alpha (or E could reach its threshold with this many seeds)."""
        threshold = self.criteria.e_threshold
        if threshold is None:
            return self.floor <= self.criteria.alpha
        return reached(sequential.e_value(self.sign.wins + self.sign.losses, 0), threshold)

    @property
    def direction(self) -> int:
        """+1 favours the treatment, -1 the baseline, 0 neither: by the mean, or by wins and losses where E counts."""
        return int(np.sign(self.sign.wins - self.sign.losses if self.criteria.sequential else self.mean or 0.0))

    @cached_property
    def effect_at_margin(self) -> float | None:
        """Margin over the observed sd; None where there is no margin or no sd, infinite without spread."""
        margin = self.criteria.margin
        return None if margin is None else effect_at_margin(self.differences, margin=margin, weights=self.weights)

    @cached_property
    def power_at_margin(self) -> float | None:
        """Power of the t test if the true difference were the margin; None without a margin or sd."""
        effect = self.effect_at_margin
        return None if effect is None else power_t(effect, self.n_pairs, alpha=self.criteria.alpha)

    @property
    def seeds_at_margin(self) -> int | None:
        """Seeds for 80% power of that test, Holm's factor included; None without a margin or spread."""
        effect = self.effect_at_margin
        return (
            seeds_needed_t(effect, alpha=self.criteria.alpha / self.factor)
            if effect and math.isfinite(effect)
            else None
        )

    @property
    def seeds_to_reach_alpha(self) -> int:
        """Smallest number of untied seeds that can reach alpha, or E its threshold."""
        threshold = self.criteria.e_threshold
        if threshold is None:
            return minimum_seeds(self.criteria.alpha, comparisons=self.factor).joint
        return seeds_for_e_value(threshold)

    @cached_property
    def verdict(self) -> Verdict:
        """The first rule that applies; seeds that repeat one result claim nothing beyond this test set."""
        verdict = endpoint_verdict(self)
        return _ON_THIS_TEST_SET.get(verdict, verdict) if self.repeated else verdict


_ON_THIS_TEST_SET: dict[Verdict, Verdict] = {
    "better": "better_on_this_test_set",
    "worse": "worse_on_this_test_set",
    "equivalent": "equivalent_on_this_test_set",
    "different_but_negligible": "different_but_negligible_on_this_test_set",
}


def joint_floor(differences: Floats, factor: int = 1) -> float:
    """Smallest step-down p that these pairs can give; a seed without a difference counts in the sign test only."""
    return min(1.0, factor * p_floor(int(np.count_nonzero(snap_ties(differences)))))


def excluded_side(interval: Interval | None) -> int:
    """+1 when the interval lies above 0, -1 below, 0 when it includes 0 or is unavailable."""
    if interval is None or not all(math.isfinite(v) for v in interval):
        return 0
    return 1 if interval[0] > 0 else -1 if interval[1] < 0 else 0


def inside(interval: Interval | None, margin: float | None) -> bool:
    """The interval lies inside (-margin, margin)."""
    return interval is not None and margin is not None and -margin < interval[0] and interval[1] < margin


def endpoint_verdict(e: Evidence) -> Verdict:
    """The first rule that applies to one endpoint."""
    if e.n_pairs < 2 or e.conflict is not None or e.all_zero:
        return "cannot_decide"
    if e.opposed_settings is not None:
        return "mixed"
    side, margin = excluded_side(e.crossed_ci95), e.criteria.margin
    if e.significant and side * e.direction < 0:
        return "mixed"
    # A variant that fails by itself is not the same as one that does not; and what did not train shows nothing.
    equivalent = e.equivalent and not e.failed and not e.untrained
    if e.significant and equivalent:
        if inside(e.crossed_ci90, margin):
            return "different_but_negligible"
        if side * e.direction > 0:
            return "better" if side > 0 else "worse"
        return "different_but_negligible_on_this_test_set"
    if e.significant and e.direction > 0 and "treatment" not in e.failed:
        return "better" if side > 0 else "better_on_this_test_set"
    if e.significant and e.direction < 0 and "baseline" not in e.failed:
        return "worse" if side < 0 else "worse_on_this_test_set"
    if equivalent:
        return "equivalent" if inside(e.crossed_ci90, margin) else "equivalent_on_this_test_set"
    weak = e.power_at_margin is not None and e.power_at_margin < WANTED_POWER
    return "undecided_underpowered" if not e.can_be_significant or weak else "undecided"


def comparison_verdict(verdicts: Sequence[Verdict], *, opposed: bool = False) -> Verdict:
    """Verdict of a comparison from those of its primaries.

    Args:
        verdicts: One per primary endpoint.
        opposed: Primaries are significant in opposite directions.
    """
    if not verdicts or all(v == "cannot_decide" for v in verdicts):
        return "cannot_decide"
    up = {"better", "better_on_this_test_set"} & set(verdicts)
    down = {"worse", "worse_on_this_test_set"} & set(verdicts)
    if opposed or "mixed" in verdicts or (up and down):
        return "mixed"
    for verdict in ("better", "worse", "better_on_this_test_set", "worse_on_this_test_set"):
        if verdict in verdicts:
            return verdict
    negligible: tuple[Verdict, ...] = ("different_but_negligible", "different_but_negligible_on_this_test_set")
    same = {*negligible, "equivalent", "equivalent_on_this_test_set"}
    if set(verdicts) <= same:
        for verdict in negligible:
            if verdict in verdicts:
                return verdict
        return "equivalent" if set(verdicts) == {"equivalent"} else "equivalent_on_this_test_set"
    return "undecided_underpowered" if "undecided_underpowered" in verdicts else "undecided"


def verdict_over(primaries: Sequence[Evidence]) -> Verdict:
    """Verdict of a comparison from the evidence on its primaries."""
    directions = {e.direction for e in primaries if e.significant}
    return comparison_verdict([e.verdict for e in primaries], opposed={1, -1} <= directions)


def decide(
    differences: ArrayLike,
    *,
    alpha: float = 0.05,
    margin: float | None = None,
    crossed_ci95: Sequence[Interval | None] | None = None,
    crossed_ci90: Sequence[Interval | None] | None = None,
    rng: Random | None = None,
) -> Verdict:
    """Verdict of one comparison of a fixed-n study from the primaries' differences alone.

    Args:
        differences: (seeds, primaries); entries that are not finite are missing.
        alpha: Error rate.
        margin: Declared margin, or None.
        crossed_ci95: Crossed interval per primary, None where there is none.
        crossed_ci90: The same at 90%.
        rng: Needed above 16 seeds.
    """
    d = np.asarray(differences, dtype=np.float64)
    adjusted = joint_sign_flip(d, rng=rng).step_down
    criteria = Criteria(alpha=alpha, margin=margin)
    primaries = []
    for j in range(d.shape[1]):
        column = finite(d[:, j])
        primaries.append(
            Evidence(
                endpoint=Endpoint("primary", j),
                criteria=criteria,
                differences=column,
                sign=sign_test(column),
                adjusted_p=adjusted[j],
                equivalent=margin is not None and equivalence(column, margin=margin, alpha=alpha, rng=rng).equivalent,
                crossed_ci95=crossed_ci95[j] if crossed_ci95 else None,
                crossed_ci90=crossed_ci90[j] if crossed_ci90 else None,
            )
        )
    return verdict_over(primaries)
