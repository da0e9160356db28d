"""MLflow's SQLite database read directly, read-only.

Only for the versions of MLflow's schema that this reading was checked against; `schema_is_known` tells, and
anything else is left to MLflow's client.
"""

from __future__ import annotations

import hashlib
import math
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from analysis import schema
from analysis.errors import ResultsError
from analysis.places import local_folder, placed
from analysis.results.store import Stamp, StoredRun, unknown_experiment
from analysis.showing import hide_credentials

KNOWN_SCHEMAS = frozenset({"dc11669786a5"})
"""`alembic_version` of MLflow 3.17."""

_FROM = """
    FROM runs r
    JOIN experiments e ON e.experiment_id = r.experiment_id
"""
_OF_KIND = """
    JOIN tags k ON k.run_uuid = r.run_uuid AND k."key" = ? AND k.value = ?
    WHERE e.name = ? AND e.workspace = 'default' AND r.lifecycle_stage = 'active'
"""
_RUNS = _FROM + _OF_KIND
_RUNS_WITH = _FROM + " JOIN {} o ON o.run_uuid = r.run_uuid " + _OF_KIND


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
        """One digest over runs, tags and metrics of all cells, and over the files of their predictions.

        Of a file it holds size and time, so that one that was removed or repaired is seen; remote ones are not asked.
        """
        cells = (schema.TAG_KIND, schema.KIND_CELL, experiment)
        digest = hashlib.sha256()
        with self._connect() as database:
            self._require(database, experiment)
            folders = database.execute(f"SELECT r.artifact_uri {_RUNS} ORDER BY r.run_uuid", cells).fetchall()
            for query in (
                f"SELECT r.run_uuid, r.status, r.start_time, r.end_time, r.artifact_uri {_RUNS}",
                f'SELECT o.run_uuid, o."key", o.value {_RUNS_WITH.format("tags")}',
                f'SELECT o.run_uuid, o."key", o.value, o.is_nan {_RUNS_WITH.format("latest_metrics")}',
            ):
                for row in sorted(map(repr, database.execute(query, cells))):
                    digest.update(row.encode())
        for (uri,) in folders:
            digest.update(repr(_files(placed(self._path, uri or ""))).encode())
        return ((digest.hexdigest(),),)

    def add_tag(self, run_id: str, key: str, value: str) -> None:
        """Add one new tag to a run, in a transaction of its own.

        Raises:
            ResultsError: the file cannot be written, or the run has this tag.
        """
        try:
            with closing(sqlite3.connect(self._path, timeout=30)) as database, database:
                database.execute('INSERT INTO tags ("key", value, run_uuid) VALUES (?, ?, ?)', (key, value, run_id))
        except sqlite3.Error as error:
            raise ResultsError(f"{hide_credentials(self.uri)}: cannot be written: {error}") from None

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


def _files(artifact_uri: str | None) -> list[tuple[str, int, int]]:
    """Name, size and time of the local files of predictions below an artifact URI."""
    folder = local_folder(artifact_uri or "")
    if folder is None:
        return []
    try:
        with os.scandir(folder / schema.PREDICTIONS_ARTIFACT_DIR) as entries:
            return sorted((e.name, e.stat().st_size, e.stat().st_mtime_ns) for e in entries)
    except OSError:
        return []
