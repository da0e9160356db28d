"""A study as one file: as Parquet all that a report needs, predictions included, without MLflow; as CSV the scores.

Parquet: one row per cell; what belongs to the study as a whole stands in the file's metadata under `pairsweep`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis import schema
from analysis.errors import ResultsError
from analysis.files import write_atomically, written_atomically
from analysis.plan import AnalysisPlan
from analysis.results.fields import guarded
from analysis.results.mlflow_study import finished_splits
from analysis.results.model import CellRecord, HistoryEntry, PredictionTable, Problem, Results
from analysis.results.runs import table as table_of
from analysis.showing import counted

if TYPE_CHECKING:
    import pyarrow as pa

METADATA_KEY = b"pairsweep"
ROWS_PER_GROUP = 32
_TEXT_COLUMNS = (schema.COLUMN_CELL, schema.COLUMN_VARIANT, schema.COLUMN_SETTING, schema.COLUMN_METRIC)
"""Of a results table; the others are numbers, and a negative number is no formula."""
_JSON_COLUMNS = ("fields", "variant_fields", "fingerprint", "times", "notes")


def export_results(results: Results, path: Path) -> list[str]:
    """Write results and say what was written, one line each.

    Raises:
        ResultsError: the file's ending names no format.
        OSError: it cannot be written.
    """
    ending = path.suffix.lower()
    finished = sum(cell.state == schema.STATE_FINISHED for cell in results.cells)
    if ending == ".parquet":
        write_archive(results, path, finished_splits(results))
        lines = [
            f"wrote {path}: {counted(len(results.cells), 'cell')} ({finished} finished), {len(results.table)} scores"
        ]
        problems = getattr(results.predictions, "problems", [])
        return [*lines, *(f"{problem.where}: {problem.reason}" for problem in problems)]
    if ending == ".csv":
        table = results.table.copy()
        for name in table.columns.intersection([*_TEXT_COLUMNS]):
            table[name] = table[name].map(guarded)
        write_atomically(path, table.to_csv(index=False, lineterminator="\n").encode())
        return [
            f"wrote {path}: {len(results.table)} scores of {counted(finished, 'finished cell')}",
            "a CSV carries neither fingerprints nor predictions: a report on it is unverified and has no crossed"
            " intervals; --output FILE.parquet keeps all",
        ]
    raise ResultsError(f"{path}: {ending or 'no ending'} is not written; name the file .parquet or .csv")


def write_archive(results: Results, path: Path, splits: list[str]) -> None:
    """Write a study as Parquet, whole or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    import pyarrow.parquet as pq

    arrow_schema = _arrow_schema(_study_metadata(results))
    with (
        written_atomically(path) as temporary,
        pq.ParquetWriter(temporary, arrow_schema, compression="zstd") as writer,
    ):
        for group in _groups(results, splits):
            writer.write_table(_group_table(group, arrow_schema))


def read_archive(path: Path, study: str | None = None) -> Results:
    """Read what `write_archive` wrote.

    Raises:
        ResultsError: no Parquet file, or not one of ours.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            raw = (file.schema_arrow.metadata or {}).get(METADATA_KEY)
            if raw is None:
                raise ResultsError(
                    f"{path}: this Parquet file was not made by `analysis export`; export the study, or save the table"
                    f" as CSV with the columns {', '.join(schema.PLAIN_COLUMNS)}"
                )
            whole = json.loads(raw)
            columns = [name for name in file.schema_arrow.names if name != "predictions"]
            rows = file.read(columns=columns).to_pylist()
            groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        cells = tuple(_cell(row) for row in rows)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise ResultsError(f"{path}: cannot be read as Parquet: {' '.join(str(error).split())[:160]}") from None
    scores = [
        (cell.cell, cell.variant, cell.seed, cell.setting, score["metric"], score["dim"], score["value"])
        for cell, row in zip(cells, rows, strict=True)
        for score in row["scores"] or ()
    ]
    plan = whole.get("declared_plan")
    return Results(
        study=study or whole["study"],
        table=table_of(scores),
        cells=cells,
        problems=tuple(Problem(**problem) for problem in whole["problems"]),
        fingerprinted=whole["fingerprinted"],
        predictions=ArchivedPredictions(path, [cell.cell for cell in cells], groups),
        declared_plan=None if plan is None else AnalysisPlan.model_validate(plan),
        default_primary=tuple(whole.get("default_primary") or ()),
        declared_baseline=whole["declared_baseline"],
        variant_order=tuple(whole["variant_order"]),
        history=tuple(HistoryEntry(**entry) for entry in whole["history"]),
        search=whole["search"],
    )


class ArchivedPredictions:
    """Predictions inside our Parquet file, read one row group at a time; called with (cell key, split)."""

    def __init__(self, path: Path, cells: list[str], groups: list[int]) -> None:
        self.problems: list[Problem] = []
        self._path = path
        self._group_of: dict[str, int] = {}
        starts = iter(cells)
        for number, size in enumerate(groups):
            for _ in range(size):
                self._group_of[next(starts)] = number
        self._held: dict[tuple[str, str], PredictionTable] = {}
        self._read: set[int] = set()

    def __call__(self, cell: str, split: str) -> PredictionTable | None:
        """Predictions of one cell on one split; None where none are stored."""
        group = self._group_of.get(cell)
        if group is not None and group not in self._read:
            self._read.add(group)
            self._hold(group)
        return self._held.get((cell, split))

    def _hold(self, group: int) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(self._path) as file:
                read = file.read_row_group(group, columns=["cell", "predictions"])
        except (pa.ArrowException, OSError) as error:
            reason = f"predictions cannot be read: {' '.join(str(error).split())[:160]}"
            self.problems.append(Problem(where=f"{self._path.name}, row group {group}", reason=reason))
            return
        for cell, splits in zip(read.column("cell").to_pylist(), read.column("predictions"), strict=True):
            for stored in splits.values or ():
                self._held[cell, stored["split"].as_py()] = _predictions(stored)


def _predictions(stored: Any) -> PredictionTable:
    import numpy as np

    def numbers(listed: Any) -> Any:
        return np.asarray(listed.values, dtype=np.float64)

    # Files written before metrics had values, ids and clusters have no such columns.
    known = set(stored.type.names) if hasattr(stored.type, "names") else {field.name for field in stored.type}
    texts = {
        name: tuple(stored[name].as_py()) if name in known and stored[name].is_valid else None
        for name in ("ids", "clusters")
    }
    return PredictionTable(
        labels=numbers(stored["labels"]) if stored["labels"].is_valid else None,
        by_dim={one["dim"].as_py(): numbers(one["cosines"]) for one in stored["by_dim"].values},
        values={
            (one["statistic"].as_py(), one["dim"].as_py()): numbers(one["values"])
            for one in (stored["values"].values if "values" in known and stored["values"].is_valid else ())
        },
        **texts,
    )


def _study_metadata(results: Results) -> dict[str, Any]:
    plan = results.declared_plan
    return {
        "schema": schema.SCHEMA_VERSION,
        "study": results.study,
        "fingerprinted": results.fingerprinted,
        "declared_plan": None if plan is None else plan.model_dump(mode="json"),
        "default_primary": list(results.default_primary),
        "declared_baseline": results.declared_baseline,
        "variant_order": list(results.variant_order),
        "history": [{**asdict(entry), "detail": dict(entry.detail)} for entry in results.history],
        "search": None if results.search is None else dict(results.search),
        "problems": [asdict(problem) for problem in results.problems],
    }


def _arrow_schema(metadata: dict[str, Any]) -> pa.Schema:
    import pyarrow as pa

    text = ("cell", "variant", "setting", "state", "failure", "failure_kind", "run_id", *_JSON_COLUMNS)
    score = pa.struct([("metric", pa.string()), ("dim", pa.int64()), ("value", pa.float64())])
    numbers = pa.list_(pa.float64())
    by_dim = pa.list_(pa.struct([("dim", pa.int64()), ("cosines", numbers)]))
    values = pa.list_(pa.struct([("statistic", pa.string()), ("dim", pa.int64()), ("values", numbers)]))
    prediction = pa.struct(
        [
            ("split", pa.string()),
            ("labels", numbers),
            ("by_dim", by_dim),
            ("values", values),
            ("ids", pa.list_(pa.string())),
            ("clusters", pa.list_(pa.string())),
        ]
    )
    return pa.schema(
        [
            ("seed", pa.int64()),
            *((name, pa.string()) for name in text),
            ("scores", pa.list_(score)),
            ("predictions", pa.list_(prediction)),
        ],
        metadata={METADATA_KEY: json.dumps(metadata).encode()},
    )


def _groups(results: Results, splits: list[str]) -> Iterator[list[dict[str, Any]]]:
    scores: dict[str, list[dict[str, Any]]] = {}
    columns = (schema.COLUMN_CELL, schema.COLUMN_METRIC, schema.COLUMN_DIM, schema.COLUMN_VALUE)
    for cell, metric, dim, value in zip(*(results.table[name].tolist() for name in columns), strict=True):
        scores.setdefault(cell, []).append({"metric": metric, "dim": dim, "value": value})
    seen: set[str] = set()
    group: list[dict[str, Any]] = []
    for cell in results.cells:
        row = asdict(cell)
        for name in _JSON_COLUMNS:
            row[name] = json.dumps(row[name])
        # Two finished runs of one cell share its rows in the table: written once, read back as they were.
        row["scores"] = [] if cell.cell in seen else scores.get(cell.cell, [])
        row["predictions"] = []
        for split in splits:
            found = None if cell.cell in seen else results.predictions(cell.cell, split)
            if found is not None:
                stored = {
                    "split": split,
                    "labels": found.labels,
                    "by_dim": [{"dim": dim, "cosines": array} for dim, array in found.by_dim.items()],
                    "values": [
                        {"statistic": statistic, "dim": dim, "values": array}
                        for (statistic, dim), array in found.values.items()
                    ],
                    "ids": found.ids,
                    "clusters": found.clusters,
                }
                row["predictions"].append(stored)
        seen.add(cell.cell)
        group.append(row)
        if len(group) == ROWS_PER_GROUP:
            yield group
            group = []
    if group:
        yield group


def _group_table(rows: list[dict[str, Any]], arrow_schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(rows, schema=arrow_schema)


def _cell(row: Mapping[str, Any]) -> CellRecord:
    return CellRecord(
        cell=row["cell"],
        variant=row["variant"],
        seed=row["seed"],
        setting=row["setting"],
        state=row["state"],
        fields=json.loads(row["fields"]),
        variant_fields=tuple(json.loads(row["variant_fields"])),
        fingerprint=json.loads(row["fingerprint"]),
        failure=row["failure"],
        failure_kind=row["failure_kind"],
        run_id=row["run_id"],
        times=json.loads(row["times"]),
        notes=tuple(json.loads(row.get("notes") or "[]")),  # files of before have no such column
    )
