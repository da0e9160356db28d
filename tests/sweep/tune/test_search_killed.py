"""`sweep tune` on the toy study, killed with SIGKILL in the middle: no trial lost, none doubled, the same choice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from analysis import schema
from analysis.comparing.study import compare
from analysis.results.load import load
from sweep.record.ledger import RecordedRun
from sweep.record.tracking import Tracking
from sweep.study import load_study

STUDY = (Path(__file__).parents[3] / "studies" / "toy_search.yaml").read_text()
ONE_SEED = STUDY.replace("seeds: [100, 101]", "seeds: [100]")
"""One tuning seed instead of two: half the time."""
TRIALS, VARIANTS = 12, 2
CELLS = TRIALS * VARIANTS
TIMEOUT_S = 1200.0

pytestmark = pytest.mark.faults


def sweep(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "SWEEP_SPOOL_DIR": str(folder / "spool")}
    environment.pop("MLFLOW_TRACKING_URI", None)
    command = [sys.executable, "-m", "sweep.cli", *arguments]
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, stderr=subprocess.DEVNULL)


def whole(folder: Path, *arguments: str) -> None:
    assert sweep(folder, *arguments).wait(timeout=TIMEOUT_S) == 0


def trials(folder: Path) -> list[RecordedRun]:
    return Tracking(uri(folder)).recorded_runs("toy-search", schema.KIND_SEARCH)


def uri(folder: Path) -> str:
    return f"sqlite:///{folder / 'mlflow.db'}"


def finished(folder: Path) -> int:
    return sum(run.status == "FINISHED" for run in trials(folder))


def killed_after(folder: Path, cells: int) -> None:
    """Kill the driver once so many more cells are finished, while others train."""
    goal = finished(folder) + cells
    driver = sweep(folder, "tune", "toy_search.yaml")
    deadline = time.monotonic() + TIMEOUT_S
    while finished(folder) < goal:
        assert driver.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.5)
    driver.send_signal(signal.SIGKILL)
    driver.wait(timeout=30)
    assert goal <= finished(folder) < CELLS


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "toy_search.yaml").write_text(ONE_SEED)
    whole(folder, "tune", "toy_search.yaml")
    return folder


def test_killed_twice_and_resumed(tmp_path: Path, undisturbed: Path) -> None:
    (tmp_path / "toy_search.yaml").write_text(ONE_SEED)
    killed_after(tmp_path, 3)
    killed_after(tmp_path, 9)
    whole(tmp_path, "tune", "toy_search.yaml")

    runs = trials(tmp_path)
    assert not [run for run in runs if run.status == "RUNNING"]
    done = [run for run in runs if run.status == "FINISHED"]
    assert len(done) == len({run.key for run in done}) == CELLS
    assert Counter(run.label[0] for run in done) == {"chunked": CELLS // 2, "cosent": CELLS // 2}
    # The same points, the same scores to the last bit, hence the same choice: the files are equal.
    frozen = (tmp_path / "toy_search.tuned.yaml").read_text()
    assert frozen == (undisturbed / "toy_search.tuned.yaml").read_text()
    searched_by = load_study(tmp_path / "toy_search.tuned.yaml").searched_by
    assert searched_by is not None
    assert searched_by.budget == {"chunked": TRIALS, "cosent": TRIALS}


def test_the_frozen_study_is_compared_on_fresh_seeds(undisturbed: Path) -> None:
    def exploratory() -> tuple[str, ...]:
        results = load("toy-search-tuned", tracking_uri=uri(undisturbed))
        rng = np.random.default_rng(0)
        return compare(results, plan=None, baseline=None, allow_unverified=False, rng=rng).plan.exploratory

    whole(undisturbed, "run", "toy_search.tuned.yaml")
    assert exploratory() == ()
    whole(undisturbed, "run", "toy_search.tuned.yaml", "--seeds", "0,1,2,3,4,5,100")
    (reason,) = exploratory()
    assert "seeds 100 were also used to choose the settings" in reason
