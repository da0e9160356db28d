"""Tables that other tools export: MLflow's run table and Optuna's trial table, converted or refused with reason."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from analysis import schema
from analysis.errors import ResultsError
from analysis.results.model import Problem
from analysis.results.tables import (
    NUMBER,
    LineErrors,
    RawTable,
    Repeats,
    Rows,
    Settings,
    cell_name,
    failed_cell,
    number,
    whole_number,
)

MLFLOW_PREFIXES = ("params.", "tags.")
OPTUNA_PREFIXES = ("user_attrs_", "params_")


def looks_like_mlflow(raw: RawTable) -> bool:
    """Whether this is what `mlflow.search_runs(...).to_csv` writes."""
    return "run_id" in raw.header and any(name.startswith(("metrics.", *MLFLOW_PREFIXES)) for name in raw.header)


def looks_like_optuna(raw: RawTable) -> bool:
    """Whether this is what `study.trials_dataframe().to_csv` writes."""
    named = any(name.startswith(OPTUNA_PREFIXES) for name in raw.header)
    return "number" in raw.header and "state" in raw.header and named


def mlflow_rows(raw: RawTable) -> Rows:
    """Scores of the finished runs in MLflow's table.

    Raises:
        ResultsError: variant, seed or scores are not in it.
    """
    columns = {
        name: _first(raw, [f"params.{name}", f"tags.sweep.{name}", f"tags.{name}"]) for name in ("variant", "seed")
    }
    setting = _first(raw, ["params.setting", "tags.sweep.setting", "tags.setting"])
    scores = _score_columns(raw, "metrics.")
    for name, column in columns.items():
        if column is None:
            raise ResultsError(
                f"{raw.path}: looks like MLflow's table of runs, but says no {name}; add a column params.{name}"
                f" or tags.{name}, or save it with the columns {', '.join(schema.PLAIN_COLUMNS)}"
            )
    if not scores:
        raise ResultsError(
            f"{raw.path}: looks like MLflow's table of runs, but no metric is named like an endpoint;"
            " expected columns such as metrics.test/spearman_256"
        )
    kind = _first(raw, [f"tags.{schema.TAG_KIND}"])
    cells = [(line, row) for line, row in raw.rows if kind is None or row[kind] in ("", schema.KIND_CELL)]
    return _rows(
        raw, cells, columns, setting, scores, finished=("status", "FINISHED"), noun="runs", run_column="run_id"
    )


def optuna_rows(raw: RawTable) -> Rows:
    """Scores of the complete trials in Optuna's table.

    Raises:
        ResultsError: variant, seed or scores are not in it; an objective value alone names no metric and dim.
    """
    columns = {name: _first(raw, [f"{prefix}{name}" for prefix in OPTUNA_PREFIXES]) for name in ("variant", "seed")}
    setting = _first(raw, [f"{prefix}setting" for prefix in OPTUNA_PREFIXES])
    for name, column in columns.items():
        if column is None:
            raise ResultsError(
                f"{raw.path}: looks like Optuna's table of trials, but says no {name}; record it with"
                f" trial.set_user_attr({name!r}, ...), or save it with the columns {', '.join(schema.PLAIN_COLUMNS)}"
            )
    scores = _score_columns(raw, "user_attrs_")
    if not scores:
        raise ResultsError(
            f"{raw.path}: looks like Optuna's table of trials, but its value names no metric and dim; record scores"
            " with trial.set_user_attr('test/spearman_256', ...)"
        )
    rows, failed, problems = _rows(
        raw, raw.rows, columns, setting, scores, finished=("state", "COMPLETE"), noun="trials"
    )
    note = "trials of a search: if it chose settings by these same scores, the comparison is exploratory"
    return rows, failed, [*problems, Problem(where=raw.path.name, reason=note)]


def _rows(
    raw: RawTable,
    lines: Iterable[tuple[int, dict[str, str]]],
    columns: dict[str, str | None],
    setting_column: str | None,
    scores: dict[str, schema.Endpoint],
    *,
    finished: tuple[str, str],
    noun: str,
    run_column: str | None = None,
) -> Rows:
    """Scores of the finished lines; a run that `run_column` names may stand for one cell only."""
    state_column, wanted = finished
    variant_column, seed_column = columns["variant"], columns["seed"]
    assert variant_column is not None
    assert seed_column is not None
    if state_column not in raw.header:
        raise ResultsError(f"{raw.path}: column {state_column!r} is missing, so finished {noun} cannot be told apart")
    errors, rows, settings, left_out = LineErrors(raw.path), [], Settings(), Counter[str]()
    repeats = Repeats(raw.path)
    cell_of: dict[str, tuple[int, str]] = {}
    failed = []
    for line, row in lines:
        state = row[state_column].removeprefix("TrialState.").upper()
        variant, seed = row[variant_column], whole_number(row[seed_column])
        if state != wanted:
            left_out[state or "without state"] += 1
            label = settings.label(row[setting_column] if setting_column else "")
            failed += failed_cell(state, variant, row[seed_column], label)
            continue
        if not variant:
            errors.add(line, variant_column, variant, "a name")
        if seed is None:
            errors.add(line, seed_column, row[seed_column], "a whole number")
        if not variant or seed is None:
            continue
        setting = settings.label(row[setting_column] if setting_column else "")
        cell = cell_name(variant, seed, setting)
        if run_column is not None and row[run_column]:
            before, told = cell_of.setdefault(row[run_column], (line, cell))
            if told != cell:
                errors.add(line, run_column, row[run_column], f"another run than line {before}, which says {told}")
        for column, endpoint in scores.items():
            value = number(row[column])
            if value is None:
                errors.add(line, column, row[column], NUMBER)
            else:
                errors.check_range(line, column, row[column], endpoint, value)
                rows.append((cell, variant, seed, setting, *endpoint, value))
                repeats.add(line, rows[-1], row)
    errors.raise_if_any()
    # An empty field is a NaN that was logged, unless this variant never has a number there.
    numbers = {(row[1], row[4], row[5]) for row in rows if not math.isnan(row[6])}
    rows = [row for row in rows if (row[1], row[4], row[5]) in numbers]
    found = {(row[4], row[5]) for row in rows}
    for column, endpoint in scores.items():
        if rows and tuple(endpoint) not in found:
            raise ResultsError(f"{raw.path}: column {column!r} is empty in all finished {noun}; take it out")
    counts = ", ".join(f"{count} {state}" for state, count in sorted(left_out.items()))
    reason = f"{noun} left out because only {wanted} ones count: {counts}"
    left = [Problem(where=raw.path.name, reason=reason)] if counts else []
    return rows, failed, [*repeats.problems, *left]


def _first(raw: RawTable, names: list[str]) -> str | None:
    return next((name for name in names if name in raw.header), None)


def _score_columns(raw: RawTable, prefix: str) -> dict[str, schema.Endpoint]:
    found = {}
    for original, lower in zip(raw.original, raw.header, strict=True):
        if not lower.startswith(prefix):
            continue
        name = original[len(prefix) :]
        if name.startswith(schema.NOT_ENDPOINT_PREFIXES):
            continue
        try:
            found[lower] = schema.parse_endpoint(name)
        except ValueError:
            continue  # a parameter, a curve over dims, or a metric that is no endpoint
    return found
