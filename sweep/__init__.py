"""Declare, schedule and record a study.

From Python:

    from sweep import load, run_study
    run_study("my-study.yaml")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweep.notebook import load, run_study

__all__ = ["load", "run_study"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("sweep.notebook"), name)
