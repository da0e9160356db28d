"""What a machine of a cluster says about itself, and what about that keeps a study from running. Knows no Ray."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import socket
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

PACKAGES: Final = (
    "ray", "torch", "transformers", "sentence-transformers", "tokenizers", "accelerate", "datasets", "numpy", "scipy",
    "mlflow",
)  # fmt: skip
OWN_PACKAGES: Final = ("sweep", "trainables", "analysis")
NEEDED_BYTES: Final = 512 * 2**20
"""Free space that a cell needs for temporary files, and a node for its caches; a model's own size comes on top."""
TRACKING_WAIT_S: Final = 15.0
"""Longest wait of a node for the tracking server to answer at all."""
_TRY_S: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """One machine as it found itself."""

    node: str
    """Host name and address, for people."""
    node_id: str = ""
    """Ray's id of it."""
    versions: Mapping[str, str]
    """Package -> version; `python` and this program's own code (`pairsweep`, a digest) among them."""
    instruction_set: str
    free: Mapping[str, int]
    """Folder -> free bytes of its file system."""
    tracking: str = ""
    """Why the tracking server cannot be used from there; empty where it can."""


def available_cpus() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0))


def gather(tracking_uri: str, address: str = "", node_id: str = "") -> NodeFacts:
    """The facts of the machine that this runs on.

    Args:
        tracking_uri: Of the study's tracking store.
        address: How the cluster calls this machine.
        node_id: Ray's id of it.
    """
    host = socket.gethostname()
    return NodeFacts(
        node=f"{host} ({address})" if address else host,
        node_id=node_id,
        versions=_versions(),
        instruction_set=_instruction_set(),
        free={str(folder): shutil.disk_usage(_existing(folder)).free for folder in _written_folders()},
        tracking=tracking_trouble(tracking_uri),
    )


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "missing"
    return {**found, "pairsweep": f"code {_own_code()[:12]}"}


def _own_code() -> str:
    """sha256 over this program's source files as they are imported here."""
    digest = hashlib.sha256()
    for package in OWN_PACKAGES:
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec is not None else ():
            for file in sorted(Path(place).rglob("*.py")):
                digest.update(f"{package}/{file.relative_to(place).as_posix()}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def _instruction_set() -> str:
    """As far as it changes results: the widest vector instructions that torch would use."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").split())
    except OSError:
        flags = set()
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags:
        return f"{platform.machine()} AVX512"
    return f"{platform.machine()} AVX2" if {"avx2", "fma"} <= flags else platform.machine()


def _written_folders() -> tuple[Path, ...]:
    """Temporary files, and the caches of models and data."""
    caches = Path(os.environ.get("HF_HOME") or os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return Path(tempfile.gettempdir()), caches


def _existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.exists())


def tracking_trouble(uri: str) -> str:
    """Why a tracking server cannot be used from here, in one line; empty where it can, or where it is a file."""
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https"):
        return ""
    headers = {}
    user = os.environ.get("MLFLOW_TRACKING_USERNAME")
    if user:
        secret = f"{user}:{os.environ.get('MLFLOW_TRACKING_PASSWORD', '')}".encode()
        headers["Authorization"] = "Basic " + base64.b64encode(secret).decode()
    # Not /health: it answers whatever host name it is asked under.
    url = uri.rstrip("/") + "/api/2.0/mlflow/experiments/search?max_results=1"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + TRACKING_WAIT_S
    while True:
        try:
            with opener.open(urllib.request.Request(url, headers=headers), timeout=_TRY_S) as answer:
                json.loads(answer.read())
            return ""
        except urllib.error.HTTPError as error:
            return _refusal(uri, error)
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError) or time.monotonic() > deadline:
                reason = getattr(error, "reason", error)
                return f"{uri} does not answer there ({getattr(reason, 'strerror', None) or reason})"
        time.sleep(1)


def host_refusal(uri: str) -> str:
    """What to say where an MLflow server is asked under a name that it was not told of."""
    return f"{uri} refuses the host name {urlsplit(uri).netloc!r}; start `mlflow server` with it in --allowed-hosts"


def _refusal(uri: str, error: urllib.error.HTTPError) -> str:
    with error:
        text = " ".join(error.read(300).decode(errors="replace").split())
    if error.code == 403 and "host" in text.lower():
        return host_refusal(uri)
    if error.code in (401, 403):
        return f"{uri} refuses the user (HTTP {error.code}); set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
    return f"{uri} answers HTTP {error.code} there ({text[:120]})"


def troubles(head: NodeFacts, nodes: Sequence[NodeFacts], *, needed_bytes: int = NEEDED_BYTES) -> list[str]:
    """What is wrong, one line each; machines are compared with the one that the driver runs on.

    Args:
        head: Where the driver runs.
        nodes: Every machine that may train.
        needed_bytes: Free space needed in each folder that is written.
    """
    found = []
    for facts in nodes:
        differing = [
            f"{name} {facts.versions.get(name, 'missing')} (the head has {version})"
            for name, version in head.versions.items()
            if facts.versions.get(name, "missing") != version
        ]
        if differing:
            found.append(
                f"{facts.node}: other versions than on the head: {', '.join(differing)}; "
                "install the same constraints.txt everywhere"
            )
        if facts.tracking:
            found.append(f"{facts.node}: tracking server: {facts.tracking}")
        found += [
            f"{facts.node}: disk: {folder} has {free / 2**20:.0f} MiB free, needed are {needed_bytes / 2**20:.0f}"
            for folder, free in facts.free.items()
            if free < needed_bytes
        ]
    return found
