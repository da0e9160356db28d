"""Whether a long session slows down: many small trainings in one command, its halves compared.

python -m benchmarks.steady [--cells 200]
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
from pathlib import Path

from analysis import schema
from benchmarks.measure import Spread, run
from benchmarks.ours import RecordedCell, recorded, study_of, sweep_run, write_study
from benchmarks.tables import section, table
from benchmarks.work import prepare

TRAIN_ROWS, TEST_ROWS = 64, 100


def spacing(cells: list[RecordedCell]) -> list[float]:
    """Seconds between the ends of cells that follow each other."""
    ends = sorted(cell.ended_s for cell in cells)
    return [later - earlier for earlier, later in itertools.pairwise(ends)]


def measure(cells: int) -> str:
    """Run one study; a section of a report."""
    with tempfile.TemporaryDirectory() as folder:
        work = prepare(
            Path(folder) / "work", model="bert", seeds=cells // 2, train_rows=TRAIN_ROWS, test_rows=TEST_ROWS
        )
        store = f"sqlite:///{folder}/mlflow.db"
        study = write_study(Path(folder) / "study.yaml", study_of(work, "steady"))
        measured = run([sweep_run(study, store)])
        found = recorded(store, "steady")
    # The first cells of each process pay its imports: they are start-up, not a slope.
    warm = found[len(found) // 10 :]
    middle = len(warm) // 2
    halves = {"first half": warm[:middle], "second half": warm[middle:]}
    memory = measured.memory_mb[len(measured.memory_mb) // 10 : -1]
    memories = (memory[: len(memory) // 2], memory[len(memory) // 2 :])
    training = schema.METRIC_TIME_PREFIX + "train_s"
    rows = []
    for (name, half), samples in zip(halves.items(), memories, strict=True):
        between = spacing(half)
        rows.append(
            [
                name,
                len(half),
                f"{statistics.mean(between):.3f}",
                Spread.of([cell.metrics[training] for cell in half]).text(3),
                f"{statistics.median(samples):.0f}",
            ]
        )
    header = ("", "cells", "seconds a cell", "training s: median (min-max)", "memory, MiB")
    what = f"{len(found)} cells in one command, each {TRAIN_ROWS} rows; the first tenth left out as start-up."
    slope = float(str(rows[1][2])) / float(str(rows[0][2]))
    return section("Steadiness", what, table(header, rows), [f"Second half / first half: {slope:.2f}."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=200)
    print(measure(parser.parse_args().cells))


if __name__ == "__main__":
    main()
