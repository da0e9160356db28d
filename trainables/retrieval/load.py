"""A retrieval set by its name: built in, a folder of BEIR's files, a SQuAD file, or a dataset on the hub."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final, Literal, NamedTuple

from trainables.downloads import DATA_FOLDER_VARIABLE, PINNED_RETRIEVAL, cache_folder
from trainables.errors import InputError
from trainables.kept import kept
from trainables.locations import file_digest, hub_commit
from trainables.retrieval.beir import CORPUS, beir_files, read_beir
from trainables.retrieval.data import RetrievalSet
from trainables.retrieval.squad import read_jsquad, read_squad

BUILTIN: Final = tuple(PINNED_RETRIEVAL)
_EXPECTED: Final = (
    f"expected {', '.join(BUILTIN)}, a folder with {CORPUS}, queries.jsonl and qrels/, a .json file of SQuAD's"
    " format, or a hub id such as mteb/scifact"
)


class Place(NamedTuple):
    """What a name stands for."""

    kind: Literal["builtin", "beir", "squad", "hub"]
    path: Path | None = None


def locate(name: str, *, root: Path | None = None, field: str = "name") -> Place:
    """What a name stands for; reads no contents and asks no network.

    Args:
        name: A built-in set, a path, or a hub id.
        root: What a relative path is relative to. Default: the current folder.
        field: The study's field that holds the name, for messages.

    Raises:
        InputError: it is no name of a set, or a file or folder that is not there or not of these formats.
    """
    if name in BUILTIN:
        return Place("builtin")
    path = (root or Path()) / Path(name).expanduser()
    if path.is_dir():
        if not (path / CORPUS).is_file():
            raise InputError(where=str(path), field=field, value=name, allowed=f"the folder has no {CORPUS}")
        return Place("beir", path)
    if path.is_file():
        if path.suffix.lower() != ".json":
            raise InputError(where=str(path), field=field, value=name, allowed=_EXPECTED)
        return Place("squad", path)
    if name.startswith((".", "/", "~")) or name.count("/") != 1 or path.suffix.lower() in (".json", ".jsonl"):
        raise InputError(where=str(path), field=field, value=name, allowed=f"no such file or folder; {_EXPECTED}")
    return Place("hub")


def read_retrieval(
    name: str,
    *,
    split: str = "test",
    revision: str | None = None,
    group: str | None = None,
    root: Path | None = None,
    field: str = "name",
) -> RetrievalSet:
    """A retrieval set; kept, so that a second cell parses no file.

    Args:
        name: A built-in set, a path, or a hub id.
        split: Of a built-in set, a folder or a hub dataset; a SQuAD file has none.
        revision: Branch, tag or commit of a hub dataset.
        group: Field of a query that says what it belongs to, in a folder or a hub dataset. Built-in sets and SQuAD
            files are grouped by article.
        root: What a relative path is relative to. Default: the current folder.
        field: The study's field that holds the name, for messages.

    Raises:
        InputError: file and line, field, value, what is allowed.
    """
    place = locate(name, root=root, field=field)
    if group is not None and place.kind in ("builtin", "squad"):
        raise InputError(where="study", field="group", value=group, allowed=f"{name} is grouped by article already")
    stamps = (os.environ.get(DATA_FOLDER_VARIABLE, ""), str(cache_folder()), *_stamps(place, split))
    what = ("retrieval", name, split, revision or "", group or "", *stamps)
    return kept(what, lambda: _read(place, name, split, revision, group, field))


def _read(place: Place, name: str, split: str, revision: str | None, group: str | None, field: str) -> RetrievalSet:
    if place.kind == "builtin":
        return read_jsquad(split, field=field, name=name)
    if place.kind == "hub":
        from trainables.retrieval.hub import read_hub

        return read_hub(name, split, revision=revision, group=group, field=field)
    assert place.path is not None
    if place.kind == "beir":
        return read_beir(place.path, split, group=group, source=name)
    return read_squad(place.path, source=name)


def _files(place: Place, split: str) -> tuple[Path, ...]:
    if place.path is None:
        return ()
    return beir_files(place.path, split) if place.kind == "beir" else (place.path,)


def _stamps(place: Place, split: str) -> list[str]:
    """What makes the files other files than those read before."""
    out = []
    for path in _files(place, split):
        stat = path.stat() if path.is_file() else None
        out.append(f"{path} {stat.st_size} {stat.st_mtime_ns}" if stat else f"{path} absent")
    return out


def digest_of(name: str, *, split: str = "test", revision: str | None = None, root: Path | None = None) -> str | None:
    """Identity of a set's contents without parsing them; None where they cannot be read here.

    The pinned checksum of a built-in set, the contents of local files, or the commit of a hub dataset.
    """
    try:
        place = locate(name, root=root)
    except InputError:
        return None  # told when it is read; here it is only unresolved
    if place.kind == "builtin":
        file = PINNED_RETRIEVAL[name].get(split)
        return None if file is None else file.sha256
    if place.kind == "hub":
        return hub_commit(name, revision, kind="datasets")
    files = _files(place, split)
    if not all(path.is_file() for path in files):
        return None
    return hashlib.sha256("\n".join(file_digest(path) for path in files).encode()).hexdigest()
