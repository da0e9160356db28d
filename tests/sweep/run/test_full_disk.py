"""A folder of artifacts that is full: the cause is said at once, one wait, nothing new meanwhile, nothing lost."""

from __future__ import annotations

import errno
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from sweep.record import tracking
from sweep.record.tracking import Tracking
from sweep.run import finisher
from sweep.run.cell_queue import CellQueue
from sweep.run.progress import Count, Progress, Tally
from sweep.run.run_study import run_study
from sweep.run.worker import WorkerStatus
from tests.sweep.in_process import InProcess
from tests.sweep.runs import a_cell
from tests.sweep.studies import two_seeds

OWN = """
import numpy as np
from trainables.spec import Predictions, TrainResult

def own(spec, report):
    one = Predictions(labels=np.array([0.1, 0.9]), by_dim={8: np.array([0.25, 0.5])})
    scores = {"test/spearman_8": 0.5 + spec.seed / 10}
    return TrainResult(scores=scores, predictions={"test": one}, fingerprint={"data": "d"})
"""


def test_one_wait_whose_cause_is_said_and_then_the_spool(
    tmp_path: Path, store: Tracking, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEP_TRACKING_WAIT_S", "2")
    own = f"own_{uuid.uuid4().hex}"
    (tmp_path / f"{own}.py").write_text(OWN)
    write = tracking.write_atomically
    full = True

    def on_a_small_disk(path: Path, content: bytes, **more: Any) -> None:
        if full and "predictions" in path.parts:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content, **more)

    monkeypatch.setattr(tracking, "write_atomically", on_a_small_disk)
    study = two_seeds(tmp_path, trainable=f"{own}:own", variants={"a": {}, "b": {"options": {"x": 1}}})
    backend = InProcess()
    assert run_study(study, backend) == 1
    assert backend.ran == ["a-s0-default"]  # the next one would have waited in vain
    shown = capsys.readouterr().err
    assert shown.count("waiting up to 2 s") == 1
    assert "a-s0-default cannot be recorded yet: artifact folder " in shown
    assert "No space left on device" in shown
    assert shown.index("cannot be recorded yet") < shown.index("is trained but not recorded; kept in")
    full = False
    again = InProcess()
    assert run_study(study, again) == 0
    assert again.ran == ["b-s0-default", "a-s1-default", "b-s1-default"]


def test_a_failure_that_cannot_be_recorded_is_waited_for_once_too(
    tmp_path: Path, store: Tracking, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEP_TRACKING_WAIT_S", "2")
    monkeypatch.setattr(finisher, "AGAIN_S", 0.1)
    own = f"own_{uuid.uuid4().hex}"
    (tmp_path / f"{own}.py").write_text("def own(spec, report):\n    raise ValueError('it is broken')\n")
    write = tracking.write_atomically
    full = True

    def on_a_small_disk(path: Path, content: bytes, **more: Any) -> None:
        if full and path.name == "failure.txt":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content, **more)

    monkeypatch.setattr(tracking, "write_atomically", on_a_small_disk)
    study = two_seeds(tmp_path, variants={"a": {"trainable": f"{own}:own"}, "b": {}})
    backend = InProcess()
    began = time.monotonic()
    assert run_study(study, backend) == 1
    assert time.monotonic() - began < 3.9
    assert backend.ran == ["a-s0-default"]
    shown = capsys.readouterr().err
    assert "a-s0-default cannot be recorded yet: artifact folder " in shown
    assert shown.count("waiting up to 2 s") == 1
    full = False
    again = InProcess()
    assert run_study(study, again) == 1
    assert again.ran == ["a-s0-default", "b-s0-default", "a-s1-default", "b-s1-default"]
    assert "failed: a-s0-default: ValueError: it is broken" in capsys.readouterr().err


def test_nothing_is_handed_out_while_held() -> None:
    queue = CellQueue(retries=0)
    queue.add([(a_cell(), 0)])
    queue.hold(True)
    assert queue.take() is None
    assert not queue.is_finished()
    queue.hold(False)
    assert queue.take() is not None


def test_what_is_waited_for_is_said_at_once_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(Count(total=4, before=0, finished=1, seconds=5.0), Tally((), ("a", "b"), "a"))
    progress.start()
    waits = WorkerStatus(phase="record", waiting="artifact folder /x: No space left; waiting up to 300 s")
    for _ in range(3):
        progress.running({"b-s0-default": waits})
    said = capsys.readouterr().err
    assert said == (
        "b-s0-default cannot be recorded yet: artifact folder /x: No space left; waiting up to 300 s;"
        " nothing new is started meanwhile\n"
    )
    progress._spoke = time.monotonic() - 100
    progress.running({"b-s0-default": waits})
    assert capsys.readouterr().err == "[1/4] running b-s0-default (record, waiting)\n"
