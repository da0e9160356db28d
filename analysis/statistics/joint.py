"""Several endpoints of the same trained pairs, and several comparisons: multiplicity.

The joint test is the max-T sign-flip test with step-down p-values of Westfall and Young (1993), algorithm 4.1: whole
seeds are flipped over all endpoints at once, so endpoints that move together cost almost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from analysis.statistics.paired import EXACT_UP_TO, Floats, Random, all_signs, draw_signs, snap_ties, sum_tolerance


@dataclass(frozen=True, kw_only=True)
class JointTest:
    """p per endpoint, in the order of the columns."""

    raw: tuple[float, ...]
    single_step: tuple[float, ...]
    step_down: tuple[float, ...]


def joint_sign_flip(differences: ArrayLike, *, rng: Random | None = None) -> JointTest:
    """Joint test over endpoints.

    Args:
        differences: (seeds, endpoints); an entry that is not finite is missing and adds nothing to its endpoint.
        rng: Needed above 16 seeds (Monte Carlo, p = (1 + hits) / (1 + B)).
    """
    d = np.array(differences, dtype=np.float64, ndmin=2)
    d = snap_ties(np.where(np.isfinite(d), d, 0.0))
    n, m = d.shape
    if n == 0 or m == 0:
        return JointTest(raw=(1.0,) * m, single_step=(1.0,) * m, step_down=(1.0,) * m)
    largest = np.abs(d).max(axis=0)
    largest = np.where(largest > 0, largest, 1.0)
    d = d / largest  # before squaring: 1e-200 squared is 0
    norm = np.sqrt((d**2).sum(axis=0))
    norm = np.where(norm > 0, norm, 1.0)
    units = d / norm
    exact = n <= EXACT_UP_TO
    if exact:
        signs = all_signs(n)[: 2 ** (n - 1)]  # |sum| is the same for a row of signs and its opposite
    elif rng is None:
        raise ValueError(f"{n} seeds need random sign flips: pass rng")
    else:
        signs = draw_signs(n, rng)
    flipped = np.abs(signs @ units)
    threshold = np.abs(units.sum(axis=0)) - sum_tolerance(n, largest * norm)

    def share(hits: Floats) -> Floats:
        counts = hits.sum(axis=0)
        return np.asarray(counts / len(signs) if exact else (1 + counts) / (1 + len(signs)), dtype=np.float64)

    raw = share(flipped >= threshold)
    single = share(flipped.max(axis=1)[:, None] >= threshold)
    order = np.argsort(-threshold, kind="stable")
    # Running maximum from the least to the most significant endpoint: row j holds max over the endpoints from j on.
    successive = np.maximum.accumulate(flipped[:, order[::-1]], axis=1)[:, ::-1]
    ordered = np.maximum.accumulate(share(successive >= threshold[order]))
    step_down = np.empty(m)
    step_down[order] = ordered
    return JointTest(raw=_floats(raw), single_step=_floats(single), step_down=_floats(step_down))


def _floats(values: Floats) -> tuple[float, ...]:
    return tuple(float(v) for v in values)


def holm(p_values: Sequence[float | None]) -> tuple[float | None, ...]:
    """Holm-adjusted p-values (Holm 1979) in the given order; None and NaN stay None and do not count."""
    p = np.asarray(p_values, dtype=np.float64)
    known = np.flatnonzero(np.isfinite(p))
    order = known[np.argsort(p[known], kind="stable")]
    adjusted = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(order.size, 0, -1)))
    out: list[float | None] = [None] * p.size
    for index, value in zip(order, adjusted, strict=True):
        out[int(index)] = float(value)
    return tuple(out)


@dataclass(frozen=True, kw_only=True)
class FamilyMember:
    """One comparison's step-down p-values after the other comparisons were counted."""

    adjusted: tuple[float, ...]
    factor: int
    """Comparisons that were still in play when this one's turn came; multiplies its floor."""


def over_comparisons(step_down: Sequence[Sequence[float]], *, alpha: float) -> tuple[FamilyMember, ...]:
    """Holm over comparisons, on top of the joint test inside each.

    A comparison leaves the family only when all of its primaries are rejected, so the error rate over all
    comparisons and primaries holds (sequential rejection, Goeman and Solari 2010); with one primary it is Holm.
    """
    count = len(step_down)
    largest = [max(p, default=1.0) for p in step_down]
    order = sorted(range(count), key=lambda c: largest[c])
    members: dict[int, FamilyMember] = {}
    for rank, c in enumerate(order):
        gates = [(count - i) * largest[order[i]] for i in range(rank)]
        adjusted = tuple(
            min(1.0, min(max([(count - r) * p, *gates[:r]]) for r in range(rank + 1))) for p in step_down[c]
        )
        passed = next((i for i, gate in enumerate(gates) if gate > alpha), rank)
        members[c] = FamilyMember(adjusted=adjusted, factor=count - passed)
    return tuple(members[c] for c in range(count))
