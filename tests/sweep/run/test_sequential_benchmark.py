"""The printed cost and error of adding seeds until decided, against simulation and against theory."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.statistics.closed_forms import e_threshold
from analysis.statistics.power import power_sign_test
from analysis.statistics.sequential import crossing_probability, e_value
from benchmarks.sequential import cost, family_error, main


def test_no_more_false_positives_than_alpha_within_fifty_seeds() -> None:
    """Exact, by dynamic programming over every path."""
    assert crossing_probability(50, e_threshold(1, 0.05)) <= 0.05


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_four_correlated_endpoints_err_less_than_alpha(correlation: float) -> None:
    got = family_error(
        endpoints=4, correlation=correlation, max_seeds=50, studies=10_000, alpha=0.05, rng=np.random.default_rng(1)
    )
    assert got.rate + 3 * got.standard_error < 0.05
    # Not vacuous: the union bound over four endpoints leaves room, but errors do occur.
    assert got.rate > 0.005


def test_cost_against_simulation() -> None:
    """Mean seeds and power of the exact calculation equal those of simulated studies."""
    exact = cost(0.8, max_seeds=30)
    rng = np.random.default_rng(0)
    used, decided = [], []
    for _ in range(3_000):
        wins, n = 0, 0
        while n < 30 and e_value(wins, n - wins) < 20:
            wins, n = wins + int(rng.random() < 0.8), n + 1
        used.append(n)
        decided.append(e_value(wins, n - wins) >= 20)
    assert np.mean(used) == pytest.approx(exact.mean_seeds, abs=4 * np.std(used) / np.sqrt(len(used)))
    assert np.mean(decided) == pytest.approx(exact.power, abs=4 * np.std(decided) / np.sqrt(len(decided)))


def test_the_fixed_design_of_equal_power_is_the_smallest() -> None:
    got = cost(0.9, max_seeds=50)
    assert got.fixed_same_power is not None
    assert power_sign_test(got.fixed_same_power, 0.9) >= got.power
    assert all(power_sign_test(n, 0.9) < got.power for n in range(1, got.fixed_same_power))


def test_the_tables_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--studies", "200", "--max-seeds", "20"])
    printed = capsys.readouterr().out
    assert "Seeds to a decision, m = 4, limit 20 (exact)" in printed
    rows = [line.split() for line in printed.splitlines() if line.startswith("   1.00")]
    assert [row[1] for row in rows] == ["7.0", "9.0"]  # all agree: 2^n B(n + 1/2, 1/2) / pi first reaches 20, 80
