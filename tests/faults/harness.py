"""A study in a folder of its own, run by the real command in a real process, and the database read from outside."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import http.server
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import psutil
import yaml

STUDY: dict[str, Any] = {
    "version": 1,
    "name": "faulty",
    "trainable": "closed-form",
    "matryoshka_dims": [8, 16],
    "options": {"sleep_s": 2.0},
    "variants": {"a": {}, "b": {"options": {"effect": 0.05}}},
    "baseline": "a",
    "seeds": 3,
    "resources": {"cpus": 1},
}
CELLS = 6
FOREIGN = re.compile(r"\x1b|\(raylet|\(autoscaler|Traceback|Warning:|^\S* ?(WARNING|ERROR|INFO) |site-packages")
"""In lines that are not the command's own: colour codes, Ray's words, dumps."""
START_S = 240.0
"""Longest wait for a command's first training; a busy machine takes its time."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run as the database has it."""

    run_id: str
    name: str
    kind: str
    status: str
    tags: Mapping[str, str]
    metrics: Mapping[tuple[str, int], float]
    artifacts: Path | None

    @property
    def scores(self) -> dict[tuple[str, int], float]:
        """All that must be equal to the bit between two trainings of one cell."""
        return {key: value for key, value in self.metrics.items() if not key[0].startswith(("time/", "memory/"))}

    def predictions(self) -> dict[str, str]:
        """Split -> digest of the stored predictions."""
        if self.artifacts is None:
            return {}
        return {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in (self.artifacts / "predictions").glob("*.parquet")
        }


def read_runs(database: Path, artifacts_root: Path | None = None) -> list[Run]:
    """All runs of a tracking database, cells and studies."""
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)) as store:
        rows = store.execute("select run_uuid, name, status, artifact_uri from runs").fetchall()
        tags: dict[str, dict[str, str]] = {}
        for run_id, name, value in store.execute("select run_uuid, key, value from tags"):
            tags.setdefault(run_id, {})[name] = value
        metrics: dict[str, dict[tuple[str, int], float]] = {}
        for run_id, name, step, value in store.execute("select run_uuid, key, step, value from metrics"):
            assert (name, step) not in metrics.setdefault(run_id, {}), f"{name} at step {step} is stored twice"
            metrics[run_id][name, step] = value
    return [
        Run(
            run_id=run_id,
            name=name,
            kind=tags.get(run_id, {}).get("sweep.kind", ""),
            status=status,
            tags=tags.get(run_id, {}),
            metrics=metrics.get(run_id, {}),
            artifacts=_folder(uri, artifacts_root),
        )
        for run_id, name, status, uri in rows
    ]


def _folder(uri: str, root: Path | None) -> Path | None:
    parsed = urlparse(uri)
    if parsed.scheme in ("", "file"):
        return Path(unquote(parsed.path))
    return None if root is None else root / parsed.path.lstrip("/")


class Launch:
    """One running command."""

    def __init__(self, arguments: list[str], cwd: Path, env: Mapping[str, str], log: Path) -> None:
        self.log = log
        self._cwd = cwd.resolve()
        self._began = time.monotonic()
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                arguments, cwd=cwd, env=dict(env), stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def output(self) -> str:
        """What it printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, text: str, timeout_s: float = START_S) -> None:
        """Wait until it printed a text."""
        deadline = time.monotonic() + timeout_s
        while text not in self.output:
            assert self.process.poll() is None, f"ended with {self.process.returncode} before {text!r}:\n{self.output}"
            assert time.monotonic() < deadline, f"no {text!r} within {timeout_s:.0f} s:\n{self.output}"
            time.sleep(0.05)

    def wait(self, timeout_s: float = START_S) -> int:
        """Its exit code."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(f"still running after {timeout_s:.0f} s:\n{self.output}") from None

    def workers(self) -> list[psutil.Process]:
        """Its workers: Ray's processes, which have cells trained, one after another, and record them."""
        found = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                    if "".join(process.cmdline()[:1]).startswith("ray::") and ".train" in process.cmdline()[0]:
                        found.append(process)
        return found

    def a_worker(self, timeout_s: float = START_S) -> psutil.Process:
        """A worker that has a cell."""
        deadline = time.monotonic() + timeout_s
        while not (found := self.workers()):
            assert time.monotonic() < deadline, self.output
            time.sleep(0.05)
        return found[0]

    def fork_servers(self) -> list[psutil.Process]:
        """The processes that cells are forked from; where one was replaced, those that have not ended yet."""
        forked = self._forked()
        return [process for process in forked if process.ppid() not in {one.pid for one in forked}]

    def cells(self) -> list[psutil.Process]:
        """The processes that cells have for themselves."""
        forked = self._forked()
        return [process for process in forked if process.ppid() in {one.pid for one in forked}]

    def a_cell(self, timeout_s: float = START_S) -> psutil.Process:
        """The process of a cell that trains now."""
        deadline = time.monotonic() + timeout_s
        while not (found := self.cells()):
            assert time.monotonic() < deadline, self.output
            time.sleep(0.05)
        return found[0]

    def _forked(self) -> list[psutil.Process]:
        """Fork servers and what they have forked, which keeps their command line."""
        found = []
        for process in psutil.process_iter():  # a worker's is nobody's child
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
                if "sweep.run.fork_server" in " ".join(process.cmdline()) and process.cwd() == str(self._cwd):
                    found.append(process)
        return found

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the driver alone."""
        self.process.send_signal(number)

    def end(self) -> None:
        """End it and all it started."""
        with contextlib.suppress(ProcessLookupError):
            children = psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
            for process in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self.process.kill()
        self.process.wait(30)


@dataclass(kw_only=True)
class Bench:
    """A folder with a study, a store and a spool."""

    folder: Path
    study: dict[str, Any] = field(default_factory=lambda: dict(STUDY))
    uri: str | None = None
    """None: `mlflow.db` in the folder."""
    database: Path | None = None
    artifacts_root: Path | None = None
    env: dict[str, str] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write(self.study)
        if self.database is None:
            self.database = self.folder / "mlflow.db"

    def write(self, study: Mapping[str, Any]) -> None:
        """Write the study file anew."""
        (self.folder / "study.yaml").write_text(yaml.safe_dump(dict(study), sort_keys=False), encoding="utf-8")

    def environment(self) -> dict[str, str]:
        """Of the commands: this one's, with places of its own."""
        env = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "PYTEST_CURRENT_TEST")}
        env |= {"SWEEP_SPOOL_DIR": str(self.folder / "spool"), "XDG_DATA_HOME": str(self.folder / "home")}
        env["MLFLOW_TRACKING_URI"] = self.uri or f"sqlite:///{self.folder / 'mlflow.db'}"
        return env | self.env

    def start(self, *arguments: str, command: str = "run") -> Launch:
        """Start the command."""
        line = [sys.executable, "-m", "sweep.cli", command, "study.yaml", *arguments]
        launch = Launch(line, self.folder, self.environment(), self.folder / f"out-{len(self.launches)}.txt")
        self.launches.append(launch)
        return launch

    def run(self, *arguments: str, timeout_s: float = START_S) -> int:
        """Run the command to its end."""
        return self.start(*arguments).wait(timeout_s)

    def runs(self, kind: str = "cell") -> list[Run]:
        """Runs of one kind; none where there is no database yet."""
        assert self.database is not None
        if not self.database.exists():
            return []
        return [run for run in read_runs(self.database, self.artifacts_root) if run.kind == kind]

    def wait_for_run(self, wanted: str, timeout_s: float = START_S) -> Run:
        """Wait until the database holds a RUNNING cell run that is `begun`, has `metrics`, or is `complete`."""
        assert self.database is not None
        query = {
            "begun": "select r.run_uuid from runs r join tags t on t.run_uuid = r.run_uuid and t.key = 'sweep.cell' "
            "where r.status = 'RUNNING' and r.run_uuid not in (select run_uuid from metrics)",
            "metrics": "select r.run_uuid from runs r join metrics m on m.run_uuid = r.run_uuid "
            "where r.status = 'RUNNING' and r.run_uuid not in (select run_uuid from tags where key = 'sweep.complete')",
            "complete": "select r.run_uuid from runs r join tags t on t.run_uuid = r.run_uuid "
            "where r.status = 'RUNNING' and t.key = 'sweep.complete'",
        }[wanted]
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.database.exists():
                store = sqlite3.connect(self.database, isolation_level=None, timeout=60)
                with contextlib.closing(store), contextlib.suppress(sqlite3.OperationalError):
                    found = store.execute(query).fetchone()
                    if found is not None:
                        return next(run for run in self.runs() if run.run_id == found[0])
            time.sleep(0.002)
        raise AssertionError(f"no run with {wanted} within {timeout_s:.0f} s")

    def end(self) -> None:
        """End whatever still runs."""
        for launch in self.launches:
            if launch.process.poll() is None:
                launch.end()


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table that the suite prints."""

    fault: str
    cells: int
    lost: int
    doubled: int
    codes: tuple[int | str, ...]
    attempts: int


def examined(bench: Bench, fault: str, codes: tuple[int | str, ...], undisturbed: Mapping[str, Run]) -> Row:
    """What the fault left, after the same command again: asserts that it is nothing."""
    runs = bench.runs()
    finished = Counter(run.name for run in runs if run.status == "FINISHED")
    row = Row(
        fault=fault,
        cells=len(undisturbed),
        lost=sum(finished[name] == 0 for name in undisturbed),
        doubled=sum(count > 1 for count in finished.values()),
        codes=codes,
        attempts=len(runs),
    )
    table = [(run.name, run.status, run.tags.get("sweep.attempt")) for run in runs]
    assert row.lost == 0, table
    assert row.doubled == 0, table
    assert set(finished) == set(undisturbed), table
    assert [run.name for run in runs + bench.runs("study") if run.status == "RUNNING"] == []
    for run in runs:
        if run.status == "FINISHED":
            assert run.scores == undisturbed[run.name].scores, run.name
            assert run.predictions() == undisturbed[run.name].predictions(), run.name
    assert not list((bench.folder / "spool").rglob("*.zip"))
    for launch in bench.launches:
        assert not [line for line in launch.output.splitlines() if FOREIGN.search(line)], launch.output
    return row


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A real `mlflow server`."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.folder, self.port = folder, port or free_port()
        folder.mkdir(parents=True, exist_ok=True)
        self.database, self.artifacts = folder / "server.db", folder / "artifacts"
        self._process: subprocess.Popen[bytes] | None = None
        self._times = 0

    @property
    def uri(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        self._times += 1
        with (self.folder / f"server-{self._times}.txt").open("wb") as output:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port),
                    "--workers", "1", "--backend-store-uri", f"sqlite:///{self.database}",
                    "--artifacts-destination", str(self.artifacts), "--serve-artifacts",
                ],
                env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"},
                cwd=self.folder,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + 180
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.uri}/health", timeout=2):
                return
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.2)

    def signal(self, number: int) -> None:
        """Send a signal to all of its processes."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self.signal(signal.SIGKILL)
            self._process.wait(30)
            self._process = None


class Gate:
    """Stands before a server: passes requests on, answers in its place, or does something first."""

    def __init__(self, server: Server) -> None:
        self.refusal: int | None = None
        """Status that every request gets; None: the server's answer."""
        self.before: Callable[[str, bytes], bool] = lambda path, body: True
        """Called with path and body of each request; False drops it without an answer."""
        gate = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                self.close_connection = True
                if not self.raw_requestline or not self.parse_request():
                    return
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if gate.refusal is not None:
                    self.send_error(gate.refusal)
                elif gate.before(self.path, body):
                    self._pass_on(body)

            def _pass_on(self, body: bytes) -> None:
                there = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
                with contextlib.closing(there), contextlib.suppress(OSError, http.client.HTTPException):
                    there.request(self.command, self.path, body, dict(self.headers))
                    answer = there.getresponse()
                    content = answer.read()
                    self.send_response(answer.status)
                    self.send_header("Content-Type", answer.getheader("Content-Type") or "application/json")
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def uri(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


def a_served_bench(server: Server, folder: Path, uri: str | None = None) -> Bench:
    """A study that is recorded by a server, through another address where one is given."""
    return Bench(folder=folder, uri=uri or server.uri, database=server.database, artifacts_root=server.artifacts)


@contextlib.contextmanager
def write_lock(database: Path) -> Iterator[None]:
    """Hold the database's writer lock."""
    with contextlib.closing(sqlite3.connect(database, isolation_level=None, timeout=60)) as store:
        store.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            store.execute("ROLLBACK")
