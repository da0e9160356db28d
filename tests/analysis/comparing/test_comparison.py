"""One comparison: what failed seeds, several treatments and several primaries do to floors, advice and sentences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from analysis.comparing.findings import StudyFindings
from analysis.comparing.study import compare
from analysis.plan import AnalysisPlan
from analysis.results.model import Results
from analysis.statistics.power import WIN_RATES, seeds_needed, seeds_needed_t
from tests.analysis.studies import predicted_study, study

E64 = "test/spearman_64"
BASE = [0.80, 0.81, 0.79, 0.805, 0.80, 0.795, 0.8, 0.802]
D = [0.0035, 0.0031, 0.004, 0.0029, 0.0036, 0.003, 0.0033, 0.0037]


def findings(results: Results, plan: AnalysisPlan | None = None, **changes: Any) -> StudyFindings:
    options: dict[str, Any] = {"baseline": "a", "allow_unverified": False} | changes
    return compare(results, plan=plan, rng=np.random.default_rng(0), **options)


def several(count: int, *treatments: str, **changes: Any) -> Results:
    scores = {"a": {E64: BASE[:count]}}
    for position, name in enumerate(treatments, 1):
        scores[name] = {E64: [x + position * y for x, y in zip(BASE[:count], D, strict=False)]}
    return study(scores, **changes)


@pytest.mark.parametrize("variant", ["a", "b"])
def test_a_failed_seed_does_not_lower_the_floor_of_the_joint_test(variant: str) -> None:
    f = findings(several(6, "b", failed={(variant, 5): "collapsed"}))
    e = f.comparisons[0].endpoints[0]
    assert (e.n_pairs, e.sign_flip_p, e.adjusted_floor) == (5, 0.0625, 0.0625)
    assert e.p_floor == 2**-5  # the sign test has six seeds
    assert f.comparisons[0].verdict == "undecided_underpowered"
    assert "smallest attainable p is 0.0625" in f.comparisons[0].sentence


def test_advice_counts_the_comparisons_in_play() -> None:
    f = findings(several(6, "b", "c"), AnalysisPlan(margin=0.001))
    for c in f.comparisons:
        assert c.advice is not None
        assert c.advice.seeds_to_reach_alpha == 7  # 2 x 2^-6 = 1/32
        assert c.advice.seeds_for_win_rate == {f"{p:g}": seeds_needed(p, alpha=0.025).first for p in WIN_RATES}
        sd = c.endpoints[0].sd_difference
        assert sd is not None
        assert c.advice.seeds_at_margin == seeds_needed_t(0.001 / sd, alpha=0.025)


def test_a_sequential_study_shows_no_fixed_p_of_all_pairs_nor_of_one_pair() -> None:
    sequential = AnalysisPlan(stopping="sequential")
    many = findings(several(6, "b", "c"), sequential, all_pairs=True).many_variants[0]
    assert [(p.sign_flip_p, p.holm_p) for p in many.pairs] == [(None, None)] * 3
    one, fixed = (
        findings(predicted_study(shifts=[0.3]), plan, baseline="base").comparisons[0].endpoints[0].one_pair
        for plan in (sequential, AnalysisPlan())
    )
    assert one is not None
    assert fixed is not None
    assert (one.steiger_p, one.williams_p, one.zou_ci95) == (None, None, fixed.zou_ci95)
    assert fixed.steiger_p is not None


@pytest.mark.parametrize("dims", [(64,), (32, 64, 128, 256)])
def test_the_interval_of_the_sentence_is_labelled_as_what_it_is(dims: tuple[int, ...]) -> None:
    results = predicted_study(shifts=[0.03 + 0.001 * i for i in range(8)], dims=dims, examples=200)
    plan = AnalysisPlan(primary=tuple(f"test/spearman_{d}" for d in dims))
    e = findings(results, plan, baseline="base").comparisons[0].endpoints[0]
    assert e.crossed is not None
    assert e.crossed.ci95_joint is not None
    low, high = e.crossed.ci95_joint
    kind = "95% interval over seeds and test examples"
    if len(dims) == 4:
        kind = "interval over seeds and test examples, 95% jointly over 4 endpoints,"
    assert f"; {kind} {low:+.4f} to {high:+.4f})" in e.sentence


def test_a_score_that_is_nan_for_both_variants_is_listed() -> None:
    nan = float("nan")
    f = findings(study({"a": {E64: [nan, 0.8]}, "b": {E64: [nan, 0.81]}}))
    assert [(d.seed, d.reason) for d in f.comparisons[0].dropped] == [
        (0, f"the score {E64} of b and a is missing or NaN")
    ]
    nothing = findings(study({"a": {E64: [nan, nan]}, "b": {E64: [nan, nan]}})).comparisons[0]
    assert [d.seed for d in nothing.dropped] == [0, 1]
