"""A page for people where a tracking server should be is said at once; a proxy whose server is away is waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from analysis.cli import main as analysis
from sweep.cli import main
from sweep.errors import TrackingUnavailable
from sweep.on_ray.machines import tracking_trouble
from sweep.record.tracking import Tracking
from tests.sweep.studies import noop, write

PAGE = b"\n<!DOCTYPE html><html><title>Sign in</title>" + b"<p>x</p>" * 500


class _Page(BaseHTTPRequestHandler):
    """Sends everybody to the login page; /502/ is a proxy whose server is away."""

    def do_GET(self) -> None:
        away, login = self.path.startswith("/502/"), self.path == "/login"
        self.send_response(502 if away else 200 if login else 302)
        if not away and not login:
            self.send_header("Location", "/login")
        content = PAGE if away or login else b""
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET  # noqa: N815

    def log_message(self, *given: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("command", ["plan", "status", "run"])
def test_a_login_page_is_said_at_once(command: str, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    began = time.monotonic()
    done = CliRunner().invoke(main, [command, str(write(tmp_path, noop())), "--tracking-uri", page])
    assert time.monotonic() - began < 8
    assert done.exit_code == 2
    assert f"tracking store {page}: it answered with HTML instead of JSON; a login page or a proxy?" in done.stderr
    assert "Sign in" not in done.output
    assert "waiting" not in done.output


@pytest.mark.parametrize("command", [["report"], ["export", "--output", "x.parquet"], ["power", "--pilot"]])
def test_the_analysis_says_so_too(
    command: list[str], page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIRSWEEP_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    began = time.monotonic()
    address = page.replace("http://", "http://me:s3cret@")
    done = CliRunner().invoke(analysis, [*command, "any", "--tracking-uri", address])
    assert time.monotonic() - began < 8
    assert done.exit_code == 2
    assert done.stderr == (
        f"analysis: {page}: it answered with HTML instead of JSON; a login page or a proxy?"
        " expected the address of an MLflow server\n"
    )


def test_a_machine_says_so_too(page: str) -> None:
    assert tracking_trouble(page) == f"{page} answers with HTML there instead of JSON; a login page or a proxy?"


def test_a_proxy_whose_server_is_away_is_waited_for(page: str) -> None:
    with pytest.raises(TrackingUnavailable):
        Tracking(f"{page}/502", wait_s=0.5).recorded_runs("any")
