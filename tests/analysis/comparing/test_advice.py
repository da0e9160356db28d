"""Advice that holds: examples where only examples help, for 80% power, for the comparison; equivalence over several."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from analysis.comparing.findings import StudyFindings
from analysis.comparing.study import compare
from analysis.plan import AnalysisPlan
from analysis.results.model import Results
from analysis.statistics.crossed import crossed
from tests.analysis.studies import predicted_study, study

E64 = "test/spearman_64"


def findings(results: Results, **plan: Any) -> StudyFindings:
    return compare(
        results, plan=AnalysisPlan(**plan), baseline=None, allow_unverified=False, rng=np.random.default_rng(0)
    )


def test_examples_for_80_percent_are_about_twice_those_of_a_coin_flip() -> None:
    rng = np.random.default_rng(3)
    noise = rng.standard_normal((1, 2000)) + 0.05 * rng.standard_normal((6, 2000))
    found = crossed(0.01 + 0.001 * rng.standard_normal(6), noise)
    assert found is not None
    coin, wanted = found.examples_needed(), found.examples_for(found.mean)
    assert coin is not None
    assert wanted is not None
    assert wanted / coin == pytest.approx(2.04, abs=0.01)
    # With so many examples and no seed noise, the interval excludes 0 in 80% of test sets.
    sd = np.sqrt(found.shared_example_variance * found.n_examples / wanted)
    means = found.mean + sd * rng.standard_normal(20_000)
    assert np.mean(means > 1.96 * sd) == pytest.approx(0.8, abs=0.02)


def test_only_examples_can_help_so_seeds_are_not_named() -> None:
    results = predicted_study(shifts=[0.02, -0.03, 0.03, -0.01, 0.02, -0.02], examples=60, seed=2)
    found = findings(results, margin=0.0005)
    text = found.comparisons[0].sentence
    assert "no number of seeds lifts it" in text
    assert "test examples in all are needed (80% power)" in text
    assert "seeds are needed" not in text


def test_equivalence_over_comparisons_shares_alpha() -> None:
    base = [0.8, 0.81, 0.79, 0.805, 0.8, 0.795]
    wobble = [1e-5, -2e-5, 3e-5, -1e-5, 2e-5, -3e-5]
    near = [x + y for x, y in zip(base, wobble, strict=True)]
    for count, expected in ((1, True), (3, True), (4, False)):
        scores = {"a": {E64: base}} | {f"b{i}": {E64: near} for i in range(count)}
        e = findings(study(scores), margin=0.01).comparisons[0].endpoints[0]
        assert e.equivalence is not None
        assert e.equivalence.equivalent is expected


def test_a_sequential_report_says_what_does_not_hold_at_a_stop() -> None:
    base = [0.8, 0.81, 0.79, 0.805, 0.8, 0.795]
    results = study({"a": {E64: base}, "b": {E64: [x + 0.001 * i for i, x in enumerate(base)]}})
    texts = [n.text for n in findings(results, margin=0.01, stopping="sequential").notices]
    assert any("miss the truth more often" in t for t in texts)
    assert any("about the median" in t for t in texts)
    assert not any(t.startswith("Sequential") for t in (n.text for n in findings(results).notices))


def test_advice_follows_a_primary_that_seeds_can_still_decide() -> None:
    results = predicted_study(shifts=[0.3, 0.32, 0.31, 0.29, 0.33, 0.3], examples=60, dims=(32, 64))
    primary = ("test/spearman_32", "test/spearman_64")
    blocked = findings(results, primary=primary)
    rows = [e.crossed for e in blocked.comparisons[0].endpoints if e.primary]
    assert blocked.comparisons[0].advice is not None
    all_blocked = all(c is not None and c.blocked_by_examples for c in rows)
    assert blocked.comparisons[0].advice.sentence.startswith("More seeds cannot") is all_blocked
    bare = dataclasses.replace(results, predictions=lambda cell, split: None)
    assert "untied seeds are the fewest" in findings(bare, primary=primary).comparisons[0].advice.sentence  # type: ignore[union-attr]
