from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sweep.errors import ClaimedError
from sweep.record import study_lock as claim
from sweep.record.study_lock import (
    BEAT_S,
    DEAD_AFTER_S,
    Beat,
    Owner,
    StudyLock,
    is_locked,
    other_driver_alive,
    process_start,
)

HOLD = """
import sys, time
from pathlib import Path
from sweep.record.study_lock import Owner, StudyLock
lock = StudyLock(Path(sys.argv[1]))
lock.acquire("study", Owner.here())
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_process_is_refused_and_a_killed_one_never_blocks(tmp_path: Path) -> None:
    path = tmp_path / "claims" / "study.lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert is_locked(path)
        with pytest.raises(ClaimedError, match=f"process {holder.pid}"):
            StudyLock(path).acquire("study", Owner.here())
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()
    assert not is_locked(path)
    lock = StudyLock(path)
    lock.acquire("study", Owner.here())
    lock.release()
    assert not is_locked(path)


def a_beat(
    age_s: float, *, host: str = "elsewhere", boot: str = "b", beat: int = 3, pid: int = 1, started: str = "7"
) -> str:
    fields = {"host": host, "boot": boot, "pid": pid, "started": started, "beat": beat}
    return json.dumps({**fields, "owner": f"{host}:{pid}:x", "time": time.time() - age_s})


ME = Owner.here()


BEATS: dict[str, tuple[Callable[[], str | None], bool]] = {
    "none": (lambda: None, False),
    "not json": (lambda: "not json", False),
    "fresh": (lambda: a_beat(1), True),
    "old": (lambda: a_beat(DEAD_AFTER_S + 5), False),
    "said good-bye": (lambda: a_beat(1, beat=-1), False),
    "process number used again": (
        lambda: a_beat(1, host=ME.host, boot=ME.boot, started="a number used again"),
        False,
    ),
    "dead here: never blocks": (lambda: a_beat(1, host=ME.host, boot=ME.boot, pid=2**22 + 1), False),
    "another user's": (lambda: a_beat(1, host=ME.host, boot=ME.boot, started=str(process_start(1))), True),
    "before the restart": (lambda: a_beat(1, host=ME.host, boot="before the restart"), True),
}
"""Made when the test runs: a beat grows old while other tests do."""


@pytest.mark.parametrize("case", BEATS)
def test_heartbeat_of_another_machine(case: str) -> None:
    stored, alive = BEATS[case]
    assert (other_driver_alive(stored, ME) is not None) is alive


@pytest.mark.parametrize("beating", [True, False])
def test_a_clock_that_is_ahead_is_watched_instead_of_believed(beating: bool) -> None:
    beats = iter([a_beat(-3600, beat=3), a_beat(-3600, beat=4 if beating else 3)])
    assert (other_driver_alive(lambda: next(beats), ME, watch_s=0) is not None) is beating


def test_the_watch_is_longer_than_a_beat_and_death_takes_several() -> None:
    assert claim.other_driver_alive.__kwdefaults__["watch_s"] > BEAT_S
    assert DEAD_AFTER_S >= 3 * BEAT_S


def test_a_beat_with_unknown_fields_is_no_beat() -> None:
    assert Beat.parse('{"owner": "x", "colour": "red"}') is None
