"""Two sources of variance: seeds, and the examples of the test set that all seeds share.

Var(mean difference) = s^2 / n + shared, where `shared` is the part of the per-example noise that all seeds have in
common; Satterthwaite df over the two terms. The two-way random-effects decomposition is that of Cornfield and Tukey
(1956); for two-way bootstrap see Owen (2007).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from analysis.statistics.paired import RESAMPLES, Floats

ROUNDING = 1e-12
"""An interaction variance of less than this share of its parts is rounding."""


@dataclass(frozen=True, kw_only=True)
class Crossed:
    """Variance components of a mean difference and the intervals they give."""

    mean: float
    n_seeds: int
    n_examples: int
    seed_variance_of_mean: float
    shared_example_variance: float
    interaction_variance_per_seed: float
    total_variance: float
    df: float | None
    example_df: float
    """Satterthwaite's, over test sets; examples - 1 with one."""

    def interval(self, level: float = 0.95, *, hypotheses: int = 1) -> tuple[float, float] | None:
        """Interval of the mean for new seeds and new examples; None without any variance.

        With several `hypotheses` it is wide enough for that many intervals to hold at once (Bonferroni). The joint
        test cannot stand in for this: given one test set, its null is false even where no population difference is.
        """
        if self.df is None:
            return None
        half = -float(special.stdtrit(self.df, (1 - level) / (2 * hypotheses))) * math.sqrt(self.total_variance)
        return self.mean - half, self.mean + half

    def half_width_infinite_seeds(self, *, hypotheses: int = 1) -> float:
        """Half width of the 95% interval that infinitely many seeds would leave, as wide as `interval` is."""
        tail = 0.025 / hypotheses
        return -float(special.stdtrit(self.example_df, tail)) * math.sqrt(self.shared_example_variance)

    def blocked_by_examples(self, *, hypotheses: int = 1) -> bool:
        """The mean lies inside what infinitely many seeds would leave."""
        return abs(self.mean) <= self.half_width_infinite_seeds(hypotheses=hypotheses)

    def examples_needed(self, *, hypotheses: int = 1) -> int | None:
        """About how many examples would bring that half width below |mean|; None where |mean| is (all but) 0."""
        return self._examples(abs(self.mean), 1.0, hypotheses)

    def examples_for(self, effect: float, *, power: float = 0.8, hypotheses: int = 1) -> int | None:
        """About how many examples let that interval exclude 0 with this power where the true difference is `effect`.

        Bringing the half width just below the effect is a coin flip; 80% takes (1 + z / t)^2 as many, some 2.04 times.
        """
        quantile = -float(special.stdtrit(self.example_df, 0.025 / hypotheses))
        return self._examples(abs(effect), 1 + float(special.ndtri(power)) / quantile, hypotheses)

    def _examples(self, effect: float, factor: float, hypotheses: int) -> int | None:
        half = self.half_width_infinite_seeds(hypotheses=hypotheses)
        ratio = factor * half / effect if effect else math.inf
        needed = self.n_examples * ratio * ratio
        return math.ceil(needed) if math.isfinite(needed) else None


@dataclass(frozen=True, kw_only=True)
class SettingInfluence:
    """One setting's part of a difference that is averaged over settings."""

    seeds: tuple[int, ...]
    differences: Floats
    """(seeds,)"""
    influence: Floats | None
    """(seeds, examples), rows in the order of `seeds`; rows of NaN where predictions are missing."""
    test_set: int = 0
    """Settings with the same number were evaluated on the same examples."""


def crossed(differences: ArrayLike, influence: ArrayLike) -> Crossed | None:
    """Components of one setting's mean difference.

    Args:
        differences: Recorded score differences, shape (seeds,).
        influence: Influence values of those differences, shape (seeds, examples).

    Returns:
        None below two seeds or two examples.
    """
    d = np.asarray(differences, dtype=np.float64)
    part = SettingInfluence(seeds=tuple(range(d.size)), differences=d, influence=np.asarray(influence))
    return crossed_over_settings([part])


def crossed_over_settings(settings: Sequence[SettingInfluence]) -> Crossed | None:
    """Components of the unweighted mean of setting means.

    Seeds that recur in several settings keep their covariance, and so do examples of a test set that several
    settings share; different test sets add their variances.

    Returns:
        None where some setting has fewer than two seeds, or fewer than two seeds with predictions.
    """
    k = len(settings)
    kept = [_with_predictions(s) for s in settings]
    if k == 0 or any(s.differences.size < 2 for s in settings) or any(p is None for p in kept):
        return None
    parts = [p for p in kept if p is not None]
    mean = float(np.mean([s.differences.mean() for s in settings]))
    seed_variance, seed_df = _seed_variance(settings)
    shared, own, examples = 0.0, 0.0, 0
    by_test_set = []
    for test_set in dict.fromkeys(p.test_set for p in parts):
        group = [p for p in parts if p.test_set == test_set]
        covariance, diagonal, m = _example_covariance(group)
        shared, own, examples = shared + covariance / k**2, own + diagonal / k**2, examples + m
        by_test_set.append((max(covariance / k**2, 0.0), m))
    floored = max(shared, 0.0)
    total = seed_variance + floored
    # Each test set is as certain as its own size: a large one does not lend its degrees of freedom to a small one.
    spread = sum(v**2 / (m - 1) for v, m in by_test_set) if floored else 0.0
    df = total**2 / (seed_variance**2 / seed_df + spread) if total > 0 else None
    interaction = own - floored
    if abs(interaction) <= ROUNDING * max(own, floored):
        interaction = 0.0
    return Crossed(
        mean=mean,
        n_seeds=len({seed for s in settings for seed in s.seeds}),
        n_examples=examples,
        seed_variance_of_mean=seed_variance,
        shared_example_variance=floored,
        interaction_variance_per_seed=interaction,
        total_variance=total,
        df=df,
        example_df=floored**2 / spread if spread else float(examples - 1),
    )


def _with_predictions(setting: SettingInfluence) -> SettingInfluence | None:
    if setting.influence is None or setting.influence.ndim != 2 or setting.influence.shape[1] < 2:
        return None
    known = np.asarray(np.isfinite(setting.influence).all(axis=1))
    if known.sum() < 2:
        return None
    return SettingInfluence(
        seeds=tuple(s for s, k in zip(setting.seeds, known.tolist(), strict=True) if k),
        differences=setting.differences[known],
        influence=setting.influence[known],
        test_set=setting.test_set,
    )


def _seed_variance(settings: Sequence[SettingInfluence]) -> tuple[float, float]:
    """Variance of the unweighted mean of setting means over seeds, and its df."""
    k = len(settings)
    own = [float(s.differences.var(ddof=1)) / s.differences.size / k**2 for s in settings]
    total, overlap = sum(own), False
    for i, a in enumerate(settings):
        for b in settings[i + 1 :]:
            both = sorted(set(a.seeds) & set(b.seeds))
            overlap = overlap or bool(both)
            if len(both) >= 2:
                da = [a.differences[a.seeds.index(s)] for s in both]
                db = [b.differences[b.seeds.index(s)] for s in both]
                total += 2 * float(np.cov(da, db)[0, 1]) * len(both) / (len(a.seeds) * len(b.seeds)) / k**2
    smallest = min(s.differences.size for s in settings) - 1
    if overlap or sum(own) == 0:
        return max(total, 0.0), float(smallest)
    return total, sum(own) ** 2 / sum(v**2 / (s.differences.size - 1) for v, s in zip(own, settings, strict=True))


def _example_covariance(group: Sequence[SettingInfluence]) -> tuple[float, float, int]:
    """Sum over the settings of one test set of the covariance between different seeds, and of the same seed."""
    influences = [s.influence for s in group if s.influence is not None]
    m = influences[0].shape[1]
    centred = [u - u.mean(axis=1, keepdims=True) for u in influences]
    scale = (m - 1) * m
    between = same = 0.0
    for i, a in enumerate(centred):
        for j, b in enumerate(centred):
            both = set(group[i].seeds) & set(group[j].seeds)
            rows_a = [group[i].seeds.index(s) for s in both]
            rows_b = [group[j].seeds.index(s) for s in both]
            diagonal = float((a[rows_a] * b[rows_b]).sum()) / scale
            pairs = len(a) * len(b) - len(both)
            between += (float(a.sum(axis=0) @ b.sum(axis=0)) / scale - diagonal) / pairs
            same += diagonal / len(both) if both else 0.0
    return between, same, m


@dataclass(frozen=True, kw_only=True)
class CrossedBootstrap:
    """Resampling seeds and examples independently (Owen 2007, pigeonhole bootstrap)."""

    mean: float
    variance: float
    ci95: tuple[float, float]


def crossed_bootstrap(
    seed_by_example: ArrayLike, *, rng: np.random.Generator, resamples: int = RESAMPLES
) -> CrossedBootstrap | None:
    """Bootstrap of the grand mean of a (seeds, examples) matrix; None when it is empty.

    It takes the variance of one seed's examples twice and is shown beside the crossed interval from 20 pairs up.
    """
    rows = np.array(seed_by_example, dtype=np.float64, ndmin=2)
    n, m = rows.shape
    if n == 0 or m == 0:
        return None
    means = np.empty(resamples)
    for start in range(0, resamples, 1_000):
        size = min(1_000, resamples - start)
        seeds, examples = _resampled(n, size, rng), _resampled(m, size, rng)
        means[start : start + size] = ((seeds @ rows) * examples).sum(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return CrossedBootstrap(mean=float(means.mean()), variance=float(means.var()), ci95=(float(low), float(high)))


def _resampled(n: int, size: int, rng: np.random.Generator) -> Floats:
    """Shares that n units get when drawn n times with replacement, shape (size, n)."""
    drawn = rng.integers(0, n, size=(size, n)) + n * np.arange(size)[:, None]
    return np.bincount(drawn.ravel(), minlength=n * size).reshape(size, n) / n
