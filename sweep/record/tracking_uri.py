"""Addresses of tracking stores: the default, how they are shown, and who opens a SQLite file. Imports no MLflow."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from analysis.showing import shown_uri
from sweep.errors import TrackingError
from sweep.files import file_name
from sweep.record.mlflow_ui import runs_page

ENV_URI: Final = "MLFLOW_TRACKING_URI"
DATABASE_FILE: Final = "mlflow.db"


def default_uri() -> str:
    """MLFLOW_TRACKING_URI, else `mlflow.db` in the current folder, which is MLflow's own default."""
    return os.environ.get(ENV_URI) or f"sqlite:///{Path.cwd() / DATABASE_FILE}"


def database_file(uri: str) -> Path | None:
    """The file behind a SQLite URI; None for any other store."""
    if not uri.startswith("sqlite:"):
        return None
    return Path(uri.split("sqlite:///", 1)[-1].split("?", 1)[0])


def absolute_uri(uri: str) -> str:
    """The URI with an absolute path, since workers run in other folders.

    Raises:
        TrackingError: not an address that MLflow's tracking can use.
    """
    file = database_file(uri)
    if file is not None:
        return f"sqlite:///{file.absolute()}"
    scheme = uri.split(":", 1)[0] if "://" in uri and not re.search(r"\s", uri) else ""
    if scheme in ("http", "https", "databricks") or scheme.split("+")[0] in ("postgresql", "mysql", "mssql"):
        return uri.rstrip("/")
    raise TrackingError(
        f"tracking URI: {shown_uri(uri)!r} is not valid; use http://HOST:PORT of an MLflow server, or sqlite:///mlflow.db"
    )


def where_to_look(uri: str, experiment_id: str) -> str:
    """How to see an experiment's charts by variant in the MLflow UI: their address, or the command that serves it."""
    page = runs_page(experiment_id)
    file, uri = database_file(uri), shown_uri(uri)
    if file is None:
        return uri + page if uri.startswith("http") else f"mlflow ui --backend-store-uri {uri}"
    here = file == Path.cwd() / DATABASE_FILE
    store = "" if here else f" --backend-store-uri {uri}"
    return f"mlflow ui{store}, then http://127.0.0.1:5000{page}"


@contextmanager
def alone_with(database: Path | None) -> Iterator[None]:
    """Open a SQLite store one process at a time: waits for a kernel lock, and does nothing for any other store.

    MLflow makes a new database table by table, and two processes at once would break it.
    The lock lies in the temporary folder: a store may be read where nothing can be written beside it.
    """
    if database is None:
        yield
        return
    path = Path(tempfile.gettempdir()) / f"pairsweep-{os.getuid()}-{file_name('opening', str(database))}.lock"
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_private(database: Path) -> None:
    """A new SQLite file that nobody but its owner can read; one that is there stays as it is."""
    with suppress(OSError):  # opening it will tell what is wrong
        os.close(os.open(database, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def host_refusal(uri: str) -> str:
    """What to say where an MLflow server is asked under a name that it was not told of."""
    uri = shown_uri(uri)
    return f"{uri} refuses the host name {urlsplit(uri).netloc!r}; start `mlflow server` with it in --allowed-hosts"
