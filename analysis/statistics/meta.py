"""Random-effects description of setting means: never the verdict.

Fixed effect, Q, I2; tau2 by DerSimonian-Laird (1986), Paule-Mandel (1982) and REML, truncated at 0; intervals by
Hartung and Knapp (2001), with and without the guard that the interval is never narrower than the plain one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, stats

from analysis.statistics.paired import Floats, paired_t


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
