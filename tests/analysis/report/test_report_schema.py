"""The documented JSON Schema is that of the code, and reports of every kind follow it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from analysis.plan import AnalysisPlan
from analysis.report.machine import SCHEMA_FILE, report_schema, schema_text, to_json
from analysis.report.report import Question, report_on_results
from analysis.results.model import Results
from tests.analysis.studies import predicted_study, study

ROOT = Path(__file__).parents[3]
E64 = "test/spearman_64"
SCORES: dict[str, Any] = {v: {E64: [0.8 + k / 100, 0.81 + k / 90, 0.79 + k / 80]} for k, v in enumerate("abc")}


def test_the_documented_schema_is_current() -> None:
    found = (ROOT / SCHEMA_FILE).read_text(encoding="utf-8")
    assert found == schema_text(), "write it anew: python -m analysis.report.machine"


@pytest.mark.parametrize(
    "results",
    [
        study(SCORES, declared_plan=AnalysisPlan(margin=0.01)),
        study({"s1": SCORES, "s2": SCORES}, settings=True),
        study(SCORES, declared_plan=AnalysisPlan(stopping="sequential", margin=0.01)),
        predicted_study(shifts=[0.3, 0.2, 0.1], examples=20),
        predicted_study(shifts=[0.3], examples=20),
        study({"a": SCORES["a"]}),
        study(SCORES, failed={("b", 1): "out of memory"}, fingerprinted=False),
    ],
    ids=["margin", "settings", "sequential", "predictions", "one-seed", "one-variant", "failed"],
)
def test_reports_follow_it(results: Results) -> None:
    schema = report_schema()
    made = report_on_results(results, Question(all_pairs=True))
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    report = json.loads(to_json(made.findings, made.roles))
    assert [f"{list(e.absolute_path)}: {e.message[:200]}" for e in validator.iter_errors(report)] == []
    assert schema["properties"].keys() == report.keys()
    for comparison in report["comparisons"]:
        assert comparison.keys() == schema["$defs"]["Comparison"]["properties"].keys()
        for endpoint in comparison["endpoints"]:
            assert endpoint.keys() == schema["$defs"]["EndpointFinding"]["properties"].keys()
