"""Worked cases, the project's own and those of an outside file, run through the functions that the report calls."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from tests.reference import generate
from tests.reference_cases import FUNCTIONS, evaluate

OUTSIDE = os.environ.get("PAIRSWEEP_REFERENCE")
"""Path of a further file of cases, in the same format."""
OWN = json.loads(generate.FILE.read_text(encoding="utf-8"))["cases"]
CASES = OWN + (json.loads(Path(OUTSIDE).read_text(encoding="utf-8"))["cases"] if OUTSIDE else [])


def agrees(got: Any, expected: Any, rtol: float, atol: float) -> bool:
    if expected is None:
        return got is None or (isinstance(got, float) and math.isnan(got))
    if isinstance(expected, dict):
        return all(k in got and agrees(got[k], v, rtol, atol) for k, v in expected.items())
    if isinstance(expected, list):
        return len(got) == len(expected) and all(agrees(g, e, rtol, atol) for g, e in zip(got, expected, strict=True))
    if isinstance(expected, bool | str):
        return bool(got == expected)
    return got is not None and abs(got - expected) <= atol + rtol * abs(expected)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["id"])
def test_against_worked_cases(case: dict[str, Any]) -> None:
    got = evaluate(case["function"], case["inputs"])
    for key, expected in case["expected"].items():
        assert key in got
        assert agrees(got[key], expected, case["rtol"], case["atol"]), (key, got[key], expected)


def test_the_own_cases_are_what_their_oracles_say() -> None:
    made = {case["id"]: case for case in json.loads(json.dumps(generate.cases()))}
    assert made.keys() == {case["id"] for case in OWN}, "run: python -m tests.reference.generate"
    for case in OWN:
        assert made[case["id"]]["inputs"] == case["inputs"]
        assert agrees(made[case["id"]]["expected"], case["expected"], 1e-9, 1e-12), case["id"]


def test_every_function_has_a_case_of_its_own() -> None:
    without = FUNCTIONS.keys() - {case["function"] for case in OWN}
    assert without == {
        "bca_interval",  # a bootstrap: held against scipy in test_against_libraries
        "crossed_bootstrap",
        "dependent_correlations",  # held against the published example in test_dependent
        "pair_trials",  # no formula: tests of pairing
        "sign_flip_confidence_interval",  # held against its own test in test_paired
    }


@pytest.mark.parametrize(
    ("function", "inputs", "expected"),
    [
        ("sign_test", {"differences_B_minus_A": [0.1, 0.2], "tie_tolerance": None}, {"n_favour_B": 2}),
        ("sign_test", {"differences_B_minus_A": None}, {"n_used": 0, "p_value": 1.0}),
        ("minimum_seeds", {"m": 4}, {"max_t": 6, "holm": 8}),
        ("minimum_seeds", {"m": 4, "alpha": None}, {"max_t": 6, "holm": 8}),
        ("equivalence", {"differences_B_minus_A": [0.1, 0.2], "margin": None}, {"equivalent": False, "tost_p": None}),
        ("verdict", {"differences_B_minus_A": [0.1] * 6, "alpha": None}, {"verdict": "better_on_this_test_set"}),
        ("dependent_correlations", {"r_label_A": 0.5, "r_label_B": None, "r_A_B": 0.4, "n": 40}, {"steiger_z": None}),
        ("pair_trials", {"A": {"1": 0.1}, "B": None}, {"n_pairs": 0, "dropped": [1]}),
        ("crossed_interval", {"seed_by_example": [[0.1, 0.3]]}, {"mean": 0.2, "seed_variance_of_mean": None}),
        ("crossed_interval", {"seed_by_example": [[0.1], [0.3]]}, {"mean": 0.2, "seed_variance_of_mean": 0.01}),
        ("crossed_interval", {"seed_by_example": [[None, None]]}, {"mean": None, "seed_variance_of_mean": None}),
        ("crossed_interval", {"seed_by_example": []}, {"mean": None, "ci95": None}),
        ("crossed_interval", {"seed_by_example": [[0.1, 0.2], [None, 1], [0.3, 0.2]]}, {"mean": 0.2}),
    ],
)
def test_what_is_missing_is_a_default_or_undefined(
    function: str, inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    got = evaluate(function, inputs)
    for key, value in expected.items():
        assert agrees(got[key], value, 1e-12, 0), (key, got[key], value)
