"""What the cells of a machine keep for each other in files: each is trained in a process of its own.

A folder that lasts as long as the launch, and that only its user can read. Without one, nothing is kept.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

ENV_KEPT: Final = "PAIRSWEEP_KEPT"
"""Names the folder; set by the process that cells are forked from."""

_T = TypeVar("_T")


def kept(what: tuple[str, ...], make: Callable[[], _T]) -> _T:
    """A value that depends on `what` alone: read from the folder, or made and written for the next cell.

    Args:
        what: Everything that the value depends on, its kind first.
        make: Makes it where it is not there yet.
    """
    folder = os.environ.get(ENV_KEPT)
    if not folder:
        return make()
    path = Path(folder) / f"{what[0]}-{hashlib.sha256(repr(what).encode()).hexdigest()[:32]}"
    with suppress(Exception):  # not there yet, or not to be read: made again
        found: _T = pickle.loads(path.read_bytes())
        return found
    made = make()
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(pickle.dumps(made, protocol=5))
        temporary.replace(path)
    except Exception:  # a full disk costs time, not the cell
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return made
