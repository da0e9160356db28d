"""A whole study, ours against what one would do instead; the scores are compared too.

python -m benchmarks.study [--quick] [--model bert|minilm] [--seeds N] [--rows N] [--peers plain,processes,...]

Each side is one command, timed from start to exit, imports and start-up included. The peers: the cells one after
another in one process with all cores as threads; the same in one process per core; a raw Ray Tune grid with its
MLflow callback, with a new process per trial and with reused actors; Optuna's grid sampler in one process per core.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import Command, Measured, python, run
from benchmarks.ours import recorded_scores, study_of, sweep_run, write_study
from benchmarks.tables import COMPARISON_HEADER, OURS, Scores, Sides, disagreement, section, table
from benchmarks.work import Work, prepare

Side = Callable[[Work, Path], tuple[Measured, Scores]]
"""Runs the whole work in an empty folder."""

CORES = len(os.sched_getaffinity(0))


def ours(work: Work, folder: Path) -> tuple[Measured, Scores]:
    store = f"sqlite:///{folder}/mlflow.db"
    gpus = 1 / CORES if work.device == "cuda" else 0
    study = write_study(folder / "study.yaml", study_of(work, "benchmark", gpus=gpus))
    measured = run([sweep_run(study, store)])
    return measured, recorded_scores(store, "benchmark")


def plain(work: Work, folder: Path) -> tuple[Measured, Scores]:
    return _plain(work, folder, processes=1, threads=CORES)


def processes(work: Work, folder: Path) -> tuple[Measured, Scores]:
    return _plain(work, folder, processes=CORES, threads=1)


def _plain(work: Work, folder: Path, *, processes: int, threads: int) -> tuple[Measured, Scores]:
    outs = [folder / f"scores-{index}.jsonl" for index in range(processes)]
    commands = []
    for index, out in enumerate(outs):
        options = ("--threads", threads, "--out", out, "--share", f"{index}/{processes}")
        commands.append(
            Command(arguments=python("benchmarks.peers.plain", work.folder / "work.json", *options), threads=threads)
        )
    return run(commands), read_scores(*outs)


def raytune(work: Work, folder: Path, *extra: str) -> tuple[Measured, Scores]:
    out = folder / "scores.jsonl"
    options = ("--workers", CORES, "--store", f"sqlite:///{folder}/mlflow.db", "--out", out, *extra)
    command = Command(arguments=python("benchmarks.peers.raytune", work.folder / "work.json", *options))
    return run([command]), read_scores(out)


def raytune_reused(work: Work, folder: Path) -> tuple[Measured, Scores]:
    return raytune(work, folder, "--reuse-actors")


def optuna_grid(work: Work, folder: Path) -> tuple[Measured, Scores]:
    out = folder / "scores.jsonl"
    options = ("--workers", CORES, "--store", f"sqlite:///{folder}/optuna.db", "--out", out)
    command = Command(arguments=python("benchmarks.peers.optuna_grid", work.folder / "work.json", *options), threads=1)
    return run([command]), read_scores(out)


PEERS: dict[str, tuple[str, Side]] = {
    "plain": (f"plain loop, 1 process x {CORES} threads", plain),
    "processes": (f"plain loop, {CORES} processes x 1 thread", processes),
    "raytune": ("raw Ray Tune + MLflow callback", raytune),
    "raytune-reused": ("raw Ray Tune + MLflow callback, reused actors", raytune_reused),
    "optuna": (f"Optuna grid, {CORES} processes", optuna_grid),
}


def read_scores(*paths: Path) -> Scores:
    """What the peers wrote."""
    cells = [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    return {(cell["variant"], cell["seed"]): cell["scores"] for cell in cells}


def compare(work: Work, peers: list[str], repeats: int, *, title: str) -> str:
    """Measure all sides in turn, `repeats` times; a section of a report.

    Raises:
        SystemExit: a side failed, or trained other cells.
    """
    sides, worst = Sides(), dict.fromkeys(peers, 0.0)
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            measured, expected = ours(work, Path(folder))
        sides.add(OURS, measured)
        for name in peers:
            label, side = PEERS[name]
            with tempfile.TemporaryDirectory() as folder:
                measured, scores = side(work, Path(folder))
            sides.add(label, measured)
            worst[name] = max(worst[name], disagreement(expected, scores))
    steps = -(-len(work.rows("train")["score"]) // work.batch_size) * work.epochs
    what = (
        f"{len(work.cells)} cells ({len(work.variants)} variants x {len(work.seeds)} seeds), each {steps:.0f} steps of "
        f"{work.batch_size} pairs and an evaluation on {len(work.rows('test')['score'])} pairs at {len(work.dims)} "
        f"dims, on {work.device}."
    )
    notes = [
        "Largest difference of a score from ours: "
        + ", ".join(f"{PEERS[name][0]} {difference:.1e}" for name, difference in worst.items())
        + ".",
        f"{repeats} repeat{'s' * (repeats != 1)}, the sides in turn; whole commands, imports and start-up included.",
    ]
    return section(title, what, table(COMPARISON_HEADER, sides.rows(len(work.cells))), notes)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small enough for two minutes: 4 cells, 640 rows")
    parser.add_argument("--model", choices=("bert", "minilm"), default="bert")
    parser.add_argument("--seeds", type=int, default=None, help="default 5; 2 when --quick")
    parser.add_argument("--rows", type=int, default=None, help="training rows; default all; 640 when --quick")
    parser.add_argument("--test-rows", type=int, default=None, help="default all")
    parser.add_argument("--dropout", type=float, default=0.0, help="0: scores can be compared number by number")
    parser.add_argument("--peers", default=None, help=f"of {','.join(PEERS)}; default all")
    parser.add_argument("--repeats", type=int, default=None, help="default 3; 1 when --quick")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    return parser


def main() -> None:
    arguments = parser()
    options = arguments.parse_args()
    peers = (options.peers or ("plain,processes,raytune" if options.quick else ",".join(PEERS))).split(",")
    if unknown := set(peers) - set(PEERS):
        arguments.error(f"--peers: {', '.join(sorted(unknown))} is not valid; allowed: {', '.join(PEERS)}")
    with tempfile.TemporaryDirectory() as folder:
        work = prepare(
            Path(folder) / "work",
            model=options.model,
            seeds=options.seeds or (2 if options.quick else 5),
            train_rows=options.rows or (640 if options.quick else None),
            test_rows=options.test_rows,
            dropout=options.dropout,
            device=options.device,
        )
        title = f"Study: {options.model}"
        print(compare(work, peers, options.repeats or (1 if options.quick else 3), title=title))


if __name__ == "__main__":
    main()
