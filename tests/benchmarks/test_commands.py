"""The benchmarks' other commands, on very little: that both sides run, never how fast."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.test_peers import AGREEMENT

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.endtoend


def output_of(module: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_overhead_runs_both_sides_and_writes_the_same_record() -> None:
    report = output_of("overhead", "--cells", "4", "--fresh-cells", "1")
    rows = [line.split("|")[1].strip() for line in report.splitlines() if line.startswith("| ")]
    assert rows[1:] == ["pairsweep", "raw Ray Tune, reused actors", "raw Ray Tune, new processes"]


@pytest.mark.skipif(not os.environ.get("PAIRSWEEP_DATA"), reason="PAIRSWEEP_DATA names the folder that holds stsb-en/")
def test_evaluation_gives_the_scores_of_the_librarys_evaluators() -> None:
    code = "from benchmarks.evaluation import compare; print(compare('bert', 1, threads=1, test_rows=60))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "Largest difference" in line]
    assert float(line.rstrip(".").split()[-1]) < AGREEMENT
