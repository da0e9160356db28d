"""Cells that end with their process, take all memory, or do not end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.faults.harness import START_S, STUDY, Bench, Row

pytestmark = pytest.mark.faults
Check = Callable[..., Row]

MISBEHAVING = """
import json, os, time
from trainables.synthetic import closed_form

def train(spec, report):
    name = ("b" if "effect" in spec.options else "a") + str(spec.seed)
    fault = json.loads(os.environ.get("FAULTS", "{}")).get(name)
    kept = []
    while fault == "allocates":
        kept.append(bytearray(b"x" * 2**24))
    if fault == "hangs":
        print(name, "hangs", flush=True)
        while True:
            time.sleep(60)
    return closed_form(spec, report)
"""


def test_processes_of_cells_killed(bench: Bench, check: Check) -> None:
    """One launch, four faults, each of which costs an attempt of the cells that it hits."""
    root = tempfile.mkdtemp(prefix="ft-", dir="/tmp")  # a place of its own for what is removed, short for sockets
    bench.env["TMPDIR"] = root
    launch = bench.start("--retries", "9")
    launch.wait_for("finished")
    launch.a_cell().kill()
    launch.wait_for("the training was killed by SIGKILL: out of memory?")
    launch.a_cell()
    (server,) = launch.fork_servers()
    server.kill()
    launch.wait_for("the process that cells are forked from is gone")
    launch.a_cell()
    # With the sockets: the next worker finds none and starts another server.
    shutil.rmtree(Path(root) / f"pairsweep-{os.getuid()}")
    servers = launch.fork_servers()
    for worker in launch.workers():
        worker.kill()
    launch.wait_for("its worker died")
    deadline = time.monotonic() + START_S
    while not (new := [one for one in launch.fork_servers() if one not in servers]):
        assert launch.process.poll() is None, launch.output
        assert time.monotonic() < deadline, launch.output
        time.sleep(0.05)
    assert launch.wait() == 0, launch.output
    row = check(bench, "kill -9 of a cell, of the fork server, of workers; its folder gone", 0)
    assert row.attempts >= row.cells + 3
    _, left = psutil.wait_procs([*servers, *new], timeout=20)
    assert left == []
    shutil.rmtree(root, ignore_errors=True)


def test_cells_that_take_all_memory_or_hang(bench: Bench, check: Check) -> None:
    (bench.folder / "misbehaving.py").write_text(MISBEHAVING, encoding="utf-8")
    study = {**STUDY, "trainable": "misbehaving:train", "options": {"sleep_s": 0.5}}
    bench.write({**study, "resources": {"cpus": 1, "memory": "1GiB", "time_limit": "8s"}})
    bench.env["FAULTS"] = json.dumps({"b0": "allocates", "a1": "hangs"})
    launch = bench.start()
    assert launch.wait() == 1, launch.output
    assert "FAILED b-s0-default: out of memory: more than resources.memory, 1.0 GiB" in launch.output
    assert "FAILED a-s1-default: took longer than resources.time_limit, 8 s" in launch.output
    assert "4 of 6 cells finished, 2 failed" in launch.output
    assert len(bench.runs()) == 6, "a cell that fails by itself has one attempt"

    bench.write(study)  # no limit any more
    bench.env["FAULTS"] = json.dumps({"a1": "hangs"})
    launch = bench.start("--retry-failed")
    launch.wait_for("finished b-s0-default")
    processes = [launch.a_cell(), *launch.fork_servers()]
    began = time.monotonic()
    launch.kill(signal.SIGINT)
    assert launch.wait() == 130, launch.output
    assert time.monotonic() - began < 8
    _, left = psutil.wait_procs(processes, timeout=5)
    assert left == []

    bench.env.clear()
    assert bench.run("--retry-failed") == 0, bench.launches[-1].output
    check(bench, "a cell without end in memory, one in time; Ctrl-C on it", 1, 130, 0)
