"""Where the fork server of a launch is found on a machine, and starting it for whoever comes first."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sweep.errors import SweepError
from trainables.kept import ENV_KEPT

_SOCKET: Final = "socket"
_LOG: Final = "log"
_KEPT: Final = "kept"
_LISTENER: Final = 200
"""The server's descriptor of its socket; beyond those that a program has open by itself."""
_LONGEST_BASE: Final = 40
"""The path of a Unix socket may have about 100 characters."""
_DESCRIPTORS: Final = 65_536
"""As many at most are looked through for those that a server must not hold open."""
_started: set[int] = set()
"""Servers that are children of this process."""


def _root() -> Path:
    """This user's folder for fork servers; nobody else can enter it.

    Raises:
        SweepError: somebody else has made it.
    """
    base = Path(tempfile.gettempdir())
    base = base if len(str(base)) <= _LONGEST_BASE else Path("/tmp")
    root = base / f"pairsweep-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    found = root.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or not root.is_dir() or root.is_symlink():
        raise SweepError(f"{root}: expected a folder of this user that nobody else can enter; remove it")
    return root


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Keep other processes of this user from starting or ending a fork server meanwhile."""
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class ForkPlace:
    """The folder of one fork server: its socket, its log, and what its cells keep for each other."""

    folder: Path

    @property
    def root(self) -> Path:
        """Of all servers of this user."""
        return self.folder.parent

    @property
    def log(self) -> Path:
        """What it prints."""
        return self.folder / _LOG

    def identity(self) -> tuple[int, int] | None:
        """Tells this place from a later one at the same path; None where it is not there."""
        with suppress(OSError):
            found = (self.folder / _SOCKET).stat()
            return found.st_ino, found.st_mtime_ns
        return None

    @classmethod
    def of(cls, key: str) -> ForkPlace:
        """The place that everybody on this machine finds who knows the key of the launch."""
        return cls(_root() / hashlib.sha256(key.encode()).hexdigest()[:16])

    def connect(self, modules: Sequence[str], *, threads: int, detached: bool) -> socket.socket:
        """A connection to the server, which is started if there is none; does not wait for its imports.

        Args:
            modules: What it imports ahead.
            threads: Compute threads of a cell; libraries read their number when they are imported.
            detached: Start it as nobody's child: a Ray worker that ends is followed by its children.

        Raises:
            OSError: it cannot be started.
            SweepError: its folder is somebody else's.
        """
        with locked(self.root):
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(self.folder / _SOCKET))
            except (FileNotFoundError, ConnectionRefusedError):
                _remove_dead(self.root)
                self._start(modules, threads, detached)
                connection.connect(str(self.folder / _SOCKET))
            return connection

    def _start(self, modules: Sequence[str], threads: int, detached: bool) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / _KEPT).mkdir(parents=True, mode=0o700)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.folder / _SOCKET))
            listener.listen(4096)  # who connects before it has imported waits in this queue
            code = (
                f"import os, sys; {'os.fork() and os._exit(0); ' if detached else ''}os.setsid(); "
                f"os.closerange(3, {_LISTENER}); os.closerange({_LISTENER + 1}, {_DESCRIPTORS}); "
                f"sys.path[:] = {sys.path!r}; from sweep.run.fork_server import main; "
                f"main({_LISTENER}, {str(self.folder)!r}, {list(modules)!r})"
            )  # a session of its own: Ctrl-C is for the sweep, which ends its cells in order
            _reap()
            started = os.posix_spawn(
                sys.executable,
                [sys.executable, "-c", code],
                {**os.environ, **_environment(threads), ENV_KEPT: str(self.folder / _KEPT)},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, str(self.log), os.O_WRONLY | os.O_CREAT, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                    (os.POSIX_SPAWN_DUP2, listener.fileno(), _LISTENER),
                ],
            )
            if detached:
                os.waitpid(started, 0)
            else:
                _started.add(started)


def _reap() -> None:
    """Let go of servers that this process has started and that have ended."""
    for pid in list(_started):
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
        _started.discard(pid)


def _environment(threads: int) -> dict[str, str]:
    """Variables under which importing starts no thread, so that forking is safe, and touches no GPU."""
    from trainables.runtime import thread_variables

    return {
        **thread_variables(threads),
        "OPENBLAS_NUM_THREADS": "1",
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "OBJC_DISABLE_INITIALIZE_FORK_SAFETY": "YES",  # macOS: it forbids what some libraries do at their first use
    }


def _remove_dead(root: Path) -> None:
    """Remove the folders of servers that were killed."""
    for folder in root.iterdir():
        if not folder.is_dir():
            continue
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(folder / _SOCKET))
            except (FileNotFoundError, ConnectionRefusedError):
                shutil.rmtree(folder, ignore_errors=True)
            except OSError:
                continue
