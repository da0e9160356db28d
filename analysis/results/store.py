"""A tracking store as this package sees it: the runs of one experiment, and how to open the store behind a URI.

Importing mlflow costs seconds and its `search_runs` about 3.5 ms a run, so the two common stores are read
without it: SQLite through `sqlite3` (analysis.results.mlflow_sqlite) and a server through REST (analysis.results.rest).
Anything else goes through MLflow's client (analysis.results.mlflow).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from analysis.errors import ResultsError

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
"""(status, cell runs, latest start, latest end) per status: what a cached reading is valid for."""


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


def hide_credentials(uri: str) -> str:
    """The URI without user and password, fit to be shown."""
    return re.sub(r"//[^/@]*@", "//", uri)


def open_store(uri: str) -> Store:
    """The store behind a tracking URI.

    Raises:
        ResultsError: no database file, or a URI that MLflow does not know.
    """
    path = sqlite_path(uri)
    if path is not None:
        if not path.is_file():
            raise ResultsError(
                f"{hide_credentials(uri)}: there is no such MLflow database; give --tracking-uri or run the study first"
            )
        from analysis.results.mlflow_sqlite import SqliteStore

        store = SqliteStore(uri, path)
        if store.schema_is_known():
            return store
    elif uri.startswith(("http://", "https://")) and not os.environ.get("MLFLOW_TRACKING_AUTH"):
        from analysis.results.rest import RestStore

        return RestStore(uri)
    from analysis.results.mlflow import ClientStore

    return ClientStore(uri)


def unknown_experiment(experiment: str, uri: str, known: list[str]) -> ResultsError:
    """The error for a study that the store does not hold; says which it holds."""
    shown = ", ".join(sorted(known)[:20]) + (", ..." if len(known) > 20 else "")
    return ResultsError(
        f"{hide_credentials(uri)}: no study named {experiment!r}; "
        + (f"recorded there: {shown}" if known else "nothing is recorded there")
    )
