"""Writing files so that they are there whole or not at all. Standard library only: everybody may import this."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write a file so that a reader sees the old one or the whole new one, also after a power cut.

    Args:
        path: Where; folders that are missing are made.
        content: All of it.
        mode: Permissions of the file; by default everybody may read it.

    Raises:
        OSError: the folder cannot be written. Nothing is left behind then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode)  # mkstemp lets nobody but the owner read it
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
