"""Planning: what a number of seeds can decide, before they are run. Power at the observed effect is never computed.

Exact power of the sign test by its critical region; paired t by the noncentral t distribution.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import integrate, special, stats

from analysis.statistics.closed_forms import seeds_for_sign_test
from analysis.statistics.paired import Floats, all_signs, sign_test_from_counts

SEARCHED_TO = 129
"""Seeds up to which `always` is searched."""
WIN_RATES = (0.95, 0.9, 0.8, 0.7)
_LIMIT = 1_000_000


@lru_cache(maxsize=4096)
def _critical_losses(n: int, alpha: float) -> int:
    """Largest k with sign-test p(k of n) <= alpha; -1 when there is none."""
    k = -1
    while 2 * (k + 1) < n and sign_test_from_counts(k + 1, n) <= alpha:
        k += 1
    return k


def power_sign_test(n: int, p_win: float, *, alpha: float = 0.05) -> float:
    """Exact power of the two-sided sign test with n untied seeds; 0 where the floor exceeds alpha."""
    k = _critical_losses(n, alpha)
    if k < 0:
        return 0.0
    return float(stats.binom.cdf(k, n, p_win) + stats.binom.sf(n - k - 1, n, p_win))


@dataclass(frozen=True, kw_only=True)
class SeedsNeeded:
    """Seeds for a wanted power; power is saw-toothed in n."""

    first: int | None
    """First n that reaches it; None: none up to the search limit."""
    always: int | None
    """The n from which it never falls below again, up to the search limit."""


@lru_cache(maxsize=256)
def seeds_needed(
    p_win: float, *, alpha: float = 0.05, power: float = 0.8, searched_to: int = SEARCHED_TO
) -> SeedsNeeded:
    """Seeds for `power` of the sign test when the treatment wins a seed with probability `p_win`."""
    reaches = [power_sign_test(n, p_win, alpha=alpha) >= power for n in range(1, searched_to + 1)]
    first = reaches.index(True) + 1 if any(reaches) else None
    always = None
    for n in range(searched_to, 0, -1):
        if not reaches[n - 1]:
            break
        always = n
    return SeedsNeeded(first=first, always=always)


def power_t(dz: float, n: int, *, alpha: float = 0.05) -> float:
    """Power of the two-sided paired t test for a true effect of dz standard deviations."""
    if n < 2:
        return 0.0
    if not math.isfinite(dz):
        return 1.0
    df, shift = n - 1, abs(dz) * math.sqrt(n)
    critical = float(stats.t.isf(alpha / 2, df))
    if shift > critical + 40:  # where the noncentral t loses its digits, power is 1 to all of them
        return 1.0
    below = float(stats.nct.cdf(-critical, df, shift))
    return float(stats.nct.sf(critical, df, shift)) + (below if math.isfinite(below) else 0.0)


def seeds_needed_t(dz: float, *, alpha: float = 0.05, power: float = 0.8) -> int | None:
    """Smallest n with that power of the paired t test; None for no effect, or beyond a million seeds."""
    if not abs(dz) > 0:
        return None
    high = 2
    while power_t(dz, high, alpha=alpha) < power:
        high *= 2
        if high > _LIMIT:
            return None
    low = max(high // 2, 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_t(dz, middle, alpha=alpha) >= power else (middle, high)
    return high


@dataclass(frozen=True, kw_only=True)
class VerdictPlan:
    """What a study is planned to be, in units of the score."""

    effect: float
    sd: float
    """Of paired differences over seeds."""
    shared_sd: float = 0.0
    """Of what the test examples add to every seed's difference alike."""
    endpoints: int = 1
    comparisons: int = 1
    correlation: float = 0.9
    """Of the endpoints' differences: truncations of one model move together."""


@lru_cache(maxsize=4096)
def power_verdict(plan: VerdictPlan, n: int, *, alpha: float = 0.05, studies: int = 4_000) -> float:
    """Power of the verdict `better` (or `worse`) for some primary, by simulation; 0 where the floor exceeds alpha.

    Each study must pass the joint sign flip at alpha / comparisons (the first step of Holm) and have the crossed
    interval for all primaries and comparisons at once (Bonferroni) on the same side of 0. Accurate to some 1 point.
    """
    if n < minimum_seeds(alpha, comparisons=plan.comparisons).joint:
        return 0.0
    rng = np.random.default_rng(20)

    def drawn(count: int) -> Floats:  # (studies, count, endpoints)
        common = rng.standard_normal((studies, count, 1))
        own = rng.standard_normal((studies, count, plan.endpoints))
        return math.sqrt(plan.correlation) * common + math.sqrt(1 - plan.correlation) * own

    d = plan.effect + plan.shared_sd * drawn(1) + plan.sd * drawn(n)
    mean, seed_variance = d.mean(axis=1), d.var(axis=1, ddof=1) / n
    total = seed_variance + plan.shared_sd**2
    tail = alpha / (2 * plan.endpoints * plan.comparisons)
    # The examples' variance is known to many degrees of freedom: Satterthwaite's lie on the seeds alone.
    beyond = np.abs(mean) > -special.stdtrit((n - 1) * (total / seed_variance) ** 2, tail) * np.sqrt(total)
    units = d / np.sqrt((d**2).sum(axis=1, keepdims=True))
    if n <= 11:
        signs = all_signs(n)[: 2 ** (n - 1)]
    else:
        signs = np.vstack([np.ones(n), 2.0 * rng.integers(0, 2, (1_999, n)) - 1.0])
    largest = np.abs(units.sum(axis=1))
    hits = np.zeros((studies, plan.endpoints))
    for start in range(0, studies, 200):
        part = units[start : start + 200]
        flipped = np.abs(np.einsum("bn,snm->sbm", signs, part, optimize=True)).max(axis=2)
        hits[start : start + 200] = (flipped[:, :, None] >= largest[start : start + 200, None, :] - 1e-9).sum(axis=1)
    significant = hits / len(signs) * plan.comparisons <= alpha
    return float((significant & beyond & (mean * plan.effect > 0)).any(axis=1).mean())


def seeds_needed_verdict(
    plan: VerdictPlan, *, alpha: float = 0.05, power: float = 0.8, searched_to: int = 200
) -> int | None:
    """Fewest seeds for that power of the verdict; None: beyond `searched_to`, or only test examples can help."""
    low, high = minimum_seeds(alpha, comparisons=plan.comparisons).joint - 1, searched_to
    if power_verdict(plan, high, alpha=alpha, studies=1_000) < power:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_verdict(plan, middle, alpha=alpha) >= power else (middle, high)
    return high


@dataclass(frozen=True, kw_only=True)
class MinimumSeeds:
    """Smallest number of untied seeds whose floor can reach alpha."""

    joint: int
    """In the joint test, whatever the number of endpoints."""
    holm: int
    """When each of m hypotheses is tested on its own, Holm's first step."""


def minimum_seeds(alpha: float = 0.05, hypotheses: int = 1, comparisons: int = 1) -> MinimumSeeds:
    """Smallest n with comparisons x 2^(1-n) <= alpha (joint), or x hypotheses too (Holm)."""
    return MinimumSeeds(
        joint=seeds_for_sign_test(alpha, comparisons), holm=seeds_for_sign_test(alpha, comparisons * hypotheses)
    )


@dataclass(frozen=True, kw_only=True)
class EffectAdvice:
    """Seeds for an effect that one wants to be able to see."""

    dz: float
    """Effect over sd."""
    seeds_t: int | None
    """For the wanted power of the paired t test; None: more than are searched."""
    p_win: float
    """The win rate that normal differences with this dz have."""


def from_effect(effect: float, sd: float, *, alpha: float = 0.05, power: float = 0.8) -> EffectAdvice:
    """Seeds for an effect, not 0, against the sd of paired differences, above 0; both in units of the score."""
    dz = abs(effect) / sd
    return EffectAdvice(dz=dz, seeds_t=seeds_needed_t(dz, alpha=alpha, power=power), p_win=float(stats.norm.cdf(dz)))


def selection_bias(k: int) -> float:
    """Expected best of k equal configurations, in standard deviations of one (maximum of k standard normals)."""
    if k <= 1:
        return 0.0

    def integrand(x: float) -> float:
        return x * k * math.exp(-x * x / 2) / math.sqrt(2 * math.pi) * float(special.ndtr(x)) ** (k - 1)

    return float(integrate.quad(integrand, -12, 12, epsabs=1e-12, limit=400)[0])


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a number of seeds costs."""

    cells: int
    device_hours: float | None
    """None when no cell has a recorded time."""
    mean_cell_seconds: Mapping[str, float]
    """Variant -> mean recorded seconds of a cell."""


def cost(cell_seconds: Mapping[str, Iterable[float]], *, seeds: int, settings: int = 1, devices: float = 1.0) -> Cost:
    """Device-hours of `seeds` x `settings` cells of every variant, from recorded seconds per cell.

    Args:
        cell_seconds: Variant -> seconds of its finished cells; a variant without any takes the mean of the others.
        seeds: Seeds per variant and setting.
        settings: Number of settings.
        devices: Devices that one cell holds, possibly a fraction.
    """
    recorded = {variant: [s for s in seconds if math.isfinite(s)] for variant, seconds in cell_seconds.items()}
    means = {variant: sum(s) / len(s) for variant, s in recorded.items() if s}
    cells = len(recorded) * seeds * settings
    if not means:
        return Cost(cells=cells, device_hours=None, mean_cell_seconds={})
    typical = sum(means.values()) / len(means)
    seconds = sum(means.get(variant, typical) for variant in recorded) * seeds * settings
    return Cost(cells=cells, device_hours=seconds * devices / 3600, mean_cell_seconds=means)
