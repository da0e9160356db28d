"""Findings kept per study and state of the store, so that a report need not read everything again.

An entry is valid for one state of the store (its stamp), one question and one version of this package's code;
anything unreadable is ignored and written anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from analysis.comparing.angle_roles import AngleRoles
from analysis.comparing.findings import StudyFindings
from analysis.files import write_atomically

KEPT_ENTRIES = 8
"""Per study; the oldest go first."""


class CachedReport(BaseModel):
    """What a report is made of."""

    model_config = ConfigDict(ser_json_inf_nan="constants", arbitrary_types_allowed=False, frozen=True)

    key: str
    findings: StudyFindings
    roles: AngleRoles | None


def entry_key(question: Mapping[str, Any]) -> str:
    """Key of one question to one state of the store, by this version of the code."""
    return hashlib.sha256(json.dumps([code_digest(), question], sort_keys=True).encode()).hexdigest()


def code_digest() -> str:
    """Changes with every change of this package's code: size and time of its files."""
    root = Path(__file__).parent.parent
    stats = [(str(path.relative_to(root)), path.stat()) for path in sorted(root.rglob("*.py"))]
    text = json.dumps([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])
    return hashlib.sha256(text.encode()).hexdigest()


def load(folder: Path, key: str) -> CachedReport | None:
    """The entry of that key; None where there is none that can be read."""
    try:
        entry = CachedReport.model_validate_json(_file(folder, key).read_bytes())
    except (OSError, ValidationError):
        return None
    return entry if entry.key == key else None


def save(folder: Path, entry: CachedReport) -> None:
    """Keep an entry; a cache that cannot be written is no fault of the report."""
    try:
        write_atomically(_file(folder, entry.key), entry.model_dump_json().encode())
        old = sorted(folder.glob("findings-*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in old[KEPT_ENTRIES:]:
            path.unlink(missing_ok=True)
    except OSError:
        return


def _file(folder: Path, key: str) -> Path:
    return folder / f"findings-{key[:32]}.json"
