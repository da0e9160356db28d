"""Where a run's files lie, also once the folder of its database was moved or copied.

Standard library only: everybody may import this.
"""

from __future__ import annotations

import urllib.parse
import urllib.request
from pathlib import Path
from typing import Final

ARTIFACTS_FOLDER: Final = "mlruns"
"""Beside a SQLite database: `mlruns/<experiment's folder>/<run id>/artifacts`."""


def local_folder(artifact_uri: str) -> Path | None:
    """The folder behind a local artifact URI; None for anything remote."""
    parts = urllib.parse.urlsplit(artifact_uri)
    if parts.scheme == "file":
        return Path(urllib.request.url2pathname(parts.path))
    return Path(artifact_uri) if parts.scheme == "" else None


def placed(database: Path | None, artifact_uri: str) -> str:
    """The artifact URI of a run as it is now: beside the database, if its folder was moved or copied; else as recorded.

    MLflow records absolute paths. A run recorded in `/old/mlruns/3f/<run>/artifacts` whose folder `mlruns/3f/<run>`
    lies beside the database is read from there, whether or not the old one still exists.

    Args:
        database: The SQLite file; None for any other store, whose URIs stay as they are.
        artifact_uri: As recorded.
    """
    recorded = local_folder(artifact_uri)
    if database is None or recorded is None or recorded.parts[-4:-3] != (ARTIFACTS_FOLDER,):
        return artifact_uri
    here = database.absolute().parent / Path(*recorded.parts[-4:])
    if not here.parent.is_dir() or here.parent.resolve() == recorded.parent.resolve():
        return artifact_uri
    return here.as_uri()


def experiment_folder(artifact_uri: str) -> Path | None:
    """The folder that holds the runs of an experiment, from the artifact URI of one of them; None if remote."""
    folder = local_folder(artifact_uri)
    return None if folder is None else folder.parent.parent
