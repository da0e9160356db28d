"""Addresses, tokens and what answers at them. The real thing is in tests/cluster."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sweep.errors import ClusterError
from sweep.on_ray import submit
from sweep.study import Study, load_study

TOKEN = "f" * 64


@pytest.fixture
def study(tmp_path: Path) -> Study:
    path = tmp_path / "study.yaml"
    path.write_text(
        "name: s\ntrainable: noop\nvariants: {a: {options: {sleep_s: 0}}, b: {options: {sleep_s: 0.1}}}\nseeds: 2\n"
    )
    return load_study(path)


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "auth_token"))


class _Dashboard(BaseHTTPRequestHandler):
    """Answers as Ray's dashboard does where it is asked before a submission."""

    version: dict[str, str] = {"ray_version": "2.60.0"}  # noqa: RUF012

    def do_GET(self) -> None:
        given = self.headers.get("Authorization")
        code = 401 if given is None else 200 if given == f"Bearer {TOKEN}" else 403
        body = json.dumps(self.version if self.path == "/api/version" else []).encode()
        self.send_response(code)
        self.end_headers()
        self.wfile.write(body if code == 200 else b"Forbidden")

    def log_message(self, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def dashboard() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Dashboard)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def refusal(study: Study, address: str) -> str:
    with pytest.raises(ClusterError) as caught:
        submit.submit_study(study, address=address)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_no_token_and_a_wrong_one(study: Study, dashboard: str, tmp_path: Path) -> None:
    assert "asks for a token and none was found here" in refusal(study, dashboard)
    (tmp_path / "auth_token").write_text("0" * 64 + "\n")
    assert "refuses this token" in refusal(study, dashboard)


def test_an_older_ray_is_refused(study: Study, dashboard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    monkeypatch.setattr(_Dashboard, "version", {"ray_version": "2.9.3"})
    assert "the cluster runs Ray 2.9.3; needed is 2.60 or newer" in refusal(study, dashboard)


def test_another_server_is_not_taken_for_a_cluster(
    study: Study, dashboard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    monkeypatch.setattr(_Dashboard, "version", {"name": "something else"})
    assert "answers, but not as a Ray dashboard" in refusal(study, dashboard)


def test_nobody_answers(study: Study) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    assert f"no cluster answers at http://127.0.0.1:{port}" in refusal(study, f"http://127.0.0.1:{port}")


def test_a_server_that_is_silent_is_not_waited_for_without_end(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "PROBE_TIMEOUT_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        assert "no answer within" in refusal(study, f"127.0.0.1:{silent.getsockname()[1]}")


@pytest.mark.parametrize("address", ["ray://head:10001", "http://", "http://head:port", "auto://x", "http://[::1"])
def test_what_is_no_dashboard_address(study: Study, address: str) -> None:
    assert f"--address: {address!r} is not valid; expected http://HOST:8265" in refusal(study, address)


def test_the_job_takes_the_tracking_server_of_the_head_unless_told_otherwise() -> None:
    command = submit.job_command("submitted_study/my study.yaml", ["--retries", "2"])
    assert command.endswith("exec python -m sweep.cli run 'submitted_study/my study.yaml' --retries 2")
    assert 'test -n "$MLFLOW_TRACKING_URI"' in command
    assert "test -n" not in submit.job_command("s.yaml", ["--tracking-uri", "http://server:5000"])
