"""Planning the whole verdict: never under the floor, and equal to the real rules on simulated studies to 2 points."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.comparing.verdict import decide
from analysis.power_report import PowerQuestion, answer
from analysis.statistics.crossed import crossed
from analysis.statistics.power import VerdictPlan, power_verdict, seeds_needed_verdict


def test_never_under_the_floor() -> None:
    rows = answer(PowerQuestion(effect=0.002, sd=0.001)).rows
    assert all(row.seeds is not None and row.seeds >= 6 for row in rows)
    assert all(row.power_at[5] == 0 for row in rows)
    assert rows[0].test == "verdict"
    three = answer(PowerQuestion(effect=0.01, sd=0.001, comparisons=3)).rows
    assert all(row.seeds == 7 or row.test == "sign" for row in three)


def test_power_that_the_audit_measured() -> None:
    assert power_verdict(VerdictPlan(effect=1.5, sd=1.0), 6) == pytest.approx(0.65, abs=0.02)


@pytest.mark.parametrize(("effect", "shared", "n"), [(1.0, 0.3, 10), (1.5, 0.0, 7), (1.2, 0.4, 8)])
def test_equals_the_real_rules_on_simulated_studies(effect: float, shared: float, n: int) -> None:
    rng, wins, studies, examples = np.random.default_rng(8), 0, 1500, 300
    for _ in range(studies):
        noise = rng.standard_normal(examples) * np.sqrt(examples) * shared
        d = effect + noise.mean() + rng.standard_normal(n)
        found = crossed(d, np.tile(noise - noise.mean(), (n, 1)) + 1e-6 * rng.standard_normal((n, examples)))
        assert found is not None
        wins += decide(d[:, None], crossed_ci95=[found.interval()]) == "better"
    # Two standard errors of these 1,500 studies beside the 2 points.
    room = 0.02 + 2 * np.sqrt(0.25 / studies)
    assert wins / studies == pytest.approx(
        power_verdict(VerdictPlan(effect=effect, sd=1.0, shared_sd=shared), n), abs=room
    )


def test_where_examples_alone_can_help_no_number_of_seeds_is_named() -> None:
    assert seeds_needed_verdict(VerdictPlan(effect=1.0, sd=0.5, shared_sd=0.6)) is None
    found = answer(PowerQuestion(effect=1.0, sd=0.5, shared_sd=0.6))
    assert found.rows[0].seeds is None
    assert any("more test examples may" in note for note in found.notes)
