"""Formulas written out here for speed, against the libraries that have them too."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.meta_analysis import combine_effects
from statsmodels.stats.multitest import multipletests

from analysis.statistics.across_settings import meta_analysis
from analysis.statistics.joint import holm
from analysis.statistics.paired import sign_test_from_counts, welch_p

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
@pytest.mark.parametrize("n", [1, 5, 6, 17, 200])
def test_sign_test_against_scipy(n: int, alternative: str) -> None:
    for wins in {0, 1, n // 3, n // 2, n - 1, n}:
        expected = stats.binomtest(wins, n, 0.5, alternative=alternative).pvalue
        assert sign_test_from_counts(wins, n, alternative) == pytest.approx(expected, rel=1e-11)  # type: ignore[arg-type]


def test_welch_against_scipy() -> None:
    for sizes in ((2, 2), (5, 5), (9, 4)):
        a, b = (RNG.normal(0.8, 0.01 * (i + 1), n) for i, n in enumerate(sizes))
        assert welch_p(a, b) == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue, rel=1e-10)


def test_holm_against_statsmodels_unsorted_with_ties_and_gaps() -> None:
    for p in ([0.04, 0.001, 0.03, 0.03, 0.9], [0.5], [0.02, 0.01, 0.02]):
        assert holm(p) == pytest.approx(multipletests(p, method="holm")[1].tolist())
    assert holm([None, 0.02, float("nan"), 0.01]) == (None, 0.02, None, 0.02)
    assert holm([]) == ()


def test_dersimonian_laird_against_statsmodels_and_never_below_0() -> None:
    effects, variances = RNG.normal(0.01, 0.02, 7), RNG.uniform(1e-5, 1e-4, 7)
    expected = combine_effects(effects, variances, method_re="dl")
    found = meta_analysis(effects, variances)
    assert found.tau2_dl == pytest.approx(expected.tau2)
    assert found.dl.mean == pytest.approx(expected.mean_effect_re)
    assert meta_analysis(np.full(4, 0.01), variances[:4]).tau2_dl == 0
