"""The report for machines; `docs/reading-a-report.md` describes it. Undefined numbers are null."""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from analysis.comparing.angle_roles import AngleRoles
from analysis.comparing.findings import AcrossSettings, EndpointFinding, StudyFindings

REPORT_SCHEMA = 1


def to_json(findings: StudyFindings, roles: AngleRoles | None = None) -> str:
    """The findings as one JSON object."""
    return json.dumps(report_object(findings, roles), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def report_object(findings: StudyFindings, roles: AngleRoles | None = None) -> dict[str, Any]:
    """The findings as plain lists and dictionaries."""
    rest = {
        name: _plain(getattr(findings, name))
        for name in (
            "notices", "plan", "many_variants", "cells", "problems", "method", "sentences", "baseline", "settings",
            "null_hypothesis", "skew_warning",
        )
    }  # fmt: skip
    return {
        "schema": REPORT_SCHEMA,
        "study": findings.study,
        "headline": findings.headline,
        "comparisons": _plain(findings.comparisons),
        "across_settings": _across(findings.across_settings),
        "angle_roles": _plain(roles),
        **rest,
    }


def _across(found: tuple[AcrossSettings, ...]) -> dict[str, Any] | None:
    """The first treatment's own fields on top, as with two variants; all treatments under `treatments`."""
    if not found:
        return None
    treatments = _plain(found)
    return {**treatments[0], "treatments": treatments}


def _plain(value: Any) -> Any:
    """Records as dictionaries of their fields, tuples as lists, numbers that are not finite as None."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        found = {name: _plain(getattr(value, name)) for name in _field_names(type(value))}
        if isinstance(value, EndpointFinding):
            found["crossed_ci95"] = _plain(value.crossed_ci95)
        return found
    return value


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
