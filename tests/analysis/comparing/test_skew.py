"""The skew warning: on top, what is tested is said, and it falls on wrong claims more often than on right ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from analysis.comparing.findings import StudyFindings
from analysis.comparing.study import compare
from tests.analysis.studies import study

E64 = "test/spearman_64"


def findings(d: np.ndarray) -> StudyFindings:
    base = 0.6 + 0.01 * np.random.default_rng(1).standard_normal(d.size)
    scores = {"a": {E64: base.tolist()}, "b": {E64: (base + d).tolist()}}
    return compare(study(scores), plan=None, baseline=None, allow_unverified=False, rng=np.random.default_rng(0))


def share_warned(draw: Callable[[np.random.Generator], np.ndarray], studies: int = 100) -> float:
    rng, warned, claims = np.random.default_rng(7), 0, 0
    for _ in range(studies):
        found = findings(0.003 * draw(rng))
        if found.comparisons[0].verdict in ("better_on_this_test_set", "worse_on_this_test_set"):
            claims += 1
            warned += found.skew_warning is not None
    return warned / claims


def test_warns_of_wrong_claims_more_often_than_of_right_ones() -> None:
    wrong = share_warned(lambda rng: np.exp(rng.standard_normal(8)) - np.exp(0.5), 400)
    right = share_warned(lambda rng: rng.standard_normal(8) + 1)
    along = share_warned(lambda rng: np.exp(rng.standard_normal(8)))
    assert wrong > 0.45
    assert right < 0.35
    assert along < 0.1


def test_stands_on_top_with_mean_median_and_wins() -> None:
    found = findings(np.array([-0.010, -0.0101, -0.0099, -0.0102, -0.0098, -0.001]))
    assert found.notices[-1].kind == "skew"
    assert found.notices[-1].text == found.skew_warning
    for part in ("exchangeable within a seed", "mean -0.0085", "median -0.0100", "6 of 6 seeds favour a"):
        assert part in str(found.skew_warning)


@pytest.mark.parametrize("d", [[-0.001, -0.001, -0.0012, -0.0009, 0.02, -0.001], [0.001] * 5 + [-0.02]])
def test_mean_and_median_that_disagree_are_shown_whatever_p(d: list[float]) -> None:
    assert findings(np.array(d)).skew_warning is not None
