"""The machines of a cluster: what each says about itself, what is wrong with it, and the one kind a study runs on."""

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import ray
import ray._private.state
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sweep.console import one_line
from sweep.errors import ClusterError, PreflightError
from sweep.record.tracking_uri import host_refusal

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
ANSWER_S: Final = 120.0
"""Longest wait for a live machine's answer; the first process on it may take most of a minute to start."""
GROWTH_S: Final = 1200.0
"""Longest wait for a cluster that grows on demand to bring up its first machine that can hold a cell."""
UNSURE_S: Final = 60.0
"""The same where the cluster does not tell whether it grows."""
ACCELERATOR: Final = "accelerator_type:"
_TINY: Final = 0.001
Say = Callable[[str], None]
Node = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Pin:
    """What keeps all cells of a study on machines of one kind; both cells of every pair then ran on the same."""

    kind: str = ""
    """For people; empty where all machines are alike."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """Further Ray resources of a cell."""
    node_ids: tuple[str, ...] = ()
    """The machines that may hold a cell; empty: any that has the resources."""

    def allows(self, node: Node) -> bool:
        """Whether a machine (as `ray.nodes()` lists it) may hold a cell."""
        has = node["Resources"]
        return (not self.node_ids or node["NodeID"] in self.node_ids) and all(
            has.get(name, 0) >= amount for name, amount in self.resources.items()
        )


def check_nodes(tracking_uri: str, *, cpus: int, gpus: float, recorded: Sequence[str], say: Say) -> Pin:
    """Check all machines that may hold a cell, and choose the kind that the study runs on.

    Args:
        tracking_uri: Of the study's tracking store.
        cpus: Processor cores of one cell.
        gpus: GPUs of one cell.
        recorded: Device (as in the fingerprint) of every finished cell of the study.
        say: Gets what the user should know.

    Raises:
        PreflightError: versions that differ, no way to the tracking server, too little disk: one line a machine.
        ClusterError: a machine does not answer, or none can hold a cell.
    """
    nodes = _nodes_for(cpus, gpus, say)
    head = gather(tracking_uri)
    facts = _ask(nodes, tracking_uri)
    found = troubles(head, facts)
    if found:
        raise PreflightError("\n".join(found))
    pin = choose_kind(nodes, facts, cpus=cpus, gpus=gpus, recorded=recorded)
    names = ", ".join(one.node for one in facts)
    say(f"checked {len(facts)} {'machine' if len(facts) == 1 else 'machines'}: {names}")
    if pin.kind:
        say(f"machines differ; all cells run on {pin.kind}, since a pair must not mix kinds")
    return pin


def live_nodes() -> list[Node]:
    """The machines of the cluster that are alive, as Ray lists them."""
    every: list[Node] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in every if node["Alive"]]


def fits(node: Node, cpus: int, gpus: float) -> bool:
    """Whether a machine can hold one cell."""
    has = node["Resources"]
    return bool(has.get("CPU", 0) >= cpus and has.get("GPU", 0) >= gpus)


def _nodes_for(cpus: int, gpus: float, say: Say) -> list[Node]:
    """Live machines that can hold a cell; where there is none yet, asks the cluster to grow and waits."""
    nodes = [node for node in live_nodes() if fits(node, cpus, gpus)]
    if nodes:
        return nodes
    grows = _can_grow_to(cpus, gpus)
    wait_s = {True: GROWTH_S, False: 0.0, None: UNSURE_S}[grows]
    began = told = time.monotonic()
    if wait_s:
        say(f"no machine with {cpus} CPUs and {gpus:g} GPUs yet; asking the cluster for one")
    wanted = ray.remote(_nothing).options(num_cpus=cpus, num_gpus=gpus).remote()
    try:
        while not nodes:
            now = time.monotonic()
            if now - began >= wait_s:
                after = f" within {wait_s / 60:.0f} min; `ray status` on the head says why" if wait_s else ""
                raise ClusterError(f"resources: no machine with {cpus} CPUs and {gpus:g} GPUs{after or ' here'}")
            if now - told > 60:
                say(f"still waiting for a machine ({(now - began) / 60:.0f} min)")
                told = now
            time.sleep(1)
            nodes = [node for node in live_nodes() if fits(node, cpus, gpus)]
    finally:
        ray.cancel(wanted, force=True)
    return nodes


def _can_grow_to(cpus: int, gpus: float) -> bool | None:
    """Whether the autoscaler has a type of machine that can hold a cell; None where it does not tell."""
    config = ray._private.state.state.get_cluster_config()
    if config is None or not config.node_group_configs:
        return None
    return any(
        group.max_count != 0 and group.resources.get("CPU", 0) >= cpus and group.resources.get("GPU", 0) >= gpus
        for group in config.node_group_configs
    )


def _nothing() -> None:
    """A task that only asks for a machine: that it waits makes the cluster grow."""


def _ask(nodes: Sequence[Node], tracking_uri: str) -> list[NodeFacts]:
    ask: Any = ray.remote(gather)
    asked = {}
    for node in nodes:
        here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        task = ask.options(num_cpus=0, scheduling_strategy=here, max_retries=0)
        asked[task.remote(tracking_uri, node["NodeManagerAddress"], node["NodeID"])] = node
    done, _ = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER_S)
    facts, silent = [], []
    for reference, node in asked.items():
        name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
        if reference not in done:
            silent.append(f"{name}: no answer within {ANSWER_S:.0f} s")
            ray.cancel(reference, force=True)
            continue
        try:
            facts.append(ray.get(reference))
        except Exception as error:
            silent.append(f"{name}: cannot run this program ({one_line(error)}); is it installed there?")
    if silent:
        raise ClusterError("\n".join(silent))
    return facts


def choose_kind(
    nodes: Sequence[Node], facts: Sequence[NodeFacts], *, cpus: int, gpus: float, recorded: Sequence[str]
) -> Pin:
    """The kind of machine that the study runs on; pure.

    With GPUs a kind is Ray's accelerator type, else the instruction set. Finished cells decide where they are of
    one kind; else the kind that holds most cells.

    Raises:
        PreflightError: the finished cells ran on a kind that the cluster does not have.
    """
    by_id = {one.node_id: one.instruction_set for one in facts}
    kinds: dict[str, list[Node]] = {}
    for node in nodes:
        kinds.setdefault(_accelerator(node) if gpus else by_id[node["NodeID"]], []).append(node)
    before = set(recorded)
    wanted = [kind for kind in kinds if any(_same_device(kind, device) for device in before)] if gpus else []
    if gpus and before and not wanted and all(kinds) and not all(device == "cpu" for device in before):
        raise PreflightError(
            f"finished cells ran on {', '.join(sorted(before))}, this cluster has {', '.join(sorted(kinds))}; a pair "
            "must not mix kinds: run on the same kind, or give the study another name"
        )
    if len(kinds) == 1:
        return Pin()
    most = lambda kind: (kind in wanted, sum(_holds(node, cpus, gpus) for node in kinds[kind]), kind)  # noqa: E731
    kind = max(kinds, key=most)
    if gpus and kind:
        return Pin(kind=kind, resources={ACCELERATOR + kind: _TINY})
    return Pin(kind=kind or "GPUs of unknown type", node_ids=tuple(sorted(node["NodeID"] for node in kinds[kind])))


def _accelerator(node: Node) -> str:
    return next((name.removeprefix(ACCELERATOR) for name in node["Resources"] if name.startswith(ACCELERATOR)), "")


def _same_device(kind: str, device: str) -> bool:
    """Ray says `A10G` where the fingerprint says `NVIDIA A10G`."""
    return bool(kind) and kind.lower().replace("-", " ") in device.lower().replace("-", " ")


def _holds(node: Node, cpus: int, gpus: float) -> int:
    has = node["Resources"]
    by_cpu = int(has.get("CPU", 0) / cpus)
    return by_cpu if not gpus else min(by_cpu, int(has.get("GPU", 0) / gpus))


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


def gather(tracking_uri: str, address: str = "", node_id: str = "") -> NodeFacts:
    """The facts of the machine that this runs on.

    Args:
        tracking_uri: Of the study's tracking store.
        address: How the cluster calls this machine.
        node_id: Ray's id of it.
    """
    from trainables.runtime import instruction_set

    host = socket.gethostname()
    return NodeFacts(
        node=f"{host} ({address})" if address else host,
        node_id=node_id,
        versions=_versions(),
        instruction_set=instruction_set(),
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
    user, password = os.environ.get("MLFLOW_TRACKING_USERNAME"), os.environ.get("MLFLOW_TRACKING_PASSWORD", "")
    if parts.username is not None:  # what the URI says counts more, as for MLflow's client
        user, password = unquote(parts.username), unquote(parts.password or "")
        uri = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    if user:
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    # Not /health: it answers whatever host name it is asked under.
    url = uri.rstrip("/") + "/api/2.0/mlflow/experiments/search?max_results=1"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + TRACKING_WAIT_S
    while True:
        try:
            with opener.open(urllib.request.Request(url, headers=headers), timeout=_TRY_S) as answer:
                content = answer.read()
            if content.lstrip()[:1] == b"<":
                return f"{uri} answers with HTML there instead of JSON; a login page or a proxy?"
            json.loads(content)
            return ""
        except urllib.error.HTTPError as error:
            return _refusal(uri, error)
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError) or time.monotonic() > deadline:
                reason = getattr(error, "reason", error)
                return f"{uri} does not answer there ({getattr(reason, 'strerror', None) or reason})"
        time.sleep(1)


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
