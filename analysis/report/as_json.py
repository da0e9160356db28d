"""The report for machines; `docs/reading-a-report.md` describes it. Undefined numbers are null."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from analysis.findings import AcrossSettings, Comparison, EndpointFinding, StudyFindings
from analysis.roles import AngleRoles

REPORT_SCHEMA = 1


def to_json(findings: StudyFindings, roles: AngleRoles | None = None) -> str:
    """The findings as one JSON object."""
    return json.dumps(report_object(findings, roles), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def report_object(findings: StudyFindings, roles: AngleRoles | None = None) -> dict[str, Any]:
    """The findings as plain lists and dictionaries."""
    rest = {
        name: _plain(getattr(findings, name))
        for name in (
            "sentences", "baseline", "settings", "null_hypothesis", "skew_warning",
        )
    }  # fmt: skip
    return {
        "schema": REPORT_SCHEMA,
        "study": findings.study,
        "headline": findings.headline,
        "notices": [asdict(notice) for notice in findings.notices],
        "plan": _plain(asdict(findings.plan)),
        "comparisons": [_comparison(comparison) for comparison in findings.comparisons],
        "across_settings": _across(findings.across_settings),
        "many_variants": [_plain(asdict(many)) for many in findings.many_variants],
        "cells": [{"variant": count.variant, "by_state": dict(count.by_state)} for count in findings.cells],
        "problems": [asdict(problem) for problem in findings.problems],
        "method": list(findings.method),
        "angle_roles": None if roles is None else asdict(roles),
        **rest,
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    plain: dict[str, Any] = _plain(asdict(comparison))
    plain["endpoints"] = [_endpoint(found) for found in comparison.endpoints]
    return plain


def _endpoint(found: EndpointFinding) -> dict[str, Any]:
    return {**_plain(asdict(found)), "crossed_ci95": _plain(found.crossed_ci95)}


def _across(found: tuple[AcrossSettings, ...]) -> dict[str, Any] | None:
    """The first treatment's own fields on top, as with two variants; all treatments under `treatments`."""
    if not found:
        return None
    treatments = [_plain(asdict(across)) for across in found]
    return {**treatments[0], "treatments": treatments}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
