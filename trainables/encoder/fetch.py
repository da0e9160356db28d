"""Bring a hub model onto this machine: once, at the revision that its cell's identity names; no network after that."""

from __future__ import annotations

import fcntl
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from analysis.files import write_atomically
from trainables.downloads import cache_folder
from trainables.errors import InputError
from trainables.locations import ModelLocation, locate_model
from trainables.spec import BUILTIN_DATA, TrainSpec

_COMMIT: Final = re.compile(r"^[0-9a-f]{40}$")
_NOT_NEEDED: Final = ("onnx/*", "openvino/*", "*.onnx", "*.h5", "*.msgpack", "*.ot", "*.tflite")
"""The same weights in other frameworks' forms."""


def pinned(spec: TrainSpec, digests: Mapping[str, str]) -> TrainSpec:
    """The spec with its hub model and datasets at the commits that a cell's digests name.

    A branch may move between two machines' downloads; a commit does not.
    """
    changed: dict[str, Any] = {}
    for field, named in (("model", spec.model), ("data", spec.data)):
        commit = digests.get(field, "")
        if named is not None and named.name not in (None, *BUILTIN_DATA) and _COMMIT.match(commit):
            changed[field] = named.model_copy(update={"revision": commit})
    commits = {name: digests.get(f"evaluate:{name}", "") for name in spec.evaluate}
    if any(_COMMIT.match(commit) for commit in commits.values()):
        changed["evaluate"] = {
            name: source.at_commit(commits[name]) if _COMMIT.match(commits[name]) else source
            for name, source in spec.evaluate.items()
        }
    return spec.model_copy(update=changed) if changed else spec


def fetch_model(spec: TrainSpec) -> None:
    """Download the spec's model unless this machine has it; processes that ask at the same time wait for the first.

    Raises:
        InputError: the hub cannot be reached, or does not have it.
    """
    if spec.model is None or not _COMMIT.match(spec.model.revision or ""):
        return
    location = locate_model(spec)
    if location.kind != "hub" or fetched_folder(location, spec.model.revision) is not None:
        return
    note = _note(location, spec.model.revision)
    note.parent.mkdir(parents=True, exist_ok=True)
    with note.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if fetched_folder(location, spec.model.revision) is not None:
            return
        from huggingface_hub import snapshot_download

        try:
            folder = snapshot_download(
                location.name, revision=spec.model.revision, ignore_patterns=list(_NOT_NEEDED), etag_timeout=10
            )
        except Exception as error:
            why = f"{type(error).__name__}: {error}".splitlines()[0]
            raise InputError(
                where="model hub",
                field="model.name",
                value=f"{location.name}@{spec.model.revision}",
                allowed=f"cannot be downloaded to this machine ({why})",
            ) from error
        # Only now: a download that was cut short leaves a folder, but no note.
        write_atomically(note, folder.encode())


def fetched_folder(location: ModelLocation, revision: str | None) -> Path | None:
    """Where a completely downloaded hub model lies; None where this machine does not have it."""
    try:
        folder = Path(_note(location, revision).read_text(encoding="utf-8"))
    except OSError:
        return None
    return folder if folder.is_dir() else None


def _note(location: ModelLocation, revision: str | None) -> Path:
    name = hashlib.sha256(f"{location.name}@{revision}".encode()).hexdigest()[:32]
    return cache_folder() / "fetched" / name
