"""Equivalence against a declared margin: two one-sided tests, exact by sign flips and beside it by t."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from analysis.statistics.paired import Floats, Random, paired_t, sign_flip_test, t_interval


@dataclass(frozen=True, kw_only=True)
class Equivalence:
    """Outcome of the two one-sided tests."""

    exact_p: float
    """Larger p of the one-sided sign flips of d + margin and margin - d; 2^-n at its smallest."""
    tost_p: float | None
    ci90: tuple[float, float] | None
    equivalent: bool


def equivalence(
    d: ArrayLike, *, margin: float, alpha: float = 0.05, weights: ArrayLike | None = None, rng: Random | None = None
) -> Equivalence:
    """Test whether the mean difference lies inside (-margin, margin).

    Args:
        d: Differences, shape (seeds,).
        margin: Positive, in units of the score.
        alpha: Error rate of each one-sided test.
        weights: Of each entry, mean 1 (`across_settings.seed_weights`); None: 1 each.
        rng: Needed above 16 seeds.
    """
    values, w = _known(d, weights)
    lower, upper = values + margin * w, margin * w - values
    exact = max(sign_flip_test(x, alternative="greater", rng=rng).p_value for x in (lower, upper))
    one_sided = [p for x in (lower, upper) if (p := _t_greater(x)) is not None]
    return Equivalence(
        exact_p=exact,
        tost_p=max(one_sided) if len(one_sided) == 2 else None,
        ci90=t_interval(values, 0.90),
        equivalent=exact <= alpha,
    )


def effect_at_margin(d: ArrayLike, *, margin: float, weights: ArrayLike | None = None) -> float | None:
    """Margin over the sd that these differences would have if their mean were the margin.

    Infinite without spread, None below two differences.
    """
    values, w = _known(d, weights)
    sd = paired_t(values - w * (values.mean() - margin)).sd if values.size else None
    if sd is None:
        return None
    return margin / sd if sd else math.inf


def _known(d: ArrayLike, weights: ArrayLike | None) -> tuple[Floats, Floats]:
    values = np.asarray(d, dtype=np.float64).ravel()
    w = np.ones_like(values) if weights is None else np.asarray(weights, dtype=np.float64).ravel()
    known = np.isfinite(values)
    return values[known], w[known]


def _t_greater(values: Floats) -> float | None:
    """One-sided p of the t test that the mean is above 0; None without spread."""
    t = paired_t(values)
    if t.dz is None:
        return None
    return float(special.stdtr(values.size - 1, -t.dz * math.sqrt(values.size)))
