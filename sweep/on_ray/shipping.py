"""What of a study goes to a cluster: named things only. Knows no Ray.

Shipped are the study file, Python files beside and below it, and the data files, model folders and packages that
the study names; with them this program itself, so that the cluster runs the code that was tried here. Nothing else
leaves the machine: no caches, no results, nothing hidden, nothing whose name says that it is a secret.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sweep.errors import ClusterError
from sweep.study import Study
from trainables.spec import BUILTIN_DATA, SPLITS, TOY_MODELS

OWN_PACKAGES: Final = ("sweep", "trainables", "analysis")
STUDY_FOLDER: Final = "submitted_study"
"""The study's files lie below this folder: at the top, a user's own `analysis.py` would shadow ours."""
MAX_BYTES: Final = 64 * 2**20
MAX_FOLDERS: Final = 2_000
SECRET_NAMES: Final = (
    "*secret*", "*credential*", "*password*", "*passwd*", "*api_key*", "*apikey*", "*auth_token*", "*.pem", "*.key",
    "id_rsa*", "id_ed25519*",
)  # fmt: skip
_LEFT_OUT_FOLDERS: Final = ("__pycache__", "node_modules", "site-packages", "mlruns", "mlartifacts", "*.egg-info")


@dataclass(frozen=True, kw_only=True)
class Shipment:
    """Files to send: path in the job's folder -> file here."""

    files: Mapping[str, Path]
    own: Mapping[str, Path]
    """This program's own files."""
    left_out: tuple[str, ...]
    """Python files that look like secrets, relative to the study's folder."""
    study_file: str
    """Path of the study file in the job's folder."""

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(file.stat().st_size for file in (*self.files.values(), *self.own.values()))

    def write(self, folder: Path) -> None:
        """Copy everything into an empty folder."""
        for name, file in {**self.own, **self.files}.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)


def is_secret(name: str) -> bool:
    """Whether a file's name says that it is not for others."""
    return any(fnmatch.fnmatch(name.lower(), pattern) for pattern in SECRET_NAMES)


def shipment_of(study: Study) -> Shipment:
    """What is shipped for a study.

    Raises:
        ClusterError: a named file is missing or lies outside the study's folder, or all of it is too large.
    """
    found: dict[str, Path] = {}
    left_out = []
    for file in _python_files(study.root):
        name = file.relative_to(study.root).as_posix()
        if is_secret(file.name):
            left_out.append(name)
        else:
            found[name] = file
    for file in _named_files(study):
        found[file.relative_to(study.root).as_posix()] = file
    name = study.path.resolve().name  # of the file itself, where the given path is a link to it
    found[name] = study.root / name
    named = {one for one in left_out if one in found}
    shipment = Shipment(
        files={f"{STUDY_FOLDER}/{name}": found[name] for name in sorted(found)},
        own=dict(_own_files()),
        left_out=tuple(one for one in left_out if one not in named),
        study_file=f"{STUDY_FOLDER}/{name}",
    )
    if shipment.size > MAX_BYTES:
        largest = sorted(found.items(), key=lambda one: one[1].stat().st_size, reverse=True)[:3]
        shown = ", ".join(f"{name} ({file.stat().st_size / 2**20:.1f} MiB)" for name, file in largest)
        raise ClusterError(
            f"{study.path}: its files are {shipment.size / 2**20:.1f} MiB, at most {MAX_BYTES // 2**20} MiB are "
            f"shipped; largest: {shown}; put large data on every node and name it by its absolute path"
        )
    return shipment


def _python_files(root: Path) -> Iterator[Path]:
    for folders, (place, inside, files) in enumerate(os.walk(root), start=1):
        if folders > MAX_FOLDERS:
            raise ClusterError(f"{root}: more than {MAX_FOLDERS} folders below the study file; give it its own folder")
        inside[:] = sorted(name for name in inside if not _is_left_out(Path(place) / name))
        yield from (Path(place) / name for name in sorted(files) if name.endswith(".py") and not name.startswith("."))


def _is_left_out(folder: Path) -> bool:
    name = folder.name
    return (
        name.startswith(".")
        or any(fnmatch.fnmatch(name, pattern) for pattern in _LEFT_OUT_FOLDERS)
        or (folder / "pyvenv.cfg").exists()
    )


def _named_files(study: Study) -> Iterator[Path]:
    """Files that specs name by relative paths: data, model folders, packages of users' modules."""
    from trainables.digests import user_modules

    for spec in study.specs.values():
        if spec.data is not None and spec.data.name is None:
            for split in SPLITS:
                name = getattr(spec.data, split)
                if name is not None:
                    yield from _inside(study, f"data.{split}", name, must_exist=True)
        if spec.model is not None and spec.model.name not in TOY_MODELS:
            yield from _inside(study, "model.name", spec.model.name, must_exist=spec.model.name.startswith("."))
        for module in user_modules(spec):
            top = study.root / module.split(".")[0]
            if (top / "__init__.py").is_file():
                yield from _files_below(top)
            elif top.with_suffix(".py").is_file():
                yield top.with_suffix(".py")


def _inside(study: Study, field: str, name: str, *, must_exist: bool) -> Iterator[Path]:
    if Path(name).expanduser().is_absolute() or name in BUILTIN_DATA:
        return  # means a path on every node; the checks on the cluster look for it there
    path = study.root / name
    if not path.exists():
        if must_exist:
            raise ClusterError(f"{study.path}: {field}: {name!r} does not exist, so it cannot be shipped")
        return  # a hub id
    if not path.resolve().is_relative_to(study.root) or ".." in Path(name).parts:
        raise ClusterError(
            f"{study.path}: {field}: {name!r} lies outside the study's folder, which is what is shipped; "
            "move it there, or put it on every node and name it by its absolute path"
        )
    yield from _files_below(path) if path.is_dir() else (path,)


def _files_below(folder: Path) -> Iterator[Path]:
    for place, inside, files in os.walk(folder):
        inside[:] = sorted(name for name in inside if not _is_left_out(Path(place) / name))
        yield from (Path(place) / name for name in sorted(files) if not name.startswith(".") and not is_secret(name))


def _own_files() -> Iterator[tuple[str, Path]]:
    for package in OWN_PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.submodule_search_locations is not None
        folder = Path(spec.submodule_search_locations[0])
        for file in _files_below(folder):
            if file.suffix != ".pyc":
                yield f"{package}/{file.relative_to(folder).as_posix()}", file
