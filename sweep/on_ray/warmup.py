"""Ray and the store, started at the same time; meanwhile the workers import what every cell needs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sweep.on_ray.node_facts import available_cpus
from sweep.on_ray.session import Session, is_own, ray_session
from sweep.record.tracking import Tracking
from sweep.study import Study


@contextmanager
def warm_session(
    study: Study, tracking: Tracking, *, address: str | None, cells: int, scratch: Path
) -> Iterator[Session]:
    """A Ray to run on (`ray_session`) and an open store.

    Args:
        study: Whose cells will be trained.
        tracking: Where they are recorded; what is wrong with it shows at its first use.
        address: Of a cluster; None: RAY_ADDRESS, else this machine.
        cells: How many wait, or may be trained at once if that is less.
        scratch: Folder for the files of a local Ray.
    """
    if not is_own(address):
        with ray_session(address, cpus=study.resources.cpus, scratch=scratch) as session:
            yield session
        return
    # Not a daemon: a new database that is left half made could not be opened again.
    opening = threading.Thread(target=_open, args=(tracking,), name="open-store", daemon=False)
    opening.start()
    modules = worker_modules(study, cells)
    with ray_session(address, cpus=study.resources.cpus, scratch=scratch, modules=modules) as session:
        opening.join()
        yield session


def worker_modules(study: Study, cells: int) -> tuple[str, ...]:
    """Modules that the processes of a Ray of our own import as soon as they exist.

    Ray starts one process per core, asked or not; importing in all of them pays only if each will train. A trainable
    of the user's own is imported by its first cell, once the study's folder is on the path.
    """
    if study.resources.cpus != 1 or study.resources.gpus or cells < available_cpus():
        return ()
    from trainables.registry import BUILTIN_TRAINABLES

    trainable, _, _ = BUILTIN_TRAINABLES.get(study.trainable, "").partition(":")
    return ("sweep.on_ray.trials", "mlflow.tracking", *([trainable] if trainable else []))


def _open(tracking: Tracking) -> None:
    with suppress(Exception):  # comes again at the first use, where it is waited for and told
        tracking.open()
