"""What of a study goes to a cluster: named things only. Knows no Ray.

Shipped are the study file, Python files beside and below it, and the data files, model folders and packages that
the study names; with them this program itself, so that the cluster runs the code that was tried here. Nothing else
leaves the machine: no caches, no results, nothing hidden, nothing whose name says that it is a secret, and nothing
that holds a key of a known shape.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from analysis.showing import shown_uri
from sweep.errors import ClusterError
from sweep.study import Study
from trainables.spec import BUILTIN_DATA, SPLITS, TOY_MODELS

OWN_PACKAGES: Final = ("sweep", "trainables", "analysis")
STUDY_FOLDER: Final = "submitted_study"
"""The study's files lie below this folder: at the top, a user's own `analysis.py` would shadow ours."""
MAX_BYTES: Final = 64 * 2**20
MAX_FOLDERS: Final = 2_000
SECRET_NAMES: Final = (
    "*secret*", "*credential*", "*password*", "*passwd*", "*passphrase*", "*api_key*", "*api-key*", "*apikey*",
    "*access_key*", "*access-key*", "*accesskey*", "*private_key*", "*private-key*", "*privatekey*",
    "*auth_token*", "*auth-token*", "*authtoken*", "token.*", "tokens.*", "*_token.*", "*-token.*", "*_tokens.py",
    "*.token", "token", "cred.*", "creds*", "*_cred.*", "*_creds*", "*-creds*", "*service_account*",
    "*service-account*", "kubeconfig*", ".env*", "*.env", "*netrc", ".pypirc", ".npmrc", ".pgpass",
    "*.pem", "*.key", "*.p12", "*.pfx", "*.ppk", "*.jks", "*.keystore", "*.kdbx",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*",
)  # fmt: skip
KEYS: Final = {
    "a private key": rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----",
    "an AWS access key": rb"(?<![A-Za-z0-9])(?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9])",
    "an AWS secret key": rb"(?i:aws_secret_access_key)\W{1,8}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])",
    "a Hugging Face token": rb"(?<![A-Za-z0-9])(?:hf|api_org)_[A-Za-z0-9]{30,}",
    "a GitHub token": rb"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})",
    "a GitLab token": rb"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20,}",
    "an API key (sk-...)": rb"(?<![A-Za-z0-9_-])sk-(?:[A-Za-z]+[0-9]*-)*(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_]{20,}",
    "a payment key": rb"(?<![A-Za-z0-9])[rs]k_live_[A-Za-z0-9]{16,}",
    "a Google API key": rb"(?<![A-Za-z0-9])AIza[0-9A-Za-z_-]{35}",
    "a Google OAuth token": rb"(?<![A-Za-z0-9])(?:GOCSPX-[A-Za-z0-9_-]{20,}|ya29\.[A-Za-z0-9_-]{20,})",
    "a Slack token": rb"(?<![A-Za-z0-9])(?:xox[abeoprs]|xapp)-[0-9A-Za-z-]{10,}",
    "a package registry's token": rb"(?<![A-Za-z0-9])(?:npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,})",
    "a signed web token": rb"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
}
"""What -> its shape. A file that holds one is not shipped, whatever it is called."""
_USER_ALONE: Final = re.compile(r"//[^\s/@:]+@")
_PASSWORD: Final = re.compile(r"//[^\s/@:'\"]*:[^\s/@'\"]+@")
_KEYS: Final = {what: re.compile(shape) for what, shape in KEYS.items()}
_LEFT_OUT_FOLDERS: Final = ("__pycache__", "node_modules", "site-packages", "mlruns", "mlartifacts", "*.egg-info")


@dataclass(frozen=True, kw_only=True)
class Shipment:
    """Files to send: path in the job's folder -> file here."""

    files: Mapping[str, Path]
    own: Mapping[str, Path]
    """This program's own files."""
    left_out: tuple[str, ...]
    """Files that look like secrets, relative to the study's folder; where it is not the name, with what they hold."""
    study_file: str
    """Path of the study file in the job's folder."""

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(file.stat().st_size for file in (*self.files.values(), *self.own.values()))

    def lines(self) -> list[str]:
        """Everything that would be sent, one line a file: bytes and path; then their sum."""
        files = {**self.files, **self.own}
        lines = [f"{file.stat().st_size:>10}  {name}" for name, file in files.items()]
        return [*lines, f"{self.size:>10}  in {len(files)} files, {len(self.own)} of them this program"]

    def write(self, folder: Path) -> None:
        """Copy everything into an empty folder."""
        for name, file in {**self.own, **self.files}.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)


def is_secret(name: str) -> bool:
    """Whether a file's name says that it is not for others."""
    return any(fnmatch.fnmatch(name.lower(), pattern) for pattern in SECRET_NAMES)


def key_in(content: bytes) -> str | None:
    """What kind of key is in a file, and in which line; None where there is none of a known shape."""
    text = content.replace(b"\0", b"") if b"\0" in content else content  # UTF-16
    for what, shape in _KEYS.items():
        match = shape.search(text)
        if match is not None:
            return f"{what} in line {text.count(10, 0, match.start()) + 1}"
    return None


def shipment_of(study: Study) -> Shipment:
    """What is shipped for a study.

    Raises:
        ClusterError: a named file is missing, outside the study's folder or holds a key, the study file holds a
            password, or all of it is too large.
    """
    _refuse_passwords(study)
    left_out: dict[str, str] = {}
    found = {file.relative_to(study.root).as_posix(): file for file in _python_files(study.root)}
    for name in [name for name, file in found.items() if _named_secret(file)]:
        del found[name]
        left_out[name] = name
    named = {file.relative_to(study.root).as_posix(): file for file in _named_files(study, left_out)}
    name = study.path.resolve().name  # of the file itself, where the given path is a link to it
    named[name] = study.root / name
    found.update(named)
    _check_size(study, found)
    for one, file in sorted(found.items()):
        key = key_in(file.read_bytes())
        if key is not None and one in named:
            raise ClusterError(
                f"{study.root / one}: looks like {key}, and the study names this file; take it out, or read it "
                "from the environment of the machines: nothing that holds a key is shipped"
            )
        if key is not None:
            del found[one]
            left_out[one] = f"{one} ({key})"
    return Shipment(
        files={f"{STUDY_FOLDER}/{one}": found[one] for one in sorted(found)},
        own=dict(_own_files()),
        left_out=tuple(text for one, text in sorted(left_out.items()) if one not in found),
        study_file=f"{STUDY_FOLDER}/{name}",
    )


def _refuse_passwords(study: Study) -> None:
    """The study file leaves whole: neither its search's storage nor any other address in it may hold a password."""
    storage = study.search.storage if study.search is not None else None
    if storage is not None:
        no_user = _USER_ALONE.sub("//", storage)
        if shown_uri(no_user) != no_user:
            raise ClusterError(
                f"{study.path}: search.storage: {shown_uri(storage)!r} is written there with a password, and the"
                " study file is shipped; give the address without it (PostgreSQL reads PGPASSWORD or ~/.pgpass, MySQL"
                " an option file), or submit the study that `sweep tune` wrote, which needs no storage"
            )
    found = _PASSWORD.search(study.text)
    if found is not None:
        line = study.text.count("\n", 0, found.start()) + 1
        raise ClusterError(
            f"{study.path}: line {line} holds an address with a password, and the study file is shipped; take it out,"
            " or read it from the environment of the machines"
        )


def _named_secret(file: Path) -> bool:
    return is_secret(file.name) or is_secret(file.resolve().name)


def _check_size(study: Study, found: Mapping[str, Path]) -> None:
    size = sum(file.stat().st_size for file in (*found.values(), *dict(_own_files()).values()))
    if size > MAX_BYTES:
        largest = sorted(found.items(), key=lambda one: one[1].stat().st_size, reverse=True)[:3]
        shown = ", ".join(f"{name} ({file.stat().st_size / 2**20:.1f} MiB)" for name, file in largest)
        raise ClusterError(
            f"{study.path}: its files are {size / 2**20:.1f} MiB, at most {MAX_BYTES // 2**20} MiB are "
            f"shipped; largest: {shown}; put large data on every node and name it by its absolute path"
        )


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


def _named_files(study: Study, left_out: dict[str, str]) -> Iterator[Path]:
    """Files that specs name by relative paths: data, model folders, packages of users' modules.

    Files of such folders whose names say that they are secrets are noted in `left_out`.
    """
    from trainables.digests import user_modules

    for spec in study.specs.values():
        if spec.data is not None and spec.data.name is None:
            for split in SPLITS:
                name = getattr(spec.data, split)
                if name is not None and (split == "train" or split in spec.data.scored):
                    yield from _inside(study, f"data.{split}", name, left_out, must_exist=True)
        for label, source in spec.evaluate.items():
            for field, path in source.files().items():
                yield from _inside(study, f"evaluate.{label}.{field}", path, left_out, must_exist=True)
        if spec.model is not None and spec.model.name not in TOY_MODELS:
            must_exist = spec.model.name.startswith(".")
            yield from _inside(study, "model.name", spec.model.name, left_out, must_exist=must_exist)
        for module in user_modules(spec):
            top = study.root / module.split(".")[0]
            if (top / "__init__.py").is_file():
                yield from _not_secret(study, top, left_out)
            elif top.with_suffix(".py").is_file():
                yield top.with_suffix(".py")


def _inside(study: Study, field: str, name: str, left_out: dict[str, str], *, must_exist: bool) -> Iterator[Path]:
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
    yield from _not_secret(study, path, left_out) if path.is_dir() else (path,)


def _not_secret(study: Study, folder: Path, left_out: dict[str, str]) -> Iterator[Path]:
    for file in _files_below(folder):
        if _named_secret(file):
            name = file.relative_to(study.root).as_posix()
            left_out[name] = name
        else:
            yield file


def _files_below(folder: Path) -> Iterator[Path]:
    for place, inside, files in os.walk(folder):
        inside[:] = sorted(name for name in inside if not _is_left_out(Path(place) / name))
        yield from (Path(place) / name for name in sorted(files) if not name.startswith("."))


def _own_files() -> Iterator[tuple[str, Path]]:
    for package in OWN_PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.submodule_search_locations is not None
        folder = Path(spec.submodule_search_locations[0])
        for file in _files_below(folder):
            if file.suffix != ".pyc":
                yield f"{package}/{file.relative_to(folder).as_posix()}", file
