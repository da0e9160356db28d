"""More than two variants: Friedman over blocks of seeds, and all pairs with Holm. No Nemenyi, no Dunnett."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from analysis.statistics.joint import holm
from analysis.statistics.paired import RESAMPLES, TIE_TOLERANCE, Floats, Random, midranks, sign_flip_test

EXACT_VARIANTS = 6
"""Above this many variants (720 orders a seed) the distribution is drawn, not enumerated."""
EXACT_STATES = 100_000
"""Distinct vectors of rank sums up to which the distribution is enumerated."""


@dataclass(frozen=True, kw_only=True)
class Friedman:
    """Friedman test; null: within a seed every order of the variants is equally likely."""

    chi2: float | None
    p_chi2: float | None
    """Asymptotic: poor for few seeds, for comparison only."""
    p_value: float
    exact: bool


def friedman(scores: ArrayLike, *, rng: np.random.Generator | None = None) -> Friedman:
    """Friedman test on (seeds, variants); seeds with a missing score are left out; ties get midranks.

    Exact by convolution over seeds where the distinct rank sums stay few, else Monte Carlo (`rng` needed).
    """
    rows = np.array(scores, dtype=np.float64, ndmin=2)
    rows = rows[np.isfinite(rows).all(axis=1)]
    n, k = rows.shape
    if n == 0 or k < 2:
        return Friedman(chi2=None, p_chi2=None, p_value=1.0, exact=True)
    ranks = np.array([midranks(row, TIE_TOLERANCE) for row in rows])
    centred = np.rint(2 * ranks).astype(np.int64) - (k + 1)
    observed = int((centred.sum(axis=0) ** 2).sum())
    spread = float((centred**2).sum())
    if spread == 0:
        return Friedman(chi2=None, p_chi2=None, p_value=1.0, exact=True)
    chi2 = (k - 1) * observed / spread
    p_exact = _enumerated(centred, observed) if k <= EXACT_VARIANTS else None
    if p_exact is None:
        if rng is None:
            raise ValueError(f"{n} seeds x {k} variants need random orders: pass rng")
        sums = np.zeros((RESAMPLES, k), dtype=np.int64)
        for row in centred:
            sums += rng.permuted(np.broadcast_to(row, (RESAMPLES, k)), axis=1)
        p = (1 + int(((sums**2).sum(axis=1) >= observed).sum())) / (1 + RESAMPLES)
    else:
        p = p_exact
    return Friedman(chi2=float(chi2), p_chi2=float(stats.chi2.sf(chi2, k - 1)), p_value=p, exact=p_exact is not None)


def _enumerated(centred: np.ndarray[tuple[int, int], np.dtype[np.int64]], observed: int) -> float | None:
    """P(sum of squared rank sums >= observed) over all orders inside each seed; None with too many states."""
    k = centred.shape[1]
    base = 2 * int(np.abs(centred).sum()) + 1
    if k * np.log2(base) > 62:
        return None
    sums = np.zeros((1, k), dtype=np.int64)
    mass: Floats = np.ones(1)
    for row in centred[1:]:  # the first seed's order can stay: renaming variants changes nothing
        orders = Counter(permutations(row.tolist()))
        total = sum(orders.values())
        if len(sums) * len(orders) > 20 * EXACT_STATES:
            return None
        grown = np.concatenate([sums + np.array(order) for order in orders])
        weight = np.concatenate([mass * (count / total) for count in orders.values()])
        code = ((grown + base // 2) * base ** np.arange(k, dtype=np.int64)).sum(axis=1)
        _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
        sums = grown[first]
        mass = np.bincount(inverse, weights=weight).astype(np.float64)
        if len(sums) > EXACT_STATES:
            return None
    statistic = ((sums + centred[0]) ** 2).sum(axis=1)
    return min(1.0, float(mass[statistic >= observed].sum()))


@dataclass(frozen=True, kw_only=True)
class PairTest:
    """Variant j against variant i."""

    i: int
    j: int
    mean_difference: float | None
    """Scores of j minus scores of i."""
    raw: float
    holm: float


def all_pairs(scores: ArrayLike, *, rng: Random | None = None) -> tuple[PairTest, ...]:
    """Sign-flip p of every pair of columns of (seeds, variants), in order (0,1), (0,2), ..., with Holm over pairs."""
    rows: Floats = np.array(scores, dtype=np.float64, ndmin=2)
    pairs = list(combinations(range(rows.shape[1]), 2))
    tests = [sign_flip_test(rows[:, j] - rows[:, i], rng=rng) for i, j in pairs]
    adjusted = holm([t.p_value for t in tests])
    return tuple(
        PairTest(i=i, j=j, mean_difference=t.mean, raw=t.p_value, holm=1.0 if p is None else p)
        for (i, j), t, p in zip(pairs, tests, adjusted, strict=True)
    )
