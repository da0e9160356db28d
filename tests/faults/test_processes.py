"""Processes that die or are stopped."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import psutil
import pytest

from tests.faults.harness import CELLS, Bench, Row, write_lock

pytestmark = pytest.mark.faults
Check = Callable[..., Row]


def test_driver_killed(bench: Bench, check: Check) -> None:
    launch = bench.start()
    launch.wait_for("finished")
    processes = [launch.a_cell(), *launch.fork_servers()]
    launch.kill()
    launch.wait()
    assert psutil.wait_procs(processes, timeout=10)[1] == [], "they outlived the driver"
    # At once: the claim of a dead owner never blocks.
    assert bench.run() == 0, bench.launches[-1].output
    assert "is being run" not in bench.launches[-1].output
    check(bench, "kill -9 of the driver", "-9", 0)


def test_workers_killed_in_training(bench: Bench, check: Check) -> None:
    launch = bench.start()
    launch.wait_for("finished")
    bench.wait_for_run("begun")
    cells = [launch.a_cell(), *launch.cells()]
    for worker in launch.workers():
        worker.kill()
    assert psutil.wait_procs(cells, timeout=10)[1] == [], "cells outlived their workers"
    assert launch.wait() == 0, launch.output
    assert "its worker died" in launch.output
    check(bench, "kill -9 of the workers in training", 0)


def test_worker_killed_between_metrics_and_artifacts(bench: Bench, check: Check) -> None:
    launch = bench.start()
    run = bench.wait_for_run("metrics")
    assert bench.database is not None
    with write_lock(bench.database):
        # Held up at its next write, in the middle of recording.
        assert run.tags.get("sweep.complete") is None
        for worker in launch.workers():
            worker.kill()
        time.sleep(1)
    assert launch.wait() == 0, launch.output
    check(bench, "kill -9 of the workers in recording, after the metrics", 0)


def test_driver_killed_between_recording_and_finished(bench: Bench, check: Check) -> None:
    launch = bench.start()
    run = bench.wait_for_run("complete")
    launch.kill()
    launch.wait()
    assert bench.run() == 0, bench.launches[-1].output
    adopted = {one.run_id: one.status for one in bench.runs()}
    assert adopted[run.run_id] == "FINISHED", "a complete run was trained again"
    check(bench, "kill -9 of the driver after recording, before FINISHED", "-9", 0)


@pytest.mark.parametrize(("number", "name"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "Ctrl-C")])
def test_stopped_in_order(bench: Bench, check: Check, number: int, name: str) -> None:
    launch = bench.start()
    launch.wait_for("finished")
    launch.a_cell()
    launch.kill(number)
    assert launch.wait() == 130, launch.output
    assert "the same command continues where it stood" in launch.output
    assert [run.name for run in bench.runs() + bench.runs("study") if run.status == "RUNNING"] == []
    assert bench.run() == 0, bench.launches[-1].output
    check(bench, name, 130, 0)


def test_stopped_at_once(bench: Bench, check: Check) -> None:
    launch = bench.start()
    launch.wait_for("finished")
    launch.a_cell()
    began = time.monotonic()
    launch.kill(signal.SIGINT)
    launch.wait_for("stopping:")
    launch.kill(signal.SIGINT)
    assert launch.wait() == 130, launch.output
    assert time.monotonic() - began < 10
    assert bench.run() == 0, bench.launches[-1].output
    check(bench, "Ctrl-C twice", 130, 0)


def test_launched_twice_at_once(bench: Bench, check: Check) -> None:
    both = [bench.start(), bench.start()]
    codes = sorted(launch.wait() for launch in both)
    assert codes == [0, 2], [launch.output for launch in both]
    refused = next(launch for launch in both if launch.process.returncode == 2)
    assert "is being run by another process on this machine" in refused.output
    assert "Traceback" not in refused.output
    assert len(bench.runs()) == CELLS
    assert bench.run() == 0
    check(bench, "the same study launched twice at once", *codes)
