"""What scheduling and recording cost: cells that train nothing, against raw Ray Tune writing the same record.

python -m benchmarks.overhead [--cells 1000] [--fresh-cells 100] [--repeats N]

Raw Ray Tune with reused actors runs all the cells; its default, a new process per trial, runs `--fresh-cells`.
Ours also keeps predictions, a ledger, and the guarantee that a finished run is complete; the peer keeps none of it.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.measure import Command, Measured, python, run
from benchmarks.ours import recorded, sweep_run, write_study
from benchmarks.tables import OURS, Sides, section, table

CORES = len(os.sched_getaffinity(0))
REUSED, FRESH = "raw Ray Tune, reused actors", "raw Ray Tune, new processes"


def noop_study(cells: int, name: str) -> dict[str, Any]:
    """`cells` cells (even) of two variants that train nothing."""
    return {
        "version": 1,
        "name": name,
        "trainable": "noop",
        "matryoshka_dims": [8, 16, 32, 64, 128],
        "variants": {"a": {"training": {"learning_rate": 1e-5}}, "b": {"training": {"learning_rate": 2e-5}}},
        "baseline": "a",
        "seeds": cells // 2,
        "resources": {"cpus": 1},
    }


def ours(cells: int, folder: Path) -> tuple[Measured, dict[str, Any]]:
    """Our command, and what one of its cells recorded."""
    store = f"sqlite:///{folder}/mlflow.db"
    measured = run([sweep_run(write_study(folder / "study.yaml", noop_study(cells, "noop")), store)])
    found = recorded(store, "noop")
    if len(found) != cells:
        raise SystemExit(f"{len(found)} of {cells} cells were recorded")
    one = found[0]
    return measured, {"metrics": dict(one.metrics), "params": dict(one.params), "tags": dict(one.tags)}


def raw(cells: int, folder: Path, record: dict[str, Any], *extra: str) -> Measured:
    """Raw Ray Tune writing `record` once per cell."""
    path = folder / "record.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    options = ("--cells", cells, "--workers", CORES, "--store", f"sqlite:///{folder}/mlflow.db", *extra)
    return run([Command(arguments=python("benchmarks.peers.noop", path, *options))])


def growth(measured: Measured) -> float:
    """Memory at the end less memory in the middle, MiB: what does not come back."""
    samples = measured.memory_mb
    if len(samples) < 8:
        return float("nan")
    fifth = max(1, len(samples) // 5)
    late, middle = sorted(samples[-2 * fifth : -1]), sorted(samples[2 * fifth : 3 * fifth])
    return late[len(late) // 2] - middle[len(middle) // 2]


def compare(cells: int, fresh_cells: int, repeats: int) -> str:
    """Measure all sides in turn; a section of a report."""
    sides = Sides()
    counts = {OURS: cells, REUSED: cells, FRESH: fresh_cells}
    record: dict[str, Any] = {}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            measured, record = ours(cells, Path(folder))
            sides.add(OURS, measured)
        with tempfile.TemporaryDirectory() as folder:
            sides.add(REUSED, raw(cells, Path(folder), record, "--reuse-actors"))
        if fresh_cells:
            with tempfile.TemporaryDirectory() as folder:
                sides.add(FRESH, raw(fresh_cells, Path(folder), record))
    rows = []
    per_ours = sides.seconds(OURS).median / cells
    for side, runs in sides.measured.items():
        per_cell = sides.seconds(side).median / counts[side]
        rows.append(
            [
                side,
                counts[side],
                sides.seconds(side).text(),
                f"{1000 * per_cell:.0f}",
                f"{per_ours / per_cell:.2f}",
                f"{max(map(growth, runs)):.0f}",
                f"{max(one.peak_mb for one in runs):.0f}",
            ]
        )
    header = ("side", "cells", "seconds: median (min-max)", "ms a cell", "ours / this", "growth, MiB", "peak, MiB")
    what = (
        f"No-op cells on {CORES} workers; on both sides a cell writes {len(record['metrics'])} metrics, "
        f"{len(record['params'])} params and {len(record['tags'])} tags to SQLite."
    )
    notes = ["Whole commands, start-up included.", "Growth: memory of the last fifths less that of the middle fifth."]
    return section("Overhead", what, table(header, rows), notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--fresh-cells", type=int, default=100, help="for new processes; 0 leaves that side out")
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    print(compare(options.cells, options.fresh_cells, options.repeats))


if __name__ == "__main__":
    main()
