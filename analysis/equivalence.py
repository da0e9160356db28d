"""Equivalence against a declared margin: two one-sided tests, exact by sign flips and beside it by t."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from analysis.paired import Random, finite, sign_flip_test, t_interval


@dataclass(frozen=True, kw_only=True)
class Equivalence:
    """Outcome of the two one-sided tests."""

    exact_p: float
    """Larger p of the one-sided sign flips of d + margin and margin - d; 2^-n at its smallest."""
    tost_p: float | None
    ci90: tuple[float, float] | None
    equivalent: bool


def equivalence(d: ArrayLike, *, margin: float, alpha: float = 0.05, rng: Random | None = None) -> Equivalence:
    """Does the mean difference lie inside (-margin, margin)?

    Args:
        d: Differences, shape (seeds,).
        margin: Positive, in units of the score.
        alpha: Error rate of each one-sided test.
        rng: Needed above 16 seeds.
    """
    values = finite(d)
    lower = sign_flip_test(values + margin, alternative="greater", rng=rng).p_value
    upper = sign_flip_test(margin - values, alternative="greater", rng=rng).p_value
    exact = max(lower, upper)
    ci90 = t_interval(values, 0.90)
    tost_p = None
    if ci90 is not None:
        from statsmodels.stats.weightstats import DescrStatsW

        tost_p = float(DescrStatsW(values).ttost_mean(-margin, margin)[0])
    return Equivalence(exact_p=exact, tost_p=tost_p, ci90=ci90, equivalent=exact <= alpha)
