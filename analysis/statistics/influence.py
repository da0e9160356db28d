"""Correlations of one test set's labels with many models' predictions, and what each example adds to them.

The influence value of example i is the derivative of the correlation when a little weight is moved onto i: the
delete-one jackknife's limit (Hampel 1974; Efron 1982), at the cost of one sort instead of m refits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from analysis.statistics.paired import Floats

Statistic = Literal["spearman", "pearson"]
RANK_DECIMALS = 12
"""Labels and predictions are rounded to this before ranking, so that float noise does not become a rank."""
_BRUTE_ROWS = 256


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """Values of k vectors over m examples, sorted once; shapes (k, m), ties as runs of the sorted order."""

    centred: Floats
    """Midranks as shares of m, minus their mean 1/2 (zero where constant)."""
    order: NDArray[np.intp]
    """Position of the sorted values in the flattened (k, m) array."""
    start: NDArray[np.intp] | None
    """Per sorted position: first position of its run of ties, in a flattened (k, m + 1) array; None without ties."""
    end: NDArray[np.intp] | None
    """The same: one behind the last position of its run."""
    variance: Floats
    """(k,): mean square of `centred`."""


@dataclass(frozen=True, kw_only=True)
class Influence:
    """Correlations and influence values of k vectors of predictions."""

    correlation: Floats
    """(k,); NaN where a vector, or the labels, are constant."""
    values: Floats
    """(k, m); each row has mean 0; NaN where the correlation is."""


def rank(values: Floats) -> Ranked:
    """Sort and rank each row; values of shape (k, m) or (m,)."""
    rows = np.round(np.atleast_2d(np.asarray(values, dtype=np.float64)), RANK_DECIMALS)
    k, m = rows.shape
    row = np.arange(k)[:, None]
    order = np.argsort(rows, axis=1) + row * m
    ordered = rows.ravel().take(order)
    fresh = np.ones((k, m), dtype=bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    position = np.arange(m)
    centred = np.empty(k * m)
    if fresh.all():
        centred[order] = (position + 0.5) / m - 0.5
        start = end = None
    else:
        start = np.maximum.accumulate(np.where(fresh, position, 0), axis=1)
        closes = np.ones((k, m), dtype=bool)
        closes[:, :-1] = fresh[:, 1:]
        end = np.minimum.accumulate(np.where(closes, position + 1, m)[:, ::-1], axis=1)[:, ::-1]
        centred[order] = (start + end) / (2 * m) - 0.5
        start, end = start + row * (m + 1), end + row * (m + 1)
    centred = centred.reshape(k, m)
    return Ranked(centred=centred, order=order, start=start, end=end, variance=(centred**2).mean(axis=1))


def _moved(by: Ranked, weights: Floats) -> Floats:
    """How moving weight onto each example moves everyone's midranks, seen through `weights`; shape (k, m).

    Row-wise mean over j of ([x_i < x_j] + [x_i = x_j] / 2) w_j, minus its mean over i. `by` has k rows, or one that
    stands for all.
    """
    k, m = weights.shape
    one = by.order.shape[0] == 1
    cumulated = np.zeros((k, m + 1))
    np.cumsum(_taken(weights, by.order, one=one), axis=1, out=cumulated[:, 1:])
    if by.start is None or by.end is None:
        below = (cumulated[:, :-1] + cumulated[:, 1:]) / 2
    else:
        below = (_taken(cumulated, by.start, one=one) + _taken(cumulated, by.end, one=one)) / 2
    above = (cumulated[:, -1:] - below) / m
    above -= above.mean(axis=1, keepdims=True)
    out = np.empty((k, m))
    if one:
        out[:, by.order[0]] = above
    else:
        out.ravel()[by.order] = above
    return out


def _taken(rows: Floats, positions: NDArray[np.intp], *, one: bool) -> Floats:
    return rows.take(positions[0], axis=1) if one else rows.ravel().take(positions)


def spearman_influence(labels: Ranked, predictions: Floats) -> Influence:
    """Spearman correlation with ranked labels (one row), and influence values; predictions (k, m)."""
    ranked = rank(predictions)
    x, y, vx, vy = labels.centred, ranked.centred, labels.variance[:, None], ranked.variance[:, None]
    covariance = (x * y).mean(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.sqrt(vx * vy)
        r = np.where(scale > 0, covariance / scale, np.nan)
        direct = (x * y - covariance) / scale - r * ((x**2 - vx) / vx + (y**2 - vy) / vy) / 2
        moved = _moved(labels, y / scale - r * x / vx) + _moved(ranked, x / scale - r * y / vy)
    return Influence(correlation=r[:, 0], values=direct + moved)


def pearson_influence(labels: Floats, predictions: Floats) -> Influence:
    """Pearson correlation with labels (m,), and influence z_x z_y - r (z_x^2 + z_y^2) / 2; predictions (k, m)."""
    zx, zy = _standardised(np.atleast_2d(labels)), _standardised(np.atleast_2d(predictions))
    correlation = (zx * zy).mean(axis=1)
    return Influence(correlation=correlation, values=zx * zy - correlation[:, None] * (zx**2 + zy**2) / 2)


def _standardised(rows: Floats) -> Floats:
    centred = rows - rows.mean(axis=1, keepdims=True)
    sd = np.sqrt((centred**2).mean(axis=1, keepdims=True))
    constant = sd <= 1e-13 * np.abs(rows).max(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(constant, np.nan, centred / sd)


@dataclass(frozen=True, kw_only=True)
class CorrelationDifference:
    """Two models against the same labels."""

    first: float | None
    second: float | None
    difference: float | None
    """second minus first."""
    jackknife_se: float | None
    """Delete-one jackknife over examples, exact."""


def correlation_difference(
    labels: Floats, first: Floats, second: Floats, *, statistic: Statistic
) -> CorrelationDifference:
    """Difference of two dependent correlations with its exact delete-one jackknife standard error.

    O(m^2) time: for the one pair of a study with one seed, and to check the influence values against.
    Examples with a missing label or prediction are left out of both.
    """
    x, a, b = (np.asarray(v, dtype=np.float64).ravel() for v in (labels, first, second))
    known = np.isfinite(x) & np.isfinite(a) & np.isfinite(b)
    x, a, b = x[known], a[known], b[known]
    m = x.size
    nothing = CorrelationDifference(first=None, second=None, difference=None, jackknife_se=None)
    if m < 2:
        return nothing
    full = [_deleted(x, y, np.array([-1]), statistic)[0] for y in (a, b)]
    if not all(np.isfinite(full)):
        return CorrelationDifference(
            first=_or_none(full[0]), second=_or_none(full[1]), difference=None, jackknife_se=None
        )
    without = np.concatenate(
        [
            _deleted(x, b, np.arange(i, min(i + _BRUTE_ROWS, m)), statistic)
            - _deleted(x, a, np.arange(i, min(i + _BRUTE_ROWS, m)), statistic)
            for i in range(0, m, _BRUTE_ROWS)
        ]
    )
    se = np.sqrt((m - 1) / m * ((without - without.mean()) ** 2).sum())
    return CorrelationDifference(
        first=float(full[0]), second=float(full[1]), difference=float(full[1] - full[0]), jackknife_se=_or_none(se)
    )


def _or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _deleted(x: Floats, y: Floats, drop: NDArray[np.intp], statistic: Statistic) -> Floats:
    """Correlation without example `drop[i]`, for each i; -1 drops none."""
    keep = np.arange(x.size)[None, :] != drop[:, None]
    columns = []
    for values in (x, y):
        if statistic == "spearman":
            rounded = np.round(values, RANK_DECIMALS)
            midranks = (rank(rounded).centred[0] + 0.5) * x.size
            out = rounded[drop][:, None]
            # Deleting example i lowers everyone above it by one rank and its ties by half a rank.
            shift = (rounded[None, :] > out) + 0.5 * (rounded[None, :] == out)
            rows = midranks[None, :] - np.where(drop[:, None] >= 0, shift, 0.0)
        else:
            rows = np.broadcast_to(values, keep.shape)
        mean = np.where(keep, rows, 0.0).sum(axis=1) / keep.sum(axis=1)
        columns.append(np.where(keep, rows - mean[:, None], 0.0))
    cx, cy = columns
    vx, vy = (cx**2).sum(axis=1), (cy**2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        defined = (vx > 1e-24 * (x**2).sum()) & (vy > 1e-24 * (y**2).sum())
        return np.where(defined, (cx * cy).sum(axis=1) / np.sqrt(vx * vy), np.nan)
