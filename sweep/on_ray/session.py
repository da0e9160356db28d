"""A Ray to run on: this machine's own, an existing cluster's, or one that the caller has already joined."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import ray

from sweep.console import one_line
from sweep.errors import ClusterError
from sweep.on_ray.node_facts import available_cpus

ENV_ADDRESS: Final = "RAY_ADDRESS"
OBJECT_STORE_BYTES: Final = 128 * 1024 * 1024
"""Cells pass nothing large through Ray; its default is a third of the memory."""

_OWN: Final = "local"
"""Ray's word for: start one here."""
_KEEP_FOLDER: Final = "RAY_CHDIR_TO_TRIAL_DIR"
"""Tune's variable: at 0, a trial stays in the folder that its process was started in."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """The Ray that cells run on."""

    nodes: tuple[dict[str, float], ...]
    """Resources of each live machine, in Ray's names."""
    shared: bool
    """An existing cluster, which may grow."""


def is_own(address: str | None) -> bool:
    """Whether `ray_session` would start a Ray of this process's own."""
    return not ray.is_initialized() and (address or os.environ.get(ENV_ADDRESS) or _OWN) == _OWN


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
    address = address or os.environ.get(ENV_ADDRESS) or _OWN
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        if address != _OWN:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        else:
            os.environ[_KEEP_FOLDER] = "0"
            ray.init(
                address=_OWN,
                num_cpus=max(cpus, available_cpus()),
                include_dashboard=False,
                _temp_dir=str(scratch),
                object_store_memory=OBJECT_STORE_BYTES,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _system_config={"preload_python_modules": list(modules)} if modules else None,
            )
    except Exception as error:
        where = "this machine" if address == _OWN else address
        raise ClusterError(f"Ray at {where}: {one_line(error)}") from error
    try:
        with nullcontext() if address != _OWN else _one_environment():
            yield _session(shared=address != _OWN)
    finally:
        ray.shutdown()


@contextmanager
def _one_environment() -> Iterator[None]:
    """Let Tune's processes have the environment of this one and none of their own, as long as this lasts.

    In a Ray of our own they inherit ours. Where Tune names variables all the same, Ray takes none of the processes
    that stand ready, but starts others.
    """
    from ray.tune.execution import class_cache

    kept = dict(class_cache.DEFAULT_ENV_VARS), set(class_cache.ENV_VARS_TO_PROPAGATE)
    class_cache.DEFAULT_ENV_VARS.clear()
    class_cache.ENV_VARS_TO_PROPAGATE.clear()
    try:
        yield
    finally:
        class_cache.DEFAULT_ENV_VARS.update(kept[0])
        class_cache.ENV_VARS_TO_PROPAGATE.update(kept[1])


def _session(*, shared: bool) -> Session:
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return Session(nodes=tuple(dict(node["Resources"]) for node in nodes if node["Alive"]), shared=shared)
