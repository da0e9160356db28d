"""Eleven ways to misbehave beside a variant that does not, in one study: each is named, the others keep their bits."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis import schema
from sweep.record.ledger import RecordedRun
from sweep.record.tracking import Tracking

pytestmark = pytest.mark.endtoend

MODULE = """
    import ctypes, os, signal, sys, threading, time
    import numpy as np
    import torch
    from trainables.spec import Progress, TrainResult

    def train(spec, report):
        report(Progress(phase="train", step=1, total_steps=2))
        globals()[spec.options["way"]]()
        torch.manual_seed(spec.seed)
        vectors = torch.nn.functional.normalize(torch.randn(50, 8))
        score = float((vectors[:25] * vectors[25:]).sum(dim=1).mean() + np.sqrt(2.0))
        notes = (os.environ.get("LEFT", ""), os.getcwd())
        return TrainResult(scores={"test/spearman_8": score}, fingerprint={"data": "d"}, notes=notes)

    def well(): pass
    def says_goodbye(): sys.exit("bye")
    def leaves(): os._exit(3)
    def crashes(): ctypes.string_at(0)
    def takes_all_memory(): np.ones(30 * 2**30 // 8)
    def never_ends():
        while True: time.sleep(1)
    def patches():
        torch.nn.functional.normalize = lambda values: values * 0
        np.sqrt = lambda value: 100.0
        torch.set_grad_enabled(False)
    def leaves_threads():
        for _ in range(5): threading.Thread(target=time.sleep, args=(600,)).start()
    def sets_default_dtype(): torch.set_default_dtype(torch.float64)
    def changes_folder(): os.chdir("/")
    def changes_environment(): os.environ.update(LEFT="behind", OMP_NUM_THREADS="7")
    def prints(): print("a line of this loss\\n" * 200_000)
"""
WAYS = [name.split("(")[0].split()[-1] for name in textwrap.dedent(MODULE).splitlines() if name.startswith("def ")][1:]
REASONS = {
    "says_goodbye": "the training called sys.exit: bye",
    "leaves": "the training ended with exit status 3",
    "crashes": "the training was killed by SIGSEGV",
    "takes_all_memory": "out of memory: more than resources.memory, 2.0 GiB (",
    "never_ends": "took longer than resources.time_limit, 15 s",
}


def swept(folder: Path, name: str, ways: list[str], code: int) -> tuple[dict[str, RecordedRun], str]:
    study: dict[str, Any] = {
        "version": 1,
        "name": name,
        "trainable": "own_ways:train",
        "matryoshka_dims": [8],
        "variants": {way: {"options": {"way": way}} for way in ways},
        "baseline": "well",
        "seeds": 1,
        "resources": {"cpus": 1, "memory": "2GiB", "time_limit": "15s"},
    }
    (folder / "own_ways.py").write_text(textwrap.dedent(MODULE), encoding="utf-8")
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(study), encoding="utf-8")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    command = [sys.executable, "-m", "sweep.cli", "run", str(path), "--tracking-uri", uri, "--max-concurrent", "1"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == code, done.stderr
    runs = Tracking(uri).recorded_runs(name)
    assert len(runs) == len(ways), "one attempt each"
    return {run.label[0]: run for run in runs}, done.stderr


def test_each_is_named_and_the_others_scores_are_the_same_bits(tmp_path: Path) -> None:
    alone, _ = swept(tmp_path, "alone", ["well"], 0)
    together, said = swept(tmp_path, "together", WAYS, 1)
    expected = alone["well"].metrics["test/spearman_8"]
    for way, run in together.items():
        if way in REASONS:
            assert run.status == "FAILED"
            assert run.tags[schema.TAG_FAILURE].startswith(REASONS[way]), way
            assert run.tags[schema.TAG_FAILURE_KIND] == schema.FAILURE_CELL, way
        elif way not in ("patches", "sets_default_dtype"):
            assert run.status == "FINISHED"
            assert run.metrics["test/spearman_8"] == expected, way
    assert together["patches"].metrics["test/spearman_8"] == pytest.approx(100.0)  # its own score it may well change
    assert together["sets_default_dtype"].metrics["test/spearman_8"] != expected
    assert together["well"].metrics["test/spearman_8"] == expected
    assert "a line of this loss" not in said
    (output,) = [one for one in tmp_path.rglob("output.txt") if b"a line of this loss" in one.read_bytes()]
    assert output.stat().st_size < 1_000_000
