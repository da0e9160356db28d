"""What the study run says about itself in the MLflow UI: question, design, and the verdict once there is one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from analysis import schema
from sweep.study import Study

NO_VERDICT_YET: Final = "None yet; `analysis report {file} --log` puts it here."
MOST_FIELDS: Final = 8
"""Fields shown of one variant."""


def describe(study: Study, before: str | None = None) -> str:
    """Markdown for the study run.

    Args:
        study: As it stands.
        before: The description that the run has; a verdict in it is kept.
    """
    none = f"{schema.VERDICT_HEADING} {NO_VERDICT_YET.format(file=study.path.name)}"
    paragraphs = (before or "").split("\n\n")
    verdict = next((one for one in paragraphs if one.startswith(schema.VERDICT_HEADING)), none)
    # The UI folds a long description: what is wanted most comes first.
    return "\n\n".join((_question(study), verdict, _design(study), _variants(study)))


def _question(study: Study) -> str:
    others = [f"`{variant}`" for variant in study.variants if variant != study.baseline]
    if not others:
        return f"**Question.** None: `{study.baseline}` is the only variant."
    are = "Is" if len(others) == 1 else "Are"
    where = " and ".join(f"`{endpoint}`" for endpoint in study.primary) or "the primary endpoint"
    return f"**Question.** {are} {' and '.join(others)} better than `{study.baseline}` on {where}?"


def _design(study: Study) -> str:
    plan = study.analysis
    cells = len(study.specs) * len(study.seeds)
    margin = "no margin declared" if plan.margin is None else f"differences below {plan.margin:g} do not matter"
    names = ", ".join(f"`{setting}`" for setting in study.settings)
    settings = f" x {len(study.settings)} settings ({names})" if len(study.settings) > 1 else ""
    return (
        f"**Design.** {len(study.variants)} variants x {len(study.seeds)} seeds{settings}: {cells} cells; alpha"
        f" {plan.alpha:g}, {margin}, stopping {plan.stopping}. Should the file have changed since: the plan that counts"
        f" is the one recorded at the first run, `{schema.PLAN_ARTIFACT}`."
    )


def _variants(study: Study) -> str:
    rows = ["| variant | differs in |", "|---|---|"]
    flat = {variant: _varying(study, variant) for variant in study.variants}
    for variant, fields in flat.items():
        shown = [f"`{name}` = {_value(value)}" for name, value in list(fields.items())[:MOST_FIELDS]]
        more = len(fields) - MOST_FIELDS
        mark = " (baseline)" if variant == study.baseline else ""
        rows.append(f"| `{variant}`{mark} | {', '.join(shown)}{f' and {more} more' if more > 0 else ''} |")
    return "\n".join(rows)


def _varying(study: Study, variant: str) -> Mapping[str, Any]:
    fields = study.specs[variant, next(iter(study.settings))].flat()
    return {name: fields[name] for name in study.variant_fields if name in fields}


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("|", "\\|").replace("\n", " ")
