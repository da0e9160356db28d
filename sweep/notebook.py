"""Sweeps from Python: `from sweep import load, run_study`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweep.run.launch import RunOptions
from sweep.study import Study, load_study


def load(path: str | Path, *overrides: str) -> Study:
    """Read and check a study file.

    Args:
        path: The file.
        overrides: Fields that replace the file's, as on the command line: `"training.epochs=1"`.

    Returns:
        A Study: `name`, `variants`, `settings`, `seeds`, `specs`, `primary`; `with_seeds(7)` is one with other seeds.

    Raises:
        StudyError: names file, field, value and what is allowed.
    """
    return load_study(path, overrides)


def run_study(
    study: Study | str | Path,
    *,
    seeds: int | Sequence[int] | None = None,
    address: str | None = None,
    **options: Any,
) -> int:
    """Train the cells of a study that are not finished yet, and record them, as `sweep run` does.

    Args:
        study: What `load` returned, or a study file.
        seeds: How many, or a list; None: the study's own.
        address: Ray cluster to join; None: RAY_ADDRESS, else this machine.
        options: `tracking_uri`, `max_concurrent`, `retries`, `retry_failed`, `accept_changes`, `allow_unverified`,
            `rerun` (sweep.run.launch.RunOptions).

    Returns:
        Exit code: 0 all is finished; 1 some cells are not (named on stderr); 130 interrupted, resumable.

    Raises:
        SweepError: nothing could be started.
        ValueError: seeds that no study can have.

    Example:
        run_study("my-study.yaml", max_concurrent=2)
    """
    from sweep.on_ray.ray_backend import RayBackend
    from sweep.record.tracking_uri import default_uri
    from sweep.run import run_study as module

    loaded = study if isinstance(study, Study) else load_study(study)
    how = RunOptions(**options)
    if how.tracking_uri is None:
        how = replace(how, tracking_uri=default_uri())
    return module.run_study(loaded if seeds is None else loaded.with_seeds(seeds), RayBackend(address), how)
