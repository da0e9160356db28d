"""One cell, however it is run: alone or among others, with one worker or two, gives the same bits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sweep.record.tracking import Tracking

pytestmark = pytest.mark.endtoend


def swept(
    folder: Path, name: str, *, seeds: list[int], workers: int, variants: tuple[str, ...], code: int = 0
) -> dict[str, object]:
    """Scores of the finished cells of a study of real trainings, run by the command in processes of its own."""
    losses = {
        "chunked": {"loss": "angle", "layout": "chunked"},
        "cosent": {"loss": "cosent"},
        "dirty": {"loss": "dirty_loss:Dirty"},
    }
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
    assert done.returncode == code, done.stderr
    runs = [run for run in Tracking(uri).recorded_runs(name) if run.status == "FINISHED"]
    assert code or len(runs) == len(seeds) * len(variants)
    return {
        f"{run.tags['sweep.variant']}-{run.tags['sweep.seed']}": {
            metric: value for metric, value in run.metrics.items() if metric.startswith(("test/", "validation/"))
        }
        for run in runs
    }


DIRTY = """
import os
import torch
from sentence_transformers.sentence_transformer import losses

class Dirty(losses.CoSENTLoss):
    # What a hurried user's loss may do to its process.
    def __init__(self, model):
        super().__init__(model)
        torch.nn.functional.normalize = lambda values, *args, **named: values
        losses.cosent.util.pairwise_cos_sim = lambda first, second: (first * second).sum(dim=1).detach()
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(2)
        os.environ["OMP_NUM_THREADS"] = "2"
        os.chdir("/")

    def forward(self, *given):
        torch.set_grad_enabled(False)
        raise RuntimeError("after all that")
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_variant_whose_loss_changes_its_process_changes_no_other(tmp_path: Path, workers: int) -> None:
    (tmp_path / "dirty_loss.py").write_text(DIRTY, encoding="utf-8")
    clean = swept(tmp_path, "clean", seeds=[0, 1], workers=workers, variants=("chunked",))
    mixed = swept(tmp_path, "mixed", seeds=[0, 1], workers=workers, variants=("dirty", "chunked"), code=1)
    assert mixed == clean
    failed = [
        run for run in Tracking(f"sqlite:///{tmp_path / 'mlflow.db'}").recorded_runs("mixed") if run.status == "FAILED"
    ]
    assert [(run.tags["sweep.variant"], run.attempt) for run in failed] == [("dirty", 1)] * 2
    assert {run.tags["sweep.failure"] for run in failed} == {"RuntimeError: after all that"}


def test_alone_or_among_others_with_one_worker_or_two(tmp_path: Path) -> None:
    two_workers = swept(tmp_path, "two", seeds=[0, 1], workers=2, variants=("chunked", "cosent"))
    one_worker = swept(tmp_path, "one", seeds=[1, 0], workers=1, variants=("cosent", "chunked"))
    alone = swept(tmp_path, "alone", seeds=[1], workers=1, variants=("chunked",))
    assert one_worker == two_workers
    assert alone["chunked-1"] == two_workers["chunked-1"]
    assert two_workers["chunked-1"] != two_workers["chunked-0"]
