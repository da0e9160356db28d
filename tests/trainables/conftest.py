from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainables.spec import Progress, TrainSpec


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The toy encoder is built once per session, outside the user's own cache."""
    before = os.environ.get("PAIRSWEEP_CACHE")
    os.environ["PAIRSWEEP_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["PAIRSWEEP_CACHE"]
    else:
        os.environ["PAIRSWEEP_CACHE"] = before


@pytest.fixture(scope="session")
def data_folder() -> Path:
    folder = os.environ.get("PAIRSWEEP_DATA")
    if not folder:
        pytest.skip("PAIRSWEEP_DATA is unset; it names the folder that holds jsts-v1.3/ and stsb-en/")
    return Path(folder)


def toy_spec(**changes: Any) -> TrainSpec:
    """A training of a few steps on the toy set."""
    fields: dict[str, Any] = {
        "model": {"name": "toy-random"},
        "data": {"name": "toy", "limit": {"train": 64, "validation": 40, "test": 40}},
        "loss": [{"name": "cosent"}],
        "matryoshka_dims": [8, 64],
        "training": {"epochs": 1, "batch_size": 16, "learning_rate": 1e-3},
        "seed": 0,
    }
    return TrainSpec(**{**fields, **changes})


def silent(_: Progress) -> None:
    """A progress callback that listens to nothing."""
