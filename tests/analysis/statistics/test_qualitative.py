"""Settings that contradict each other: published critical values, rates by simulation, the verdict of a study."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.comparing.study import compare
from analysis.plan import AnalysisPlan
from analysis.report.report import Report
from analysis.statistics.qualitative import gail_simon, normal_scores
from tests.analysis.studies import study

E64 = "test/spearman_64"


@pytest.mark.parametrize(("settings", "critical"), [(2, 2.71), (3, 4.23), (4, 5.43), (5, 6.50), (6, 7.48)])
def test_critical_values_of_gail_and_simon_1985(settings: int, critical: float) -> None:
    far = [30.0] * (settings - 1)
    assert gail_simon([*far, -np.sqrt(critical)]).p_value == pytest.approx(0.05, abs=3e-4)


@pytest.mark.parametrize("truth", [(1.0, 0.0, 0.0), (0.0, 0.0, 0.0), (1.0, 1.0, 0.0)])
def test_errs_no_more_than_alpha_with_six_seeds(truth: tuple[float, ...]) -> None:
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(1500):
        d = [mean * 5 + rng.standard_normal(6) for mean in truth]
        wrong += gail_simon(normal_scores(d)).p_value <= 0.05
    assert wrong / 1500 <= 0.065


def test_no_two_signs_no_interaction() -> None:
    assert gail_simon([1.0, 2.0]).p_value == 1.0
    assert gail_simon([]).p_value == 1.0
    assert normal_scores([[0.1], [0.2, 0.2, 0.2]]).tolist() == [0.0, pytest.approx(1.1503, abs=1e-4)]


def settings_study(means: dict[str, float], **changes: object):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(1)
    scores = {}
    for name, mean in means.items():
        base = 0.7 + 0.01 * rng.standard_normal(8)
        wobble = np.clip(rng.standard_normal(8), -2, 2) * min(0.0005, abs(mean) / 4)
        scores[name] = {"a": {E64: base.tolist()}, "b": {E64: (base + mean + wobble).tolist()}}
    plan = AnalysisPlan(**changes)  # type: ignore[arg-type]
    return compare(
        study(scores, settings=True), plan=plan, baseline=None, allow_unverified=False, rng=np.random.default_rng(0)
    )


def test_opposite_settings_are_mixed_and_each_is_left_out_in_turn() -> None:
    found = settings_study({"x": 0.10, "y": 0.002, "z": -0.05})
    across = found.across_settings[0]
    assert across.verdict == "mixed"
    assert "2 of 3 settings favour b, 1 a; Gail and Simon p = " in found.headline
    assert across.endpoints[0].qualitative_p is not None
    text = Report(findings=found).render("markdown")
    assert "Without each setting in turn" in text
    assert "Gail and Simon's test" in text


def test_settings_of_one_direction_are_not_mixed() -> None:
    across = settings_study({"x": 0.10, "y": 0.002, "z": 0.05}).across_settings[0]
    assert across.verdict == "better_on_this_test_set"
    assert across.endpoints[0].qualitative_p == 1.0


def test_sequential_settings_are_opposed_by_their_own_e_values() -> None:
    found = settings_study({"x": 0.10, "z": -0.05}, stopping="sequential")
    assert found.across_settings[0].endpoints[0].qualitative_p is None
    assert found.across_settings[0].verdict != "mixed"
