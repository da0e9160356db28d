"""The JSON report as a JSON Schema, made from the findings themselves.

python -m analysis.report.json_schema        writes docs/report.schema.json
"""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from analysis.comparing import angle_roles as roles
from analysis.comparing import finding_parts, findings
from analysis.comparing.angle_roles import AngleRoles
from analysis.comparing.findings import StudyFindings
from analysis.report.machine import REPORT_SCHEMA
from analysis.results import model as tidy

TARGET = Path("docs/report.schema.json")


def report_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `analysis report --format json`; fields may be added, none is taken away."""
    whole = TypeAdapter(StudyFindings).json_schema(mode="serialization", ref_template="#/$defs/{model}")
    parts: dict[str, Any] = whole.pop("$defs") | _definitions(AngleRoles)
    documented = _documented(finding_parts, findings, roles, tidy)
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
    return dict(_plain(made))


def _definitions(kind: type) -> dict[str, Any]:
    own = TypeAdapter(kind).json_schema(mode="serialization", ref_template="#/$defs/{model}")
    return {**own.pop("$defs", {}), kind.__name__: own}


def _plain(value: Any) -> Any:
    """Without the titles and defaults that restate names; a number that is not finite is written as null."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "number":
        return {**{k: v for k, v in value.items() if k not in ("title", "default")}, "type": ["number", "null"]}
    drop = {"default"} | ({"title"} if isinstance(value.get("title"), str) and "$schema" not in value else set())
    return {key: _plain(item) for key, item in value.items() if key not in drop}


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


def text() -> str:
    """The schema as it lies in the documentation."""
    return json.dumps(report_schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
