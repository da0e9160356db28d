"""Influence values against the brute jackknife, components against two-way ANOVA, coverage against itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from analysis.statistics.correlations import dependent_correlations
from analysis.statistics.crossed import (
    SettingInfluence,
    crossed,
    crossed_bootstrap,
    crossed_over_settings,
)
from analysis.statistics.influence import correlation_difference, pearson_influence, rank, spearman_influence
from tests.reference_cases import crossed_linear


def jackknife(labels: np.ndarray, predictions: np.ndarray, correlation) -> np.ndarray:  # type: ignore[no-untyped-def]
    full = correlation(labels, predictions).statistic
    m = labels.size
    without = [correlation(np.delete(labels, i), np.delete(predictions, i)).statistic for i in range(m)]
    return (m - 1) * (full - np.array(without))


@pytest.mark.parametrize("tied", [False, True])
def test_influence_against_brute_jackknife(tied: bool) -> None:
    rng = np.random.default_rng(1)
    m = 600
    labels = rng.uniform(size=m)
    predictions = labels + 0.4 * rng.normal(size=m)
    if tied:
        labels, predictions = np.round(labels * 5), np.round(predictions * 8)
    found = {
        stats.spearmanr: spearman_influence(rank(labels), predictions[None]),
        stats.pearsonr: pearson_influence(labels, predictions[None]),
    }
    for correlation, influence in found.items():
        brute = jackknife(labels, predictions, correlation)
        assert influence.correlation[0] == pytest.approx(correlation(labels, predictions).statistic, abs=1e-12)
        assert np.abs(influence.values.mean()) < 1e-10
        assert np.corrcoef(influence.values[0], brute)[0, 1] > 0.9999
        assert influence.values[0].var() == pytest.approx(brute.var(), rel=0.02)


def test_midrank_movement_is_part_of_the_influence() -> None:
    rng = np.random.default_rng(2)
    labels, noise = rng.uniform(size=(2, 400))
    ranks = rank(np.stack([labels, labels + noise])).centred
    without_movement = pearson_influence(ranks[0], ranks[1][None]).values.var()
    brute = jackknife(labels, labels + noise, stats.spearmanr).var()
    assert spearman_influence(rank(labels), (labels + noise)[None]).values.var() == pytest.approx(brute, rel=0.03)
    assert abs(without_movement / brute - 1) > 0.03


def test_exact_jackknife_of_a_difference_against_brute() -> None:
    rng = np.random.default_rng(3)
    labels = np.round(rng.uniform(0, 5, 40))
    a, b = labels + rng.normal(size=(2, 40))
    for statistic, correlation in (("spearman", stats.spearmanr), ("pearson", stats.pearsonr)):
        got = correlation_difference(labels, a, b, statistic=statistic)  # type: ignore[arg-type]
        pseudo = (jackknife(labels, b, correlation) - jackknife(labels, a, correlation)) / 39
        assert got.jackknife_se == pytest.approx(np.sqrt(39 / 40 * ((pseudo - pseudo.mean()) ** 2).sum()), rel=1e-9)
    assert correlation_difference(labels, np.ones(40), b, statistic="spearman").jackknife_se is None


def test_constant_predictions_have_no_correlation() -> None:
    labels = np.arange(5.0)
    assert np.isnan(spearman_influence(rank(labels), np.ones((1, 5))).correlation[0])
    assert np.isnan(pearson_influence(labels, np.full((1, 5), 0.1)).correlation[0])


def test_components_against_two_way_anova() -> None:
    rng = np.random.default_rng(4)
    n, m = 4, 30
    x = rng.normal(size=(1, m)) + rng.normal(size=(n, 1)) + 0.5 * rng.normal(size=(n, m))
    found = crossed_linear(x)
    assert found is not None
    seed_mean, example_mean = x.mean(axis=1), x.mean(axis=0)
    ms_seed = m * seed_mean.var(ddof=1)
    ms_example = n * example_mean.var(ddof=1)
    residual = x - seed_mean[:, None] - example_mean[None] + x.mean()
    ms_residual = (residual**2).sum() / ((n - 1) * (m - 1))
    assert found.seed_variance_of_mean == pytest.approx(ms_seed / (n * m))
    assert found.shared_example_variance == pytest.approx((ms_example - ms_residual) / (n * m))
    assert found.interaction_variance_per_seed == pytest.approx(ms_residual / m)


def test_negative_shared_variance_is_floored_and_leaves_the_t_interval() -> None:
    u = np.array([[1.0, -1, 1, -1], [-1.0, 1, -1, 1], [1, 1, -1, -1]])
    d = np.array([0.1, 0.3, 0.2])
    found = crossed(d, u)
    assert found is not None
    assert (found.shared_example_variance, found.half_width_infinite_seeds()) == (0.0, 0.0)
    assert found.interval() == pytest.approx(tuple(stats.ttest_1samp(d, 0).confidence_interval()))


def test_coverage_of_the_interval_over_new_seeds_and_examples() -> None:
    rng = np.random.default_rng(7)
    n, m, covered, wider = 6, 60, 0, 0
    for _ in range(400):
        x = 0.02 * rng.normal(size=(n, 1)) + rng.normal(size=(1, m)) + 0.3 * rng.normal(size=(n, m))
        found = crossed_linear(x)
        interval = found.interval() if found else None
        assert interval is not None
        covered += interval[0] <= 0 <= interval[1]
        plain = stats.ttest_1samp(x.mean(axis=1), 0).confidence_interval()
        wider += plain.low <= 0 <= plain.high
    assert 0.92 <= covered / 400 <= 0.98
    assert wider / 400 < 0.6  # what forgetting the shared test set would give


def test_settings_that_share_seeds_and_test_set_are_one_when_they_are_copies() -> None:
    rng = np.random.default_rng(8)
    u, d = rng.normal(size=(5, 40)), rng.normal(size=5)
    seeds = (1, 2, 3, 4, 5)
    part = SettingInfluence(seeds=seeds, differences=d, influence=u)
    one, two = crossed_over_settings([part]), crossed_over_settings([part, part])
    assert one is not None
    assert two is not None
    assert two.total_variance == pytest.approx(one.total_variance)
    assert two.df == pytest.approx(one.df)
    other = SettingInfluence(seeds=(6, 7, 8, 9, 10), differences=d, influence=u, test_set=1)
    apart = crossed_over_settings([part, other])
    assert apart is not None
    assert apart.total_variance == pytest.approx(one.total_variance / 2)


def test_bootstrap_variance_against_its_closed_form() -> None:
    rows = np.array([[-0.569, -0.129, -0.424], [-0.217, -0.407, -0.498]])
    found = crossed_bootstrap(rows, rng=np.random.default_rng(0))
    assert found is not None
    assert found.variance == pytest.approx(0.004999888888888889, rel=0.05)


def test_published_dependent_correlations() -> None:
    assert dependent_correlations(0.396, 0.179, 0.088, 66).zou_ci95 == pytest.approx((-0.093, 0.517), abs=6e-4)
    assert dependent_correlations(0.0228, 0.3522, 0.3718, 553).steiger_z == pytest.approx(-7.1345, abs=0.003)
    found = dependent_correlations(0.82, 0.8165, 0.985, 1589)
    assert found.williams_t == pytest.approx(1.4115379828489019)
    assert found.williams_p == pytest.approx(0.15828218912858766)


def test_perfect_correlations_are_undefined_not_an_error() -> None:
    for case in ((1.0, 0.9, 0.9, 50), (0.9, 0.9, 1.0, 50), (0.5, 0.4, 0.3, 3)):
        found = dependent_correlations(*case)
        assert found.steiger_z is None


def test_seeds_with_missing_examples_are_left_out_as_a_whole() -> None:
    nan = float("nan")
    assert crossed_linear([[0.1, 0.2], [nan, nan], [0.3, 0.25]]) == crossed_linear([[0.1, 0.2], [0.3, 0.25]])
    assert crossed_linear([[0.1, 0.2], [nan, 0.4], [0.3, 0.25]]) == crossed_linear([[0.1, 0.2], [0.3, 0.25]])


def test_several_hypotheses_widen_what_infinite_seeds_leave() -> None:
    rng = np.random.default_rng(3)
    found = crossed_linear(rng.normal(size=(1, 50)) + 0.1 * rng.normal(size=(6, 50)) + 0.31)
    assert found is not None
    shared = np.sqrt(found.shared_example_variance)
    for m in (1, 4):
        half = found.half_width_infinite_seeds(hypotheses=m)
        assert half == pytest.approx(stats.t.ppf(1 - 0.025 / m, 49) * shared)
        assert found.blocked_by_examples(hypotheses=m) == (abs(found.mean) <= half)
        assert found.examples_needed(hypotheses=m) == int(np.ceil(50 * (half / found.mean) ** 2))


def test_rounding_leaves_no_interaction_variance() -> None:
    """Seeds that all move every example alike: one row, shifted by what floats can hold."""
    row = np.random.default_rng(5).normal(size=30)
    found = crossed_linear([row + 0.1, row + 0.2, row + 0.3, row + 0.7])
    assert found is not None
    assert found.interaction_variance_per_seed == 0.0
    assert found.shared_example_variance == pytest.approx(row.var(ddof=1) / 30)
