"""The report for machines, and its JSON Schema; `docs/reading-a-report.md` describes it. Undefined numbers are null.

python -m analysis.report.machine        writes docs/report.schema.json
"""

from __future__ import annotations

import ast
import inspect
import json
import math
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from analysis.comparing import angle_roles, findings
from analysis.comparing.angle_roles import AngleRoles
from analysis.comparing.findings import AcrossSettings, EndpointFinding, StudyFindings
from analysis.results import model

REPORT_SCHEMA = 1
SCHEMA_FILE = Path("docs/report.schema.json")


def to_json(found: StudyFindings, roles: AngleRoles | None = None) -> str:
    """The findings as one JSON object."""
    return json.dumps(report_object(found, roles), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def report_object(found: StudyFindings, roles: AngleRoles | None = None) -> dict[str, Any]:
    """The findings as plain lists and dictionaries."""
    rest = {
        name: _plain(getattr(found, name))
        for name in (
            "notices", "plan", "many_variants", "cells", "problems", "method", "sentences", "baseline", "settings",
            "null_hypothesis", "skew_warning",
        )
    }  # fmt: skip
    return {
        "schema": REPORT_SCHEMA,
        "study": found.study,
        "headline": found.headline,
        "comparisons": _plain(found.comparisons),
        "across_settings": _across(found.across_settings),
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


def report_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `analysis report --format json`; fields may be added, none is taken away."""
    whole = TypeAdapter(StudyFindings).json_schema(mode="serialization", ref_template="#/$defs/{model}")
    parts: dict[str, Any] = whole.pop("$defs") | _definitions(AngleRoles)
    documented = _documented(findings, angle_roles, model)
    for name, part in (*parts.items(), ("StudyFindings", whole)):
        for field, found in part.get("properties", {}).items():
            text = documented.get((name, field))
            if text:
                found["description"] = text
    interval = parts["EndpointFinding"]["properties"]["t_ci95"]
    parts["EndpointFinding"]["properties"]["crossed_ci95"] = {**interval, "description": "`crossed.ci95`, or null."}
    across = parts["AcrossSettings"]
    every = {"type": "array", "items": {"$ref": "#/$defs/AcrossSettings"}, "description": "One per treatment."}
    parts["AcrossFirst"] = {**across, "properties": {**across["properties"], "treatments": every}}
    whole["properties"] |= {
        "schema": {"const": REPORT_SCHEMA, "description": "Version of this format."},
        "across_settings": {"anyOf": [{"$ref": "#/$defs/AcrossFirst"}, {"type": "null"}]},
        "angle_roles": {"anyOf": [{"$ref": "#/$defs/AngleRoles"}, {"type": "null"}]},
    }
    whole["required"] = sorted(whole["properties"])
    made = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pairsweep report",
        "description": "Differences are treatment minus baseline; a number that is not defined is null.",
        **{key: value for key, value in whole.items() if key not in ("title", "description")},
        "$defs": dict(sorted(parts.items())),
    }
    return dict(_bare(made))


def _definitions(kind: type) -> dict[str, Any]:
    own = TypeAdapter(kind).json_schema(mode="serialization", ref_template="#/$defs/{model}")
    return {**own.pop("$defs", {}), kind.__name__: own}


def _bare(value: Any) -> Any:
    """Without the titles and defaults that restate names; a number that is not finite is written as null."""
    if isinstance(value, list):
        return [_bare(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "number":
        return {**{k: v for k, v in value.items() if k not in ("title", "default")}, "type": ["number", "null"]}
    drop = {"default"} | ({"title"} if isinstance(value.get("title"), str) and "$schema" not in value else set())
    return {key: _bare(item) for key, item in value.items() if key not in drop}


def _documented(*modules: Any) -> dict[tuple[str, str], str]:
    """(class, field) -> the text under the field."""
    out: dict[tuple[str, str], str] = {}
    for module in modules:
        for node in ast.parse(inspect.getsource(module)).body:
            if not isinstance(node, ast.ClassDef):
                continue
            for field, text in zip(node.body, node.body[1:], strict=False):
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(field.target, ast.Name)
                    and isinstance(text, ast.Expr)
                    and isinstance(text.value, ast.Constant)
                ):
                    out[node.name, field.target.id] = " ".join(str(text.value.value).split())
    return out


def schema_text() -> str:
    """The schema as it lies in the documentation."""
    return json.dumps(report_schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
