"""Folders of this program outside any study: where claims and spooled results lie."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import Final

ENV_SPOOL: Final = "SWEEP_SPOOL_DIR"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


def file_name(text: str, also: str = "") -> str:
    """A file name that shows a text and is unique to it (and to `also`)."""
    digest = hashlib.sha256(f"{text}\0{also}".encode()).hexdigest()[:12]
    return f"{_UNSAFE.sub('-', text)[:60]}-{digest}"


def data_folder() -> Path:
    """The user's data folder for this program (XDG_DATA_HOME, else ~/.local/share)."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "pairsweep"


def home_hint(text: str) -> str:
    """What to add to an error that names a path below HOME, where HOME itself is what is wrong; else nothing."""
    home = os.environ.get("HOME", "")
    if not home or home not in text:
        return ""
    folder = Path(home)
    try:
        existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        usable = existing.is_dir() and os.access(existing, os.W_OK)
    except OSError:
        usable = False
    return "" if usable else f"; HOME is {home!r}, which is no folder that can be written: set HOME to one"


def spool_folder(study: str) -> Path:
    """Where results of a study wait that could not be recorded; never the working folder of a cluster job."""
    base = os.environ.get(ENV_SPOOL)
    return (Path(base).absolute() if base else data_folder() / "spool") / file_name(study)


def lock_file(study: str, uri: str, database: Path | None) -> Path:
    """The file whose kernel lock is the claim on a study: beside the database, so that all who share it see it."""
    folder = data_folder() / "claims" if database is None else database.parent / ".sweep"
    return folder / f"{file_name(study, uri)}.lock"


def scratch_folder(study: str, uri: str) -> Path:
    """Where one launch of a study keeps what is gone afterwards; short, since Ray puts sockets below it."""
    digest = hashlib.sha256(f"{study}\0{uri}".encode()).hexdigest()[:12]
    base = Path(tempfile.gettempdir())
    return (base if len(str(base)) <= 20 else Path("/tmp")) / f"sweep-{os.getuid()}-{digest}"
