"""A password in a tracking URI is used, and never shown or recorded."""

from __future__ import annotations

import base64
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from analysis.cli import main as analysis
from sweep.cli import main as sweep
from sweep.errors import ClusterError, StudyError, SweepError, TrackingError
from sweep.on_ray.machines import tracking_trouble
from sweep.on_ray.submit import submit_study
from sweep.record.recording import failure_recording
from sweep.record.tracking import Tracking
from sweep.record.tracking_uri import absolute_uri, host_refusal, where_to_look
from sweep.run.launch import RunOptions
from sweep.run.run_study import run_study
from sweep.study import load_study
from tests.mlflow_server import mlflow_server
from tests.sweep.in_process import InProcess
from tests.sweep.runs import a_cell
from tests.sweep.studies import noop, two_seeds, write

USER, PASSWORD = "me", "s3cr/t@x"
WRITTEN = "me:s3cr%2Ft%40x"


class _Guard(BaseHTTPRequestHandler):
    """Passes on what comes with the right user and password, and counts the rest."""

    behind: str
    refused: int

    def _pass_on(self) -> None:
        expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") != expected:
            type(self).refused += 1
            self._answer(401, b"who are you?", "text/plain")
            return
        kind = self.headers.get("Content-Type", "application/json")
        request = urllib.request.Request(
            self.behind + self.path, data=body or None, headers={"Content-Type": kind}, method=self.command
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                self._answer(answer.status, answer.read(), answer.headers.get("Content-Type", ""))
        except urllib.error.HTTPError as error:
            with error:
                self._answer(error.code, error.read(), error.headers.get("Content-Type", ""))

    def _answer(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on  # noqa: N815

    def log_message(self, *given: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a real MLflow server behind a guard that asks for user and password."""
    folder = tmp_path_factory.mktemp("guarded")
    with mlflow_server(folder / "mlflow.db", folder / "artifacts") as behind:
        handler = type("Guard", (_Guard,), {"behind": behind, "refused": 0})
        guard = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=guard.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{guard.server_port}"
        guard.shutdown()
        guard.server_close()


def test_a_study_runs_and_is_read_with_user_and_password_in_the_address(
    guarded: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIRSWEEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SWEEP_SPOOL_DIR", str(tmp_path / "spool"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    uri = f"http://{WRITTEN}@{guarded}"
    study = two_seeds(tmp_path, variants={"a": {}, "b": {"trainable": "broken:broken"}})
    (tmp_path / "broken.py").write_text(f"def broken(spec, report):\n    raise OSError('no answer from {uri}')\n")
    assert run_study(study, InProcess(), RunOptions(tracking_uri=uri)) == 1
    store = Tracking(uri, wait_s=5)
    runs = store.recorded_runs(study.name)
    assert sorted(run.status for run in runs) == ["FAILED", "FAILED", "FINISHED", "FINISHED"]
    parent = store.study_run(study.name)
    assert parent is not None
    recorded = [str(run.tags) for run in runs] + [str(parent.tags)]
    status = CliRunner().invoke(sweep, ["status", str(study.path), "--tracking-uri", uri])
    made = CliRunner().invoke(analysis, ["report", study.name, "--tracking-uri", uri])
    absent = CliRunner().invoke(analysis, ["report", "absent", "--tracking-uri", uri])
    assert (status.exit_code, made.exit_code, absent.exit_code) == (0, 0, 2), made.output
    shown = "".join([*capfd.readouterr(), status.output, made.output, absent.output, *recorded])
    assert "s3cr" not in shown
    assert f"compare runs: http://{guarded}/#/experiments/" in shown
    assert tracking_trouble(uri) == ""


@pytest.mark.parametrize("written", ["me:wrong", "me:s3cr/t@x"])
def test_a_wrong_password_is_refused_without_repeating_it(written: str, guarded: str, tmp_path: Path) -> None:
    uri = f"http://{written}@{guarded}"
    for command in ("plan", "status", "run"):
        done = CliRunner().invoke(sweep, [command, str(write(tmp_path, noop())), "--tracking-uri", uri])
        assert done.exit_code in (1, 2)
        assert guarded in done.output
        assert written not in done.output


def test_a_search_storage_without_its_scheme_is_refused_without_repeating_its_password(tmp_path: Path) -> None:
    search = {"space": {"learning_rate": [1e-5, 2e-5]}, "trials": 1, "seeds": [100], "storage": "me:s3cret@db/x"}
    with pytest.raises(StudyError, match=r"search\.storage: 'db/x' is not valid; expected an SQLAlchemy URL"):
        load_study(write(tmp_path, noop(search=search)))


@pytest.mark.parametrize(
    "uri", ["me:s3cret@host:5000", "postgresql://me:s3cr et@db/runs", "ftp://me:s3cret@host", "http://me:s3c'r\"et@h x"]
)
def test_an_address_that_is_refused_is_shown_without_password(uri: str) -> None:
    with pytest.raises(TrackingError) as caught:
        absolute_uri(uri)
    assert "s3c" not in str(caught.value)
    made = CliRunner().invoke(analysis, ["report", "any", "--tracking-uri", uri])
    assert made.exit_code == 2
    assert "s3c" not in made.output


def test_a_job_on_a_cluster_is_not_given_a_password_in_its_command(tmp_path: Path) -> None:
    study, uri = load_study(write(tmp_path, noop())), "http://me:s3cret@head:5000"
    with pytest.raises(ClusterError, match="give it without user and password") as caught:
        submit_study(study, address="http://127.0.0.1:1", run_options=["--tracking-uri", uri])
    assert "s3cret" not in str(caught.value)


def test_the_ways_of_showing_an_address() -> None:
    assert (
        where_to_look("http://me:s3cret@host:5000", "7")
        == "http://host:5000/#/experiments/7/runs?viewStateShareKey=pairsweep&compareRunsMode=CHART&workflowType=machine_learning"
    )
    assert "s3cret" not in where_to_look("postgresql://me:s3cret@db/runs", "7")
    assert host_refusal("http://me:s3cret@host:5000").startswith("http://host:5000 refuses the host name 'host:5000'")
    assert str(SweepError("no answer from http://me:s3cret@host")) == "no answer from http://host"


def test_a_failure_that_names_an_address_is_recorded_without_password() -> None:
    text = "ConnectionError: http://me:s3cret@host:5000 is away"
    recording = failure_recording(a_cell(), reason=text, kind="cell", detail=f"Traceback\n{text}")
    assert "s3cret" not in str(recording)


def test_a_password_of_the_search_storage_is_not_recorded_with_the_study_file(store: Tracking, tmp_path: Path) -> None:
    path = write(tmp_path, "# storage: postgresql://me:s3cret@db/optuna\n" + write(tmp_path, noop()).read_text())
    assert run_study(load_study(path).with_seeds(1), InProcess()) == 0
    kept = [file.read_text() for file in tmp_path.rglob("study.yaml") if file != path]
    assert kept
    assert not any("s3cret" in text for text in kept)


@pytest.mark.parametrize("storage", ["nodriver://me:s3cret@db/x", "postgresql://me:s3cret@db:port/x"])
def test_a_password_of_the_search_storage_is_shown_and_recorded_nowhere(
    storage: str, store: Tracking, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEP_SPOOL_DIR", str(tmp_path / "spool"))
    search = {
        "space": {"learning_rate": [1e-5, 2e-5]},
        "trials": 1,
        "seeds": [100],
        "endpoint": "validation/spearman_8",
    }
    path = write(tmp_path, noop(search={**search, "storage": storage}))
    given = ["--tracking-uri", store.uri]
    assert run_study(load_study(path).with_seeds(1), InProcess(), RunOptions(tracking_uri=store.uri)) == 0
    shown = ""
    for words in (["plan"], ["plan", "--json"], ["status"], ["status", "--json"], ["tune"]):
        done = CliRunner().invoke(sweep, [words[0], str(path), *words[1:], *given])
        shown += done.output
        assert done.exit_code == (2 if words == ["tune"] else 0), done.output
    assert "sweep: search storage " in shown
    made = CliRunner().invoke(analysis, ["report", str(path), *given])
    assert "s3cret" not in "".join([*capfd.readouterr(), shown, made.output])
    files = [file for file in tmp_path.rglob("*") if file.is_file() and file != path]
    assert any(file.name == "mlflow.db" for file in files)
    assert [file for file in files if b"s3cret" in file.read_bytes()] == []
