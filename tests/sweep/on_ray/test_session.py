"""A Ray of our own: the processes that stand ready are the ones that train, with their imports done."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sweep.on_ray.session import available_cpus, worker_modules
from sweep.study import Study, load_study

IN_A_SESSION = """
import json, os, sys, tempfile, time
from pathlib import Path

import psutil
from ray import tune
from sweep.study import load_study
from sweep.record.tracking import Tracking
from sweep.on_ray.session import warm_session
from sweep.run.backend import SessionRequest

folder = Path(sys.argv[1])

class Where(tune.Trainable):
    def step(self):
        import os, sys
        return {"done": True, "pid": os.getpid(), "imported": "mlflow.tracking" in sys.modules, "at": os.getcwd()}

def waiting():
    return {child.pid for child in psutil.Process().children(recursive=True) if child.name().startswith("ray::IDLE")}

study, tracking = load_study(folder / "study.yaml"), Tracking(sys.argv[2])
cores = len(os.sched_getaffinity(0))
with (
    tempfile.TemporaryDirectory() as short,  # the paths of sockets may have 107 characters
    warm_session(
        SessionRequest(study=study, tracking=tracking, cells=cores, scratch=Path(short), owner="ready"), address=None
    ),
):
    made = (folder / "mlflow.db").exists()
    while len(waiting()) < cores:
        time.sleep(0.1)
    ready = waiting()
    results = tune.Tuner(
        tune.with_resources(Where, {"cpu": 1}), run_config=tune.RunConfig(storage_path=str(folder / "tune"), verbose=0)
    ).fit()
    found = results[0].metrics
print(json.dumps({"was_ready": found["pid"] in ready, "made": made, **found}))
"""


def a_study(folder: Path, *, trainable: str = "noop", cpus: int = 1, gpus: float = 0) -> Study:
    document = {
        "version": 1,
        "name": "warm",
        "trainable": trainable,
        "matryoshka_dims": [8],
        "variants": {"a": {"training": {"learning_rate": 1e-5}}, "b": {"training": {"learning_rate": 2e-5}}},
        "baseline": "a",
        "seeds": 2,
        "resources": {"cpus": cpus, "gpus": gpus},
    }
    (folder / "own.py").write_text("def train(spec, report):\n    raise NotImplementedError\n")
    (folder / "study.yaml").write_text(yaml.safe_dump(document))
    return load_study(folder / "study.yaml")


@pytest.mark.endtoend
def test_tune_uses_a_process_that_stood_ready_and_has_imported(tmp_path: Path) -> None:
    a_study(tmp_path)
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IN_A_SESSION, str(tmp_path), store],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["was_ready"]
    assert found["imported"]
    assert found["at"] == str(tmp_path)  # not Tune's folder of the trial
    assert found["made"]


def test_every_waiting_process_must_be_going_to_train(tmp_path: Path) -> None:
    cores = available_cpus()
    assert worker_modules(a_study(tmp_path), cores) == ("sweep.on_ray.trials", "mlflow.tracking")
    assert worker_modules(a_study(tmp_path), cores - 1) == ()
    assert worker_modules(a_study(tmp_path, cpus=2), cores) == ()
    assert worker_modules(a_study(tmp_path, gpus=1), cores) == ()


def test_a_users_own_trainable_is_not_imported_ahead(tmp_path: Path) -> None:
    assert worker_modules(a_study(tmp_path, trainable="own:train"), 100) == ("sweep.on_ray.trials", "mlflow.tracking")
