"""Cells in processes of their own: what they do ends with them, and what ends them is named. Real processes."""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from analysis import schema
from sweep.run import cell_process, fork_place, fork_server
from sweep.run.cell_process import CellProcesses, running_fork_server
from sweep.run.fork_place import ForkPlace
from sweep.run.memory import memory_share
from sweep.run.training import Ended, Job
from trainables.spec import Progress, TrainResult, TrainSpec

MODULE = """
    import ctypes, os, signal, sys, threading, time
    import numpy as np
    from trainables.spec import Progress, TrainResult

    def good(spec, report):
        report(Progress(phase="train", step=1, total_steps=1))
        seen = [np.sqrt(4.0), os.environ.get("LEFT"), os.path.basename(os.getcwd()), threading.active_count()]
        return TrainResult(scores={"test/spearman_8": float(seen[0])}, notes=tuple(map(str, seen)))

    def patches(spec, report):
        np.sqrt = lambda value: 7.0
        os.environ["LEFT"] = "behind"
        os.chdir("/")
        threading.Thread(target=time.sleep, args=(600,)).start()
        return good(spec, report)

    def has_a_model(spec, report):
        here = threading.Lock()  # cannot be sent
        def save(folder):
            with here:
                (folder / "saved_by").write_text(str(os.getpid()))
        return TrainResult(scores={"test/spearman_8": 0.5}, save=save)

    def says_goodbye(spec, report): sys.exit("bye")
    def leaves(spec, report): os._exit(3)
    def crashes(spec, report): ctypes.string_at(0)
    def is_killed(spec, report): os.kill(os.getpid(), signal.SIGKILL)
    def is_asked_to_end(spec, report): os.kill(os.getpid(), signal.SIGTERM)
    def raises(spec, report): raise KeyError("which")
    def hangs(spec, report):
        while True:
            pass
    def stops_itself(spec, report):
        os.kill(os.getpid(), signal.SIGSTOP)
    def hoards(spec, report):
        np.ones(30 * 2**30 // 8)
    def grows(spec, report):
        kept = []
        while True:
            kept.append(np.ones(2**20))
    def recurses(spec, report): return recurses(spec, report)
    def returns_nothing(spec, report): return None
    def talks(spec, report):
        for number in range(600_000):
            print(f"line {number} of a loss that prints at every step")
        os.write(2, b"the last line\\n")
        raise ValueError("talked too much")
    def breaks_a_pipe(spec, report): raise BrokenPipeError("its own")
    class Own(TrainResult):
        pass
    def answers_in_its_own_types(spec, report):
        report(Progress(phase="train", step=np.int64(1), total_steps=1, loss=np.float32(0.5)))
        return Own(scores={"test/spearman_8": np.float64(0.5)}, times={"train_s": np.float32(1.0)})
    def draws(spec, report):
        import random
        return TrainResult(scores={"test/spearman_8": float(np.random.rand()), "test/pearson_8": random.random()})
    def keeps(spec, report):
        from trainables.kept import kept
        return TrainResult(scores={"test/spearman_8": kept(("pairs", "x"), lambda: float(spec.seed))})
    def starts_others(spec, report):
        import subprocess
        other = subprocess.Popen(["sleep", "600"])
        return TrainResult(scores={"test/spearman_8": float(other.pid)})
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_cells.py").write_text(textwrap.dedent(MODULE), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def processes() -> Iterator[CellProcesses]:
    with running_fork_server("test", modules=("trainables.synthetic",), threads=1):
        processes = CellProcesses("test", modules=("trainables.synthetic",), threads=1)
        yield processes
        processes.close()


def job(folder: Path, name: str, **limits: Any) -> Job:
    spec = TrainSpec.model_validate({"trainable": f"own_cells:{name}", "seed": 1, "root": folder})
    return Job(spec=spec, digests={}, threads=1, hides_gpus=True, **limits)


def train(processes: CellProcesses, job: Job, *, stop_after_s: float | None = None) -> Ended:
    began = time.monotonic()

    def stop_requested() -> bool:
        return stop_after_s is not None and time.monotonic() - began > stop_after_s

    return processes.train(job, lambda progress: None, stop_requested)


DECLARED = {"memory_bytes": 2**30, "memory_declared": True}
CELL, SYSTEM = schema.FAILURE_CELL, schema.FAILURE_INFRASTRUCTURE


@pytest.mark.parametrize(
    ("name", "limits", "reason", "kind"),
    [
        ("says_goodbye", {}, "the training called sys.exit: bye", CELL),
        ("leaves", {}, "the training ended with exit status 3", CELL),
        ("crashes", {}, "the training was killed by SIGSEGV", CELL),
        ("is_killed", {}, "the training was killed by SIGKILL: out of memory? (peak memory ", SYSTEM),
        ("is_asked_to_end", {}, "the training was killed by SIGTERM", SYSTEM),
        ("raises", {}, "KeyError: 'which'", CELL),
        ("hangs", {"time_limit_s": 0.5}, "took longer than resources.time_limit, ", CELL),
        ("stops_itself", {"time_limit_s": 0.5}, "took longer than resources.time_limit, ", CELL),
        ("hoards", DECLARED, "out of memory: more than resources.memory, 1.0 GiB (", CELL),
        ("grows", DECLARED, "out of memory: more than resources.memory, 1.0 GiB (", CELL),
        ("recurses", {}, "RecursionError: maximum recursion depth exceeded", CELL),
        ("returns_nothing", {}, "the trainable returned a NoneType; expected trainables.spec.TrainResult", CELL),
        ("grows", {"memory_bytes": 2**30}, "out of memory: more than its share of this machine's, 1.0 GiB (", SYSTEM),
        ("breaks_a_pipe", {}, "BrokenPipeError: its own", CELL),
        ("no_such", {}, "InputError: ", CELL),
    ],
)
def test_what_ends_a_cell_is_named_and_whose_fault_it_is(
    processes: CellProcesses, folder: Path, name: str, limits: dict[str, Any], reason: str, kind: str
) -> None:
    before = train(processes, job(folder, "good")).result
    ended = train(processes, job(folder, name, **limits))
    assert ended.result is None
    assert ended.failure is not None
    assert ended.failure.reason.startswith(reason)
    assert ended.failure.kind == kind
    assert train(processes, job(folder, "good")).result == before


def test_memory_of_a_cell_on_a_gpu_is_watched_from_outside(processes: CellProcesses, folder: Path) -> None:
    limited = job(folder, "grows", **DECLARED)
    ended = train(processes, Job(**{**vars(limited), "hides_gpus": False}))
    assert ended.failure is not None
    assert ended.failure.reason.startswith("out of memory: more than resources.memory, 1.0 GiB (peak memory ")


def test_what_a_cell_changes_in_its_process_ends_with_it(processes: CellProcesses, folder: Path) -> None:
    before = train(processes, job(folder, "good"))
    changed = train(processes, job(folder, "patches"))
    after = train(processes, job(folder, "good"))
    assert changed.result is not None
    assert changed.result.scores == {"test/spearman_8": 7.0}
    assert changed.result.notes == ("7.0", "behind", "", "2")
    assert after == before
    assert before.result is not None
    assert before.result.notes == ("2.0", "None", Path.cwd().name, "1")


def test_a_stop_does_not_wait_for_a_cell_that_hangs(processes: CellProcesses, folder: Path) -> None:
    began = time.monotonic()
    ended = train(processes, job(folder, "hangs"), stop_after_s=0.3)
    assert ended == Ended()
    assert time.monotonic() - began < 10


def test_output_is_kept_at_both_ends_and_its_last_lines_stand_in_the_failure(
    processes: CellProcesses, folder: Path
) -> None:
    ended = train(processes, job(folder, "talks"))
    text = ended.output.decode()
    assert text.startswith("line 0 of a loss")
    assert text.endswith("line 599999 of a loss that prints at every step\nthe last line\n")
    assert "bytes are left out ...]" in text
    assert len(ended.output) < cell_process.HEAD_BYTES + cell_process.TAIL_BYTES + 100
    assert ended.failure is not None
    assert "ValueError: talked too much" in ended.failure.detail
    assert "line 599999 of a loss" in ended.failure.detail
    assert len(ended.failure.detail) < 10_000


def test_a_crash_leaves_its_stack(processes: CellProcesses, folder: Path) -> None:
    ended = train(processes, job(folder, "crashes"))
    assert ended.failure is not None
    assert "Segmentation fault" in ended.failure.detail
    assert "own_cells.py" in ended.failure.detail


def test_what_a_cell_starts_ends_with_it(processes: CellProcesses, folder: Path) -> None:
    ended = train(processes, job(folder, "starts_others"))
    assert ended.result is not None
    other = int(ended.result.scores["test/spearman_8"])
    deadline = time.monotonic() + 10
    while psutil.pid_exists(other) and psutil.Process(other).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_an_answer_in_types_of_the_users_own_is_read(processes: CellProcesses, folder: Path) -> None:
    told: list[Progress] = []
    ended = processes.train(job(folder, "answers_in_its_own_types"), told.append, lambda: False)
    assert ended.result == TrainResult(scores={"test/spearman_8": 0.5}, times={"train_s": 1.0})
    assert type(ended.result) is TrainResult
    assert json.dumps([told[0].step, told[0].loss]) == "[1, 0.5]"


def test_a_model_is_saved_in_the_cells_process(processes: CellProcesses, folder: Path, tmp_path: Path) -> None:
    """What writes it stays there: it may hold anything, such as the model."""
    ended = train(processes, job(folder, "has_a_model", model_folder=tmp_path))
    assert ended.result is not None
    assert ended.result.save is None
    assert ended.result.notes == ()
    assert int((tmp_path / "saved_by").read_text()) != os.getpid()
    assert train(processes, job(folder, "has_a_model")).result == ended.result  # asked for no model


def test_what_is_drawn_without_a_seed_goes_by_the_cell_s(processes: CellProcesses, folder: Path) -> None:
    drawn = []
    for seed in (1, 2, 1):
        one = job(folder, "draws")
        one = replace(one, spec=one.spec.model_copy(update={"seed": seed}))
        drawn.append(train(processes, one).result)
    assert drawn[0] == drawn[2]
    assert drawn[0] != drawn[1]


def test_files_of_an_own_trainable_are_never_another_cell_s(processes: CellProcesses, folder: Path) -> None:
    found = []
    for seed in (1, 2):
        one = job(folder, "keeps")
        found.append(train(processes, replace(one, spec=one.spec.model_copy(update={"seed": seed}))).result)
    assert [one.scores["test/spearman_8"] for one in found if one is not None] == [1.0, 2.0]


def test_a_cell_that_ends_before_its_worker_looks(
    processes: CellProcesses, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = cell_process._Server.hear

    def late(server: Any) -> Any:
        time.sleep(0.5)
        return start(server)

    monkeypatch.setattr(cell_process._Server, "hear", late)
    monkeypatch.setattr(cell_process, "Surroundings", lambda **given: None)  # which ends it at once
    ended = train(processes, job(folder, "good", time_limit_s=20))
    assert ended.failure is not None
    assert ended.failure.reason == "the training ended with exit status 70"


def test_a_request_that_the_server_cannot_fulfil_ends_nothing_else(processes: CellProcesses, folder: Path) -> None:
    assert train(processes, job(folder, "good")).result is not None
    server = processes._server
    assert server is not None
    server.connection.sendall(json.dumps({"start": {"memory": None}}).encode())
    assert "no process can be started" in server.hear()["error"]
    assert train(processes, job(folder, "good")).result is not None


def test_progress_comes_in_order_and_before_the_result(processes: CellProcesses, folder: Path) -> None:
    told: list[Progress] = []
    assert processes.train(job(folder, "good"), told.append, lambda: False).result is not None
    assert told == [Progress(phase="train", step=1, total_steps=1)]


def test_cells_of_two_workers_run_at_once_in_forks_of_one_server(processes: CellProcesses, folder: Path) -> None:
    other = CellProcesses("test", modules=(), threads=1)
    ended: list[Ended] = []
    thread = threading.Thread(target=lambda: ended.append(train(other, job(folder, "hangs"), stop_after_s=3)))
    thread.start()
    assert train(processes, job(folder, "good")).result is not None
    assert not ended
    thread.join()
    other.close()
    assert ended == [Ended()]


def server_process(owner: str) -> psutil.Process:
    folder = str(ForkPlace.of(owner).folder)
    found = [p for p in psutil.process_iter() if any(folder in part for part in _command(p))]
    return min(found, key=lambda process: process.create_time())


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
        return []


def test_a_killed_server_is_infrastructure_and_the_next_cell_starts_another(folder: Path) -> None:
    processes = CellProcesses("killed", modules=(), threads=1)
    assert train(processes, job(folder, "good")).result is not None
    server = server_process("killed")
    timer = threading.Timer(0.5, server.kill)
    timer.start()
    ended = train(processes, job(folder, "hangs"))
    assert ended.failure is not None
    assert ended.failure.reason == "the process that cells are forked from is gone"
    assert ended.failure.kind == SYSTEM
    assert train(processes, job(folder, "good")).result is not None
    processes.close()


def test_the_server_ends_with_the_launch_that_asked_for_it(folder: Path) -> None:
    with running_fork_server("launch", modules=(), threads=1):
        processes = CellProcesses("launch", modules=(), threads=1)
        assert train(processes, job(folder, "good")).result is not None
        server, place = server_process("launch"), ForkPlace.of("launch").folder
        assert place.is_dir()
    server.wait(10)
    assert not place.exists()
    processes.close()


@pytest.mark.endtoend
def test_the_server_ends_with_its_last_client(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    processes = CellProcesses("alone", modules=(), threads=1)
    assert train(processes, job(folder, "good")).result is not None
    server = server_process("alone")
    processes.close()
    server.wait(fork_server.IDLE_S + 15)
    assert not ForkPlace.of("alone").folder.exists()


def test_folders_of_killed_servers_are_removed_by_the_next(folder: Path) -> None:
    processes = CellProcesses("dead", modules=(), threads=1)
    assert train(processes, job(folder, "good")).result is not None
    place = ForkPlace.of("dead").folder
    server = server_process("dead")
    server.kill()
    server.wait(10)
    processes.close()
    assert place.exists()
    with running_fork_server("next", modules=(), threads=1):
        assert not place.exists()


def test_a_server_that_cannot_be_reached_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: Path) -> None:
    monkeypatch.setattr(fork_place.tempfile, "gettempdir", lambda: str(tmp_path)[:5])
    root = fork_place._root()
    monkeypatch.setattr(fork_place, "_root", lambda: root / "no such")
    ended = train(CellProcesses("none", modules=(), threads=1), job(folder, "good"))
    assert ended.failure is not None
    assert ended.failure.reason.startswith("the process that cells are forked from cannot be started: ")
    assert ended.failure.kind == SYSTEM


def test_the_server_has_one_thread_and_no_gpu_when_it_forks(tmp_path: Path) -> None:
    (tmp_path / "own_cells.py").write_text(
        textwrap.dedent(
            """
            import json, os, sys
            from trainables.spec import TrainResult

            def looks(spec, report):
                torch = sys.modules["torch"]
                server = os.getppid()
                seen = {"threads": len(os.listdir(f"/proc/{server}/task")), "cuda": torch.cuda.is_initialized(),
                        "modules": [name for name in ("transformers", "sentence_transformers", "datasets")
                                    if name in sys.modules]}
                return TrainResult(scores={"test/spearman_8": 0.5}, notes=(json.dumps(seen),))
            """
        ),
        encoding="utf-8",
    )
    modules = ("trainables.sentence_pair.train",)
    with running_fork_server("torch", modules=modules, threads=2):
        processes = CellProcesses("torch", modules=modules, threads=2)
        ended = train(processes, job(tmp_path, "looks"))
        processes.close()
    assert ended.result is not None, ended
    seen = json.loads(ended.result.notes[0])
    assert seen == {"threads": 1, "cuda": False, "modules": ["transformers", "sentence_transformers", "datasets"]}


def test_a_share_of_the_memory() -> None:
    whole = memory_share(1)
    assert whole is not None
    assert whole <= psutil.virtual_memory().total
    assert memory_share(2) == pytest.approx(whole / 2, abs=1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent ended")
def test_cells_end_with_a_worker_that_is_killed(folder: Path) -> None:
    keeper = CellProcesses("orphans", modules=(), threads=1)
    pid = os.fork()
    if pid == 0:
        worker = CellProcesses("orphans", modules=(), threads=1)
        train(worker, job(folder, "hangs"))
        os._exit(0)
    server = server_process("orphans")
    deadline = time.monotonic() + 30
    while not (cells := server.children()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    psutil.wait_procs(cells, timeout=10)
    assert not [cell for cell in cells if cell.is_running() and cell.status() != psutil.STATUS_ZOMBIE]
    keeper.close()
