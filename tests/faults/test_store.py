"""Stores that are away, locked, full or damaged."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.harness import CELLS, START_S, Bench, Gate, Row, Server, a_served_bench, free_port, write_lock

pytestmark = pytest.mark.faults
Check = Callable[..., Row]


def test_away_for_a_minute(bench: Bench, tmp_path: Path, check: Check) -> None:
    """One server is killed and restarted, another one does not answer, a driver is stopped; all for the same minute."""
    servers = [Server(tmp_path / name) for name in ("killed", "silent")]
    benches: list[Bench] = []
    try:
        for server in servers:
            server.start()
            benches.append(a_served_bench(server, server.folder / "bench"))
        launches = [one.start("--max-concurrent", "1") for one in benches]
        for launch in launches:
            launch.wait_for("finished")
        stopped = bench.start("--max-concurrent", "1")
        stopped.wait_for("finished")
        stopped.kill(signal.SIGSTOP)
        servers[0].kill()
        servers[1].signal(signal.SIGSTOP)
        began = time.monotonic()
        time.sleep(60)
        servers[0].start()
        servers[1].signal(signal.SIGCONT)
        time.sleep(max(0.0, began + 70 - time.monotonic()))
        # Silent for longer than what counts as dead between machines; the kernel's lock knows better.
        second = bench.start()
        assert second.wait() == 2, second.output
        assert "is being run by another process on this machine" in second.output
        stopped.kill(signal.SIGCONT)
        for launch in [*launches, stopped]:
            assert launch.wait() == 0, launch.output
        check(benches[0], "mlflow server killed, restarted after 60 s", 0)
        # A request that timed out may still have been carried out late; the same command clears that up.
        assert benches[1].run() == 0
        check(benches[1], "mlflow server silent for 60 s (SIGSTOP)", 0, 0)
        row = check(bench, "driver stopped for 70 s (SIGSTOP), a second one started", 2, 0)
        assert row.attempts == row.cells
    finally:
        for one in benches:
            one.end()
        for server in servers:
            server.kill()


def test_server_killed_and_not_back(served: Bench, server: Server, check: Check) -> None:
    served.env["SWEEP_TRACKING_WAIT_S"] = "5"
    launch = served.start()
    launch.wait_for("finished")
    server.kill()
    assert launch.wait() == 1, launch.output
    assert "is trained but not recorded; kept in" in launch.output
    assert "Traceback" not in launch.output
    waiting = {path.name.split(".")[0] for path in (served.folder / "spool").rglob("*.zip")}
    assert waiting
    replacement = Server(server.folder)  # another address, the same store
    try:
        replacement.start()
        served.uri = replacement.uri
        before = time.time()
        assert served.run() == 0, served.launches[-1].output
        assert f"{len(waiting)} kept from before: recorded without training" in served.launches[-1].output
        trained_again = [
            run.name
            for run in served.runs()
            if run.tags["sweep.cell"] in waiting and run.status == "FINISHED" and run.tags["sweep.attempt"] != "1"
        ]
        assert trained_again == []
        assert time.time() > before
        check(served, "mlflow server killed and not back; a replacement", 1, 0)
    finally:
        replacement.kill()


def test_server_restarted_before_the_last_tag_then_too_busy(server: Server, tmp_path: Path, check: Check) -> None:
    gate = Gate(server)
    bench = a_served_bench(server, tmp_path / "bench", gate.uri)
    reached = threading.Event()

    def killed_before_the_last_tag(path: str, body: bytes) -> bool:
        """Once: what follows meets a server that is away."""
        if b"sweep.complete" in body and path.endswith("log-batch") and not reached.is_set():
            server.kill()
            reached.set()
            return False
        return True

    gate.before = killed_before_the_last_tag
    try:
        launch = bench.start("--max-concurrent", "1")
        assert reached.wait(START_S), launch.output
        (run,) = [run for run in bench.runs() if run.metrics]
        assert len(run.predictions()) == 2
        assert run.tags.get("sweep.complete") is None
        server.port = free_port()  # the old one may be somebody else's by now; the gate's stays
        server.start()
        launch.wait_for("finished")
        assert {one.run_id: one.status for one in bench.runs()}[run.run_id] == "FINISHED", "it was trained again"
        launch.wait_for("[2/6] finished")  # with one cell at a time nothing ran when the store was back

        # From now on 429, whatever is asked; and what is trained cannot be kept either.
        bench.env["SWEEP_TRACKING_WAIT_S"] = "5"
        launch.kill(signal.SIGINT)
        assert launch.wait() == 130, launch.output
        for spool in (bench.folder / "no-folder" / "spool", bench.folder / "spool"):
            gate.refusal = None
            bench.env["SWEEP_SPOOL_DIR"] = str(spool)
            (bench.folder / "no-folder").write_text("", encoding="utf-8")
            launch = bench.start("--max-concurrent", "1")
            launch.wait_for("finished")
            gate.refusal = 429
            began = time.monotonic()
            assert launch.wait() == 1, launch.output
            assert time.monotonic() - began < 90
            assert "429" in launch.output
            kept = "is trained but not recorded; kept in" in launch.output
            assert kept == (spool.parent == bench.folder), launch.output
            assert kept or "neither recorded nor kept" in launch.output
        gate.refusal = None
        assert bench.run() == 0, bench.launches[-1].output
        assert "1 kept from before: recorded without training" in bench.launches[-1].output
        check(bench, "mlflow server restarted before a cell's last tag; 429; no spool", 130, 1, 1, 0)
    finally:
        bench.end()
        gate.close()


def test_database_lost_in_use(bench: Bench, check: Check) -> None:
    """Emptied first; what is recorded anew is removed next."""
    assert bench.database is not None
    kept_before = 0
    for said in ("has lost its tables: ", "cannot be written: read-only, or moved or removed in use; "):
        launch = bench.start()
        launch.wait_for("finished")
        began = time.monotonic()
        if "tables" in said:
            os.truncate(bench.database, 0)
        else:
            bench.database.unlink()
        assert launch.wait() == 1, launch.output
        assert time.monotonic() - began < 60, "it was waited for"
        assert said in launch.output
        assert "that command trains anew what only it held" in launch.output
        assert "SQL:" not in launch.output
        assert kept_before == 0 or f"{kept_before} kept from before: recorded without training" in launch.output
        kept_before = len(list((bench.folder / "spool").rglob("*.zip")))
        assert kept_before > 0, "what was trained is lost"
    assert bench.run() == 0, bench.launches[-1].output
    assert f"{kept_before} kept from before: recorded without training" in bench.launches[-1].output
    check(bench, "the database emptied in mid-run, then removed", 1, 1, 0)


def test_database_locked_for_twenty_seconds(bench: Bench, check: Check) -> None:
    launch = bench.start()
    launch.wait_for("finished")
    assert bench.database is not None
    with write_lock(bench.database):
        time.sleep(20)
    assert launch.wait() == 0, launch.output
    check(bench, "SQLite locked by another writer for 20 s", 0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)], check=False)
    if mounted.returncode:
        pytest.skip("mounting a small file system is not permitted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def filled(folder: Path) -> Path:
    """A file that takes all the room there is."""
    filler = folder / "filler"
    with contextlib.suppress(OSError), filler.open("wb") as file:
        while True:
            file.write(b"x" * 65536)
            file.flush()
    return filler


def test_artifact_folder_full_with_two_slots(bench: Bench, small_disk: Path, note: Callable[[str], None]) -> None:
    """The database has room, the artifacts have none: first until the wait is over, then until somebody makes room.

    Only cells of `a` have artifacts. The others are recorded all the same: a slot gets free while `a` waits.
    """
    without = {name: {"trainable": "noop", "options": {"sleep_s": 1 + n / 100}} for n, name in enumerate("bcdef")}
    bench.write({**bench.study, "variants": {"a": {}, **without}, "seeds": 4})
    (bench.folder / "mlruns").symlink_to(small_disk)

    def full_and_held() -> Path:
        """Fill the disk and see that nothing is started once the cause is shown; at most one was handed out before."""
        filler = filled(small_disk)
        launch.wait_for("cannot be recorded yet: artifact folder ")
        begun = len(bench.runs())
        time.sleep(8)  # the second slot would get through the next cells, up to one of `a`
        assert len(bench.runs()) <= begun + 1, f"cells were started while the disk was full:\n{launch.output}"
        return filler

    bench.env["SWEEP_TRACKING_WAIT_S"] = "20"
    launch = bench.start("--max-concurrent", "2")
    launch.wait_for("finished a-s0")
    filler = full_and_held()
    began = time.monotonic()
    assert launch.wait() == 1, launch.output
    assert time.monotonic() - began < 28, f"it was waited for more than once:\n{launch.output}"
    assert "No space left on device; waiting up to 20 s; nothing new is started meanwhile" in launch.output
    assert launch.output.index("cannot be recorded yet") < launch.output.index("is trained but not recorded; kept in")
    kept = len(list((bench.folder / "spool").rglob("*.zip")))
    assert 1 <= kept <= 2, launch.output
    filler.unlink()

    bench.env["SWEEP_TRACKING_WAIT_S"] = "120"
    launch = bench.start("--max-concurrent", "2")
    launch.wait_for(f"{kept} kept from before: recorded without training")
    bench.wait_for_run("begun")
    full_and_held().unlink()
    assert launch.wait() == 0, launch.output
    assert "kept in" not in launch.output

    runs = bench.runs()
    assert sorted(run.name for run in runs) == sorted(f"{v}-s{s}-default" for v in "abcdef" for s in range(4))
    assert {(run.status, run.tags["sweep.attempt"]) for run in runs} == {("FINISHED", "1")}
    assert all(len(run.predictions()) == (2 if run.name.startswith("a") else 0) for run in runs)
    assert not list((bench.folder / "spool").rglob("*.zip"))
    note(f"artifact folder full, two slots: {kept} of 24 cells kept, then waited for; each recorded once, trained once")


def test_disk_full_at_recording(bench: Bench, small_disk: Path, check: Check) -> None:
    bench.database = small_disk / "mlflow.db"
    bench.uri = f"sqlite:///{bench.database}"
    bench.env["SWEEP_TRACKING_WAIT_S"] = "5"
    launch = bench.start()
    launch.wait_for("finished")
    filler = filled(small_disk)
    try:
        assert launch.wait() == 1, launch.output
    finally:
        filler.unlink()
    assert "full" in launch.output or "No space left" in launch.output
    assert "Traceback" not in launch.output
    assert bench.run() == 0, bench.launches[-1].output
    check(bench, "disk full at recording", 1, 0)


def test_predictions_truncated_on_disk(bench: Bench, check: Check) -> None:
    assert bench.run() == 0
    damaged = next(run for run in bench.runs() if run.name == "a-s1-default")
    assert damaged.artifacts is not None
    path = damaged.artifacts / "predictions" / "test.parquet"
    path.write_bytes(path.read_bytes()[:100])
    report = subprocess.run(
        [sys.executable, "-m", "analysis.cli", "report", "faulty"],
        cwd=bench.folder, env=bench.environment(), capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    said = report.stdout + report.stderr
    assert report.returncode == 0, said
    assert "a-s1-default" in said, said
    assert "predictions" in said, said
    assert bench.run("--rerun", "a:1") == 0, bench.launches[-1].output
    runs = {run.run_id: run for run in bench.runs()}
    new = next(run for run in runs.values() if run.name == "a-s1-default" and run.status == "FINISHED")
    assert runs[damaged.run_id].status == "KILLED"
    assert runs[damaged.run_id].tags["sweep.superseded_by"] == new.run_id
    check(bench, "predictions truncated on disk; --rerun a:1", 0, 0)


def test_cells_recorded_at_the_same_instant(bench: Bench, note: Callable[[str], None]) -> None:
    """Sixteen processes meet at a barrier and record at once."""
    (bench.folder / "barrier.py").write_text(
        "import os, time\n"
        "from pathlib import Path\n"
        "from trainables.spec import TrainResult\n"
        "def meet(spec, report):\n"
        "    folder = Path(spec.options['folder'])\n"
        "    (folder / f\"{spec.options['variant']}{spec.seed}\").touch()\n"
        "    until = time.time() + 300\n"
        "    while len(list(folder.iterdir())) < 16 and time.time() < until:\n"
        "        time.sleep(0.01)\n"
        "    met = len(list(folder.iterdir()))\n"
        "    return TrainResult(scores={'test/spearman_8': 0.5, 'own/met_1': met}, fingerprint={'data': 'd'})\n",
        encoding="utf-8",
    )
    marks = bench.folder / "marks"
    marks.mkdir()
    bench.write(
        {
            "version": 1,
            "name": "faulty",
            "trainable": "barrier:meet",
            "matryoshka_dims": [8],
            "variants": {name: {"options": {"folder": str(marks), "variant": name}} for name in "ab"},
            "seeds": 8,
        }
    )
    (bench.folder / "go.py").write_text(
        "import ray, sys\n"
        "from sweep.on_ray.ray_backend import RayBackend\n"
        "from sweep.run.run_study import run_study\n"
        "from sweep.study import load_study\n"
        "ray.init(address='local', num_cpus=16, include_dashboard=False, log_to_driver=False)\n"
        "sys.exit(run_study(load_study('study.yaml'), RayBackend()))\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "go.py"],
        cwd=bench.folder, env=bench.environment(), capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    runs = bench.runs()
    assert [run.status for run in runs] == ["FINISHED"] * 16
    assert {run.metrics["own/met_1", 0] for run in runs} == {16}
    note("16 cells recorded at the same instant: 16 finished, each once")


def test_extending_five_seeds_to_eight_trains_six_cells(bench: Bench) -> None:
    bench.study["options"] = {"sleep_s": 0.0}
    bench.write(bench.study)
    assert bench.run("--seeds", "5") == 0
    before = {run.run_id for run in bench.runs()}
    assert len(before) == 10
    assert bench.run("--seeds", "8") == 0
    new = [run for run in bench.runs() if run.run_id not in before]
    assert sorted(run.name for run in new) == sorted(f"{v}-s{s}-default" for v in "ab" for s in (5, 6, 7))
    assert len(new) == CELLS


def test_a_thousand_cells(bench: Bench, note: Callable[[str], None]) -> None:
    """Time per cell and memory of the driver do not grow."""
    import psutil

    bench.write(
        {
            "version": 1,
            "name": "faulty",
            "trainable": "noop",
            "variants": {"a": {}, "b": {"options": {"sleep_s": 0.0001}}},
            "seeds": 500,
        }
    )
    launch = bench.start()
    samples: list[tuple[float, int, float]] = []
    ended = threading.Event()

    def watch() -> None:
        driver = psutil.Process(launch.process.pid)
        while not ended.wait(1.0):
            try:
                samples.append((time.monotonic(), launch.output.count("finished "), driver.memory_info().rss / 2**20))
            except psutil.NoSuchProcess:
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = launch.wait(900)
    ended.set()
    watcher.join()
    assert code == 0, launch.output[-2000:]
    runs = bench.runs()
    assert len(runs) == 1000
    assert {run.status for run in runs} == {"FINISHED"}
    at = {done: (when, memory) for when, done, memory in samples}
    early, half, late = (at[min(at, key=lambda done: abs(done - wanted))] for wanted in (100, 550, 1000))
    first, second = (half[0] - early[0]) / 450, (late[0] - half[0]) / 450
    note(
        f"1,000 no-op cells: {1000 * first:.0f} ms a cell in the first half, {1000 * second:.0f} in the second; "
        f"driver {early[1]:.0f} MiB after 100, {late[1]:.0f} MiB after 1,000"
    )
    assert second < 1.5 * first
    assert late[1] - early[1] < 100
