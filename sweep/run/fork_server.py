"""A process that has imported what cells need and has computed nothing; every cell is trained in a fork of it.

One a machine and launch. The first who asks starts it, the others join, and it ends with the last of them. A fork
costs hundredths of a second where importing costs several, and what a cell does to its process ends with it.

A client (`sweep.run.cell_process`) connects to a Unix socket that only its user can reach, and sends lines of JSON:
`{"start": {"memory": bytes or null}}` with two descriptors, the socket over which the cell's process is spoken to and
the file that takes its output; or `{"stays": true}`, which ends the server with this client. It gets
`{"pid": ...}` or `{"error": why not}`, and later `{"ended": pid, "status": wait status, "peak": bytes, "over": whether
it was over its memory}`.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sweep.run.fork_place import ForkPlace, locked
from sweep.run.memory import status_bytes
from sweep.run.training import cell_main

IDLE_S: Final = 10.0
"""So long it stays without a client: a worker may be replaced by another."""
LOOK_S: Final = 0.1
"""How often the memory of running cells is looked at."""
_PR_SET_PDEATHSIG: Final = 1


@dataclass(eq=False)
class _Client:
    """A worker, and the processes that it has started."""

    connection: socket.socket
    stays: bool = False
    children: dict[int, _Child] = field(default_factory=dict)


@dataclass
class _Child:
    memory: int | None
    over: bool = False


class ForkServer:
    """Serves until its clients are gone."""

    def __init__(self, listener: socket.socket, place: ForkPlace) -> None:
        self._listener, self._place = listener, place
        self._selector = selectors.DefaultSelector()
        self._clients: list[_Client] = []
        self._made = place.identity()
        self._left = time.monotonic()
        self._base = 0
        """Memory that every fork begins with."""
        self._libc = ctypes.CDLL(None) if sys.platform == "linux" else None
        self._woken, self._wakes = os.pipe()
        for end in (self._woken, self._wakes):
            os.set_blocking(end, False)

    def serve(self) -> None:
        """Fork and reap until nobody is connected any more."""
        self._base = status_bytes("self", "RssAnon")
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        while True:
            watched = any(child.memory for client in self._clients for child in client.children.values())
            for key, _ in self._selector.select(LOOK_S if watched else 1.0):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj == self._woken:
                    with suppress(BlockingIOError):
                        os.read(self._woken, 4096)
                elif key.data in self._clients:  # not gone since, with the one that ends the server
                    self._hear(key.data)
            self._reap()
            self._watch_memory()
            if not self._clients and time.monotonic() - self._left > IDLE_S and self._leave():
                return

    def _accept(self) -> None:
        with suppress(OSError):  # nobody any more, or no descriptor left: who waits is taken next time
            connection, _ = self._listener.accept()
            connection.setblocking(True)
            client = _Client(connection)
            self._clients.append(client)
            self._selector.register(connection, selectors.EVENT_READ, client)

    def _leave(self) -> bool:
        """Take the address away, unless somebody has just called."""
        with locked(self._place.root):
            self._accept()
            if self._clients:
                return False
            self._listener.close()
            if self._place.identity() == self._made:  # else it was removed, and this one is another server's
                shutil.rmtree(self._place.folder, ignore_errors=True)
            return True

    def _hear(self, client: _Client) -> None:
        try:
            text, descriptors, _, _ = socket.recv_fds(client.connection, 4096, 2)
        except OSError:
            text, descriptors = b"", []
        if not text:
            self._gone(client)
            return
        request = json.loads(text)
        if "stays" in request:
            client.stays = True
            return
        self._fork(client, request["start"], descriptors)

    def _gone(self, client: _Client) -> None:
        self._selector.unregister(client.connection)
        client.connection.close()
        self._clients.remove(client)
        self._left = time.monotonic()
        for pid in client.children:
            _kill(pid)
        if client.stays:
            for other in list(self._clients):
                other.stays = False
                self._gone(other)
            self._left = -IDLE_S * 2

    def _fork(self, client: _Client, request: dict[str, Any], descriptors: Sequence[int]) -> None:
        try:
            channel, output = descriptors
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
            pid = os.fork()
        except (OSError, ValueError) as error:
            for descriptor in descriptors:
                os.close(descriptor)
            self._tell(client, {"error": f"no process can be started: {error}"})
            return
        if pid == 0:
            self._become_cell(channel, output, request["memory"])
        os.close(channel)
        os.close(output)
        client.children[pid] = _Child(request["memory"])
        self._tell(client, {"pid": pid})

    def _become_cell(self, channel: int, output: int, memory: int | None) -> None:
        """In the child: leave everything of the server's behind, train, and end."""
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            os.setsid()  # so that what it starts can be ended with it
            if self._libc is not None:
                self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                with suppress(OSError):  # if the system runs short of memory, the cell ends, not the sweep
                    Path("/proc/self/oom_score_adj").write_text("1000")  # as Ray's own workers
            self._selector.close()
            for client in self._clients:
                client.connection.close()
            self._listener.close()
            os.close(self._woken)
            os.close(self._wakes)
            for stream in (1, 2):
                os.dup2(output, stream)
            os.close(output)
            cell_main(socket.socket(fileno=channel), memory)
        except BaseException:
            traceback.print_exc()
            os._exit(70)
        os._exit(0)

    def _reap(self) -> None:
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(found.si_pid, signal.SIGKILL)  # what it left running, while the number is still its own
            pid, status, usage = os.wait4(found.si_pid, 0)
            peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
            for client in self._clients:
                child = client.children.pop(pid, None)
                if child is not None:
                    self._tell(client, {"ended": pid, "status": status, "peak": peak, "over": child.over})

    def _watch_memory(self) -> None:
        for client in self._clients:
            for pid, child in client.children.items():
                if child.memory and not child.over and status_bytes(str(pid), "RssAnon") - self._base > child.memory:
                    child.over = True
                    _kill(pid)

    def _tell(self, client: _Client, message: dict[str, Any]) -> None:
        with suppress(OSError):  # it is gone, which the next look shows
            client.connection.sendall(json.dumps(message).encode() + b"\n")


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def import_ahead(modules: Sequence[str]) -> None:
    """Import what every cell needs. What cannot be imported fails in the cell that needs it, and is told there."""
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception:
            traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # else every cell would print it again
    gc.collect()
    gc.freeze()  # a collection in a cell looks only at what the cell makes, and leaves these pages shared


def main(descriptor: int, folder: str, modules: Sequence[str]) -> None:
    """The server's process, from start to end.

    Args:
        descriptor: Of the listening socket.
        folder: Of this server (`ForkPlace.folder`).
        modules: To import ahead.
    """
    listener = socket.socket(fileno=descriptor)
    listener.setblocking(False)
    import_ahead(modules)
    ForkServer(listener, ForkPlace(Path(folder))).serve()
