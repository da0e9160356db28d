"""The verdict: of one endpoint, of a comparison, across settings. The first rule that applies (docs/method.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from analysis.comparing.findings import Interval, Verdict
from analysis.statistics.closed_forms import reached
from analysis.statistics.equivalence import effect_at_margin, equivalence
from analysis.statistics.joint import joint_sign_flip
from analysis.statistics.paired import Random, finite, sign_test, snap_ties
from analysis.statistics.power import power_t
from analysis.statistics.sequential import e_value

Side = Literal["treatment", "baseline"]
WANTED_POWER = 0.8


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the rules look at for one endpoint."""

    n_pairs: int
    all_zero: bool
    mean: float
    """Mean difference; in a sequential study the sign of wins - losses decides the direction."""
    significant: bool
    """p <= alpha, or E at its threshold."""
    direction: int
    """+1 favours the treatment, -1 the baseline, 0 neither."""
    can_be_significant: bool
    """The floor does not exceed alpha (or E could reach its threshold with this many seeds)."""
    equivalent: bool
    """By exact shifted flips, or by e-values in a sequential study; False without a margin."""
    margin: float | None
    power_at_margin: float | None
    """Of the t test, with the observed sd; None where there is no margin or no sd."""
    crossed_ci95: Interval | None = None
    crossed_ci90: Interval | None = None
    conflict: bool = False
    failed: frozenset[Side] = frozenset()
    """Which side failed by itself on a seed that the other finished."""


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
    if e.n_pairs < 2 or e.conflict or e.all_zero:
        return "cannot_decide"
    side = excluded_side(e.crossed_ci95)
    if e.significant and side * e.direction < 0:
        return "mixed"
    equivalent = e.equivalent and not e.failed  # a variant that fails by itself is not the same as one that does not
    if e.significant and equivalent:
        if inside(e.crossed_ci90, e.margin):
            return "different_but_negligible"
        if side * e.direction > 0:
            return "better" if side > 0 else "worse"
        return "different_but_negligible_on_this_test_set"
    if e.significant and e.direction > 0 and "treatment" not in e.failed:
        return "better" if side > 0 else "better_on_this_test_set"
    if e.significant and e.direction < 0 and "baseline" not in e.failed:
        return "worse" if side < 0 else "worse_on_this_test_set"
    if equivalent:
        return "equivalent" if inside(e.crossed_ci90, e.margin) else "equivalent_on_this_test_set"
    weak = e.power_at_margin is not None and e.power_at_margin < WANTED_POWER
    return "undecided_underpowered" if not e.can_be_significant or weak else "undecided"


def evidence(
    differences: ArrayLike,
    *,
    wins: int,
    losses: int,
    alpha: float,
    margin: float | None,
    adjusted_p: float,
    floor: float,
    equivalent: bool,
    crossed_ci95: Interval | None = None,
    crossed_ci90: Interval | None = None,
    conflict: bool = False,
    failed: frozenset[Side] = frozenset(),
    e_threshold: float | None = None,
    weights: ArrayLike | None = None,
) -> Evidence:
    """Evidence of one endpoint.

    Args:
        differences: (seeds,).
        wins: Of the sign test; seeds on which the baseline failed by itself count.
        losses: The same for the treatment.
        alpha: Error rate.
        margin: Declared margin, or None.
        adjusted_p: Step-down p of the joint test.
        floor: The least it could be.
        equivalent: Equivalence test against the margin.
        crossed_ci95: Crossed interval, None where there is none.
        crossed_ci90: The same at 90%.
        conflict: Two scores for one key.
        failed: Sides that failed by themselves.
        e_threshold: m / alpha in a sequential study, where E stands for p; None in a fixed one.
        weights: As in `equivalence`.
    """
    d = finite(differences)
    mean = float(d.mean()) if d.size else 0.0
    effect = None if margin is None else effect_at_margin(differences, margin=margin, weights=weights)
    power = None if effect is None else power_t(effect, d.size, alpha=alpha)
    if e_threshold is None:
        significant, reachable, direction = adjusted_p <= alpha, floor <= alpha, int(np.sign(mean))
    else:
        significant = reached(e_value(wins, losses), e_threshold)
        reachable = reached(e_value(wins + losses, 0), e_threshold)
        direction = int(np.sign(wins - losses))
    return Evidence(
        n_pairs=d.size,
        all_zero=not np.any(snap_ties(d)),
        mean=mean,
        significant=significant,
        direction=direction,
        can_be_significant=reachable,
        equivalent=equivalent,
        margin=margin,
        power_at_margin=power,
        crossed_ci95=crossed_ci95,
        crossed_ci90=crossed_ci90,
        conflict=conflict,
        failed=failed,
    )


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


def opposed(evidence: Sequence[Evidence]) -> bool:
    """Primaries significant in opposite directions."""
    directions = {e.direction for e in evidence if e.significant}
    return {1, -1} <= directions


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
    found = []
    for j in range(d.shape[1]):
        column = finite(d[:, j])
        test = sign_test(column)
        found.append(
            evidence(
                column,
                wins=test.wins,
                losses=test.losses,
                alpha=alpha,
                margin=margin,
                adjusted_p=adjusted[j],
                floor=test.p_floor,
                equivalent=margin is not None and equivalence(column, margin=margin, alpha=alpha, rng=rng).equivalent,
                crossed_ci95=crossed_ci95[j] if crossed_ci95 else None,
                crossed_ci90=crossed_ci90[j] if crossed_ci90 else None,
            )
        )
    return comparison_verdict([endpoint_verdict(e) for e in found], opposed=opposed(found))
