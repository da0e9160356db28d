"""Why a report is exploratory: where the settings of its variants were chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from analysis.comparing.study import compare
from analysis.plan import AnalysisPlan
from tests.analysis.studies import study

FAIR: dict[str, Any] = {"split": "validation", "seeds": [100], "budget": {"a": 4, "b": 4}}


def reasons(search: dict[str, Any], endpoint: str = "test/spearman_64") -> tuple[str, ...]:
    scores = {"a": {endpoint: [0.80, 0.81, 0.79]}, "b": {endpoint: [0.81, 0.82, 0.80]}}
    plan = AnalysisPlan(primary=(endpoint,))
    rng = np.random.default_rng(0)
    return compare(
        study(scores, search=search), plan=plan, baseline=None, allow_unverified=False, rng=rng
    ).plan.exploratory


def test_a_fair_search_leaves_the_report_as_it_is() -> None:
    assert reasons(FAIR) == ()
    assert reasons(FAIR | {"budget": 4}) == ()


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"split": "test"}, "on the test split"),
        ({"split": "train"}, "on the train split"),
        ({"split": None}, "unknown split"),
        ({"seeds": []}, "seeds on which settings were chosen are unknown"),
        ({"seeds": [2, 100]}, "seeds 2 were also used"),
        ({"budget": None}, "budgets of the search are unknown"),
        ({"budget": {"a": 4, "b": 8}}, "budgets differ: a 4, b 8"),
    ],
)
def test_any_other_search_makes_it_exploratory(change: dict[str, Any], part: str) -> None:
    found = reasons(FAIR | change)
    assert len(found) == 1
    assert part in found[0]


def test_a_comparison_on_the_split_of_the_search_is_exploratory() -> None:
    found = reasons(FAIR, "validation/spearman_64")
    assert len(found) == 1
    assert "validation/spearman_64 is not on the test split" in found[0]
