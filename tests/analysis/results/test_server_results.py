"""Reading through a real MLflow server: the same report as from its database, predictions included."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from analysis.cli import main
from tests.analysis.recorded import record_study
from tests.mlflow_server import mlflow_server


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    record_study(folder, seeds=3)
    return folder


@pytest.fixture(scope="module")
def server(recorded: Path) -> Iterator[str]:
    """A server on a copy of the database whose artifacts are only to be had through it."""
    shutil.copy(recorded / "mlflow.db", recorded / "served.db")
    with closing(sqlite3.connect(recorded / "served.db")) as database, database:
        was = str(recorded / "artifacts")
        database.execute("UPDATE runs SET artifact_uri = replace(artifact_uri, ?, 'mlflow-artifacts:')", (was,))
    with mlflow_server(recorded / "served.db", recorded / "artifacts") as address:
        yield address


def test_the_server_gives_the_same_report_as_its_database(
    server: str, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIRSWEEP_CACHE", str(tmp_path / "cache"))
    made = [
        CliRunner().invoke(main, ["report", "small", "--tracking-uri", uri, "--format", "json"])
        for uri in (f"sqlite:///{recorded / 'mlflow.db'}", server, server)
    ]
    assert [done.exit_code for done in made] == [0, 0, 0], made[1].output
    direct, served, again = (json.loads(done.stdout) for done in made)
    assert served == direct == again
    assert served["comparisons"][0]["endpoints"][0]["crossed_ci95"] is not None
    missing = CliRunner().invoke(main, ["report", "absent", "--tracking-uri", server])
    assert missing.exit_code == 2
    assert "no study named 'absent'; recorded there: small" in missing.stderr
