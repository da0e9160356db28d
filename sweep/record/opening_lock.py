"""One process at a time opens a SQLite store: MLflow makes a new one table by table, and two at once break both."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sweep.places import file_name


@contextmanager
def alone_with(database: Path | None) -> Iterator[None]:
    """Wait for a kernel lock on opening that database, and hold it; nothing for a store that is no file.

    The lock lies in the temporary folder: a store may be read where nothing can be written beside it.
    """
    if database is None:
        yield
        return
    path = Path(tempfile.gettempdir()) / f"pairsweep-{os.getuid()}-{file_name('opening', str(database))}.lock"
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
