"""How a study is run."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_RETRIES = 2


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """None of it changes what a cell is."""

    tracking_uri: str | None = None
    """None: MLFLOW_TRACKING_URI, else `mlflow.db` in the current folder."""
    max_concurrent: int | None = None
    """Most cells at once; None: as many as fit."""
    retries: int = DEFAULT_RETRIES
    """How often an attempt lost to infrastructure is repeated, per cell and launch."""
    retry_failed: bool = False
    """Train cells again that failed by themselves."""
    accept_changes: bool = False
    """Extend an experiment whose recorded cells the study file no longer describes."""
    rerun: tuple[str, ...] = ()
    """Cells to train again although they are finished; the old run is superseded."""
    address: str | None = None
    """Of a Ray cluster; None: RAY_ADDRESS, else this machine."""
