"""A small work that every test here shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.work import Work, prepare


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """Two cells of three steps on STS-B."""
    if not os.environ.get("PAIRSWEEP_DATA"):
        pytest.skip("PAIRSWEEP_DATA is not set; it names the folder that holds stsb-en/")
    folder: Path = tmp_path_factory.mktemp("benchmark") / "work"
    return prepare(folder, model="bert", seeds=1, train_rows=96, test_rows=60)
