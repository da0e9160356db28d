"""Single-endpoint statistics against enumeration by fractions, scipy, and worked numbers."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.statistics import paired
from analysis.statistics.equivalence import equivalence
from tests.reference_cases import sign_test_log10

DIFFERENCES = st.lists(st.integers(-40, 40).map(lambda k: k / 1000), min_size=1, max_size=8)


def enumerated(d: list[float], alternative: str = "two-sided") -> Fraction:
    """Sign-flip p by exact arithmetic over all 2^n arrangements."""
    exact = [Fraction(str(x)) for x in d]
    observed = sum(exact)
    sums = [sum(s * x for s, x in zip(signs, exact, strict=True)) for signs in product((1, -1), repeat=len(d))]
    hits = sum(s >= observed for s in sums) if alternative == "greater" else sum(abs(s) >= abs(observed) for s in sums)
    return Fraction(hits, len(sums))


@settings(max_examples=60, deadline=None)
@given(DIFFERENCES)
def test_sign_flip_against_exact_fractions(d: list[float]) -> None:
    assert paired.sign_flip_test(d).p_value == float(enumerated(d))
    assert paired.sign_flip_test(d, alternative="greater").p_value == float(enumerated(d, "greater"))


@settings(max_examples=40, deadline=None)
@given(DIFFERENCES, st.sampled_from([1e-9, 1e-3, 7.0, 1e6]), st.randoms(use_true_random=False))
def test_sign_flip_is_scale_free_antisymmetric_and_ignores_order(d: list[float], scale: float, random: object) -> None:
    p = paired.sign_flip_test(d).p_value
    shuffled = list(d)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert paired.sign_flip_test([scale * x for x in d]).p_value == p
    assert paired.sign_flip_test([-x for x in d]).p_value == p
    assert paired.sign_flip_test(shuffled).p_value == p


def test_monte_carlo_sign_flip_against_exact() -> None:
    rng = np.random.default_rng(5)
    d = rng.normal(0.4, 1, size=17)
    exact = (np.abs(paired.all_signs(16) @ d[:16] + d[16]) >= abs(d.sum()) - 1e-12).mean()
    assert paired.sign_flip_test(d, rng=rng).p_value == pytest.approx(exact, abs=0.01)
    assert paired.sign_flip_test(np.full(30, 0.1), rng=rng).p_value == pytest.approx(1 / 20_001, rel=1)


def test_sign_test_counts_failures_and_drops_ties() -> None:
    t = paired.sign_test([0.1, 0.2, 5e-13, float("nan"), -0.1], extra_losses=1)
    assert (t.wins, t.losses, t.ties, t.n_used) == (2, 2, 1, 4)
    assert (t.p_value, t.p_floor) == (1.0, 0.125)
    assert paired.sign_test([]).p_value == 1.0


def test_log10_p_beyond_the_range_of_floats() -> None:
    assert sign_test_log10(0, 2000) == pytest.approx(-1999 * np.log10(2))
    assert sign_test_log10(3, 8) == pytest.approx(np.log10(stats.binomtest(3, 8).pvalue))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-5, 5), min_size=2, max_size=9))
def test_wilcoxon_against_enumeration_with_ties(d: list[int]) -> None:
    values = np.array([x for x in d if x != 0], dtype=float)
    got = paired.wilcoxon_signed_rank(d)
    if not values.size:
        assert got == paired.Wilcoxon(w_plus=None, p_value=1.0)
        return
    ranks = stats.rankdata(np.abs(values))
    w = ranks[values > 0].sum()
    all_w = paired.all_signs(values.size).clip(0) @ ranks
    assert got.w_plus == w
    assert got.p_value == pytest.approx(min(1.0, 2 * min((all_w >= w).mean(), (all_w <= w).mean())))


def test_float_noise_does_not_become_a_rank() -> None:
    noisy = [0.3 - 0.2, 0.1, -(0.7 - 0.6), 0.25]
    assert len({abs(x) for x in noisy[:3]}) > 1
    assert paired.wilcoxon_signed_rank(noisy) == paired.wilcoxon_signed_rank([0.1, 0.1, -0.1, 0.25])
    assert paired.wilcoxon_signed_rank([1e-9, 2e-9, -3e-9]) == paired.wilcoxon_signed_rank([1, 2, -3])
    small = [0.800000001 - 0.8, 0.700000001 - 0.7, -(0.600000001 - 0.6), 0.500000002 - 0.5, 0.900000003 - 0.9]
    assert paired.wilcoxon_signed_rank(small) == paired.Wilcoxon(w_plus=13.0, p_value=0.25)


def test_sums_that_differ_by_little_are_no_ties() -> None:
    assert paired.sign_flip_test([0.5, 2e-11, -2e-11]).p_value == 0.75
    noisy = [b - a for a, b in ((0.2, 0.2001), (0.45, 0.4501), (0.8, 0.8002), (0.6, 0.5999), (0.3, 0.2999))]
    assert paired.sign_flip_test(noisy).p_value == paired.sign_flip_test([1, 1, 2, -1, -1]).p_value


def test_t_summary_against_scipy() -> None:
    d = np.array([0.003, 0.004, 0.0035, 0.002, 0.005])
    t, reference = paired.paired_t(d), stats.ttest_1samp(d, 0)
    assert t.p_value == pytest.approx(reference.pvalue, rel=1e-12)
    assert t.ci95 == pytest.approx(tuple(reference.confidence_interval(0.95)), rel=1e-12)
    assert t.gz == pytest.approx(2.4977737626138796)


def test_zero_spread_leaves_t_undefined() -> None:
    t = paired.paired_t([0.1, 0.1, 0.1])
    assert (t.mean, t.sd) == (pytest.approx(0.1), 0.0)
    assert (t.ci95, t.p_value, t.dz, t.gz) == (None, None, None, None)
    a = np.array([0.2, 0.45, 0.8, 0.6, 0.3, 0.9])
    shifted = paired.paired_t(a + 0.0002 - a)
    assert (shifted.sd, shifted.p_value) == (0.0, None)
    assert paired.paired_t([1e-9, 2e-9, 3e-9]).p_value == pytest.approx(stats.ttest_1samp([1, 2, 3], 0).pvalue)
    assert paired.bca_interval([0.1] * 5, rng=np.random.default_rng(0)) is None
    assert paired.seed_correlation([0.1, 0.1, 0.1], [0.1, 0.2, 0.3]) is None


def test_exact_interval_inverts_the_test() -> None:
    d = np.array([0.5, -0.2, 0.9, 1.4, 0.1, 0.7, 0.3, 1.1])
    found = paired.sign_flip_interval(d)
    assert found.interval is not None
    low, high = found.interval
    inner, outer = (paired.sign_flip_test(d - c).p_value for c in (low + 1e-6, low - 1e-6))
    assert inner > 0.05 >= outer
    assert paired.sign_flip_test(d - (high + 1e-6)).p_value <= 0.05
    assert paired.sign_flip_interval(d[:5]).interval is None
    assert paired.sign_flip_interval(d[:5]).widest == (-0.2, 1.4)
    assert paired.sign_flip_interval(d[:5]).widest_level == 0.9375


def test_hodges_lehmann_and_improvement_by_hand() -> None:
    assert paired.hodges_lehmann([1, 2, 4, -1]) == 1.5
    assert paired.hodges_lehmann([]) is None
    assert paired.probability_of_improvement([0.8, 0.8, 0.8], [0.9, 0.8, 0.7]).paired == 0.5


def test_equivalence_floor_lets_five_seeds_decide() -> None:
    e = equivalence([0.0004, -0.0003, 0.0002, 0.0001, -0.0002], margin=0.002)
    assert (e.exact_p, e.equivalent) == (1 / 32, True)
    assert e.tost_p == pytest.approx(5.443831735255964e-05)
    assert not equivalence([0.0035, 0.0031, 0.004, 0.0029, 0.0036], margin=0.002).equivalent
    assert equivalence([], margin=0.1).exact_p == 1.0


@pytest.mark.parametrize("digits", [1, 6])
@pytest.mark.parametrize("shift", [-0.2, 0.0, 0.1])
def test_wilcoxon_of_hundreds_of_seeds_against_the_whole_distribution(digits: int, shift: float) -> None:
    d = np.round(np.random.default_rng(6).normal(shift, 1, 301), digits)
    d = d[d != 0]
    doubled = np.rint(2 * stats.rankdata(np.abs(d))).astype(int)
    mass = np.ones(1)
    for step in doubled:
        mass = (np.append(mass, np.zeros(step)) + np.append(np.zeros(step), mass)) / 2
    observed = int(doubled[d > 0].sum())
    for side, p in (("greater", mass[observed:].sum()), ("less", mass[: observed + 1].sum())):
        assert paired.wilcoxon_signed_rank(d, alternative=side).p_value == pytest.approx(p, rel=1e-12)  # type: ignore[arg-type]


def test_subsets_kept_for_many_endpoints_are_those_drawn_for_one() -> None:
    d = np.random.default_rng(1).normal(0.1, 1, 19)
    kept = paired.SignSource(np.random.default_rng(5))
    first = paired.sign_flip_interval(d, rng=kept)
    assert first == paired.sign_flip_interval(d, rng=np.random.default_rng(5))
    assert first == paired.sign_flip_interval(d, rng=kept)
