"""Recorded studies to findings: each number of a report against a hand-worked or library value."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from scipy import stats

from analysis.comparing.findings import StudyFindings
from analysis.comparing.study import compare
from analysis.errors import PlanError
from analysis.plan import AnalysisPlan
from analysis.results.model import HistoryEntry, Results
from tests.analysis.studies import FINGERPRINT, predicted_study, study

BASE = [0.80, 0.81, 0.79, 0.805, 0.80, 0.795]
D = [0.0035, 0.0031, 0.004, 0.0029, 0.0036, 0.003]
E64 = "test/spearman_64"


def findings(results: Results, **changes: Any) -> StudyFindings:
    options: dict[str, Any] = {"plan": None, "baseline": None, "allow_unverified": False}
    return compare(results, **(options | changes), rng=np.random.default_rng(0))


def two(d: list[float], base: list[float] = BASE, **changes: Any) -> Results:
    scores = {"a": {E64: base[: len(d)]}, "b": {E64: [x + y for x, y in zip(base, d, strict=False)]}}
    return study(scores, **changes)


def test_every_number_of_an_endpoint() -> None:
    f = findings(two(D), plan=AnalysisPlan(margin=0.001))
    e = f.comparisons[0].endpoints[0]
    t = stats.ttest_1samp(D, 0)
    assert (e.n_pairs, e.wins, e.losses, e.ties) == (6, 6, 0, 0)
    assert (e.sign_test_p, e.p_floor, e.sign_flip_p, e.adjusted_p, e.wilcoxon_p) == (0.03125,) * 5
    assert e.mean_difference == pytest.approx(np.mean(D))
    assert e.t_p == pytest.approx(t.pvalue)
    assert e.t_ci95 == pytest.approx(tuple(t.confidence_interval()))
    assert e.hodges_lehmann == pytest.approx(np.median([(D[i] + D[j]) / 2 for i in range(6) for j in range(i, 6)]))
    assert e.dz == pytest.approx(np.mean(D) / np.std(D, ddof=1))
    assert e.gz == pytest.approx(e.dz * 0.8408, rel=1e-3)
    assert e.prob_improvement == 1.0
    assert e.exact_interval == pytest.approx((min(D), max(D)))
    assert e.welch_p == pytest.approx(stats.ttest_ind(np.add(BASE, D), BASE, equal_var=False).pvalue)
    assert e.equivalence is not None
    assert e.equivalence.exact_p == 1.0
    assert e.equivalence.tost_p == pytest.approx(stats.ttest_1samp(D, 0.001, alternative="less").pvalue)
    assert f.comparisons[0].verdict == "better_on_this_test_set"
    assert f.comparisons[0].seed_correlation == pytest.approx(np.corrcoef(np.add(BASE, D), BASE)[0, 1])
    json.dumps(dataclasses.asdict(f), allow_nan=False)


def test_five_of_five_is_underpowered_and_says_what_is_needed() -> None:
    f = findings(two(D[:5], fingerprinted=False))
    assert f.comparisons[0].verdict == "undecided_underpowered"
    for part in ("5 of 5", "0.0625", "6 seeds"):
        assert part in f.headline
    assert f.notices[0].kind == "unverified"
    assert f.comparisons[0].advice is not None
    assert f.comparisons[0].advice.seeds_for_win_rate == {"0.95": 9, "0.9": 12, "0.8": 20, "0.7": 49}


def test_swapping_the_variants_mirrors_everything() -> None:
    there, back = (findings(two(D), baseline=v).comparisons[0] for v in ("a", "b"))
    assert back.verdict == "worse_on_this_test_set"
    e, m = there.endpoints[0], back.endpoints[0]
    assert m.mean_difference == pytest.approx(-(e.mean_difference or 0))
    assert (m.wins, m.losses, m.sign_flip_p, m.wilcoxon_p) == (e.losses, e.wins, e.sign_flip_p, e.wilcoxon_p)


def test_predictions_give_better_and_its_components() -> None:
    f = findings(predicted_study(shifts=[0.3, 0.32, 0.28, 0.31, 0.3, 0.35, 0.33, 0.29]))
    c = f.comparisons[0].endpoints[0].crossed
    assert f.comparisons[0].verdict == "better"
    assert c is not None
    assert c.ci95 is not None
    assert c.ci95[0] > 0
    e = f.comparisons[0].endpoints[0]
    assert c.seed_variance_of_mean == pytest.approx((e.sd_difference or 0) ** 2 / 8)
    assert c.total_variance == pytest.approx(c.seed_variance_of_mean + c.shared_example_variance)
    assert c.ci95_joint == c.ci95


def test_one_seed_shows_what_examples_alone_explain() -> None:
    f = findings(predicted_study(shifts=[0.3]))
    one = f.comparisons[0].endpoints[0].one_pair
    assert f.comparisons[0].verdict == "cannot_decide"
    assert one is not None
    assert one.zou_ci95 is not None
    assert one.zou_ci95[0] < one.correlation_treatment - one.correlation_baseline < one.zou_ci95[1]
    assert one.williams_p == pytest.approx(one.steiger_p, rel=3)
    assert one.jackknife_se is not None
    assert "Zou" in f.headline


def test_mismatched_fingerprints_are_dropped_by_name_and_usable_only_on_request() -> None:
    def prints(variant: str, seed: int) -> dict[str, str]:
        return FINGERPRINT | ({"data": "other"} if (variant, seed) == ("b", 2) else {})

    c = findings(two(D, fingerprint=prints)).comparisons[0]
    assert [(d.seed, "data" in d.reason) for d in c.dropped] == [(2, True)]
    assert c.endpoints[0].n_pairs == 5
    f = findings(two(D, fingerprint=prints), allow_unverified=True)
    assert f.comparisons[0].endpoints[0].n_pairs == 6
    assert any(n.kind == "unverified" for n in f.notices)


def test_a_declared_data_change_may_change_the_data_digest() -> None:
    def prints(variant: str, seed: int) -> dict[str, str]:
        return FINGERPRINT | {"data": variant, "example_order": variant}

    results = two(
        D,
        fingerprint=prints,
        fields=lambda v, s, _: {"seed": s, "data.name": v},
        variant_fields=("data.name",),
    )
    c = findings(results).comparisons[0]
    assert c.endpoints[0].n_pairs == 6
    assert [(x.field, x.treatment) for x in c.declared_differences] == [("data.name", "b")]


@pytest.mark.parametrize(
    ("declared", "shared", "pairs"),
    [
        ("batch_size", {}, 0),
        ("batch_size", {"max_steps": -1}, 0),
        ("batch_size", {"max_steps": 40}, 6),
        ("batch_size", {"batch_sampler": "no_duplicates"}, 6),
        ("batch_size", {"batch_sampler": "group_by_label"}, 6),
        ("batch_size", {"dataloader_drop_last": True}, 6),
        ("gradient_accumulation_steps", {}, 0),
        ("gradient_accumulation_steps", {"max_steps": 40}, 6),
        ("gradient_accumulation_steps", {"dataloader_drop_last": True}, 0),
        ("learning_rate", {"max_steps": 40}, 0),
    ],
)
def test_a_batch_frees_the_order_only_where_the_order_hangs_on_it(
    declared: str, shared: dict[str, Any], pairs: int
) -> None:
    results = two(
        D,
        fingerprint=lambda v, s: FINGERPRINT | {"example_order": v},
        fields=lambda v, s, _: {"seed": s, **shared, declared: {"a": 8, "b": 16}[v]},
        variant_fields=(declared,),
    )
    c = findings(results).comparisons[0]
    assert c.endpoints[0].n_pairs == pairs
    assert all("example_order" in x.reason for x in c.dropped)
    assert len(c.dropped) == 6 - pairs


@pytest.mark.parametrize(("declared", "pairs"), [("options.deterministic", 6), ("options.length_aware", 0)])
def test_only_its_own_option_frees_the_deterministic_key(declared: str, pairs: int) -> None:
    results = two(
        D,
        fingerprint=lambda v, s: FINGERPRINT | {"deterministic": v},
        fields=lambda v, s, _: {"seed": s, declared: v == "b"},
        variant_fields=(declared,),
    )
    assert findings(results).comparisons[0].endpoints[0].n_pairs == pairs


def test_a_seed_that_failed_by_itself_is_a_loss_and_blocks_better() -> None:
    d = [*D, 0.004, 0.003, 0.0033]
    results = two(d, [*BASE, 0.8, 0.81, 0.82], failed={("b", 8): "collapsed model"})
    f = findings(results)
    e = f.comparisons[0].endpoints[0]
    assert (e.n_pairs, e.wins, e.losses) == (8, 8, 1)
    assert e.sign_flip_p == 2 / 256
    assert f.comparisons[0].verdict == "undecided"
    assert f.headline.startswith("b failed by itself on seed 8")
    assert f.comparisons[0].dropped[0].loss_for == "b"


def test_nan_missing_and_conflicting_scores() -> None:
    f = findings(two([*D[:5], float("nan")]))
    assert f.comparisons[0].endpoints[0].n_pairs == 5
    assert [d.seed for d in f.comparisons[0].dropped] == [5]
    same = [("b-s0-default", "b", 0, "default", "test/spearman", 64, BASE[0] + D[0])]
    assert findings(two(D, extra_rows=same)).comparisons[0].endpoints[0].n_pairs == 6
    other = [("b-s0-default", "b", 0, "default", "test/spearman", 64, 0.5)]
    c = findings(two(D, extra_rows=other)).comparisons[0]
    assert (c.verdict, c.endpoints[0].n_pairs) == ("cannot_decide", 0)
    assert "two different scores" in c.sentence


def test_all_zero_differences_suspect_one_checkpoint() -> None:
    c = findings(two([0.0] * 6)).comparisons[0]
    assert c.verdict == "cannot_decide"
    assert "checkpoint" in c.sentence


def test_settings_are_pooled_over_distinct_seeds() -> None:
    scores = {
        s: {"a": {E64: BASE[:5]}, "b": {E64: [x + k * y for x, y in zip(BASE, D[:5], strict=False)]}}
        for s, k in (("s1", 1), ("s2", 2))
    }
    f = findings(study(scores, settings=True))
    a = f.across_settings[0]
    e = a.endpoints[0]
    assert (a.verdict, e.pooled_sign_flip_p, e.p_floor, e.wins) == ("undecided_underpowered", 0.0625, 0.0625, 5)
    assert e.mean_difference == pytest.approx(1.5 * np.mean(D[:5]))
    assert e.settings_sign_p == 0.5
    assert e.without["s1"] == pytest.approx(2 * np.mean(D[:5]))
    assert e.settings_t_p == pytest.approx(stats.ttest_1samp([np.mean(D[:5]), 2 * np.mean(D[:5])], 0).pvalue)
    assert e.heterogeneity_f is not None
    assert e.meta is not None
    assert e.meta.q is not None
    assert e.meta.q > 1
    assert all(c.descriptive for c in f.comparisons)
    assert (e.simpson, e.direction_depends_on_one_setting) == (False, False)


def test_two_labels_of_one_setting_are_one_setting() -> None:
    scores = {s: {"a": {E64: [BASE[i]]}, "b": {E64: [BASE[i] + D[i]]}} for i, s in enumerate(("default", "lr=1e-05"))}
    results = study(scores, settings=True, fields=lambda v, s, _: {"seed": s, "loss.layout": v, "learning_rate": 1e-5})
    cells = tuple(dataclasses.replace(c, seed=i // 2) for i, c in enumerate(results.cells))
    f = findings(dataclasses.replace(results, cells=cells))
    assert f.settings == ("lr=1e-05",)
    assert f.comparisons[0].endpoints[0].n_pairs == 2


def test_several_treatments_multiply_p_and_floor() -> None:
    scores = {"a": {E64: BASE}, "b": {E64: list(np.add(BASE, D))}, "c": {E64: list(np.add(BASE, np.array(D) * 2))}}
    f = findings(study(scores), all_pairs=True)
    assert [c.endpoints[0].adjusted_p for c in f.comparisons] == [0.0625, 0.0625]
    assert {c.verdict for c in f.comparisons} == {"undecided_underpowered"}
    many = f.many_variants[0]
    assert many.friedman_p == pytest.approx(1 / 6**5)
    assert many.friedman_chi2 == pytest.approx(stats.friedmanchisquare(*(scores[v][E64] for v in "abc")).statistic)
    assert [p.holm_p for p in many.pairs] == pytest.approx([0.09375] * 3)


def test_sequential_uses_e_values_and_hides_fixed_p() -> None:
    base = [*BASE, 0.8]
    f = findings(two([*D, 0.004], base), plan=AnalysisPlan(stopping="sequential", margin=0.0001))
    e = f.comparisons[0].endpoints[0]
    assert e.e_value == pytest.approx(26.8125)
    assert (e.e_threshold, e.e_closed) == (20.0, e.e_value)
    assert (e.sign_test_p, e.sign_flip_p, e.adjusted_p, e.t_p, e.wilcoxon_p) == (None,) * 5
    assert e.win_rate_interval == pytest.approx((0.5213828761341973, 1.0))
    assert f.comparisons[0].verdict == "better_on_this_test_set"
    six = findings(two(D), plan=AnalysisPlan(stopping="sequential")).comparisons[0]
    assert six.verdict == "undecided_underpowered"
    assert six.advice is not None
    assert six.advice.sequential_seeds_to_go == 1


def test_changed_plan_is_exploratory_and_prints_what_was_declared() -> None:
    declared = AnalysisPlan(primary=(E64,), margin=0.002)
    results = two(D, declared_plan=declared, declared_baseline="a")
    assert findings(results).plan.exploratory == ()
    f = findings(results, plan=AnalysisPlan(primary=(E64,), margin=0.01), baseline="b")
    assert [("0.002" in r, "baseline" in r) for r in f.plan.exploratory] == [(True, False), (False, True)]
    assert f.plan.declared is not None
    assert f.plan.declared["margin"] == 0.002


@pytest.mark.parametrize(("reached", "count"), [(True, 1), (False, 0)])
def test_seeds_added_after_looking_make_a_fixed_study_exploratory(reached: bool, count: int) -> None:
    history = [
        HistoryEntry(kind="seeds", time="1", detail={"seeds": [0, 1, 2]}),
        HistoryEntry(kind="report", time="2", detail={"could_reach_alpha": reached}),
        HistoryEntry(kind="seeds", time="3", detail={"seeds": [0, 1, 2, 3]}),
    ]
    assert len(findings(two(D, history=history)).plan.exploratory) == count


def test_reused_tuning_seeds_are_exploratory_with_the_winners_bias() -> None:
    fair = {"split": "validation", "seeds": [100], "budget": {"a": 4, "b": 4}}
    assert findings(two(D, search=fair)).plan.exploratory == ()
    reasons = findings(two(D, search=fair | {"seeds": [5, 100]})).plan.exploratory
    assert len(reasons) == 1
    assert "1.03 SD" in reasons[0]


def test_unknown_primary_and_baseline() -> None:
    with pytest.raises(PlanError, match="test/spearman_999"):
        findings(two(D), plan=AnalysisPlan(primary=("test/spearman_999",)))
    with pytest.raises(PlanError, match="nobody"):
        findings(two(D), baseline="nobody")


def test_one_variant_and_no_cells() -> None:
    assert findings(study({"a": {E64: BASE}})).comparisons == ()
    f = findings(two(D, failed={(v, s): "x" for v in "ab" for s in range(6)}))
    assert f.comparisons[0].verdict == "cannot_decide"
