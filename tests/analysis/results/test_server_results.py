"""Reading through a real MLflow server: the same report as from its database, predictions included."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from analysis.cli import main
from tests.analysis.recorded import record_study


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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", "127.0.0.1", "--port", str(port),
        "--backend-store-uri", f"sqlite:///{recorded / 'served.db'}",
        "--artifacts-destination", str(recorded / "artifacts"), "--serve-artifacts",
    ]  # fmt: skip
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (recorded / "server.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            _wait(f"http://127.0.0.1:{port}/health", process, recorded / "server.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, 15)
            process.wait(30)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"no answer from {url}: {log.read_text()}")


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
