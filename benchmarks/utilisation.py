"""How much of the machine's time a study spends on training and evaluation.

python -m benchmarks.utilisation [--seeds 10] [--rows N]

Useful seconds (training + evaluation, as recorded per cell) over wall clock x slots, from the first cell's beginning
to the command's end; start-up stands apart. Cells should last at least 20 s.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from analysis import schema
from benchmarks.measure import Spread, run
from benchmarks.ours import recorded, study_of, sweep_run, write_study
from benchmarks.tables import section, table
from benchmarks.work import prepare

SLOTS = len(os.sched_getaffinity(0))
USEFUL = tuple(schema.METRIC_TIME_PREFIX + name for name in ("train_s", "eval_s"))


def measure(*, seeds: int, rows: int | None, epochs: float) -> str:
    """Run one study of 2 x `seeds` cells; a section of a report."""
    with tempfile.TemporaryDirectory() as folder:
        work = prepare(Path(folder) / "work", model="bert", seeds=seeds, train_rows=rows)
        study = study_of(work, "utilisation")
        study["training"]["epochs"] = epochs
        store = f"sqlite:///{folder}/mlflow.db"
        begun = time.time()
        measured = run([sweep_run(write_study(Path(folder) / "study.yaml", study), store)])
        cells = recorded(store, "utilisation")
        trained = len(work.rows("train")["score"])
    first = min(cell.begun_s for cell in cells)
    startup, wall = first - begun, begun + measured.seconds - first
    useful = [sum(cell.metrics[name] for name in USEFUL) for cell in cells]
    # Loading the imports falls into a process's first cell, before its training.
    lasting = Spread.of([cell.ended_s - cell.begun_s for cell in cells])
    rows_ = [
        ["useful seconds of all cells", f"{sum(useful):.1f}"],
        [f"wall clock x {SLOTS} slots", f"{wall * SLOTS:.1f}"],
        ["utilisation", f"{sum(useful) / (wall * SLOTS):.3f}"],
        ["seconds of a cell: median (min-max)", lasting.text()],
        ["start-up before the first cell, s", f"{startup:.1f}"],
    ]
    what = f"{len(cells)} cells of {epochs:g} epochs over {trained} rows, BERT 2 x 128."
    return section("Utilisation", what, table(("", ""), rows_))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="two cells each")
    parser.add_argument("--rows", type=int, default=None, help="training rows; default all")
    parser.add_argument("--epochs", type=float, default=3.0)
    options = parser.parse_args()
    print(measure(seeds=options.seeds, rows=options.rows, epochs=options.epochs))


if __name__ == "__main__":
    main()
