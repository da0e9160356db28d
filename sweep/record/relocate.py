"""Mends a SQLite store whose folder was moved or copied: where the files of a study's runs are looked for.

MLflow records absolute artifact paths, so a store that was moved would be read from, and written to, its old place.
The store is changed in one transaction, by the holder of the claim on the study.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from analysis import schema
from analysis.places import ARTIFACTS_FOLDER, local_folder, placed
from analysis.showing import shown_uri
from sweep.errors import ClaimedError, TrackingError
from sweep.files import lock_file
from sweep.record.retry import START_WAIT_S
from sweep.record.study_lock import Owner, StudyLock, other_driver_alive
from sweep.record.tracking import Tracking
from sweep.record.tracking_uri import absolute_uri, database_file

SHOWN: Final = 3
"""Missing runs that an error names."""


@dataclass(frozen=True, kw_only=True)
class _Run:
    run_id: str
    name: str
    uri: str
    needed: bool
    """A study run, or a finished cell."""
    is_study: bool


@dataclass(frozen=True, kw_only=True)
class _Experiment:
    location: str
    runs: tuple[_Run, ...]

    def lying_in(self, folder: Path) -> list[_Run]:
        """Its runs that have a folder there."""
        return [run for run in self.runs if (folder / run.run_id).is_dir()]


def mend_if_moved(tracking: Tracking, study: str) -> str | None:
    """Before anything is written: look for the study's files beside the database, if its folder was moved or copied.

    Only the holder of the claim may call this.

    Returns:
        What was done, in one line; None where nothing was to be done.

    Raises:
        TrackingError: the files are neither where they were recorded nor beside the database.
    """
    database = database_file(tracking.uri)
    experiment_id = None if database is None else tracking.experiment_id(study)
    if database is None or experiment_id is None:
        return None
    experiment = _read(database, experiment_id)
    old = local_folder(experiment.location)
    if old is None:
        return None
    new = _beside(database, old)
    moved = [run for run in experiment.runs if placed(database, run.uri) != run.uri]
    if moved or (new.is_dir() and new.resolve() != old.resolve() and not old.exists()):
        return _mend(database, experiment_id, experiment, new)
    if experiment.runs and not old.exists() and new.resolve() != old.resolve():
        raise TrackingError(
            f"study {study!r}: the files of its runs are neither in {old}, where they were recorded, nor in {new}; "
            "put them there, or name their folder: sweep relocate STUDY --artifacts FOLDER"
        )
    return None


def relocate(study: str, uri: str, artifacts: Path | None = None) -> str:
    """Look for the study's files in another folder from now on; claims the study meanwhile.

    Args:
        study: Its name.
        uri: Of the tracking store.
        artifacts: The folder that holds one folder per run, or a folder above it (the one with `mlruns`, or `mlruns`
            itself); None: beside the database.

    Returns:
        What was done, in one line.

    Raises:
        TrackingError: no SQLite store, no such study, or the folder does not hold the files of its runs.
        ClaimedError: the study is being run.
    """
    uri = absolute_uri(uri)
    database = database_file(uri)
    if database is None:
        raise TrackingError(
            f"--tracking-uri: {shown_uri(uri)} is not a SQLite file; where its runs' files lie is recorded in that "
            "server's database, which whoever runs it has to change; only a SQLite file can be mended here"
        )
    tracking = Tracking(uri, wait_s=START_WAIT_S)
    owner = Owner.here()
    lock = StudyLock(lock_file(study, uri, database))
    experiment_id = tracking.experiment_id(study)
    if experiment_id is None:
        raise TrackingError(f"{database}: no study named {study!r} is recorded there, so there is nothing to relocate")
    lock.acquire(study, owner)
    try:
        _refuse_while_run(tracking, study, owner)
        experiment = _read(database, experiment_id)
        old = local_folder(experiment.location)
        if old is None:
            raise TrackingError(
                f"study {study!r}: its files lie at {shown_uri(experiment.location)}, which does not move with a folder"
            )
        new = _chosen(_beside(database, old) if artifacts is None else artifacts.absolute(), old, experiment)
        _refuse_missing(study, experiment, new)
        done = _mend(database, experiment_id, experiment, new)
        return done or f"nothing to do: the files of {study!r} are looked for in {new} already"
    finally:
        lock.release()


def _beside(database: Path, old: Path) -> Path:
    return database.absolute().parent / ARTIFACTS_FOLDER / old.name


def _refuse_while_run(tracking: Tracking, study: str, owner: Owner) -> None:
    def heartbeat() -> str | None:
        run = tracking.study_run(study)
        return None if run is None else run.tags.get(schema.TAG_HEARTBEAT)

    if alive := other_driver_alive(heartbeat, owner):
        raise ClaimedError(f"study {study!r} is being run by process {alive.pid} on {alive.host}; wait for it")


def _chosen(given: Path, old: Path, experiment: _Experiment) -> Path:
    """The folder of the runs: the one given, or the one below it."""
    candidates = (given, given / old.name, given / ARTIFACTS_FOLDER / old.name)
    return next((folder for folder in candidates if experiment.lying_in(folder)), given)


def _refuse_missing(study: str, experiment: _Experiment, new: Path) -> None:
    there = {run.run_id for run in experiment.lying_in(new)}
    # A cell need not have files (its trainable may store no predictions); a study run always has its plan.
    cells_have_files = any(run.needed and not run.is_study for run in experiment.runs if run.run_id in there)
    missing = [
        run
        for run in experiment.runs
        if run.needed and run.run_id not in there and (run.is_study or cells_have_files or _has_files(run))
    ]
    if missing:
        shown = ", ".join(f"{run.name} ({run.run_id})" for run in missing[:SHOWN])
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        raise TrackingError(
            f"{new} does not hold the files of {study!r}: missing are {shown}{more}; expected a folder "
            "with one folder per run, called by the run's id"
        )


def _has_files(run: _Run) -> bool:
    folder = local_folder(run.uri)
    return folder is not None and folder.is_dir()


def _read(database: Path, experiment_id: str) -> _Experiment:
    query = (
        "SELECT r.run_uuid, r.name, r.artifact_uri, r.status, k.value FROM runs r LEFT JOIN tags k"
        ' ON k.run_uuid = r.run_uuid AND k."key" = ? WHERE r.experiment_id = ? ORDER BY r.start_time, r.run_uuid'
    )
    try:
        with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True, timeout=30)) as connection:
            ((location,),) = connection.execute(
                "SELECT artifact_location FROM experiments WHERE experiment_id = ?", (int(experiment_id),)
            ).fetchall()
            rows = connection.execute(query, (schema.TAG_KIND, int(experiment_id))).fetchall()
    except sqlite3.Error as error:
        raise TrackingError(f"{database}: cannot be read: {error}") from error
    return _Experiment(
        location=location or "",
        runs=tuple(
            _Run(
                run_id=run_id,
                name=name or run_id,
                uri=uri or "",
                needed=kind == schema.KIND_STUDY or (kind == schema.KIND_CELL and status == "FINISHED"),
                is_study=kind == schema.KIND_STUDY,
            )
            for run_id, name, uri, status, kind in rows
        ),
    )


def _mend(database: Path, experiment_id: str, experiment: _Experiment, new: Path) -> str | None:
    """Record the new place. A run whose files lie in its old place alone keeps it."""
    there = {run.run_id for run in experiment.lying_in(new)}
    runs = [run for run in experiment.runs if run.run_id in there or not _has_files(run)]
    changed = [(uri, run.run_id) for run in runs if (uri := (new / run.run_id / "artifacts").as_uri()) != run.uri]
    if not changed and experiment.location == new.as_uri():
        return None
    _write(database, experiment_id, new, changed)
    kept = len(experiment.runs) - len(runs)
    left = f"; {kept} whose files are only in the old place stay there" if kept else ""
    old = local_folder(experiment.location)
    files = f"{len(changed)} run's files are" if len(changed) == 1 else f"{len(changed)} runs' files are"
    return f"this folder was moved or copied from {old}: {files} now looked for in {new}{left}"


def _write(database: Path, experiment_id: str, new: Path, changed: Sequence[tuple[str, str]]) -> None:
    try:
        with closing(sqlite3.connect(database, timeout=30)) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                "UPDATE experiments SET artifact_location = ? WHERE experiment_id = ?",
                (new.as_uri(), int(experiment_id)),
            )
            connection.executemany("UPDATE runs SET artifact_uri = ? WHERE run_uuid = ?", changed)
    except sqlite3.Error as error:
        raise TrackingError(f"{database}: cannot be written: {error}; the old place stays recorded") from error
