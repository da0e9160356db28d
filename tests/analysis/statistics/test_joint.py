"""Multiplicity: the joint test against enumeration by fractions, and its speed."""

from __future__ import annotations

import time
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from analysis.statistics import paired
from analysis.statistics.joint import holm, joint_sign_flip, over_comparisons


def enumerated_step_down(rows: list[list[float]]) -> list[float]:
    """Westfall-Young with the squared statistic, in exact arithmetic."""
    d = [[Fraction(str(x)) for x in row] for row in rows]
    m = len(d[0])
    norms = [sum(row[j] ** 2 for row in d) for j in range(m)]

    def statistic(signs: tuple[int, ...]) -> list[Fraction]:
        sums = [sum(s * row[j] for s, row in zip(signs, d, strict=True)) for j in range(m)]
        return [Fraction(0) if n == 0 else s * s / n for s, n in zip(sums, norms, strict=True)]

    observed = statistic((1,) * len(d))
    order = sorted(range(m), key=lambda j: -observed[j])
    patterns = [statistic(s) for s in product((1, -1), repeat=len(d))]
    out, largest = [0.0] * m, 0.0
    for position, j in enumerate(order):
        hits = sum(max(t[k] for k in order[position:]) >= observed[j] for t in patterns)
        largest = max(largest, hits / len(patterns))
        out[j] = largest
    return out


@pytest.mark.parametrize("seed", range(4))
def test_step_down_against_exact_fractions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.round(rng.normal(0.3, 1, size=(6, 3)), 2)
    rows[:, 2] = np.round(rows[:, 0] + 0.1 * rows[:, 1], 3)
    assert joint_sign_flip(rows).step_down == pytest.approx(enumerated_step_down(rows.tolist()), abs=1e-15)


def test_duplicated_and_empty_endpoints_cost_nothing() -> None:
    d = np.array([[0.3], [0.2], [0.4], [0.1], [0.25], [0.2]])
    got = joint_sign_flip(np.hstack([d, d, 0 * d]))
    assert got.step_down == (0.03125, 0.03125, 1.0)
    assert joint_sign_flip(np.empty((0, 2))).step_down == (1.0, 1.0)


def test_a_missing_entry_adds_nothing() -> None:
    d = np.array([[0.3, 0.1], [0.2, np.nan], [0.4, 0.3], [0.1, -0.2]])
    assert joint_sign_flip(d).raw[1] == joint_sign_flip(np.nan_to_num(d)).raw[1]


def test_raw_p_is_the_sign_flip_test() -> None:
    d = np.random.default_rng(0).normal(0.5, 1, size=(9, 4))
    assert joint_sign_flip(d).raw == pytest.approx([paired.sign_flip_test(c).p_value for c in d.T])


def test_holm_in_the_given_order_with_missing() -> None:
    assert holm([0.04, None, 0.01, float("nan"), 0.03]) == pytest.approx((0.06, None, 0.03, None, 0.06))


def test_over_comparisons_is_holm_with_one_primary() -> None:
    p = [0.02, 0.001, 0.04]
    got = over_comparisons([[x] for x in p], alpha=0.05)
    assert [m.adjusted[0] for m in got] == pytest.approx(holm(p))
    assert [m.factor for m in got] == [2, 3, 1]


def test_a_comparison_leaves_the_family_only_when_all_its_primaries_are_rejected() -> None:
    first, second = over_comparisons([[0.001, 0.6], [0.03, 0.03]], alpha=0.05)
    assert second.adjusted == (0.06, 0.06)
    assert first.adjusted[0] == pytest.approx(0.002)


def test_many_seeds_and_endpoints_are_fast() -> None:
    rng = np.random.default_rng(0)
    joint_sign_flip(rng.normal(size=(16, 10)))
    started = time.process_time()
    joint_sign_flip(rng.normal(size=(16, 10)))
    assert time.process_time() - started < 1.0
    started = time.process_time()
    joint_sign_flip(rng.normal(size=(50, 10)), rng=rng)
    assert time.process_time() - started < 2.0
