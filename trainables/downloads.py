"""The built-in real datasets: where their files live, their checksums, and how they get here.

A file is read from the folder that PAIRSWEEP_DATA names, else from the user's cache, else it is downloaded from its
public home. Wherever it comes from, its checksum is verified.
"""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from analysis.files import write_atomically
from trainables.errors import InputError

DATA_FOLDER_VARIABLE: Final = "PAIRSWEEP_DATA"
CACHE_FOLDER_VARIABLE: Final = "PAIRSWEEP_CACHE"
_TIMEOUT_S: Final = 30


@dataclass(frozen=True, kw_only=True)
class PinnedFile:
    """One file of a built-in dataset."""

    path: str
    """Folder and name, as under PAIRSWEEP_DATA."""
    url: str
    sha256: str


_JSTS: Final = "https://raw.githubusercontent.com/yahoojapan/JGLUE/v1.3.0/datasets/jsts-v1.3/"
_STSB: Final = (
    "https://raw.githubusercontent.com/PhilipMay/stsb-multi-mt/30de0dec4ee199b7f42351d3f1a0b19592955385/data/"
)

PINNED: Final[dict[str, dict[str, PinnedFile]]] = {
    "jsts": {
        split: PinnedFile(path=f"jsts-v1.3/{name}", url=_JSTS + name, sha256=digest)
        for split, name, digest in (
            ("train", "train-v1.3.json", "db6bd653270ac9786759920413a48973164d322998f34dd4ae32202af5e66969"),
            ("validation", "valid-v1.3.json", "7c0bdcb381179f01096c635d058853d96da1e1248d23fe3f5c2beed5dc2d9b1a"),
            ("test", "test-v1.3.json", "b31ff21e07f47d580b7eb90802da45bf6a60e34fec886e28df7a21faf4469089"),
        )
    },
    "stsb-en": {
        split: PinnedFile(path=f"stsb-en/{name}", url=_STSB + name, sha256=digest)
        for split, name, digest in (
            ("train", "stsb-en-train.csv", "e1e84fec60bbb598735552f54a35f4949904a484750fd2cb11e2720e49f63da6"),
            ("validation", "stsb-en-dev.csv", "d29586e96558c4eb52cf5ea5d14e9c24d3bf0e44f111b017caba43a5adc33226"),
            ("test", "stsb-en-test.csv", "11523b625219e94e9ca05d2816b5f02cac1614c5894fe657376fa0806378d053"),
        )
    },
}
LABEL_RANGE: Final = (0.0, 5.0)
"""Of both built-in real sets of sentence pairs."""

_JSQUAD: Final = "https://raw.githubusercontent.com/yahoojapan/JGLUE/v1.3.0/datasets/jsquad-v1.3/"
PINNED_RETRIEVAL: Final[dict[str, dict[str, PinnedFile]]] = {
    "jsquad": {
        split: PinnedFile(path=f"jsquad-v1.3/{name}", url=_JSQUAD + name, sha256=digest)
        for split, name, digest in (
            ("validation", "valid-v1.3.json", "fb0a57a35281ff03bbe7f0e878cff5b577985fbe6fcb242e7e8ddb63d1c0ab11"),
            ("test", "test-v1.3.json", "0078f3f2e1604a201700c24139e198344fa689e02282fc00adaa31687cce2aff"),
        )
    },
}
"""Set -> split -> file, of the built-in sets of questions and paragraphs."""


def cache_folder() -> Path:
    """Where downloads and the toy encoder are kept between runs."""
    own = os.environ.get(CACHE_FOLDER_VARIABLE)
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pairsweep"


def pinned_digest(name: str) -> str:
    """Digest of a built-in dataset as pinned; needs no file."""
    text = "\n".join(f"{split} {file.sha256}" for split, file in sorted(PINNED[name].items()))
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=32)
def _verified(path: Path, size: int, modified_ns: int, expected: str) -> None:
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != expected:
        raise InputError(
            where=str(path),
            field="sha256",
            value=found,
            allowed=f"expected {expected}; delete the file to fetch it anew",
        )


def _verify(path: Path, expected: str) -> Path:
    stat = path.stat()
    _verified(path, stat.st_size, stat.st_mtime_ns, expected)
    return path


def _download(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
        content: bytes = answer.read()
    return content


def pinned_file(name: str, split: str) -> Path:
    """Local path of a verified file of a built-in set of sentence pairs; downloads it where it must.

    Raises:
        InputError: as local_copy does.
    """
    return local_copy(PINNED[name][split], field="data.name", name=name)


def local_copy(file: PinnedFile, *, field: str, name: str) -> Path:
    """Local path of a verified file; downloads it where it must.

    Args:
        file: Which file.
        field: The study's field that names its dataset, for messages.
        name: What stands in that field.

    Raises:
        InputError: PAIRSWEEP_DATA lacks the file, its checksum differs, or the network does not give it.
    """
    folder = os.environ.get(DATA_FOLDER_VARIABLE)
    if folder:
        path = Path(folder) / file.path
        if not path.is_file():
            raise InputError(
                where=str(path),
                field=DATA_FOLDER_VARIABLE,
                value=folder,
                allowed=f"must hold {file.path}, or be unset so that the file is downloaded",
            )
        return _verify(path, file.sha256)
    path = cache_folder() / "data" / file.path
    if path.is_file():
        return _verify(path, file.sha256)
    try:
        content = _download(file.url)
    except (OSError, urllib.error.URLError) as error:
        why = str(getattr(error, "reason", error)).splitlines()[0]
        raise InputError(
            where=file.url,
            field=field,
            value=name,
            allowed=f"cannot be downloaded ({why}); set {DATA_FOLDER_VARIABLE} to a folder that holds {file.path}",
        ) from None
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise InputError(where=file.url, field="sha256", value=found, allowed=f"expected {file.sha256}")
    write_atomically(path, content)
    return path
