"""Rules of the verdict, one by one, and how primaries combine; settings, planning and several variants by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from analysis.comparing.verdict import comparison_verdict, decide
from analysis.statistics import across_settings as settings
from analysis.statistics import friedman as variants
from analysis.statistics import power

UP6 = [0.0035, 0.0031, 0.004, 0.0029, 0.0036, 0.003]
SMALL5 = [0.0004, -0.0003, 0.0002, 0.0001, -0.0002]


@pytest.mark.parametrize(
    ("d", "margin", "ci95", "ci90", "expected"),
    [
        ([0.1], None, None, None, "cannot_decide"),
        ([0.0] * 6, 0.1, None, None, "cannot_decide"),
        (UP6, None, (-0.009, -0.001), None, "mixed"),
        (UP6, 0.01, None, None, "different_but_negligible_on_this_test_set"),
        (UP6, 0.01, (-0.009, 0.016), (-0.005, 0.012), "different_but_negligible_on_this_test_set"),
        (UP6, 0.01, (-0.001, 0.008), (0.0, 0.007), "different_but_negligible"),
        (UP6, 0.01, (0.001, 0.013), (0.002, 0.011), "better"),
        (UP6, 0.001, (0.001, 0.006), None, "better"),
        ([-x for x in UP6], 0.001, (-0.006, -0.001), None, "worse"),
        (UP6, None, (-0.001, 0.008), None, "better_on_this_test_set"),
        ([-x for x in UP6], None, None, None, "worse_on_this_test_set"),
        (SMALL5, 0.002, None, (-0.0015, 0.0016), "equivalent"),
        (SMALL5, 0.002, None, (-0.0025, 0.0016), "equivalent_on_this_test_set"),
        (UP6[:5], 0.001, None, None, "undecided_underpowered"),
        ([0.01, -0.01, 0.02, -0.02, 0.03, -0.02], 0.001, None, None, "undecided_underpowered"),
        ([0.01, -0.01, 0.02, -0.02, 0.03, -0.02], None, None, None, "undecided"),
    ],
)
def test_first_rule_that_applies(d: list[float], margin: float | None, ci95, ci90, expected: str) -> None:  # type: ignore[no-untyped-def]
    got = decide(
        np.array(d)[:, None],
        margin=margin,
        crossed_ci95=[ci95] if ci95 else None,
        crossed_ci90=[ci90] if ci90 else None,
    )
    assert got == expected


def test_primaries_combine_in_order() -> None:
    assert comparison_verdict(["cannot_decide", "better"]) == "better"
    assert comparison_verdict(["better", "worse_on_this_test_set"]) == "mixed"
    assert comparison_verdict(["equivalent", "different_but_negligible"]) == "different_but_negligible"
    assert comparison_verdict(["equivalent", "undecided"]) == "undecided"
    assert comparison_verdict(["equivalent", "equivalent"]) == "equivalent"
    assert comparison_verdict([]) == "cannot_decide"


def test_ten_wins_on_five_shared_seeds_are_five() -> None:
    first, second = [0.003, 0.004, 0.0035, 0.002, 0.005], [0.001, 0.0005, 0.002, 0.001, 0.0015]
    shared = [dict(enumerate(first)), dict(enumerate(second))]
    distinct = [dict(enumerate(first)), dict(enumerate(second, start=5))]
    assert settings.pooled_by_seed(shared).p_value == 0.0625
    assert settings.pooled_by_seed(distinct).p_value == 2 / 1024


def test_contributions_average_to_the_unweighted_mean() -> None:
    parts = [{1: 0.1, 2: 0.3}, {2: 0.4, 3: 0.2, 4: 0.6}]
    got = settings.seed_contributions(parts)
    assert np.mean(list(got.values())) == pytest.approx((0.2 + 0.4) / 2)


def test_undefined_heterogeneity_and_meta() -> None:
    assert settings.heterogeneity([[0.1, 0.2]]).f is None
    assert settings.heterogeneity([[0.1, 0.1], [0.2, 0.3]]).f is None
    assert settings.meta_analysis([0.1], [0.01]).tau2_dl is None
    assert settings.meta_analysis([0.1, 0.1001, 0.1002], [0.01] * 3).tau2_dl == 0.0


def test_power_by_hand() -> None:
    assert power.power_sign_test(5, 0.99) == 0
    assert power.power_sign_test(6, 0.9) == pytest.approx(0.9**6 + 0.1**6)
    assert [power.seeds_needed(p).first for p in (0.95, 0.9, 0.8, 0.7)] == [9, 12, 20, 49]
    assert [power.seeds_needed_t(d) for d in (0.5, 1.0, 2.0)] == [34, 10, 5]
    assert power.minimum_seeds(0.05, 4) == power.MinimumSeeds(joint=6, holm=8)
    cost = power.cost({"a": [3600.0], "b": []}, seeds=5, settings=2, devices=0.5)
    assert (cost.cells, cost.device_hours) == (20, 10.0)


def test_friedman_against_scipy_and_monte_carlo_against_exact() -> None:
    rows = np.array([[0.8, 0.81, 0.82], [0.79, 0.8, 0.815], [0.81, 0.815, 0.83], [0.8, 0.82, 0.81], [0.78, 0.79, 0.8]])
    found = variants.friedman(rows)
    assert found.chi2 == pytest.approx(stats.friedmanchisquare(*rows.T).statistic)
    assert found.p_value == pytest.approx(0.008487654320987654)
    wide = np.random.default_rng(0).normal(size=(6, 7)) + np.arange(7) * 0.4
    drawn = variants.friedman(wide, rng=np.random.default_rng(1))
    assert not drawn.exact
    assert drawn.p_value == pytest.approx(drawn.p_chi2, abs=0.05)
