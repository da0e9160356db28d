"""The code that the reference cases check is the code that the report runs.

Each reference function names the function of the package that does its work. That one is broken (its results are
shifted) wherever it is bound; then both the reference door and a report must say something else.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import analysis
from analysis.plan import AnalysisPlan
from analysis.power_report import PowerQuestion, answer
from analysis.report.machine import to_json
from analysis.report.report import Question, report_on_results
from analysis.results.model import Results
from analysis.statistics.power import seeds_needed
from tests.analysis.studies import predicted_study, study
from tests.reference_cases import FUNCTIONS, D, evaluate

E64, E32 = "test/spearman_64", "test/spearman_32"
BASE = [0.80, 0.81, 0.79, 0.805, 0.80, 0.795, 0.81]
GAIN = [0.0035, 0.0031, 0.004, 0.0029, 0.0036, -0.001, 0.003]
PREDICTED = {"labels": [0, 1, 2, 3, 4, 5], "predictions_A": [0, 2, 1, 3, 5, 4], "predictions_B": [1, 0, 2, 3, 4, 5]}


def _scores(*gains: float) -> dict[str, dict[str, list[float]]]:
    names = "abc"[: len(gains)]
    moved = {v: [x + k * g for x, g in zip(BASE, GAIN, strict=True)] for v, k in zip(names, gains, strict=True)}
    return {v: {E64: row, E32: [x - 0.01 * k for k, x in enumerate(row)]} for v, row in moved.items()}


def _settings() -> Results:
    per_setting = {"s1": _scores(0, 1, 2), "s2": _scores(0, 2, 1)}
    return study(per_setting, settings=True, declared_plan=AnalysisPlan(primary=(E64, E32), margin=0.002))


def _sequential() -> Results:
    return study(_scores(0, 1), declared_plan=AnalysisPlan(primary=(E64, E32), stopping="sequential"))


def _searched() -> Results:
    return study(_scores(0, 1), search={"split": "test", "seeds": [99], "budget": {"a": 4, "b": 4}})


def _repeated() -> Results:
    same = [("b-s0-default", "b", 0, "default", "test/spearman", 64, BASE[0] + GAIN[0])]
    return study(_scores(0, 1), extra_rows=same)


RESULTS: dict[str, Callable[[], Results]] = {
    "settings": _settings,
    "sequential": _sequential,
    "searched": _searched,
    "repeated": _repeated,
    "predicted": lambda: predicted_study(shifts=[0.3, 0.32, 0.28, 0.31], examples=40),
    "one seed": lambda: predicted_study(shifts=[0.3], examples=40),
    "many seeds": lambda: predicted_study(shifts=(np.arange(20) / 90 - 0.1).tolist(), examples=30),
}


def told(scenario: str) -> str:
    """What the report (or the planning) says, as JSON."""
    if scenario == "planning":
        return answer(PowerQuestion(win_rates=(0.9,)), None).render("json")
    made = report_on_results(RESULTS[scenario](), Question(all_pairs=True))
    return to_json(made.findings)


@cache
def unbroken(scenario: str) -> str:
    return told(scenario)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A function that does the work of a reference function, where a report shows it, and inputs for the door."""

    does: str
    shown: str
    inputs: dict[str, Any]


CASES = {
    "sign_test": Case(does="statistics.paired.sign_test", shown="settings", inputs={D: GAIN}),
    "sign_test_from_counts": Case(
        does="statistics.paired.sign_test_from_counts", shown="settings", inputs={"n_favour_B": 4, "n_used": 5}
    ),
    "p_value_floor": Case(does="statistics.closed_forms.p_floor", shown="settings", inputs={"n": 5}),
    "minimum_seeds": Case(does="statistics.power.minimum_seeds", shown="settings", inputs={"alpha": 0.05, "m": 2}),
    "wilcoxon_signed_rank": Case(does="statistics.paired.wilcoxon_signed_rank", shown="settings", inputs={D: GAIN}),
    "sign_flip_test": Case(does="statistics.paired.sign_flip_test", shown="settings", inputs={D: GAIN}),
    "sign_flip_confidence_interval": Case(
        does="statistics.paired.sign_flip_interval", shown="settings", inputs={D: GAIN}
    ),
    "paired_t_summary": Case(does="statistics.paired.paired_t", shown="settings", inputs={D: GAIN}),
    "paired_t_summary_vs_welch": Case(
        does="statistics.paired.welch_p",
        shown="settings",
        inputs={"A": BASE, "B": [x + 0.01 * i for i, x in enumerate(BASE)]},
    ),
    "hodges_lehmann": Case(does="statistics.paired.hodges_lehmann", shown="settings", inputs={D: GAIN}),
    "probability_of_improvement": Case(
        does="statistics.paired.probability_of_improvement", shown="settings", inputs={"A": [1.0, 2.0], "B": [2.0, 1.5]}
    ),
    "bca_interval": Case(does="statistics.paired.bca_interval", shown="many seeds", inputs={D: GAIN}),
    "holm": Case(does="statistics.joint.holm", shown="settings", inputs={"p_values": [0.01, 0.04]}),
    "max_t_sign_flip": Case(
        does="statistics.joint.joint_sign_flip",
        shown="settings",
        inputs={"differences_seed_by_endpoint": [[1, 2], [2, -1]]},
    ),
    "equivalence": Case(does="statistics.equivalence.equivalence", shown="settings", inputs={D: GAIN, "margin": 0.01}),
    "crossed_interval": Case(
        does="statistics.crossed.crossed", shown="predicted", inputs={"seed_by_example": [[1, 2, 4], [2, 1, 3]]}
    ),
    "crossed_bootstrap": Case(
        does="statistics.crossed.crossed_bootstrap",
        shown="many seeds",
        inputs={"seed_by_example": [[1, 2, 4], [2, 1, 3]]},
    ),
    "paired_correlation_difference": Case(
        does="statistics.influence.correlation_difference", shown="one seed", inputs=PREDICTED
    ),
    "dependent_correlations": Case(
        does="statistics.correlations.dependent_correlations",
        shown="one seed",
        inputs={"r_label_A": 0.5, "r_label_B": 0.6, "r_A_B": 0.7, "n": 50},
    ),
    "meta_analysis": Case(
        does="statistics.across_settings.meta_analysis",
        shown="settings",
        inputs={"effects": [0.1, 0.3], "variances": [0.01, 0.02]},
    ),
    "heterogeneity_test": Case(
        does="statistics.across_settings.heterogeneity",
        shown="settings",
        inputs={"differences_by_setting": [[1, 2, 4], [3, 5, 9]]},
    ),
    "leave_one_setting_out": Case(
        does="statistics.across_settings.leave_one_out",
        shown="settings",
        inputs={"differences_by_setting": [[1, 2], [3, 4]]},
    ),
    "gail_simon": Case(
        does="statistics.qualitative.gail_simon", shown="settings", inputs={"normal_scores": [2.0, -2.0]}
    ),
    "crossed_over_test_sets": Case(
        does="statistics.crossed.crossed_over_settings",
        shown="predicted",
        inputs={"seed_by_example_by_setting": [[[1, 2, 4], [2, 1, 3]], [[0, 2, 1], [2, 1, 5]]]},
    ),
    "pooled_sign_flip": Case(
        does="statistics.across_settings.pooled_by_seed",
        shown="settings",
        inputs={"differences_by_setting": [[1, 2, 3], [3, -4, 1]], "seeds_shared_between_settings": True},
    ),
    "cluster_sign_test": Case(
        does="statistics.across_settings.settings_sign_test", shown="settings", inputs={"setting_means": [0.1, 0.2]}
    ),
    "simpson_flag": Case(
        does="statistics.across_settings.simpson",
        shown="settings",
        inputs={"scores_A": {"x": [1.0]}, "scores_B": {"x": [2.0]}},
    ),
    "e_value_sign": Case(
        does="statistics.sequential.e_value", shown="sequential", inputs={"n_favour_B": 4, "n_used": 5}
    ),
    "confidence_sequence_sign": Case(
        does="statistics.sequential.win_rate_interval", shown="sequential", inputs={"n_favour_B": 4, "n_used": 5}
    ),
    "e_bonferroni": Case(
        does="statistics.closed_forms.e_threshold", shown="sequential", inputs={"n_favour_B": [4], "n_used": 5}
    ),
    "e_closed_testing": Case(does="statistics.sequential.e_closed", shown="sequential", inputs={"e": [30.0, 2.0]}),
    "power_sign_test": Case(
        does="statistics.power.power_sign_test", shown="planning", inputs={"n": 12, "prob_B_better": 0.9}
    ),
    "seeds_needed": Case(does="statistics.power.seeds_needed", shown="settings", inputs={"prob_B_better": 0.9}),
    "seeds_needed_t": Case(does="statistics.power.seeds_needed_t", shown="settings", inputs={"cohen_dz": 0.8}),
    "friedman": Case(
        does="statistics.friedman.friedman", shown="settings", inputs={"seed_by_variant": [[1, 2, 3], [1, 3, 2]]}
    ),
    "all_pairs": Case(
        does="statistics.friedman.all_pairs", shown="settings", inputs={"seed_by_variant": [[1, 2, 3], [1, 3, 2]]}
    ),
    "selection_bias": Case(does="statistics.power.selection_bias", shown="searched", inputs={"k": 4}),
    "pair_trials": Case(
        does="comparing.pairing.merge_repeats",
        shown="repeated",
        inputs={"A": {"0": -1.0, "1": 2.0}, "B": {"0": 0.5, "1": 2.5}},
    ),
    "verdict": Case(does="comparing.verdict.endpoint_verdict", shown="settings", inputs={D: GAIN}),
}


def shifted(value: Any) -> Any:
    """Another value of the same kind, wherever there is a number in it."""
    if value is None or isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return "mixed"
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return 0.9 * abs(value) + 0.03
    if isinstance(value, dict):
        return {k: shifted(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(shifted(v) for v in value)
    if is_dataclass(value) and not isinstance(value, type):
        positions = ("i", "j")  # of variants: not a result
        names = [f.name for f in fields(value) if f.name not in positions and getattr(value, f.name) is not None]
        return replace(value, **{name: shifted(getattr(value, name)) for name in names})
    return value


def break_everywhere(monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    module, _, name = does.rpartition(".")
    whole = getattr(importlib.import_module(f"analysis.{module}"), name)

    def broken(*args: Any, **options: Any) -> Any:
        return shifted(whole(*args, **options))

    for info in pkgutil.walk_packages(analysis.__path__, "analysis."):
        found = importlib.import_module(info.name)
        for attribute, bound in list(vars(found).items()):
            if bound is whole:
                monkeypatch.setattr(found, attribute, broken)
    seeds_needed.cache_clear()


def test_every_reference_function_has_a_case() -> None:
    assert CASES.keys() == FUNCTIONS.keys()


@pytest.mark.parametrize("name", CASES)
def test_broken_here_is_broken_in_the_report(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    report, door = unbroken(case.shown), json.dumps(evaluate(name, case.inputs))
    break_everywhere(monkeypatch, case.does)
    try:
        assert json.dumps(evaluate(name, case.inputs)) != door, "the reference door does not call it"
        assert told(case.shown) != report, "no report shows it"
    finally:
        seeds_needed.cache_clear()


def test_the_same_results_are_told_in_the_same_way() -> None:
    assert {name: told(name) == unbroken(name) for name in RESULTS} == dict.fromkeys(RESULTS, True)
