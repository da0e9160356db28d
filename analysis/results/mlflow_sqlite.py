"""MLflow's SQLite database read directly, read-only.

Only for the versions of MLflow's schema that this reading was checked against; `schema_is_known` tells, and
anything else is left to MLflow's client.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from analysis import schema
from analysis.errors import ResultsError
from analysis.results.store import Stamp, StoredRun, hide_credentials, unknown_experiment

KNOWN_SCHEMAS = frozenset({"dc11669786a5"})
"""`alembic_version` of MLflow 3.17."""

_FROM = """
    FROM runs r
    JOIN experiments e ON e.experiment_id = r.experiment_id
"""
_NAMES = """
    LEFT JOIN tags v ON v.run_uuid = r.run_uuid AND v."key" = ?
    LEFT JOIN tags s ON s.run_uuid = r.run_uuid AND s."key" = ?
"""
_OF_KIND = """
    JOIN tags k ON k.run_uuid = r.run_uuid AND k."key" = ? AND k.value = ?
    WHERE e.name = ? AND e.workspace = 'default' AND r.lifecycle_stage = 'active'
"""
_RUNS = _FROM + _OF_KIND
_NAMED_RUNS = _FROM + _NAMES + _OF_KIND


class SqliteStore:
    """Reads one MLflow database file."""

    def __init__(self, uri: str, path: Path) -> None:
        self.uri, self._path = uri, path

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(f"{self._path.resolve().as_uri()}?mode=ro", uri=True, timeout=30)) as database:
                yield database
        except sqlite3.DatabaseError as error:
            raise ResultsError(f"{hide_credentials(self.uri)}: cannot be read as an MLflow database: {error}") from None

    def schema_is_known(self) -> bool:
        """Whether this version of MLflow's tables is one that was checked.

        Raises:
            ResultsError: the file is no database, or not one of MLflow.
        """
        with self._connect() as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if "alembic_version" not in tables:
                raise ResultsError(f"{hide_credentials(self.uri)}: this database is not one of MLflow")
            return {version for (version,) in database.execute("SELECT version_num FROM alembic_version")} <= (
                KNOWN_SCHEMAS
            )

    def _require(self, database: sqlite3.Connection, experiment: str) -> None:
        names = [
            name
            for (name,) in database.execute(
                "SELECT name FROM experiments WHERE lifecycle_stage = 'active' AND workspace = 'default'"
            )
        ]
        if experiment not in names:
            raise unknown_experiment(experiment, self.uri, [name for name in names if name != "Default"])

    def stamp(self, experiment: str) -> Stamp:
        """Cell runs by status and names, with their latest start and end, and which they are.

        The least and the greatest id tell two names that were exchanged between as many runs.
        """
        with self._connect() as database:
            self._require(database, experiment)
            rows = database.execute(
                "SELECT r.status, v.value, s.value, COUNT(*), MAX(r.start_time), MAX(r.end_time),"
                f" MIN(r.run_uuid), MAX(r.run_uuid) {_NAMED_RUNS} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
                (schema.TAG_VARIANT, schema.TAG_SETTING, schema.TAG_KIND, schema.KIND_CELL, experiment),
            )
            return tuple(tuple(row) for row in rows)

    def study_runs(self, experiment: str) -> list[StoredRun]:
        """The study's parent runs, oldest first."""
        return self._runs(experiment, schema.KIND_STUDY)

    def cell_runs(self, experiment: str) -> list[StoredRun]:
        """All runs of cells, oldest first."""
        return self._runs(experiment, schema.KIND_CELL)

    def _runs(self, experiment: str, kind: str) -> list[StoredRun]:
        chosen = (schema.TAG_KIND, kind, experiment)
        with self._connect() as database:
            self._require(database, experiment)
            runs = database.execute(
                "SELECT r.run_uuid, r.status, r.start_time, r.end_time, r.artifact_uri"
                f" {_RUNS} ORDER BY r.start_time, r.run_uuid",
                chosen,
            ).fetchall()
            tags: dict[str, dict[str, str]] = {run_id: {} for run_id, *_ in runs}
            metrics: dict[str, dict[str, float]] = {run_id: {} for run_id, *_ in runs}
            params: dict[str, dict[str, str]] = {run_id: {} for run_id, *_ in runs}
            chosen_runs = f"SELECT r.run_uuid {_RUNS}"
            for run_id, key, text in database.execute(
                f'SELECT run_uuid, "key", value FROM tags WHERE run_uuid IN ({chosen_runs})', chosen
            ):
                tags.setdefault(run_id, {})[key] = text
            for run_id, key, value, is_nan in database.execute(
                f'SELECT run_uuid, "key", value, is_nan FROM latest_metrics WHERE run_uuid IN ({chosen_runs})', chosen
            ):
                metrics.setdefault(run_id, {})[key] = math.nan if is_nan else float(value)
            for run_id, key, text in database.execute(
                f'SELECT run_uuid, "key", value FROM params WHERE run_uuid IN ({chosen_runs})', chosen
            ):
                params.setdefault(run_id, {})[key] = text
        return [
            StoredRun(
                run_id=run_id,
                status=status,
                start_time=start,
                end_time=end,
                artifact_uri=artifact_uri or "",
                tags=tags[run_id],
                metrics=metrics[run_id],
                params=params[run_id],
            )
            for run_id, status, start, end, artifact_uri in runs
        ]
