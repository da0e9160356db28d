"""From recorded results to a verdict; knows neither Ray nor torch nor the other packages.

In a notebook:

    from analysis import compare, load
    compare(load("my-study"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.notebook import compare
    from analysis.results.load import load

__all__ = ["compare", "load"]

_HOMES = {"compare": "analysis.notebook", "load": "analysis.results.load"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
