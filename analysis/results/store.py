"""A tracking store as this package sees it: the runs of one experiment, and what its URI says.

Importing mlflow costs seconds and its `search_runs` about 3.5 ms a run, so a SQLite file is read without it
(analysis.results.mlflow_sqlite). Every other store, servers too, is read by MLflow's own client
(analysis.results.mlflow).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from analysis.errors import ResultsError
from analysis.showing import hide_credentials

DEFAULT_TRACKING_URI = "sqlite:///mlflow.db"
_SQLITE = "sqlite:///"


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """One run as recorded; times are milliseconds since the epoch."""

    run_id: str
    status: str
    """FINISHED, FAILED, KILLED, RUNNING or SCHEDULED."""
    start_time: int | None
    end_time: int | None
    artifact_uri: str
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Last value of each metric; NaN where the store flags it so."""
    params: Mapping[str, str] = field(default_factory=dict)


Stamp = tuple[tuple[str | int | None, ...], ...]
"""Whatever differs when something that a report shows differs: what a cached reading is valid for."""


class Store(Protocol):
    """The queries that reading a study needs."""

    uri: str

    def stamp(self, experiment: str) -> Stamp | None:
        """One cheap query; None where the store has none cheaper than reading everything."""
        ...

    def study_runs(self, experiment: str) -> list[StoredRun]:
        """The study's parent runs, oldest first."""
        ...

    def cell_runs(self, experiment: str) -> list[StoredRun]:
        """All runs of cells, oldest first."""
        ...


def default_uri(given: str | None) -> str:
    """The URI given, else MLFLOW_TRACKING_URI, else MLflow's own default."""
    return given or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_TRACKING_URI


def sqlite_path(uri: str) -> Path | None:
    """File behind a plain `sqlite:///` URI; None for any other URI."""
    if not uri.startswith(_SQLITE) or "?" in uri:
        return None
    return Path(uri[len(_SQLITE) :])


def canonical_uri(uri: str) -> str:
    """The URI with its SQLite path made absolute, so that it means the same in every folder."""
    path = sqlite_path(uri)
    return uri.rstrip("/") if path is None else _SQLITE + str(path.resolve())


def unknown_experiment(experiment: str, uri: str, known: list[str]) -> ResultsError:
    """The error for a study that the store does not hold; says which it holds."""
    shown = ", ".join(sorted(known)[:20]) + (", ..." if len(known) > 20 else "")
    return ResultsError(
        f"{hide_credentials(uri)}: no study named {experiment!r}; "
        + (f"recorded there: {shown}" if known else "nothing is recorded there")
    )
