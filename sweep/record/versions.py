"""Software of the finished cells against what is installed here: two versions make two kinds of cells."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib import metadata

from analysis import schema
from sweep.record.ledger import RecordedRun

SOFTWARE = schema.TAG_FINGERPRINT_PREFIX + "software"


def changed_versions(runs: Iterable[RecordedRun]) -> list[str]:
    """One line for each library that finished cells were trained with in another version than the one here."""
    seen: dict[tuple[str, str], int] = {}
    for run in runs:
        if run.status == "FINISHED":
            for part in run.tags.get(SOFTWARE, "").split():
                name, _, version = part.partition("=")
                if version:
                    seen[name, version] = seen.get((name, version), 0) + 1
    lines = []
    for (name, version), count in sorted(seen.items()):
        here = _installed(name)
        if here != version:
            lines.append(
                f"{name}: {count} finished {'cell was' if count == 1 else 'cells were'} trained with {version}, "
                f"here is {here or 'none'}; a pair across versions is not a pair"
            )
    return lines


def _installed(name: str) -> str | None:
    if name == "python":
        return platform.python_version()
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
