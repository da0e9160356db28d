"""Two correlations that share the labels, from one trained pair: what test examples alone can explain.

Sources: Williams (1959) as in Steiger (1980) eq. 7; Steiger (1980) eq. 14 with the pooled correlation; Zou (2007)
section on dependent overlapping correlations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import stats

ROUNDING = 1e-12
"""A determinant this far below 0 is rounding."""


@dataclass(frozen=True, kw_only=True)
class DependentCorrelations:
    """Tests and interval of r_first - r_second.

    None where undefined: a correlation of 1, too few examples, correlations that no three variables can have.
    """

    zou_ci95: tuple[float, float] | None
    steiger_z: float | None
    steiger_p: float | None
    williams_t: float | None
    williams_p: float | None


def dependent_correlations(r_first: float, r_second: float, r_between: float, n: int) -> DependentCorrelations:
    """Compare corr(labels, first) with corr(labels, second).

    Args:
        r_first: Correlation of the labels with the first variant's predictions.
        r_second: The same for the second variant.
        r_between: Correlation of the two variants' predictions.
        n: Test examples.
    """
    known = n > 3 and all(math.isfinite(r) and abs(r) <= 1 for r in (r_first, r_second, r_between))
    defined = known and _determinant(r_first, r_second, r_between) >= -ROUNDING
    z = _steiger_z(r_first, r_second, r_between, n) if defined else None
    t = _williams_t(r_first, r_second, r_between, n) if defined else None
    return DependentCorrelations(
        zou_ci95=_zou(r_first, r_second, r_between, n) if defined else None,
        steiger_z=z,
        steiger_p=None if z is None else float(2 * stats.norm.sf(abs(z))),
        williams_t=t,
        williams_p=None if t is None else float(2 * stats.t.sf(abs(t), n - 3)),
    )


def _determinant(r1: float, r2: float, r: float) -> float:
    """Of the matrix of the three correlations; below 0 they contradict each other."""
    return 1 - r1**2 - r2**2 - r**2 + 2 * r1 * r2 * r


def _steiger_z(r1: float, r2: float, r: float, n: int) -> float | None:
    if max(abs(r1), abs(r2)) >= 1:
        return None
    pooled = ((r1 + r2) / 2) ** 2
    covariance = (r * (1 - 2 * pooled) - pooled * (1 - 2 * pooled - r**2) / 2) / (1 - pooled) ** 2
    if covariance >= 1 - 1e-15:
        return None
    return (math.atanh(r1) - math.atanh(r2)) * math.sqrt((n - 3) / (2 - 2 * covariance))


def _williams_t(r1: float, r2: float, r: float, n: int) -> float | None:
    spread = 2 * (n - 1) / (n - 3) * max(_determinant(r1, r2, r), 0.0) + ((r1 + r2) / 2) ** 2 * (1 - r) ** 3
    if spread <= 1e-15 or abs(r) >= 1:
        return None
    return (r1 - r2) * math.sqrt((n - 1) * (1 + r) / spread)


def _zou(r1: float, r2: float, r: float, n: int) -> tuple[float, float] | None:
    if max(abs(r1), abs(r2)) >= 1:
        return None
    half = float(stats.norm.ppf(0.975)) / math.sqrt(n - 3)
    low1, high1 = math.tanh(math.atanh(r1) - half), math.tanh(math.atanh(r1) + half)
    low2, high2 = math.tanh(math.atanh(r2) - half), math.tanh(math.atanh(r2) + half)
    c = ((r - r1 * r2 / 2) * (1 - r1**2 - r2**2 - r**2) + r**3) / ((1 - r1**2) * (1 - r2**2))
    below = (r1 - low1) ** 2 + (high2 - r2) ** 2 - 2 * c * (r1 - low1) * (high2 - r2)
    above = (high1 - r1) ** 2 + (r2 - low2) ** 2 - 2 * c * (high1 - r1) * (r2 - low2)
    return r1 - r2 - math.sqrt(max(below, 0.0)), r1 - r2 + math.sqrt(max(above, 0.0))
