"""Where a sequential study stops: against the e-value's own arithmetic, and the same whatever was recorded beyond."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from analysis.comparing.pairing import index
from analysis.comparing.stopping import StoppingPoint, StoppingRule, leading_seeds, stopping_point, until_stopped
from analysis.comparing.study import compare
from analysis.plan import AnalysisPlan
from analysis.results.model import Results
from analysis.statistics.sequential import Stream, decide_sequential
from tests.analysis.studies import study

ENDPOINT = "test/spearman_64"


def results(signs: Sequence[float], *, failed: dict[tuple[str, int], str] | None = None) -> Results:
    """Differences of the given sizes, in hundredths, over seeds 0, 1, ..."""
    base = [0.6 + 0.001 * position for position in range(len(signs))]
    new = [score + 0.01 * sign for score, sign in zip(base, signs, strict=True)]
    return study({"base": {ENDPOINT: base}, "new": {ENDPOINT: new}}, failed=failed)


def rule(*, margin: float | None = None, max_seeds: int | None = 30) -> StoppingRule:
    return StoppingRule(primary=(ENDPOINT,), alpha=0.05, margin=margin, max_seeds=max_seeds, baseline="base")


def point(recorded: Results, how: StoppingRule | None = None) -> StoppingPoint:
    seeds = sorted({cell.seed for cell in recorded.cells})
    return stopping_point(
        index(recorded), rule=how or rule(), treatments=["new"], leading=seeds, fingerprinted=recorded.fingerprinted
    )


def test_all_agree_stops_at_seven() -> None:
    assert not point(results([1] * 6)).decision.stop
    stopped = point(results([1] * 7))
    assert (stopped.decision.stop, stopped.decision.decided, stopped.seeds) == (True, True, tuple(range(7)))
    assert stopped.decision.states[0].decided == "better"
    assert point(results([-1] * 7)).decision.states[0].decided == "worse"


def test_seeds_beyond_the_decision_change_nothing() -> None:
    """Against itself: losses recorded in the same wave would take E back below its threshold, but come too late."""
    alone, crowded = point(results([1] * 7)), point(results([1] * 7 + [-1] * 4))
    assert crowded.seeds == alone.seeds
    assert crowded.decision == alone.decision
    assert crowded.beyond == (7, 8, 9, 10)


def test_the_report_uses_what_the_decision_used() -> None:
    declared = AnalysisPlan(primary=(ENDPOINT,), stopping="sequential", max_seeds=30)
    alone, crowded = (
        compare(one, plan=declared, baseline="base", allow_unverified=False, rng=np.random.default_rng(0))
        for one in (results([1] * 7), results([1] * 7 + [-1] * 4))
    )
    assert crowded.comparisons == alone.comparisons
    assert crowded.comparisons[0].verdict == "better_on_this_test_set"
    assert [(one.where, one.reason) for one in crowded.problems] == [
        ("seed 7, 8, 9, 10", "not used: recorded beyond the 7 seeds after which the study stopped")
    ]


def test_a_fixed_study_keeps_all_of_its_seeds() -> None:
    declared = AnalysisPlan(primary=(ENDPOINT,))
    found = compare(
        results([1] * 11), plan=declared, baseline="base", allow_unverified=False, rng=np.random.default_rng(0)
    )
    assert found.comparisons[0].endpoints[0].n_pairs == 11


def test_undecided_results_are_left_whole() -> None:
    recorded = results([1, -1] * 5)
    assert until_stopped(recorded, rule(), allow_unverified=False) is recorded


def test_the_limit_stops_undecided() -> None:
    stopped = point(results([1, -1] * 5), rule(max_seeds=8))
    assert (stopped.decision.stop, stopped.decision.decided, len(stopped.seeds)) == (True, False, 8)
    assert "limit of 8 seeds" in stopped.decision.why


def test_equivalence_stops_early_by_e_values() -> None:
    """Differences of a tenth of the margin: both one-sided e-values double with every seed that lies inside."""
    stopped = point(results([0.1, -0.1] * 6), rule(margin=0.01))
    assert stopped.decision.states[0].decided == "equivalent"
    assert len(stopped.seeds) < 12
    assert not point(results([0.1, -0.1] * 6), rule()).decision.stop


def test_differences_that_are_all_zero_stop_the_study() -> None:
    stopped = point(results([0] * 9))
    assert (stopped.decision.stop, stopped.decision.decided, len(stopped.seeds)) == (True, False, 5)
    assert "evaluated twice" in stopped.decision.why


def test_a_seed_that_only_one_variant_failed_is_its_loss() -> None:
    failed = {("base", 6): "NonFiniteLoss"}
    assert point(results([1] * 7, failed=failed)).decision.states[0].wins == 7
    both = {("base", 6): "NonFiniteLoss", ("new", 6): "NonFiniteLoss"}
    assert point(results([1] * 7, failed=both)).decision.states[0].wins == 6


@pytest.mark.parametrize(("waiting", "leading"), [((), (1, 2, 5, 9)), ((5,), (1, 2)), ((1,), ()), ((9, 2), (1,))])
def test_leading_seeds_are_ascending_and_end_before_a_gap(waiting: tuple[int, ...], leading: tuple[int, ...]) -> None:
    assert leading_seeds([5, 1, 9, 2], waiting) == leading


def clashing(seed: int) -> Results:
    """Eight seeds that all agree; the treatment has two different scores on one of them."""
    one = results([1] * 8)
    row = (f"new-s{seed}-default", "new", seed, "default", "test/spearman", 64, 0.1)
    table = pd.concat([one.table, pd.DataFrame([row], columns=one.table.columns)], ignore_index=True)
    return dataclasses.replace(one, table=table)


def test_a_conflict_refuses_the_treatment_and_says_so() -> None:
    found = point(clashing(3))
    assert (found.decision.stop, found.decision.decided, found.seeds) == (True, False, (0, 1, 2, 3))
    assert "new is refused" in found.decision.why
    assert "two different scores" in found.decision.why
    assert found.decision.states[0].decided is None
    declared = AnalysisPlan(primary=(ENDPOINT,), stopping="sequential")
    report = compare(clashing(3), plan=declared, baseline="base", allow_unverified=False, rng=np.random.default_rng(0))
    assert report.comparisons[0].verdict == "cannot_decide"


def test_a_conflict_beyond_the_decision_changes_nothing() -> None:
    assert point(clashing(7)).decision == point(results([1] * 7)).decision


def test_a_refused_treatment_leaves_the_others_to_be_decided() -> None:
    streams = [
        Stream(treatment="b", endpoint="e", differences=()),
        Stream(treatment="c", endpoint="e", differences=(0.1,) * 9),
    ]
    found = decide_sequential(
        streams, alpha=0.05, margin=None, seeds=9, max_seeds=None, refused={"b": "two different scores"}
    )
    assert (found.stop, found.decided) == (True, True)
    assert "c is better" in found.why
    assert found.why.endswith("b is refused (two different scores)")
