"""What a study file says about its analysis, where that is not what was recorded at the first run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.plan import AnalysisPlan

_COUNTS = "the plan recorded at the first run counts"


def differences(path: Path, declared: Mapping[str, Any] | None) -> list[str]:
    """One line per field in which the file differs from the recorded plan, which is the one that counts.

    Args:
        path: A study file.
        declared: The recorded plan's fields and `baseline`; None: nothing was declared.
    """
    import yaml
    from pydantic import ValidationError

    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if declared is None or not isinstance(content, dict):
        return []
    lines = []
    baseline = content.get("baseline")
    # A label such as `no` or `1` stands for itself in a study file; plain YAML reads another thing.
    if isinstance(baseline, str) and baseline != declared.get("baseline"):
        lines.append(_line(path, "baseline", baseline, declared.get("baseline")))
    try:
        plan = AnalysisPlan.model_validate(content.get("analysis") or {})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(["analysis", *map(str, first["loc"])])
        reason = first["msg"].removeprefix("Value error, ")
        return [*lines, f"{path}: {field}: {first['input']!r} is not valid ({reason}); {_COUNTS}"]
    for name, now in plan.model_dump(mode="json").items():
        if now != declared.get(name):
            lines.append(_line(path, f"analysis.{name}", now, declared.get(name)))
    return lines


def _line(path: Path, field: str, now: Any, recorded: Any) -> str:
    return f"{path}: {field} is {_shown(now)}, recorded at the first run: {_shown(recorded)}; the recorded one counts"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
