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
