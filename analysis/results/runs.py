"""MLflow runs -> Results: which run stands for which cell, what it says, and what is left out and why."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from analysis import schema
from analysis.errors import ResultsError
from analysis.results.model import CellRecord, HistoryEntry, Problem, Results
from analysis.results.store import StoredRun

if TYPE_CHECKING:
    import pandas as pd

    from analysis.results.predictions import StoredPredictions

_STATES = {
    "FINISHED": schema.STATE_FINISHED,
    "FAILED": schema.STATE_FAILED,
    "KILLED": schema.STATE_FAILED,
    "RUNNING": schema.STATE_RUNNING,
    "SCHEDULED": schema.STATE_TO_RUN,
}


def chosen_runs(runs: Iterable[StoredRun]) -> tuple[list[StoredRun], list[Problem]]:
    """The runs that stand for the cells: every finished one, else the latest attempt.

    Attempts that a later one superseded are counted, not listed.
    """
    by_cell: dict[str, list[StoredRun]] = {}
    for run in runs:
        by_cell.setdefault(run.tags.get(schema.TAG_CELL) or run.run_id, []).append(run)
    chosen: list[StoredRun] = []
    left_out: Counter[str] = Counter()
    for attempts in by_cell.values():
        finished = [run for run in attempts if run.status == "FINISHED"]
        kept = finished or [max(attempts, key=lambda run: run.start_time or 0)]
        chosen.extend(kept)
        left_out.update(run.status for run in attempts if run not in kept)
    counts = ", ".join(f"{count} {status}" for status, count in sorted(left_out.items()))
    problems = [Problem(where="earlier attempts", reason=f"not used, a later attempt stands: {counts}")]
    return chosen, problems if counts else []


def cell_record(run: StoredRun) -> tuple[CellRecord | None, list[Problem]]:
    """What a run says about its cell; None where it lacks variant or seed."""
    tags, problems = run.tags, []
    variant, seed_text = tags.get(schema.TAG_VARIANT), tags.get(schema.TAG_SEED, "")
    if not variant or not seed_text.removeprefix("-").isdecimal():
        missing = schema.TAG_SEED if variant else schema.TAG_VARIANT
        return None, [Problem(where=f"run {run.run_id}", reason=f"not used: its tag {missing} is missing or wrong")]
    setting = tags.get(schema.TAG_SETTING) or schema.DEFAULT_SETTING
    version = tags.get(schema.TAG_SCHEMA, schema.SCHEMA_VERSION)
    where = f"cell {variant}-s{seed_text}-{setting}"
    if version != schema.SCHEMA_VERSION:
        problems.append(
            Problem(where=where, reason=f"recorded by schema {version}; this version reads {schema.SCHEMA_VERSION}")
        )
    state = _STATES.get(run.status, schema.STATE_FAILED)
    failure = tags.get(schema.TAG_FAILURE)
    kind = tags.get(schema.TAG_FAILURE_KIND)
    if state == schema.STATE_FAILED and failure is None:
        failure = "killed" if run.status == "KILLED" else "no reason recorded"
        kind = kind or (schema.FAILURE_INFRASTRUCTURE if run.status == "KILLED" else None)
    fields = _json(tags.get(schema.TAG_FIELDS), {}, where, schema.TAG_FIELDS, problems)
    return CellRecord(
        cell=tags.get(schema.TAG_CELL) or run.run_id,
        variant=variant,
        seed=int(seed_text),
        setting=setting,
        state=state,
        fields=fields or dict(run.params),
        variant_fields=tuple(
            _json(tags.get(schema.TAG_VARIANT_FIELDS), [], where, schema.TAG_VARIANT_FIELDS, problems)
        ),
        fingerprint={
            key.removeprefix(schema.TAG_FINGERPRINT_PREFIX): value
            for key, value in tags.items()
            if key.startswith(schema.TAG_FINGERPRINT_PREFIX)
        },
        failure=failure if state == schema.STATE_FAILED else None,
        failure_kind=kind if state == schema.STATE_FAILED else None,
        run_id=run.run_id,
        times={
            key.removeprefix(schema.METRIC_TIME_PREFIX): value
            for key, value in run.metrics.items()
            if key.startswith(schema.METRIC_TIME_PREFIX)
        },
        notes=tuple(_json(tags.get(schema.TAG_NOTES), [], where, schema.TAG_NOTES, problems)),
    ), problems


def score_rows(run: StoredRun, cell: CellRecord) -> list[tuple[str, str, int, str, str, int, float]]:
    """Rows of the results table (analysis.schema.RESULT_COLUMNS) of one finished run; NaN stays NaN.

    Raises:
        ResultsError: a score that its metric cannot have.
    """
    rows = []
    for name, value in run.metrics.items():
        if name.startswith(schema.NOT_ENDPOINT_PREFIXES):
            continue
        try:
            endpoint = schema.parse_endpoint(name)
        except ValueError:
            continue  # the curve over dims, or a metric of one's own that is no endpoint
        score = value if abs(value) < schema.LARGEST_SCORE else math.nan
        allowed = schema.out_of_range(endpoint.statistic, score)
        if allowed is not None:
            raise ResultsError(
                f"run {run.run_id} (variant {cell.variant}, seed {cell.seed}, setting {cell.setting}): {name}:"
                f" {score:.6g} is not valid; expected a number from {allowed[0]:g} to {allowed[1]:g}"
            )
        rows.append((cell.cell, cell.variant, cell.seed, cell.setting, endpoint.metric, endpoint.dim, score))
    return rows


def results_from_runs(
    *,
    study: str,
    cells: list[StoredRun],
    names: Mapping[str, str],
    studies: list[StoredRun],
    predictions: StoredPredictions,
    plan_text: Callable[[StoredRun], str | None],
) -> Results:
    """Everything recorded about a study.

    Args:
        study: Its name.
        cells: Runs of cells, oldest first.
        names: What a variant was called when it first ran -> what it is called now (`names_now`).
        studies: The study's parent runs, oldest first; the first declares the plan.
        predictions: Reader of the cells' predictions; learns here how to call the cells.
        plan_text: Reads the declared plan (JSON) of a study run.
    """
    runs, problems = chosen_runs(cells)
    records: list[CellRecord] = []
    rows: list[tuple[str, str, int, str, str, int, float]] = []
    for run in runs:
        record, found = cell_record(run)
        problems += found
        if record is None:
            continue
        records.append(record)
        if record.state == schema.STATE_FINISHED:
            scores = score_rows(run, record)
            rows += scores
            if not scores:
                where = f"cell {record.variant}-s{record.seed}-{record.setting}"
                problems.append(Problem(where=where, reason="finished, but no score is recorded"))
    predictions.names = {r.cell: f"{r.variant}-s{r.seed}-{r.setting}" for r in records}
    declared = declaration(studies, plan_text, problems, names)
    return Results(
        study=study,
        table=table(rows),
        cells=tuple(records),
        problems=tuple(problems),
        predictions=predictions,
        history=history(studies),
        **declared,
    )


def table(rows: list[tuple[str, str, int, str, str, int, float]]) -> pd.DataFrame:
    """Rows as the results table, with the types its columns have."""
    import pandas as pd

    frame = pd.DataFrame(rows, columns=list(schema.RESULT_COLUMNS))
    return frame.astype({schema.COLUMN_SEED: "int64", schema.COLUMN_DIM: "int64", schema.COLUMN_VALUE: "float64"})


def declaration(
    studies: list[StoredRun],
    plan_text: Callable[[StoredRun], str | None],
    problems: list[Problem],
    names: Mapping[str, str],
) -> dict[str, Any]:
    """Plan, baseline, order of variants and search as the study's first run recorded them.

    Variants are called as they are now: `names` has what those are called that were declared under another name.
    """
    from pydantic import ValidationError

    from analysis.plan import AnalysisPlan

    for run in studies:
        text = plan_text(run)
        if text is None:
            continue
        try:
            recorded = json.loads(text)
            plan = AnalysisPlan.model_validate(recorded.get("plan") or {})
        except (ValueError, AttributeError, ValidationError) as error:
            reason = str(error).splitlines()[0]
            problems.append(Problem(where=schema.PLAN_ARTIFACT, reason=f"the declared plan cannot be read: {reason}"))
            return {}
        baseline = recorded.get("baseline")
        return {
            "declared_plan": plan,
            "default_primary": tuple(map(str, recorded.get("default_primary") or ())),
            "declared_baseline": names.get(baseline, baseline),
            "variant_order": tuple(names.get(name, name) for name in recorded.get("variants") or ()),
            "search": recorded.get("search"),
        }
    return {}


def names_now(cells: Iterable[StoredRun]) -> dict[str, str]:
    """What a variant was called when it first ran -> what it is called now.

    Args:
        cells: Runs of cells, oldest first: where a name was given again to another variant, the first one had it.
    """
    names: dict[str, str] = {}
    for run in cells:
        variant = run.tags.get(schema.TAG_VARIANT)
        if variant:
            names.setdefault(run.tags.get(schema.TAG_FIRST_VARIANT, variant), variant)
    return names


def history(studies: list[StoredRun]) -> tuple[HistoryEntry, ...]:
    """Changes of the seed list and reports made, oldest first."""
    entries = []
    prefixes = {schema.HISTORY_TAG_SEEDS: "seeds", schema.HISTORY_TAG_REPORT: "report"}
    for run in studies:
        for key, text in run.tags.items():
            for prefix, kind in prefixes.items():
                if not key.startswith(prefix):
                    continue
                try:
                    detail = json.loads(text)
                except ValueError:
                    detail = {}
                if isinstance(detail, dict):
                    time = str(detail.pop("time", key.removeprefix(prefix)))
                    entries.append(HistoryEntry(kind=kind, time=time, detail=detail))
    return tuple(sorted(entries, key=lambda entry: _instant(entry.time)))


def _instant(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _json(text: str | None, default: Any, where: str, tag: str, problems: list[Problem]) -> Any:
    if not text:
        return default
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, type(default)):
        problems.append(Problem(where=where, reason=f"its tag {tag} cannot be read"))
        return default
    return value
