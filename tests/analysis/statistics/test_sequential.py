"""E-values against exact dynamic programming, and the decision that a sweep follows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from analysis.statistics import sequential
from analysis.statistics.sequential import Stream, decide_sequential


def decision(d: list[float], **changes: object) -> sequential.SequentialDecision:
    options: dict[str, object] = {"alpha": 0.05, "margin": None, "seeds": len(d), "max_seeds": None}
    return decide_sequential([Stream(treatment="b", endpoint="e", differences=tuple(d))], **(options | changes))  # type: ignore[arg-type]


def test_e_value_against_its_integral() -> None:
    density = stats.beta(0.5, 0.5).pdf
    whole = integrate.quad(lambda p: density(p) * (2 * p) ** 6 * (2 - 2 * p) ** 2, 0, 1)[0]
    upper = integrate.quad(lambda p: 2 * density(p) * (2 * p) ** 6 * (2 - 2 * p) ** 2, 0.5, 1)[0]
    assert sequential.e_value(6, 2) == pytest.approx(whole, rel=1e-6)
    assert sequential.one_sided_e_value(6, 2) == pytest.approx(upper, rel=1e-6)


def test_error_rate_of_the_rule_up_to_fifty_seeds() -> None:
    assert sequential.crossing_probability(50, 20) == pytest.approx(0.02797498053703862)
    assert sequential.naive_peeking_probability(50, 0.05) == pytest.approx(0.17116757440143715)


def test_one_sided_e_value_holds_its_error_rate() -> None:
    rng = np.random.default_rng(0)
    wins = np.cumsum(rng.integers(0, 2, size=(4000, 30)), axis=1)
    table = np.array(
        [[sequential.one_sided_e_value(k, n - k) if k <= n else 0 for k in range(31)] for n in range(1, 31)]
    )
    crossed = (table[np.arange(30)[None, :], wins] >= 20).any(axis=1).mean()
    assert 0.005 < crossed <= 0.05


def test_stops_at_seven_seeds_that_agree() -> None:
    assert not decision([0.01] * 6).stop
    assert decision([0.01] * 6).seeds_to_go == 1
    done = decision([0.01] * 7)
    assert (done.stop, done.decided, done.states[0].decided) == (True, True, "better")
    assert decision([-0.01] * 7).states[0].decided == "worse"


def test_four_hypotheses_need_more() -> None:
    streams = [Stream(treatment=t, endpoint="e", differences=(0.01,) * 8) for t in "bcde"]
    found = decide_sequential(streams, alpha=0.05, margin=None, seeds=8, max_seeds=None)
    assert found.states[0].e_threshold == 80
    assert not found.stop


def test_equivalence_stops_by_e_values_and_the_limit_undecided() -> None:
    small = [0.001, -0.001] * 3
    assert decision(small, margin=0.01).states[0].decided == "equivalent"
    assert not decision(small[:5], margin=0.01).stop
    limit = decision(small, max_seeds=6)
    assert (limit.stop, limit.decided) == (True, False)
    assert "limit of 6" in limit.why


def test_a_failure_by_itself_blocks_better() -> None:
    stream = Stream(treatment="b", endpoint="e", differences=(0.01,) * 12, treatment_failures=1)
    found = decide_sequential([stream], alpha=0.05, margin=None, seeds=13, max_seeds=None)
    assert found.states[0].e_value > 20
    assert not found.stop


def test_closed_average_against_all_subsets() -> None:
    e = [180.4, 30.0, 9.5, 0.25]
    from itertools import combinations

    subsets = [s for size in range(1, 5) for s in combinations(range(4), size)]
    brute = [min(np.mean([e[i] for i in s]) for s in subsets if j in s) for j in range(4)]
    assert sequential.e_closed(e, alpha=0.05).e == pytest.approx(brute)


def test_seed_differences_need_all_settings() -> None:
    a = {("x", 0): 0.1, ("y", 0): 0.2, ("x", 1): 0.3}
    b = {("x", 0): 0.2, ("y", 0): 0.5, ("x", 1): 0.4, ("y", 1): 0.4}
    assert sequential.seed_differences(b, a) == pytest.approx((0.2,))


def split(wins: int, losses: int) -> sequential.SequentialDecision:
    return decision([0.01] * wins + [-0.01] * losses)


@pytest.mark.parametrize(("wins", "losses", "needed"), [(5, 0, 2), (6, 0, 1), (0, 5, 2), (0, 0, 7), (5, 1, 6)])
def test_fewest_more_is_exact_for_a_difference(wins: int, losses: int, needed: int) -> None:
    """Against the rule itself: that many agreeing seeds decide, one less does not."""
    assert sequential.fewest_more(split(wins, losses)) == needed
    more = (needed, 0) if wins >= losses else (0, needed)
    assert split(wins + more[0], losses + more[1]).decided
    less = (max(0, more[0] - 1), max(0, more[1] - 1))
    assert not split(wins + less[0], losses + less[1]).decided


def test_fewest_more_never_passes_a_decision_by_equivalence() -> None:
    def of(n: int) -> sequential.SequentialDecision:
        tiny = (0.001, -0.001) * n
        stream = Stream(treatment="new", endpoint="e", differences=tiny[:n])
        return decide_sequential([stream], alpha=0.05, margin=0.01, seeds=n, max_seeds=None)

    first = next(n for n in range(1, 30) if of(n).decided)
    assert all(n + sequential.fewest_more(of(n)) <= first for n in range(1, first))
