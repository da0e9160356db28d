"""One treatment over several settings: seeds that fail in some, unbalanced settings, scores before pairing."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from analysis import schema
from analysis.comparing.findings import AcrossEndpoint, AcrossSettings, StudyFindings
from analysis.comparing.pairing import index
from analysis.comparing.stopping import StoppingRule, stopping_point
from analysis.comparing.study import compare
from analysis.plan import AnalysisPlan
from analysis.report.report import Report
from analysis.results.model import Results
from analysis.statistics.across_settings import seed_weights, simpson
from analysis.statistics.equivalence import effect_at_margin
from tests.analysis.studies import study

E64 = "test/spearman_64"
SEEDS = 9


def findings(results: Results, plan: AnalysisPlan | None = None) -> StudyFindings:
    return compare(results, plan=plan, baseline="a", allow_unverified=False, rng=np.random.default_rng(0))


def across(results: Results, plan: AnalysisPlan | None = None) -> tuple[AcrossSettings, AcrossEndpoint]:
    found = findings(results, plan).across_settings[0]
    return found, found.endpoints[0]


def recorded(scores: Mapping[str, Mapping[str, Sequence[float]]]) -> Results:
    """Setting -> variant -> one score per seed."""
    return study({s: {v: {E64: x} for v, x in own.items()} for s, own in scores.items()}, settings=True)


def up(*failed: tuple[str, str, int]) -> Results:
    """Two settings in which the treatment leads on nine seeds; `failed`: (variant, setting, seed), by themselves."""
    own = {"a": [0.8] * SEEDS, "b": [0.803 + 0.0001 * i for i in range(SEEDS)]}
    results = recorded({"s1": own, "s2": own})
    changes = {"state": schema.STATE_FAILED, "failure": "collapsed", "failure_kind": schema.FAILURE_CELL}
    cells = tuple(
        dataclasses.replace(c, **changes) if (c.variant, c.setting, c.seed) in failed else c  # type: ignore[arg-type]
        for c in results.cells
    )
    gone = {c.cell for c in cells if c.state == schema.STATE_FAILED}
    table = results.table[~results.table[schema.COLUMN_CELL].isin(gone)]
    return dataclasses.replace(results, cells=cells, table=table)


@pytest.mark.parametrize(
    ("failed", "counts"),
    [
        ([("b", "s2", 2)], (8, 1)),
        ([("a", "s2", 2)], (9, 0)),
        ([("b", "s2", 2), ("b", "s1", 2), ("b", "s1", 4)], (7, 2)),
    ],
)
@pytest.mark.parametrize("stopping", ["fixed", "sequential"])
def test_a_failure_in_one_setting_is_a_loss_of_that_seed(
    failed: Collection[tuple[str, str, int]], counts: tuple[int, int], stopping: Any
) -> None:
    results = up(*failed)
    _, e = across(results, AnalysisPlan(stopping=stopping, alpha=0.001))
    assert (e.wins, e.losses) == counts
    rule = StoppingRule(primary=(E64,), alpha=0.001, margin=None, max_seeds=None, baseline="a")
    point = stopping_point(index(results), rule=rule, treatments=["b"], leading=range(SEEDS), fingerprinted=True)
    state = point.decision.states[0]
    assert (state.wins, state.losses) == counts


def test_a_sequential_study_uses_seeds_complete_over_its_settings() -> None:
    nan = float("nan")
    results = recorded({"s1": {"a": [0.8] * 4, "b": [0.81] * 4}, "s2": {"a": [0.7] * 4, "b": [0.71, 0.71, 0.71, nan]}})
    assert across(results)[1].n_distinct_seeds == 4
    assert across(results, AnalysisPlan(stopping="sequential"))[1].n_distinct_seeds == 3


def test_equivalence_shifts_each_seed_by_its_weight() -> None:
    """Against enumeration by hand: a seed of one setting only stands for another share of the margin."""
    nan = float("nan")
    one = [0.0003, -0.0002, 0.0001, 0.0015, 0.0015, 0.0015, 0.0014]
    two = [-0.0003, 0.0002, -0.0001]
    results = recorded(
        {
            "s1": {"a": [0.8] * 7, "b": [0.8 + x for x in one]},
            "s2": {"a": [0.8] * 7, "b": [*(0.8 + x for x in two), *[nan] * 4]},
        }
    )
    found, e = across(results, AnalysisPlan(margin=0.001))
    room = [7 * ((0.001 - x) / 7 + ((0.001 - two[i]) / 3 if i < 3 else 0)) / 2 for i, x in enumerate(one)]
    sums = np.array(list(product((1, -1), repeat=7))) @ room
    assert e.equivalence is not None
    assert e.equivalence.exact_p == (sums >= sum(room) - 1e-12).mean() == 0.125
    assert not e.equivalence.equivalent
    assert found.verdict != "equivalent_on_this_test_set"


def test_balanced_settings_leave_every_weight_at_one() -> None:
    assert seed_weights([{0: 0.1, 1: 0.2}, {0: 0.3, 1: 0.1}]) == (1.0, 1.0)
    weights = seed_weights([{0: 0.1, 1: 0.2, 2: 0.3}, {0: 0.3}])
    assert np.mean(weights) == pytest.approx(1)
    assert weights == pytest.approx((3 * (1 / 3 + 1) / 2, 0.5, 0.5))
    d = [0.0004, -0.0003, 0.0002, 0.0001]
    assert effect_at_margin(d, margin=0.001) == pytest.approx(0.001 / np.std(d, ddof=1))


def test_the_simpson_flag_looks_at_scores_before_pairing() -> None:
    nan = float("nan")
    a = {"s1": [0.9] * 8, "s2": [0.7] * 2 + [nan] * 6}
    b = {"s1": [0.91] * 2 + [nan] * 6, "s2": [0.71] * 8}
    _, e = across(recorded({s: {"a": a[s], "b": b[s]} for s in a}))
    assert [row.n_pairs for row in e.rows] == [2, 2]
    assert e.pooled_unpaired_difference == pytest.approx(-0.11)
    assert e.simpson


def test_a_setting_of_one_variant_is_not_pooled() -> None:
    found = simpson([[0.9, 0.9], [0.1]], [[0.91, 0.91], []])
    assert found.pooled == pytest.approx(0.01)
    assert (found.within[1], found.reversal) == (None, False)


def test_the_floor_counts_the_comparisons_in_play() -> None:
    own = {"a": [0.8] * 5, "b": [0.81] * 5, "c": [0.82] * 5}
    found = findings(recorded({"s1": own, "s2": own}))
    for one in found.across_settings:
        e = one.endpoints[0]
        assert (e.pooled_sign_flip_p, e.p_floor, e.adjusted_p, e.adjusted_floor) == (0.0625, 0.0625, 0.125, 0.125)
    assert not Report(findings=found).note_detail()["could_reach_alpha"]
