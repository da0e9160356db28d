"""One comparison over several settings: in these settings, and in settings like these.

Per-setting differences come as one array per setting; entries that are not finite are left out.

At the end the random-effects description of setting means, which never makes the verdict: fixed effect, Q, I2; tau2 by
DerSimonian-Laird (1986), Paule-Mandel (1982) and REML, truncated at 0; intervals by Hartung and Knapp (2001), with and
without the guard that the interval is never narrower than the plain one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, stats

from analysis.statistics.paired import Floats, Random, SignFlip, TSummary, finite, paired_t, sign_flip_test, sign_test


def seed_contributions(settings: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """What each distinct seed adds to the unweighted mean of setting means, times the number of distinct seeds.

    The mean over seeds of these values is the unweighted mean of setting means; flipping one of them flips that
    seed in all settings at once.

    Args:
        settings: Per setting: seed -> difference; settings without seeds are left out.
    """
    used = [s for s in settings if s]
    seeds = sorted({seed for s in used for seed in s})
    return {seed: len(seeds) * sum(s[seed] / len(s) for s in used if seed in s) / len(used) for seed in seeds}


def seed_weights(settings: Sequence[Mapping[int, float]]) -> tuple[float, ...]:
    """`seed_contributions` if every difference were 1, shape (distinct seeds,); their mean is 1."""
    return tuple(seed_contributions([dict.fromkeys(s, 1.0) for s in settings]).values())


def pooled_by_seed(settings: Sequence[Mapping[int, float]], *, rng: Random | None = None) -> SignFlip:
    """Sign-flip test on the unweighted mean of setting means.

    Args:
        settings: Per setting: seed -> difference; a seed of several settings is flipped in all of them at once.
        rng: Needed above 16 distinct seeds.
    """
    return sign_flip_test(list(seed_contributions(settings).values()), rng=rng)


@dataclass(frozen=True, kw_only=True)
class SettingsSign:
    """Sign test with settings as units."""

    n_settings: int
    favouring_treatment: int
    p_value: float


def settings_sign_test(setting_means: ArrayLike) -> SettingsSign:
    """Sign test with settings as units: does the direction hold in a new setting? Needs 6 settings to reach 0.05."""
    means = finite(setting_means)
    test = sign_test(means)
    return SettingsSign(n_settings=means.size, favouring_treatment=test.wins, p_value=test.p_value)


def settings_t(setting_means: ArrayLike) -> TSummary:
    """Unweighted mean of setting means with t, df = settings - 1."""
    return paired_t(setting_means)


@dataclass(frozen=True, kw_only=True)
class Heterogeneity:
    """Welch F test that the setting means are equal."""

    f: float | None
    p_value: float | None
    df: tuple[float, float] | None


def heterogeneity(differences_by_setting: Sequence[ArrayLike]) -> Heterogeneity:
    """Welch's F on the differences grouped by setting; undefined with a setting of one seed or without spread."""
    groups = [finite(a) for a in differences_by_setting]
    undefined = Heterogeneity(f=None, p_value=None, df=None)
    if len(groups) < 2 or any(paired_t(g).dz is None for g in groups):
        return undefined
    from statsmodels.stats.oneway import anova_oneway

    result = anova_oneway(groups, use_var="unequal")
    return Heterogeneity(
        f=float(result.statistic), p_value=float(result.pvalue), df=(float(result.df[0]), float(result.df[1]))
    )


@dataclass(frozen=True, kw_only=True)
class LeaveOneOut:
    """The unweighted mean of setting means, without each setting in turn."""

    setting_means: tuple[float | None, ...]
    overall: float | None
    without: tuple[float | None, ...]
    direction_depends_on_one_setting: bool
    """One setting alone points in the overall direction; no other setting does."""


def leave_one_out(differences_by_setting: Sequence[ArrayLike]) -> LeaveOneOut:
    """Overall mean without each setting in turn, and whether its direction depends on a single setting."""
    groups = [finite(a) for a in differences_by_setting]
    means = np.array([g.mean() if g.size else np.nan for g in groups])
    known = finite(means)
    overall = float(known.mean()) if known.size else None
    without = [finite(np.delete(means, i)) for i in range(means.size)]
    same_direction = int(np.sum(known * overall > 0)) if overall is not None else 0
    return LeaveOneOut(
        setting_means=tuple(float(m) if np.isfinite(m) else None for m in means),
        overall=overall,
        without=tuple(float(w.mean()) if w.size else None for w in without),
        direction_depends_on_one_setting=known.size >= 2 and same_direction == 1,
    )


@dataclass(frozen=True, kw_only=True)
class Simpson:
    """Unpaired pooling against the differences inside settings."""

    within: tuple[float | None, ...]
    pooled: float | None
    reversal: bool


def simpson(baseline: Sequence[ArrayLike], treatment: Sequence[ArrayLike]) -> Simpson:
    """Flag a pooled unpaired difference whose sign is against that of every setting.

    Args:
        baseline: Scores per setting, paired or not; a setting that one side lacks is left out of the pool.
        treatment: The same for the treatment, settings in the same order.
    """
    both = [(finite(x), finite(y)) for x, y in zip(baseline, treatment, strict=True)]
    within = [float(y.mean() - x.mean()) if x.size and y.size else None for x, y in both]
    shared = [(x, y) for x, y in both if x.size and y.size]
    pooled = None
    if shared:
        pooled = float(np.concatenate([y for _, y in shared]).mean() - np.concatenate([x for x, _ in shared]).mean())
    known = [w for w in within if w is not None]
    test = sign_test(known)
    reversal = (
        pooled is not None
        and test.n_used > 0
        and ((test.losses == 0 and pooled < -1e-12) or (test.wins == 0 and pooled > 1e-12))
    )
    return Simpson(within=tuple(within), pooled=pooled, reversal=reversal)


def mean_by_setting(differences_by_setting: Sequence[ArrayLike]) -> Floats:
    """Means of the settings that have any difference, shape (settings,)."""
    return np.array([g.mean() for g in map(finite, differences_by_setting) if g.size])


def variance_of_means(differences_by_setting: Sequence[ArrayLike]) -> Floats:
    """s^2 / n of the settings with at least two differences, shape (settings,)."""
    return np.array([g.var(ddof=1) / g.size for g in map(finite, differences_by_setting) if g.size >= 2])


@dataclass(frozen=True, kw_only=True)
class RandomEffects:
    """Mean over settings for one tau2."""

    mean: float | None = None
    se: float | None = None
    """Hartung-Knapp, truncated: never below the plain standard error."""
    se_untruncated: float | None = None
    ci95: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Meta:
    """None where undefined: one setting only, or a setting without variance."""

    fixed: float | None = None
    q: float | None = None
    q_p: float | None = None
    i2: float | None = None
    tau2_dl: float | None = None
    tau2_pm: float | None = None
    tau2_reml: float | None = None
    dl: RandomEffects = RandomEffects()
    pm: RandomEffects = RandomEffects()
    unweighted_mean: float | None = None
    unweighted_ci95: tuple[float, float] | None = None


def meta_analysis(effects: ArrayLike, variances: ArrayLike) -> Meta:
    """Describe effects (settings,) with the variances of their means (settings,)."""
    y, v = np.asarray(effects, dtype=np.float64).ravel(), np.asarray(variances, dtype=np.float64).ravel()
    known = np.isfinite(y) & np.isfinite(v)
    y, v = y[known], v[known]
    plain = paired_t(y)
    if y.size == 0 or (v <= 0).any():
        return Meta(unweighted_mean=plain.mean, unweighted_ci95=plain.ci95)
    fixed = float((y / v).sum() / (1 / v).sum())
    q, df = _q(y, v, 0.0), y.size - 1
    if df == 0:
        return Meta(fixed=fixed, q=q, unweighted_mean=plain.mean)
    tau2_dl, tau2_pm = _dersimonian_laird(y, v), _root(lambda tau2: _q(y, v, tau2) - df, y, v)
    return Meta(
        fixed=fixed,
        q=q,
        q_p=float(stats.chi2.sf(q, df)),
        i2=max(0.0, (q - df) / q) if q > 0 else 0.0,
        tau2_dl=tau2_dl,
        tau2_pm=tau2_pm,
        tau2_reml=_root(lambda tau2: _reml_slope(y, v, tau2), y, v),
        dl=_random(y, v, tau2_dl),
        pm=_random(y, v, tau2_pm),
        unweighted_mean=plain.mean,
        unweighted_ci95=plain.ci95,
    )


def _dersimonian_laird(y: Floats, v: Floats) -> float:
    w = 1 / v
    return max(0.0, (_q(y, v, 0.0) - (y.size - 1)) / float(w.sum() - (w**2).sum() / w.sum()))


def _weighted(y: Floats, v: Floats, tau2: float) -> tuple[Floats, float]:
    w = 1 / (v + tau2)
    return w, float((w * y).sum() / w.sum())


def _q(y: Floats, v: Floats, tau2: float) -> float:
    w, mean = _weighted(y, v, tau2)
    return float((w * (y - mean) ** 2).sum())


def _reml_slope(y: Floats, v: Floats, tau2: float) -> float:
    """Derivative of twice the restricted log-likelihood in tau2."""
    w, mean = _weighted(y, v, tau2)
    return float((w**2 * (y - mean) ** 2).sum() - w.sum() + (w**2).sum() / w.sum())


def _root(slope: Callable[[float], float], y: Floats, v: Floats) -> float:
    """Where a falling function of tau2 crosses 0; 0 when it starts below."""
    if slope(0.0) <= 0:
        return 0.0
    high = float(y.var()) + float(v.max())
    while slope(high) > 0:
        high *= 2
    return float(optimize.brentq(slope, 0.0, high, xtol=1e-16 * high + 1e-300, rtol=1e-13))


def _random(y: Floats, v: Floats, tau2: float) -> RandomEffects:
    w, mean = _weighted(y, v, tau2)
    q = float((w * (y - mean) ** 2).sum()) / (y.size - 1)
    plain = 1 / math.sqrt(float(w.sum()))
    se = plain * math.sqrt(max(1.0, q))
    half = float(stats.t.ppf(0.975, y.size - 1)) * se
    return RandomEffects(mean=mean, se=se, se_untruncated=plain * math.sqrt(q), ci95=(mean - half, mean + half))
