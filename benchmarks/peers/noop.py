"""Raw Ray Tune over trials that do nothing but write what a cell records to an MLflow store.

python -m benchmarks.peers.noop RECORD.json --cells 1000 --workers 2 --store sqlite:///FILE [--reuse-actors]

RECORD.json holds `metrics`, `params` and `tags` of one trial. A trial writes them in the fewest calls that MLflow
offers: create the run, one batch, terminate.
"""

from __future__ import annotations

import argparse
import functools
import json
import tempfile
import time
from pathlib import Path
from typing import Any


@functools.cache
def client(store: str) -> Any:
    """One client per process."""
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=store)


def trial(config: dict[str, Any]) -> None:
    from mlflow.entities import Metric, Param
    from ray import tune

    # By its module's name: what lies in __main__ is not found in a worker.
    from benchmarks.peers.noop import client

    store = client(config["store"])
    name = f"cell-{config['cell']}"
    run = store.create_run(config["experiment"], tags={**config["tags"], "mlflow.runName": name}, run_name=name)
    now = int(time.time() * 1000)
    store.log_batch(
        run.info.run_id,
        metrics=[Metric(name, value, now, 0) for name, value in config["metrics"].items()],
        params=[Param(name, value) for name, value in config["params"].items()],
    )
    store.set_terminated(run.info.run_id)
    tune.report({"done_cell": config["cell"]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--cells", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--reuse-actors", action="store_true")
    options = parser.parse_args()

    import ray
    from ray import tune

    record = json.loads(options.record.read_text(encoding="utf-8"))
    experiment = client(options.store).create_experiment("noop")
    ray.init(address="local", num_cpus=options.workers, include_dashboard=False)
    with tempfile.TemporaryDirectory() as storage:
        results = tune.Tuner(
            tune.with_resources(trial, {"cpu": 1}),
            param_space={
                **record,
                "store": options.store,
                "experiment": experiment,
                "cell": tune.grid_search(list(range(options.cells))),
            },
            tune_config=tune.TuneConfig(reuse_actors=options.reuse_actors),
            run_config=tune.RunConfig(storage_path=storage, verbose=0),
        ).fit()
    if results.errors:
        raise SystemExit(f"{len(results.errors)} trials failed; first: {results.errors[0]}")


if __name__ == "__main__":
    main()
