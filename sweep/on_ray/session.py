"""A Ray to run on: this machine's own, an existing cluster's, or one that the caller has already joined.

Where it is this machine's own, it starts while the store opens and the process that cells are forked from imports.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import ray

from sweep.console import one_line
from sweep.errors import ClusterError
from sweep.record.tracking import Tracking
from sweep.run.backend import SessionRequest
from sweep.run.cell_process import running_fork_server
from sweep.run.preflight import modules_ahead
from sweep.study import Study

ENV_ADDRESS: Final = "RAY_ADDRESS"
OBJECT_STORE_BYTES: Final = 128 * 1024 * 1024
"""Cells pass nothing large through Ray; its default is a third of the memory."""

_OWN: Final = "local"
"""Ray's word for: start one here."""
_KEEP_FOLDER: Final = "RAY_CHDIR_TO_TRIAL_DIR"
"""Tune's variable: at 0, a trial stays in the folder that its process was started in."""


@dataclass(frozen=True, kw_only=True)
class RayNodes:
    """The machines of the Ray that cells run on."""

    resources: tuple[dict[str, float], ...]
    """Of each live machine, in Ray's names."""
    shared: bool
    """An existing cluster, which may grow."""


def is_own(address: str | None) -> bool:
    """Whether `ray_session` would start a Ray of this process's own."""
    return not ray.is_initialized() and (address or os.environ.get(ENV_ADDRESS) or _OWN) == _OWN


def available_cpus() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def ray_session(address: str | None, *, cpus: int, scratch: Path, modules: Sequence[str] = ()) -> Iterator[RayNodes]:
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
        joined = _nodes(shared=True)
        yield joined if len(joined.resources) > 1 else _nodes(shared=False)
        return
    address = address or os.environ.get(ENV_ADDRESS) or _OWN
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        with _no_words_of_rays():
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
            yield _nodes(shared=address != _OWN)
    finally:
        ray.shutdown()


@contextmanager
def _no_words_of_rays() -> Iterator[None]:
    """Join a Ray that prints nothing here of what its daemons say: `(raylet) A worker died ...`, in colours.

    No option turns that off. A thread prints it, which is given nothing to do; the sweep tells each loss in a line.
    """
    from ray._private import worker

    printing = worker.listen_error_messages
    worker.listen_error_messages = lambda *job: None
    try:
        yield
    finally:
        worker.listen_error_messages = printing


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


def _nodes(*, shared: bool) -> RayNodes:
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return RayNodes(resources=tuple(dict(node["Resources"]) for node in nodes if node["Alive"]), shared=shared)


@contextmanager
def warm_session(request: SessionRequest, *, address: str | None) -> Iterator[RayNodes]:
    """A Ray to run on (`ray_session`), an open store, and, where this machine trains, its fork server.

    Args:
        request: What is to run; what is wrong with its store shows at the store's first use.
        address: Of a cluster; None: RAY_ADDRESS, else this machine.
    """
    study, scratch = request.study, request.scratch / "ray"
    server = running_fork_server(request.owner, modules=modules_ahead(study), threads=study.resources.cpus)
    if not is_own(address):
        with (
            ray_session(address, cpus=study.resources.cpus, scratch=scratch) as session,
            server if _trains_here(study.resources.cpus) else nullcontext(),
        ):
            yield session
        return
    with server:
        # Not a daemon: a new database that is left half made could not be opened again.
        opening = threading.Thread(target=_open, args=(request.tracking,), name="open-store", daemon=False)
        opening.start()
        modules = worker_modules(study, request.cells)
        with ray_session(address, cpus=study.resources.cpus, scratch=scratch, modules=modules) as session:
            opening.join()
            yield session


def _trains_here(cpus: int) -> bool:
    """Whether the machine of this process is one that the connected cluster places cells on."""
    here = ray.get_runtime_context().get_node_id()
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return any(node["NodeID"] == here and node["Resources"].get("CPU", 0) >= cpus for node in nodes)


def worker_modules(study: Study, cells: int) -> tuple[str, ...]:
    """Modules that the processes of a Ray of our own import as soon as they exist.

    Ray starts one process per core, asked or not; importing in all of them pays only if each will have cells.
    """
    if study.resources.cpus != 1 or study.resources.gpus or cells < available_cpus():
        return ()
    return ("sweep.on_ray.trials", "mlflow.tracking")


def _open(tracking: Tracking) -> None:
    with suppress(Exception):  # comes again at the first use, where it is waited for and told
        tracking.open()
