"""A raw Ray Tune grid with its MLflow callback: one trial per cell, one CPU each.

python -m benchmarks.peers.raytune WORK.json --workers 2 --store sqlite:///FILE --out scores.jsonl [--reuse-actors]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

EXPERIMENT = "raw-ray-tune"


def trial(config: dict[str, Any]) -> None:
    import torch
    from ray import tune

    from benchmarks.peers.library import train_cell

    torch.set_num_threads(1)
    tune.report(train_cell(Path(config["work"]), config["variant"], config["seed"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--reuse-actors", action="store_true")
    options = parser.parse_args()

    import ray
    from ray import tune
    from ray.air.integrations.mlflow import MLflowLoggerCallback

    from benchmarks.work import Work

    work = Work.load(options.work)
    ray.init(address="local", num_cpus=options.workers, include_dashboard=False)
    gpus = 1 / options.workers if work.device == "cuda" else 0
    with tempfile.TemporaryDirectory() as storage:
        results = tune.Tuner(
            tune.with_resources(trial, {"cpu": 1, "gpu": gpus}),
            param_space={
                "work": str(options.work.resolve()),
                "variant": tune.grid_search(list(work.variants)),
                "seed": tune.grid_search(list(work.seeds)),
            },
            tune_config=tune.TuneConfig(reuse_actors=options.reuse_actors),
            run_config=tune.RunConfig(
                storage_path=storage,
                verbose=0,
                callbacks=[MLflowLoggerCallback(tracking_uri=options.store, experiment_name=EXPERIMENT)],
            ),
        ).fit()
        if results.errors:
            raise SystemExit(f"{len(results.errors)} trials failed; first: {results.errors[0]}")
        with options.out.open("w", encoding="utf-8") as out:
            for number in range(len(results)):
                result = results[number]
                metrics, config = result.metrics or {}, result.config or {}
                scores = {name: value for name, value in metrics.items() if name.startswith(("test/", "valid"))}
                cell = {"variant": config["variant"], "seed": config["seed"], "scores": scores}
                out.write(json.dumps(cell) + "\n")


if __name__ == "__main__":
    main()
