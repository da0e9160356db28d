"""Do settings contradict each other? The likelihood-ratio test of Gail and Simon (1985) for a qualitative interaction.

    >>> round(gail_simon([2.0, -2.0]).p_value, 4)
    0.0228

Its null: no two settings have true differences of opposite sign. Each setting enters by a normal score, here that of
its t test, so that few seeds are not taken for many. Settings count as independent; where their seeds are shared and
their differences move together (positive correlation), the test errs less than its p says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from analysis.statistics.paired import Floats, Random, finite, paired_t, sign_flip_test

_MOST = 37.0
"""Normal scores end here, where the normal tail is below what a float holds."""


@dataclass(frozen=True, kw_only=True)
class Qualitative:
    """Outcome of the test."""

    q_plus: float
    """Sum of the squared normal scores above 0."""
    q_minus: float
    p_value: float


def gail_simon(scores: ArrayLike) -> Qualitative:
    """Test on normal scores (settings,), each difference over its standard error; 1 where no two have opposite signs.

    p = sum over h = 1 .. k-1 of C(k-1, h) 2^(1-k) P(chi2_h > min(Q+, Q-)), for the least favourable truth: one
    setting far to one side, the others at 0.
    """
    z = finite(scores)
    q_plus, q_minus = float((z[z > 0] ** 2).sum()), float((z[z < 0] ** 2).sum())
    least, k = min(q_plus, q_minus), z.size
    p = 1.0
    if least > 0:
        h = np.arange(1, k)
        p = float((stats.binom.pmf(h, k - 1, 0.5) * stats.chi2.sf(least, h)).sum())
    return Qualitative(q_plus=q_plus, q_minus=q_minus, p_value=p)


def normal_scores(differences_by_setting: Sequence[ArrayLike], *, rng: Random | None = None) -> Floats:
    """Normal score of each setting's t test, by the sign flips where seeds have no spread; 0 below two seeds.

    Args:
        differences_by_setting: Per setting (seeds,).
        rng: Needed above 16 seeds without spread.
    """
    return np.array([_score(finite(d), rng) for d in differences_by_setting])


def _score(d: Floats, rng: Random | None) -> float:
    if d.size < 2:
        return 0.0
    t = paired_t(d)
    if t.dz is None:
        tail = sign_flip_test(d, rng=rng).p_value / 2
    else:
        tail = float(special.stdtr(d.size - 1, -abs(t.dz) * math.sqrt(d.size)))
    size = min(_MOST, -float(special.ndtri(tail))) if tail > 0 else _MOST
    return math.copysign(max(size, 0.0), float(d.mean())) if d.mean() else 0.0
