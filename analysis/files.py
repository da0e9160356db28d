"""Writing files so that they are there whole or not at all. Standard library only: everybody may import this."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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
    with written_atomically(path, mode=mode) as temporary:
        temporary.write_bytes(content)


@contextmanager
def written_atomically(path: Path, *, mode: int = 0o644) -> Iterator[Path]:
    """The same for whoever writes a file piece by piece: write to the path given, which then takes its place.

    Args:
        path: Where; folders that are missing are made.
        mode: Permissions of the file.

    Yields:
        An empty file beside it. Where the block raises, it is removed and `path` is as before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        yield temporary
        os.fsync(descriptor)  # of the file, whichever descriptor it was written through
        temporary.chmod(mode)  # mkstemp lets nobody but the owner read it
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
