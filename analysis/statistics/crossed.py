"""Two sources of variance: seeds, and the examples of the test set that all seeds share.

Var(mean difference) = s^2 / n + shared, where `shared` is the part of the per-example noise that all seeds have in
common; Satterthwaite df over the two terms. The two-way random-effects decomposition is that of Cornfield and Tukey
(1956); for two-way bootstrap see Owen (2007).

Examples that come in clusters (questions about one article) are not independent: the shared part is then taken over
clusters, as sums of their examples (Liang and Zeger 1986; Miller 2024, "Adding Error Bars to Evals"), with as many df
as clusters of equal size would have that are as uneven (Carter, Schnepel and Steigerwald 2017).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
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
    n_clusters: int | None = None
    """Clusters that the examples come in; None where each stands for itself."""
    seed_variance_of_mean: float
    shared_example_variance: float
    interaction_variance_per_seed: float
    total_variance: float
    df: float | None
    example_df: float
    """Satterthwaite's, over test sets; with one, its examples (or clusters, as many as count: m^2 / sum m_g^2) - 1."""

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
        """About how many examples, in clusters of the same sizes, would bring that half width below |mean|.

        None where |mean| is (all but) 0.
        """
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
    clusters: NDArray[np.intp] | None = None
    """(examples,): number of each example's cluster, from 0; None: each example stands for itself."""


def crossed(differences: ArrayLike, influence: ArrayLike, clusters: NDArray[np.intp] | None = None) -> Crossed | None:
    """Components of one setting's mean difference.

    Args:
        differences: Recorded score differences, shape (seeds,).
        influence: Influence values of those differences, shape (seeds, examples).
        clusters: Cluster of each example, shape (examples,), numbered from 0; None: they are independent.

    Returns:
        None below two seeds, two examples or two clusters.
    """
    d = np.asarray(differences, dtype=np.float64)
    seeds = tuple(range(d.size))
    return crossed_over_settings(
        [SettingInfluence(seeds=seeds, differences=d, influence=np.asarray(influence), clusters=clusters)]
    )


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
    shared, own = 0.0, 0.0
    units = []
    by_test_set = []
    for test_set in dict.fromkeys(p.test_set for p in parts):
        group = [p for p in parts if p.test_set == test_set]
        covariance, diagonal, unit = _example_covariance(group)
        shared, own = shared + covariance / k**2, own + diagonal / k**2
        units.append(unit)
        by_test_set.append((max(covariance / k**2, 0.0), unit.df))
    floored = max(shared, 0.0)
    total = seed_variance + floored
    # Each test set is as certain as its own size: a large one does not lend its degrees of freedom to a small one.
    spread = sum(v**2 / df for v, df in by_test_set) if floored else 0.0
    df = total**2 / (seed_variance**2 / seed_df + spread) if total > 0 else None
    interaction = own - floored
    if abs(interaction) <= ROUNDING * max(own, floored):
        interaction = 0.0
    return Crossed(
        mean=mean,
        n_seeds=len({seed for s in settings for seed in s.seeds}),
        n_examples=sum(unit.examples for unit in units),
        n_clusters=sum(unit.clusters for unit in units) if any(p.clusters is not None for p in parts) else None,
        seed_variance_of_mean=seed_variance,
        shared_example_variance=floored,
        interaction_variance_per_seed=interaction,
        total_variance=total,
        df=df,
        example_df=floored**2 / spread if spread else sum(unit.df + 1 for unit in units) - 1,
    )


def _with_predictions(setting: SettingInfluence) -> SettingInfluence | None:
    if setting.influence is None or setting.influence.ndim != 2 or setting.influence.shape[1] < 2:
        return None
    known = np.asarray(np.isfinite(setting.influence).all(axis=1))
    if known.sum() < 2 or (setting.clusters is not None and np.ptp(setting.clusters) == 0):
        return None
    return replace(
        setting,
        seeds=tuple(s for s, k in zip(setting.seeds, known.tolist(), strict=True) if k),
        differences=setting.differences[known],
        influence=setting.influence[known],
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


@dataclass(frozen=True, kw_only=True)
class _Units:
    """What the independent units of a test set are: examples, or clusters of them."""

    examples: int
    clusters: int
    scale: float
    """m^2 - sum of m_g^2: squared sums over units, divided by it, estimate the variance of the mean over m examples
    without bias where examples are independent, and with them in clusters of equal size."""
    df: float
    """m^2 / (sum of m_g^2) - 1: clusters less one where they are of equal size."""


def _units(examples: int, clusters: NDArray[np.intp] | None) -> _Units:
    if clusters is None:
        return _Units(examples=examples, clusters=examples, scale=(examples - 1) * examples, df=examples - 1)
    sizes = np.bincount(clusters)
    sizes = sizes[sizes > 0]
    squares = float((sizes.astype(np.float64) ** 2).sum())
    return _Units(examples=examples, clusters=sizes.size, scale=examples**2 - squares, df=examples**2 / squares - 1)


def cluster_sums(by_example: Floats, clusters: NDArray[np.intp] | None) -> Floats:
    """Sums over the examples of each cluster.

    Args:
        by_example: Shape (seeds, examples).
        clusters: Shape (examples,), numbered from 0; None: returned as it is.

    Returns:
        Shape (seeds, clusters); 0 for a number that no example has.
    """
    if clusters is None:
        return by_example
    return np.stack([np.bincount(clusters, weights=row) for row in by_example])


def _example_covariance(group: Sequence[SettingInfluence]) -> tuple[float, float, _Units]:
    """Sum over the settings of one test set of the covariance between different seeds, and of the same seed."""
    influences = [s.influence for s in group if s.influence is not None]
    clusters = group[0].clusters
    units = _units(influences[0].shape[1], clusters)
    centred = [cluster_sums(u - u.mean(axis=1, keepdims=True), clusters) for u in influences]
    between = same = 0.0
    for i, a in enumerate(centred):
        for j, b in enumerate(centred):
            both = set(group[i].seeds) & set(group[j].seeds)
            rows_a = [group[i].seeds.index(s) for s in both]
            rows_b = [group[j].seeds.index(s) for s in both]
            diagonal = float((a[rows_a] * b[rows_b]).sum()) / units.scale
            pairs = len(a) * len(b) - len(both)
            between += (float(a.sum(axis=0) @ b.sum(axis=0)) / units.scale - diagonal) / pairs
            same += diagonal / len(both) if both else 0.0
    return between, same, units


@dataclass(frozen=True, kw_only=True)
class CrossedBootstrap:
    """Resampling seeds and examples independently (Owen 2007, pigeonhole bootstrap)."""

    mean: float
    variance: float
    ci95: tuple[float, float]


def crossed_bootstrap(
    seed_by_example: ArrayLike,
    *,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    clusters: NDArray[np.intp] | None = None,
) -> CrossedBootstrap | None:
    """Bootstrap of the grand mean of a (seeds, examples) matrix; None when it is empty. Clusters are drawn whole.

    It takes the variance of one seed's examples twice and is shown beside the crossed interval from 20 pairs up.
    """
    rows = np.array(seed_by_example, dtype=np.float64, ndmin=2)
    n, m = rows.shape
    if n == 0 or m == 0:
        return None
    sums = cluster_sums(rows, clusters)
    sizes = np.ones(m) if clusters is None else np.bincount(clusters).astype(np.float64)
    means = np.empty(resamples)
    for start in range(0, resamples, 1_000):
        size = min(1_000, resamples - start)
        seeds, drawn = _resampled(n, size, rng), _resampled(sums.shape[1], size, rng)
        means[start : start + size] = ((seeds @ sums) * drawn).sum(axis=1) / (drawn @ sizes)
    low, high = np.percentile(means, [2.5, 97.5])
    return CrossedBootstrap(mean=float(means.mean()), variance=float(means.var()), ci95=(float(low), float(high)))


def _resampled(n: int, size: int, rng: np.random.Generator) -> Floats:
    """Shares that n units get when drawn n times with replacement, shape (size, n)."""
    drawn = rng.integers(0, n, size=(size, n)) + n * np.arange(size)[:, None]
    return np.bincount(drawn.ravel(), minlength=n * size).reshape(size, n) / n
