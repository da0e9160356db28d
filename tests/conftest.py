from __future__ import annotations

import gc

import hypothesis.internal.observability  # noqa: F401  # its plugin imports it at the end, and looks at referrers


def pytest_collection_finish() -> None:
    """Set what collecting has imported aside: each of many garbage collections would look at it all again."""
    gc.collect()
    gc.freeze()
