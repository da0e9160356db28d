"""Training in a process of its own, seen from the worker that has it trained (the other end: sweep.run.training).

What the cell does to its process (patches, default dtype, environment, working folder, memory, threads) ends with it,
and what ends the process is named.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final

from analysis import schema
from sweep.console import one_line
from sweep.errors import SweepError
from sweep.run.fork_place import ForkPlace
from sweep.run.memory import shown_bytes
from sweep.run.progress import duration
from sweep.run.training import Ended, Failure, Job, Surroundings, out_of_memory
from trainables.spec import Progress, TrainResult

LOOK_S: Final = 0.25
"""How often a worker looks whether to stop."""
HEAD_BYTES: Final = 256 * 1024
TAIL_BYTES: Final = 256 * 1024
MOST_BYTES: Final = 16 * 2**20
"""Output on disk; what lies between the head and the latest part is thrown away beyond that."""
LAST_LINES: Final = 20
_FROM_OUTSIDE: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that the system or an operator sends."""


class CellProcesses:
    """Trains each job in a fork of the machine's fork server."""

    def __init__(self, owner: str, *, modules: Sequence[str], threads: int) -> None:
        """Prepare; the server is started now, if nobody has.

        Args:
            owner: Whose launch it is: all its workers on a machine have one server.
            modules: What the server imports ahead.
            threads: Compute threads of a cell.
        """
        self._owner, self._modules, self._threads = owner, tuple(modules), threads
        self._server: _Server | None = None
        with suppress(OSError, SweepError):  # comes again with the first cell, and is told there
            self._server = self._connect()

    def _connect(self) -> _Server:
        return _Server(ForkPlace.of(self._owner).connect(self._modules, threads=self._threads, detached=True))

    def train(self, job: Job, report: Callable[[Progress], None], stop_requested: Callable[[], bool]) -> Ended:
        """Train one job; see `Trainer`."""
        with tempfile.TemporaryFile(prefix="output-") as file:
            output = _Output(file.fileno())
            try:
                self._server = self._server or self._connect()
                channel = self._server.start(output.descriptor, job.memory_bytes)
            except (OSError, SweepError) as error:
                self.close()
                return Ended(failure=self._no_server(f"cannot be started: {error}"))
            with channel:
                attempt = _Attempt(self._server, channel, job, output)
                ended = attempt.watch(report, stop_requested)
            if ended is None:
                self.close()
                return Ended(failure=self._no_server("is gone"), output=output.kept())
            return ended

    def _no_server(self, what: str) -> Failure:
        said = ""
        with suppress(OSError, SweepError):
            said = ForkPlace.of(self._owner).log.read_text(encoding="utf-8", errors="replace")[-4000:]
        return Failure(
            reason=f"the process that cells are forked from {what}", kind=schema.FAILURE_INFRASTRUCTURE, detail=said
        )

    def close(self) -> None:
        """Leave the server, which ends with its last client."""
        if self._server is not None:
            self._server.close()
            self._server = None


@contextmanager
def running_fork_server(owner: str, *, modules: Sequence[str], threads: int) -> Iterator[None]:
    """Have a fork server on this machine as long as this lasts, and not longer; it imports meanwhile."""
    connection = None
    with suppress(OSError, SweepError):  # a worker tries again, and tells
        connection = ForkPlace.of(owner).connect(modules, threads=threads, detached=False)
        connection.sendall(json.dumps({"stays": True}).encode())
    try:
        yield
    finally:
        if connection is not None:
            connection.close()


class _Server:
    """A worker's connection to the fork server. Not for several threads."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._lines = connection.makefile("rb", buffering=0)  # a line read ahead would not wake who waits for it
        self.pid = 0

    def start(self, output: int, memory: int | None) -> Connection[Any, Any]:
        """Fork a process; the connection to it.

        Raises:
            OSError: the server is gone.
        """
        ours, theirs = socket.socketpair()
        with ours, theirs:
            request = json.dumps({"start": {"memory": memory}}).encode()
            socket.send_fds(self.connection, [request], [theirs.fileno(), output])
            answer = self.hear()
            if "pid" not in answer:
                raise OSError(str(answer.get("error", answer)))
            self.pid = int(answer["pid"])
            return Connection(ours.detach())

    def hear(self) -> dict[str, Any]:
        """The server's next word.

        Raises:
            OSError: it is gone.
        """
        line = self._lines.readline()
        if not line.endswith(b"\n"):
            raise ConnectionResetError("no answer")
        heard: dict[str, Any] = json.loads(line)
        return heard

    def kill(self) -> None:
        """End the cell's process and what it started."""
        for end in (os.killpg, os.kill):
            with suppress(ProcessLookupError, PermissionError):
                end(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Leave."""
        self._lines.close()
        self.connection.close()


class _Output:
    """What a training writes: the beginning and the end of it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._head = b""
        self._dropped = 0
        # Shared with the writer: whatever is thrown away, it goes on at the end.
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_APPEND)

    def trim(self) -> None:
        """Throw away what is too much."""
        size = os.fstat(self.descriptor).st_size
        if size > MOST_BYTES:
            self._head = self._head or os.pread(self.descriptor, HEAD_BYTES, 0)
            self._dropped += size
            os.ftruncate(self.descriptor, 0)

    def kept(self) -> bytes:
        """The first and the last part."""
        size = os.fstat(self.descriptor).st_size
        if not self._head and size <= HEAD_BYTES + TAIL_BYTES:
            return os.pread(self.descriptor, size, 0)
        head = self._head or os.pread(self.descriptor, HEAD_BYTES, 0)
        tail = os.pread(self.descriptor, TAIL_BYTES, max(0, size - TAIL_BYTES))
        left_out = self._dropped + size - len(head) - len(tail)
        return head + f"\n[... {left_out:,} bytes are left out ...]\n".encode() + tail


class _Attempt:
    """One training while it runs, seen from its worker."""

    def __init__(self, server: _Server, channel: Connection[Any, Any], job: Job, output: _Output) -> None:
        self._server, self._channel, self._job, self._output = server, channel, job, output
        self._result: TrainResult | None = None
        self._failure: Failure | None = None
        self._open = True

    def watch(self, report: Callable[[Progress], None], stop_requested: Callable[[], bool]) -> Ended | None:
        """Pass on what the cell tells until its process has ended; None where the server ended before."""
        deadline = None if self._job.time_limit_s is None else time.monotonic() + self._job.time_limit_s
        stopped = late = False
        self._send_job()
        while True:
            waits: list[Any] = [self._server.connection, *([self._channel] if self._open else [])]
            ready = wait(waits, LOOK_S)
            if self._channel in ready:
                self._take(report)
            if self._server.connection in ready:
                try:
                    heard = self._server.hear()
                except OSError:
                    self._server.kill()
                    return None
                while self._open and self._channel.poll():  # its last words
                    self._take(report)
                break
            self._output.trim()
            if not stopped and not late:
                stopped = self._result is None and self._failure is None and stop_requested()
                late = deadline is not None and time.monotonic() > deadline
                if stopped or late:
                    self._server.kill()
        output = self._output.kept()
        if self._result is not None:
            return Ended(result=self._result, output=output)
        if stopped:
            return Ended(output=output)
        failure = self._failure or (_late(self._job) if late else _death(heard, self._job))
        return Ended(failure=_with_output(failure, output), output=output)

    def _send_job(self) -> None:
        surroundings = Surroundings(
            job=self._job, environment=dict(os.environ), folder=_this_folder(), path=tuple(sys.path)
        )
        with suppress(OSError):  # it has ended already: its end says why
            self._channel.send(surroundings)

    def _take(self, report: Callable[[Progress], None]) -> None:
        try:
            told = self._channel.recv()
        except (EOFError, OSError):
            self._open = False
            return
        except Exception as error:
            # Only a cell that writes to its channel by itself can send what cannot be read here.
            self._failure = Failure(reason=f"its answer cannot be read: {one_line(error)}", kind=schema.FAILURE_CELL)
            self._server.kill()
            return
        if isinstance(told, Progress):
            report(told)
        elif isinstance(told, TrainResult):
            self._result = told
        elif isinstance(told, Failure):
            self._failure = told


def _this_folder() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # removed; a cell uses absolute paths
        return "/"


def _late(job: Job) -> Failure:
    limit = duration(job.time_limit_s or 0.0)
    return Failure(reason=f"took longer than resources.time_limit, {limit}", kind=schema.FAILURE_CELL)


def _death(heard: Mapping[str, Any], job: Job) -> Failure:
    """Why a process ended that gave neither a result nor an error."""
    status, peak = int(heard["status"]), f"peak memory {shown_bytes(heard['peak'])}"
    if heard["over"] and job.memory_bytes is not None:
        return out_of_memory(job, peak)
    if not os.WIFSIGNALED(status):
        code = os.waitstatus_to_exitcode(status)
        return Failure(reason=f"the training ended with exit status {code}", kind=schema.FAILURE_CELL)
    number = os.WTERMSIG(status)
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    guess = f": out of memory? ({peak})" if number == signal.SIGKILL else ""
    kind = schema.FAILURE_INFRASTRUCTURE if number in _FROM_OUTSIDE else schema.FAILURE_CELL
    return Failure(reason=f"the training was killed by {name}{guess}", kind=kind)


def _with_output(failure: Failure, output: bytes) -> Failure:
    """The failure's story, followed by the last lines of the output."""
    lines = output.decode("utf-8", errors="replace").splitlines()[-LAST_LINES:]
    if not lines:
        return failure
    detail = "\n".join([failure.detail or failure.reason, "", "The last lines of its output:", *lines])
    return replace(failure, detail=detail + "\n")
