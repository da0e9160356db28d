"""One endpoint, paired over seeds: tests, effect sizes and intervals on a vector of differences.

Every function takes differences d (treatment minus baseline), shape (seeds,); entries that are not finite are left
out. What the data leave undefined is None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from analysis.statistics.closed_forms import Alternative, p_floor

Floats = NDArray[np.float64]

TIE_TOLERANCE = 1e-12
"""Differences up to this size are ties, in units of the score."""
EXACT_UP_TO = 16
"""Seeds up to which sign flips are enumerated."""
RESAMPLES = 20_000
"""Random sign flips above that."""
SKEWED = 0.5
"""Sample skewness against a significant mean from which that mean may mislead."""
BOOTSTRAP_FROM = 20
"""Pairs from which a bootstrap interval is worth showing."""
RELATIVE_TOLERANCE = 1e-12
"""Two sums count as equal when they differ by less than this share of their size."""
_MANY_PAIRS = 1_000_000
WILCOXON_EXACT_UP_TO = 1_000
"""Untied seeds up to which the Wilcoxon p is exact; above, an Edgeworth expansion. At 500
seeds that is within 2e-5 (relative) for p above 1e-4, and far off below 1e-8."""
SCORE_ROUNDING = 1e-15
"""Rounding error in the difference of two scores of about 1: a spread up to this counts as none."""


@dataclass(frozen=True, kw_only=True)
class SignTest:
    """Exact sign test; ties dropped."""

    n_used: int
    ties: int
    wins: int
    losses: int
    p_value: float
    p_floor: float


@dataclass(frozen=True, kw_only=True)
class SignFlip:
    """Sign-flip test on the mean."""

    p_value: float
    mean: float | None
    n_arrangements: int


@dataclass(frozen=True, kw_only=True)
class Wilcoxon:
    """Wilcoxon signed-rank test."""

    w_plus: float | None
    p_value: float


@dataclass(frozen=True, kw_only=True)
class TSummary:
    """Paired t: mean, spread, interval and standardised effect."""

    mean: float | None
    sd: float | None
    ci95: tuple[float, float] | None
    p_value: float | None
    dz: float | None
    gz: float | None


@dataclass(frozen=True, kw_only=True)
class FlipInterval:
    """Inversion of the sign-flip test."""

    interval: tuple[float, float] | None
    """At the level asked for; None when so few seeds cannot give it."""
    widest_level: float | None
    widest: tuple[float, float] | None
    """[min, max], the widest exact interval, at `widest_level`."""


@dataclass(frozen=True, kw_only=True)
class Improvement:
    """Probability that the treatment scores higher."""

    paired: float | None
    unpaired: float | None


def finite(values: ArrayLike | Sequence[float | None]) -> Floats:
    """The finite entries, as a flat array of floats (None is not finite)."""
    array = np.asarray(values, dtype=np.float64).ravel()
    return array[np.isfinite(array)]


def snap_ties(d: Floats, tolerance: float = TIE_TOLERANCE) -> Floats:
    """Differences with ties set to exactly 0."""
    return np.where(np.abs(d) <= tolerance, 0.0, d)


@lru_cache(maxsize=4096)
def sign_test_from_counts(wins: int, n_used: int, alternative: Alternative = "two-sided") -> float:
    """p of the exact sign test for `wins` out of `n_used` untied seeds; 1 when there are none."""
    if n_used == 0:
        return 1.0
    if alternative == "less":
        return float(special.bdtr(wins, n_used, 0.5))
    if alternative == "greater":
        return float(special.bdtrc(wins - 1, n_used, 0.5)) if wins else 1.0
    return min(1.0, 2 * float(special.bdtr(min(wins, n_used - wins), n_used, 0.5)))


def sign_test(
    d: ArrayLike,
    *,
    alternative: Alternative = "two-sided",
    tie_tolerance: float = TIE_TOLERANCE,
    extra_wins: int = 0,
    extra_losses: int = 0,
) -> SignTest:
    """Paired sign test; null: the median difference is 0.

    `extra_wins` and `extra_losses` are seeds without a difference that count all the same: the other variant, or
    this one, failed by itself there.
    """
    values = finite(d)
    ties = int(np.sum(np.abs(values) <= tie_tolerance))
    wins = int(np.sum(values > tie_tolerance)) + extra_wins
    losses = int(np.sum(values < -tie_tolerance)) + extra_losses
    n_used = wins + losses
    return SignTest(
        n_used=n_used,
        ties=ties,
        wins=wins,
        losses=losses,
        p_value=sign_test_from_counts(wins, n_used, alternative),
        p_floor=p_floor(n_used, alternative),
    )


@lru_cache(maxsize=EXACT_UP_TO + 1)
def all_signs(n: int) -> Floats:
    """All 2^n rows of signs, shape (2^n, n); the first row is all +1, read-only."""
    bits = (np.arange(2**n)[:, None] >> np.arange(n)[None, :]) & 1
    signs = 1.0 - 2.0 * bits.astype(np.float64)
    signs.flags.writeable = False
    return signs


class SignSource:
    """Random rows of signs, drawn once per number of seeds: many endpoints are tested on the same flips."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._drawn: dict[int, Floats] = {}
        self._subsets: dict[int, tuple[Floats, Floats]] = {}

    def rows(self, n: int) -> Floats:
        """Shape (RESAMPLES, n), the same at every call."""
        if n not in self._drawn:
            self._drawn[n] = draw_signs(n, self._rng)
        return self._drawn[n]

    def subsets(self, n: int) -> tuple[Floats, Floats]:
        """`_subsets` of these rows, found once."""
        if n not in self._subsets:
            self._subsets[n] = _subsets(self.rows(n))
        return self._subsets[n]


def _subsets(signs: Floats) -> tuple[Floats, Floats]:
    """Rows with a -1, and twice how many each has."""
    chosen = signs.shape[1] - signs.sum(axis=1)
    kept = chosen > 0
    return (signs, chosen) if kept.all() else (signs[kept], chosen[kept])


Random = np.random.Generator | SignSource


def draw_signs(n: int, rng: Random) -> Floats:
    """Random rows of signs, shape (RESAMPLES, n)."""
    if isinstance(rng, SignSource):
        return rng.rows(n)
    signs = np.empty((RESAMPLES, n))
    for start in range(0, RESAMPLES, 500):  # the same numbers as at once, without three times the memory
        part = signs[start : start + 500]
        part[:] = rng.integers(0, 2, size=part.shape)
        part *= 2.0
        part -= 1.0
    return signs


def sum_tolerance(n: int, scale: float | Floats) -> Any:
    """What counts as equal for sums of n differences in units of `scale`: small ones carry their scores' rounding."""
    return np.maximum(RELATIVE_TOLERANCE, n * np.finfo(np.float64).eps / scale)


def sign_flip_test(d: ArrayLike, *, alternative: Alternative = "two-sided", rng: Random | None = None) -> SignFlip:
    """Sign-flip test on the mean; null: differences are symmetric about 0. Zeros stay in.

    Exact by enumeration up to 16 seeds, above by Monte Carlo with p = (1 + hits) / (1 + B); `rng` is needed there.
    """
    values = snap_ties(finite(d))
    n = values.size
    if n == 0:
        return SignFlip(p_value=1.0, mean=None, n_arrangements=1)
    exact = n <= EXACT_UP_TO
    if not exact and rng is None:
        raise ValueError(f"{n} seeds need random sign flips: pass rng")
    signs = all_signs(n) if exact or rng is None else draw_signs(n, rng)
    scale = float(np.abs(values).sum()) or 1.0
    scaled = values / scale
    sums, observed = signs @ scaled, float(scaled.sum())
    if alternative == "two-sided":
        sums, observed = np.abs(sums), abs(observed)
    elif alternative == "less":
        sums, observed = -sums, -observed
    hits = int(np.sum(sums >= observed - sum_tolerance(n, scale)))
    p = hits / len(signs) if exact else (1 + hits) / (1 + len(signs))
    return SignFlip(p_value=p, mean=float(finite(d).mean()), n_arrangements=len(signs))


def sign_flip_interval(d: ArrayLike, *, level: float = 0.95, rng: Random | None = None) -> FlipInterval:
    """Centres that the sign-flip test does not reject at 1 - level.

    Its ends are order statistics of the means of all non-empty subsets (Hartigan 1969, typical values): the k-th
    smallest and the k-th largest, k = floor((1 - level) 2^n / 2). Above 16 seeds random subsets stand for all.
    """
    values = finite(d)
    n = values.size
    if n == 0:
        return FlipInterval(interval=None, widest_level=None, widest=None)
    widest = (float(values.min()), float(values.max()))
    if n <= EXACT_UP_TO:
        signs = all_signs(n)[1:]
        chosen = n - signs.sum(axis=1)  # twice the number of entries with sign -1
    elif rng is None:
        raise ValueError(f"{n} seeds need random subsets: pass rng")
    else:
        signs, chosen = rng.subsets(n) if isinstance(rng, SignSource) else _subsets(draw_signs(n, rng))
    means = np.sort((values.sum() - signs @ values) / chosen)
    # The small number keeps 0.05 * 2^n / 2 from falling below a whole number by rounding of 1 - level.
    k = math.floor((1 - level) * (len(means) + 1) / 2 + 1e-9)
    interval = (float(means[k - 1]), float(means[-k])) if k >= 1 else None
    return FlipInterval(interval=interval, widest_level=1 - p_floor(n), widest=widest)


def midranks(values: Floats, tolerance: float) -> Floats:
    """Midranks (1 = smallest) where values closer than `tolerance` to their neighbour share a rank."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    group = np.concatenate(([0], np.cumsum(np.diff(ordered) > tolerance)))
    counts = np.bincount(group)
    last = np.cumsum(counts)
    ranks = np.empty(values.size)
    ranks[order] = ((last - counts + 1 + last) / 2)[group]
    return ranks


def wilcoxon_signed_rank(
    d: ArrayLike, *, zero_method: Literal["drop", "pratt"] = "drop", alternative: Alternative = "two-sided"
) -> Wilcoxon:
    """Wilcoxon signed-rank test, exact on midranks (convolution over the 2^n sign patterns).

    Zeros are dropped before ranking, or after it (`pratt`).
    """
    values = snap_ties(finite(d))
    if zero_method == "drop":
        values = values[values != 0]
    if not np.any(values != 0):
        return Wilcoxon(w_plus=None, p_value=1.0)
    sizes = np.abs(values)
    # Scale-free below a thousandth: differences of 1e-9 have ranks too.
    tolerance = max(SCORE_ROUNDING, min(TIE_TOLERANCE, 1e-9 * float(sizes.max())))
    ranks = midranks(sizes, tolerance)[values != 0]
    positive = values[values != 0] > 0
    doubled = np.rint(2 * ranks).astype(int)
    if doubled.size > WILCOXON_EXACT_UP_TO:
        return _wilcoxon_by_expansion(doubled, positive, alternative)
    observed, total = int(doubled[positive].sum()), int(doubled.sum())
    # The distribution is symmetric: one tail gives both.
    tail, last = _lower_tail(doubled, min(observed, total - observed))
    other = 1 - tail + last
    at_least, at_most = (tail, other) if 2 * observed > total else (other, tail)
    p = {"greater": at_least, "less": at_most, "two-sided": 2 * tail}[alternative]
    return Wilcoxon(w_plus=observed / 2, p_value=min(1.0, p))


def _lower_tail(steps: NDArray[np.int_], limit: int) -> tuple[float, float]:
    """P(S <= limit) and P(S = limit), where S adds each step or not, by the toss of a coin; at most 1,000 steps.

    Counts of the 2^n sign patterns, kept up to the limit only; exact to 53 steps, else to rounding.
    """
    unit = int(np.gcd.reduce(steps))
    steps, limit = np.sort(steps) // unit, limit // unit
    counts = np.zeros(limit + 1)
    counts[0], size = 1.0, 1
    for step in steps.tolist():
        end = min(size + step, limit + 1)
        if end > step:
            counts[step:end] += counts[: end - step].copy()
        size = end
    half = math.ldexp(1.0, -steps.size)
    return float(counts.sum()) * half, float(counts[limit]) * half


def _wilcoxon_by_expansion(doubled: NDArray[np.int_], positive: NDArray[np.bool_], side: Alternative) -> Wilcoxon:
    """Normal tail with continuity correction and the fourth cumulant (Edgeworth); the third is 0."""
    ranks = doubled / 2
    sd = math.sqrt(float((ranks**2).sum()) / 4)
    kurtosis = -float((ranks**4).sum()) / 8 / sd**4
    w_plus = float(ranks[positive].sum())
    step = 0.5 if np.all(doubled % 2 == 0) else 0.25

    def at_least(w: float) -> float:
        z = (w - step - float(ranks.sum()) / 2) / sd
        density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        return float(special.ndtr(-z)) + density * kurtosis / 24 * (z**3 - 3 * z)

    greater, less = at_least(w_plus), at_least(float(ranks.sum()) - w_plus)
    p = {"greater": greater, "less": less, "two-sided": 2 * min(greater, less)}[side]
    return Wilcoxon(w_plus=w_plus, p_value=min(1.0, max(p, 0.0)))


def _spread(values: Floats) -> float | None:
    """Sample sd; exactly 0 where only rounding differs; None below two values."""
    if values.size < 2:
        return None
    sd = float(values.std(ddof=1))
    return 0.0 if sd <= max(1e-13 * float(np.abs(values).max()), SCORE_ROUNDING) else sd


def paired_t(d: ArrayLike) -> TSummary:
    """Paired t test with its 95% interval, dz = mean / sd and Hedges' gz (exact small-sample factor)."""
    values = finite(d)
    n = values.size
    sd = _spread(values)
    mean = float(values.mean()) if n else None
    if mean is None or not sd:
        return TSummary(mean=mean, sd=sd, ci95=None, p_value=None, dz=None, gz=None)
    dz, df = mean / sd, n - 1
    factor = math.exp(math.lgamma(df / 2) - math.lgamma((df - 1) / 2)) / math.sqrt(df / 2) if df > 1 else None
    return TSummary(
        mean=mean,
        sd=sd,
        ci95=t_interval(values, 0.95),
        p_value=2 * float(special.stdtr(df, -abs(dz) * math.sqrt(n))),
        dz=dz,
        gz=None if factor is None else dz * factor,
    )


def t_interval(d: ArrayLike, level: float) -> tuple[float, float] | None:
    """Student interval of the mean; None below two values or without spread."""
    values = finite(d)
    sd = _spread(values)
    if not sd:
        return None
    half = float(special.stdtrit(values.size - 1, (1 + level) / 2)) * sd / math.sqrt(values.size)
    mean = float(values.mean())
    return mean - half, mean + half


def welch_p(treatment: ArrayLike, baseline: ArrayLike) -> float | None:
    """p of the unpaired Welch test: what ignoring the pairing would say; shown beside the paired tests only."""
    a, b = finite(treatment), finite(baseline)
    sd_a, sd_b = _spread(a), _spread(b)
    if sd_a is None or sd_b is None or not (sd_a or sd_b):
        return None
    part_a, part_b = sd_a**2 / a.size, sd_b**2 / b.size
    df = (part_a + part_b) ** 2 / (part_a**2 / (a.size - 1) + part_b**2 / (b.size - 1))
    return 2 * float(special.stdtr(df, -abs(a.mean() - b.mean()) / math.sqrt(part_a + part_b)))


def hodges_lehmann(d: ArrayLike) -> float | None:
    """Median of the Walsh averages (d_i + d_j) / 2, i <= j."""
    values = finite(d)
    if values.size == 0:
        return None
    n = values.size
    averages = np.empty(n * (n + 1) // 2)
    start = 0
    for i in range(n):  # row by row: the indices of all pairs would take three times the memory
        averages[start : start + n - i] = (values[i] + values[i:]) / 2
        start += n - i
    return float(np.median(averages, overwrite_input=True))


def probability_of_improvement(
    baseline: ArrayLike, treatment: ArrayLike, *, tie_tolerance: float = TIE_TOLERANCE
) -> Improvement:
    """Share of seeds on which the treatment scores higher, ties half; unpaired: the same over all cross pairs."""
    a, b = np.asarray(baseline, dtype=np.float64).ravel(), np.asarray(treatment, dtype=np.float64).ravel()

    def share(differences: Floats) -> float | None:
        known = differences[np.isfinite(differences)]
        if known.size == 0:
            return None
        return float(np.mean(known > tie_tolerance) + 0.5 * np.mean(np.abs(known) <= tie_tolerance))

    return Improvement(
        paired=share(b - a) if a.size == b.size else None,
        unpaired=_unpaired_share(a, b, tie_tolerance)
        if a.size * b.size > _MANY_PAIRS
        else share((b[:, None] - a[None, :]).ravel()),
    )


def _unpaired_share(a: Floats, b: Floats, tolerance: float) -> float | None:
    """The same share by sorting: n log n instead of all pairs."""
    a, b = np.sort(finite(a)), finite(b)
    if not a.size or not b.size:
        return None
    below, up_to = np.searchsorted(a, b - tolerance, side="left"), np.searchsorted(a, b + tolerance, side="right")
    return float((below + 0.5 * (up_to - below)).mean() / a.size)


def bca_interval(d: ArrayLike, *, rng: np.random.Generator, level: float = 0.95) -> tuple[float, float] | None:
    """BCa bootstrap interval of the mean; None below two values or without spread."""
    values = finite(d)
    if not _spread(values):
        return None
    result: Any = stats.bootstrap(
        (values,), np.mean, confidence_level=level, n_resamples=RESAMPLES, method="BCa", rng=rng, batch=2_000
    )
    low, high = float(result.confidence_interval.low), float(result.confidence_interval.high)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def seed_correlation(treatment: ArrayLike, baseline: ArrayLike) -> float | None:
    """Pearson correlation of the two variants' scores over seeds; None below three pairs or without spread."""
    a, b = np.asarray(treatment, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    known = np.isfinite(a) & np.isfinite(b)
    a, b = a[known], b[known]
    if a.size < 3 or not _spread(a) or not _spread(b):
        return None
    return float(np.clip(np.corrcoef(a, b)[0, 1], -1, 1))


def skewness(d: ArrayLike) -> float | None:
    """Adjusted Fisher-Pearson skewness; None below six values (nothing can be said) or without spread."""
    values = finite(d)
    if values.size < 6 or not _spread(values):
        return None
    return float(stats.skew(values, bias=False))


def mean_misleads(d: ArrayLike, *, p_value: float, alpha: float) -> bool:
    """Whether the mean difference may not stand for the seeds.

    Either the median has the other sign, or the mean is significant and the tail lies against it: that is what a wrong
    claim about a skewed difference looks like, since the rare large values of the other side are just missing. A tail
    along the claim is harmless. How often it is said: `python -m benchmarks.calibration --skew`.

    Args:
        d: (seeds,).
        p_value: Of the sign-flip test on the mean.
        alpha: Error rate.
    """
    values = finite(d)
    mean = float(values.mean()) if values.size else 0.0
    if not mean:
        return False
    side, skew = math.copysign(1.0, mean), skewness(values)
    against = skew is not None and -skew * side > SKEWED and p_value <= alpha
    return against or float(np.median(values)) * side < -TIE_TOLERANCE
