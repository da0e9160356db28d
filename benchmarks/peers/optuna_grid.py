"""Optuna's grid sampler with one process per core: a shared SQLite storage, the trials divided evenly.

python -m benchmarks.peers.optuna_grid WORK.json --workers 2 --store sqlite:///FILE --out scores.jsonl
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import optuna

    from benchmarks.work import Work

STUDY = "grid"


def optimize(work_file: Path, store: str, trials: int) -> None:
    """One process: `trials` points of the grid."""
    import optuna
    import torch

    from benchmarks.peers.library import train_cell
    from benchmarks.work import Work

    torch.set_num_threads(1)
    work = Work.load(work_file)

    def objective(trial: optuna.Trial) -> float:
        variant = trial.suggest_categorical("variant", list(work.variants))
        seed = trial.suggest_categorical("seed", list(work.seeds))
        scores = train_cell(work_file, variant, seed)
        trial.set_user_attr("scores", scores)
        return scores[f"test/spearman_{work.dims[-1]}"]

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.load_study(study_name=STUDY, storage=store, sampler=grid(work))
    # The sampler hands out grid points by trial number: as many trials as points means each exactly once.
    study.optimize(objective, n_trials=trials)


def grid(work: Work) -> optuna.samplers.GridSampler:
    """The sampler over all cells."""
    import optuna

    return optuna.samplers.GridSampler({"variant": list(work.variants), "seed": list(work.seeds)}, seed=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()

    import optuna

    from benchmarks.work import Work

    work = Work.load(options.work)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(study_name=STUDY, storage=options.store, sampler=grid(work), direction="maximize")
    spawn = multiprocessing.get_context("spawn")
    shares = [len(work.cells[i :: options.workers]) for i in range(options.workers)]
    processes = [spawn.Process(target=optimize, args=(options.work, options.store, share)) for share in shares]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit("a process failed")
    with options.out.open("w", encoding="utf-8") as out:
        for trial in study.trials:
            cell = {**trial.params, "scores": trial.user_attrs["scores"]}
            out.write(json.dumps(cell) + "\n")


if __name__ == "__main__":
    main()
