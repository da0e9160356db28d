"""The worked cases of a reference file, run through the functions that the report calls."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from tests.reference_cases import evaluate

FILE = os.environ.get("PAIRSWEEP_REFERENCE")
CASES = json.loads(Path(FILE).read_text())["cases"] if FILE else []


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


@pytest.mark.skipif(not FILE, reason="PAIRSWEEP_REFERENCE (path of the reference cases) is not set")
@pytest.mark.parametrize("case", CASES, ids=lambda c: c["id"])
def test_against_worked_cases(case: dict[str, Any]) -> None:
    got = evaluate(case["function"], case["inputs"])
    for key, expected in case["expected"].items():
        assert key in got
        assert agrees(got[key], expected, case["rtol"], case["atol"]), (key, got[key], expected)


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
