"""What a number of seeds can show: against exact counting, and against what the analysis computes with scipy."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest

from analysis.statistics import closed_forms, sequential
from analysis.statistics.closed_forms import e_threshold, p_floor, seeds_for_e_value, seeds_for_sign_test
from analysis.statistics.paired import sign_test_from_counts


@pytest.mark.parametrize("alternative", ["two-sided", "greater"])
@pytest.mark.parametrize("n", range(12))
def test_the_floor_is_the_p_of_seeds_that_all_agree(n: int, alternative: closed_forms.Alternative) -> None:
    assert p_floor(n, alternative) == pytest.approx(sign_test_from_counts(n, n, alternative), rel=1e-15)


@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.01, 0.001])
@pytest.mark.parametrize("tests", [1, 2, 4, 10])
def test_fewest_seeds_reach_alpha_and_one_less_does_not(alpha: float, tests: int) -> None:
    n = seeds_for_sign_test(alpha, tests)
    assert p_floor(n) * tests <= alpha < p_floor(n - 1) * tests


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (1, 0), (6, 2), (0, 9), (40, 23), (200, 0)])
def test_e_value_against_exact_counting(wins: int, losses: int) -> None:
    """With a = 1/2 and whole seeds, E = C(2w, w) C(2l, l) / (2^n C(n, w))."""
    n = wins + losses
    exact = float(Fraction(comb(2 * wins, wins) * comb(2 * losses, losses), 2**n * comb(n, wins)))
    assert closed_forms.e_value(wins, losses) == pytest.approx(exact, rel=1e-12)
    assert sequential.e_value(wins, losses) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.01, 0.001])
@pytest.mark.parametrize("tests", [1, 4, 10])
def test_fewest_seeds_against_the_e_value_of_the_analysis(alpha: float, tests: int) -> None:
    threshold = e_threshold(tests, alpha)
    n = seeds_for_e_value(threshold)
    assert sequential.e_value(n, 0) >= threshold > sequential.e_value(n - 1, 0)


def test_known_numbers() -> None:
    assert (seeds_for_sign_test(0.05), seeds_for_sign_test(0.05, 4)) == (6, 8)
    assert seeds_for_e_value(e_threshold(1, 0.05)) == 7


def test_a_floor_that_equals_alpha_reaches_it() -> None:
    assert [seeds_for_sign_test(alpha) for alpha in (1.0, 0.5, 0.25, 0.0625)] == [1, 2, 3, 5]
    assert seeds_for_sign_test(3 * 2.0**-4, tests=3) == 5
