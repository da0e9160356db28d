"""One cell, however it is run: alone or among others, with one worker or two, gives the same bits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sweep.record.tracking import Tracking

pytestmark = pytest.mark.endtoend


def swept(folder: Path, name: str, *, seeds: list[int], workers: int, variants: tuple[str, ...]) -> dict[str, object]:
    """Scores of a study of real trainings, run by the command in processes of its own."""
    losses = {"chunked": {"loss": "angle", "layout": "chunked"}, "cosent": {"loss": "cosent"}}
    study = {
        "version": 1,
        "name": name,
        "model": {"name": "toy"},
        "data": {"name": "toy", "limit": {"train": 128}},
        "matryoshka_dims": [16, 64],
        "variants": {variant: losses[variant] for variant in variants},
        "seeds": seeds,
        "training": {"epochs": 1, "batch_size": 32, "learning_rate": 1e-3},
        "resources": {"cpus": 1},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(study), encoding="utf-8")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    command = [sys.executable, "-m", "sweep.cli", "run", str(path), "--tracking-uri", uri]
    done = subprocess.run(
        [*command, "--max-concurrent", str(workers)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    runs = Tracking(uri).recorded_runs(name)
    assert len(runs) == len(seeds) * len(variants)
    return {
        f"{run.tags['sweep.variant']}-{run.tags['sweep.seed']}": {
            metric: value for metric, value in run.metrics.items() if metric.startswith(("test/", "validation/"))
        }
        for run in runs
    }


def test_alone_or_among_others_with_one_worker_or_two(tmp_path: Path) -> None:
    two_workers = swept(tmp_path, "two", seeds=[0, 1], workers=2, variants=("chunked", "cosent"))
    one_worker = swept(tmp_path, "one", seeds=[1, 0], workers=1, variants=("cosent", "chunked"))
    alone = swept(tmp_path, "alone", seeds=[1], workers=1, variants=("chunked",))
    assert one_worker == two_workers
    assert alone["chunked-1"] == two_workers["chunked-1"]
    assert two_workers["chunked-1"] != two_workers["chunked-0"]
