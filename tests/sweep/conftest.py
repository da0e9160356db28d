"""A store for each test, copied: MLflow takes seconds to make a new database, and a copy is as good."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sweep.record import retry
from sweep.record.tracking import Tracking


@pytest.fixture(scope="session")
def _new_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("new-database") / "mlflow.db"
    Tracking(f"sqlite:///{path}").open()
    return path


@pytest.fixture
def store(_new_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tracking:
    """An empty store that is the default one; what cannot be recorded is kept beside it."""
    path = shutil.copy(_new_database, tmp_path / "mlflow.db")
    monkeypatch.setenv("SWEEP_SPOOL_DIR", str(tmp_path / "spool"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{path}")
    return Tracking(f"sqlite:///{path}", wait_s=retry.START_WAIT_S)
