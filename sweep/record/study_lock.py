"""The claim on a study: one driver at a time.

On one machine it is a kernel lock, which ends with its process whatever kills it. Between machines it is a
heartbeat on the study run: a driver that has not beaten for a minute is dead.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, TextIO

from analysis import schema
from sweep.errors import ClaimedError, SweepError, TrackingError
from sweep.record.tracking import Tracking

DEAD_AFTER_S: Final = 60.0
BEAT_S: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A driver: which process on which machine, started when."""

    owner: str
    host: str
    boot: str
    pid: int
    started: str
    """When the process started, as its machine counts; tells it from a later one with the same number."""

    @classmethod
    def here(cls) -> Owner:
        """This process."""
        host, pid = socket.gethostname(), os.getpid()
        owner = f"{host}:{pid}:{uuid.uuid4().hex[:8]}"
        return cls(owner=owner, host=host, boot=boot_id(), pid=pid, started=process_start(pid) or "")


def boot_id() -> str:
    """Changes with every start of the machine; empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def process_start(pid: int) -> str | None:
    """When a process of this machine started; None where none with that number lives."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


class StudyLock:
    """The kernel lock of a study on this machine; held until `release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO | None = None

    def acquire(self, study: str, owner: Owner) -> None:
        """Take the lock.

        Raises:
            ClaimedError: another process holds it.
            TrackingError: the folder cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = self.path.open("a+", encoding="utf-8")
        except OSError as error:
            raise TrackingError(
                f"{self.path}: cannot be written ({error.strerror}), so no claim is possible"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read(200).strip()
            file.close()
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise TrackingError(f"{self.path}: cannot be locked ({error.strerror})") from error
            who = f" ({holder})" if holder else ""
            raise ClaimedError(
                f"study {study!r} is being run by another process on this machine{who}; "
                "wait for it, or stop it with Ctrl-C there"
            ) from None
        file.truncate(0)
        file.write(f"process {owner.pid}")
        file.flush()
        self._file = file

    def release(self) -> None:
        """Give the lock back."""
        if self._file is not None:
            self._file.close()
            self._file = None


def is_locked(path: Path) -> bool:
    """Whether a live process of this machine holds the lock of a study."""
    try:
        file = path.open("r", encoding="utf-8")
    except OSError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        return False


@dataclass(frozen=True, kw_only=True)
class Beat:
    """One heartbeat, as stored."""

    owner: str
    host: str
    boot: str
    pid: int
    started: str
    time: float
    beat: int

    @classmethod
    def parse(cls, text: str | None) -> Beat | None:
        """None where there is no heartbeat, or none that can be read."""
        try:
            return cls(**json.loads(text)) if text else None
        except (ValueError, TypeError):
            return None


def other_driver_alive(tag_now: Callable[[], str | None], me: Owner, *, watch_s: float = BEAT_S + 2) -> Beat | None:
    """The live driver that the kernel lock cannot know of, if there is one: on another machine, or another user's.

    On this machine its process is looked for, so that a dead one never blocks. Where the clocks of two machines
    disagree (a beat from the future), the heartbeat is watched instead of compared.

    Args:
        tag_now: Reads the heartbeat tag.
        me: The driver that asks.
        watch_s: Seconds to watch.
    """
    beat = Beat.parse(tag_now())
    if beat is None or beat.beat < 0 or beat.owner == me.owner:
        return None
    if (beat.host, beat.boot) == (me.host, me.boot):
        return beat if beat.pid != me.pid and process_start(beat.pid) == beat.started else None
    age = time.time() - beat.time
    if age > DEAD_AFTER_S:
        return None
    if age >= -DEAD_AFTER_S:
        return beat
    time.sleep(watch_s)
    later = Beat.parse(tag_now())
    return later if later is not None and (later.beat, later.owner) != (beat.beat, beat.owner) else None


class Heartbeat:
    """Beats on the study run until stopped; calls `on_lost` should another driver have taken the study over."""

    def __init__(self, tracking: Tracking, run_id: str, me: Owner, on_lost: Callable[[str], None]) -> None:
        self._patient = tracking
        # Tries once each time: a store that is away for a while is the recording's business.
        self._tracking = Tracking(tracking.uri, wait_s=0)
        self._run_id, self._me, self._on_lost = run_id, me, on_lost
        self._ended = threading.Event()
        self._beats = 0
        self._thread = threading.Thread(target=self._loop, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Beat for the first time, and go on in a thread."""
        self._beats = 1
        self._write(1, self._patient)
        self._thread.start()

    def still_mine(self) -> bool:
        """Whether the stored heartbeat is this driver's; True where the store cannot be read."""
        try:
            stored = Beat.parse(self._tracking.run(self._run_id).tags.get(schema.TAG_HEARTBEAT))
        except SweepError:
            return True
        return stored is None or stored.owner == self._me.owner

    def stop(self) -> None:
        """End, and say so in the store: nobody need wait for this driver."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)
        try:
            if self.still_mine():
                self._write(-1, self._tracking)
        except SweepError:
            return  # the next driver will wait a minute at most

    def _beat(self) -> None:
        self._beats += 1
        self._write(self._beats, self._tracking)

    def _write(self, beat: int, tracking: Tracking) -> None:
        value = json.dumps({**asdict(self._me), "time": time.time(), "beat": beat})
        tracking.set_tags(self._run_id, {schema.TAG_HEARTBEAT: value})

    def _loop(self) -> None:
        while not self._ended.wait(BEAT_S):
            try:
                if not self.still_mine():
                    self._on_lost("another driver has taken this study over")
                    return
                self._beat()
            except SweepError:
                continue


def is_live(study: str, tracking: Tracking, lock: Path) -> bool:
    """Whether some driver runs the study now, here or on another machine; for showing."""
    if is_locked(lock):
        return True

    def tag() -> str | None:
        run = tracking.study_run(study)
        return None if run is None else run.tags.get(schema.TAG_HEARTBEAT)

    return other_driver_alive(tag, Owner.here(), watch_s=0) is not None
