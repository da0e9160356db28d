"""A Ray to run on: this machine's own, an existing cluster's, or one that the caller has already joined."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import ray

from sweep.errors import ClusterError
from sweep.node_facts import available_cpus
from sweep.retry import one_line

ENV_ADDRESS: Final = "RAY_ADDRESS"
OBJECT_STORE_BYTES: Final = 128 * 1024 * 1024
"""Cells pass nothing large through Ray; its default is a third of the memory."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """The Ray that cells run on."""

    nodes: tuple[dict[str, float], ...]
    """Resources of each live machine, in Ray's names."""
    shared: bool
    """An existing cluster, which may grow."""


def is_own(address: str | None) -> bool:
    """Whether `ray_session` would start a Ray of this process's own."""
    return not ray.is_initialized() and (address or os.environ.get(ENV_ADDRESS) or "local") == "local"


@contextmanager
def ray_session(address: str | None, *, cpus: int, scratch: Path, modules: Sequence[str] = ()) -> Iterator[Session]:
    """Join or start Ray, and leave it as it was found.

    Args:
        address: Of an existing cluster, or `auto`; None: RAY_ADDRESS where it is set, else a Ray of this process's own.
        cpus: Processor cores of one cell; a local Ray is told of at least as many.
        scratch: Folder for the files of a local Ray, which never deletes them itself.
        modules: What the processes of a local Ray import as soon as they exist.

    Raises:
        ClusterError: no cluster at the address.
    """
    if ray.is_initialized():
        joined = _session(shared=True)
        yield joined if len(joined.nodes) > 1 else _session(shared=False)
        return
    address = address or os.environ.get(ENV_ADDRESS)
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        if address and address != "local":
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        else:
            ray.init(
                address="local",
                num_cpus=max(cpus, available_cpus()),
                include_dashboard=False,
                _temp_dir=str(scratch),
                object_store_memory=OBJECT_STORE_BYTES,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _system_config={"preload_python_modules": list(modules)} if modules else None,
            )
    except Exception as error:
        raise ClusterError(f"Ray at {address or 'this machine'}: {one_line(error)}") from error
    try:
        yield _session(shared=bool(address and address != "local"))
    finally:
        ray.shutdown()


def _session(*, shared: bool) -> Session:
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return Session(nodes=tuple(dict(node["Resources"]) for node in nodes if node["Alive"]), shared=shared)
