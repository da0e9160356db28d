"""The same work by two commits of this project, in turn: is the newer one slower?

python -m benchmarks.commits OTHER [--work noop:100 bert:10 minilm:4] [--repeats 2]

OTHER is another checkout, installed into its own `.venv`. Each side is its own `sweep run`, from start to exit, of its
own commit's benchmark study; `noop` cells train nothing.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from benchmarks.measure import Measured
from benchmarks.tables import COMPARISON_HEADER, OURS, Sides, section, table

ROOT = Path(__file__).parent.parent
CODE = """
import sys, tempfile
from pathlib import Path
kind, cells = sys.argv[1], int(sys.argv[2])
with tempfile.TemporaryDirectory() as folder:
    if kind == "noop":
        from benchmarks.overhead import ours
        measured, _ = ours(cells, Path(folder))
    else:
        from benchmarks.study import ours
        from benchmarks.work import prepare
        work = prepare(Path(folder) / "work", model=kind, seeds=cells // 2,
                       **({"train_rows": 640} if kind == "minilm" else {}))
        work.save()
        (Path(folder) / "ours").mkdir()
        measured, _ = ours(work, Path(folder) / "ours")
print("RESULT", measured.seconds, *measured.memory_mb)
"""
"""Run in each checkout: it names nothing that a commit of either side lacks."""


def measured_in(checkout: Path, kind: str, cells: int) -> Measured:
    """One run of one side."""
    command = [str(checkout / ".venv" / "bin" / "python"), "-c", CODE, kind, str(cells)]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    found = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not found:
        raise SystemExit(f"{checkout}: {kind} failed: {done.stderr[-2000:]}")
    return Measured(seconds=float(found[0][0]), memory_mb=tuple(map(float, found[0][1:])))


def compare(other: Path, kind: str, cells: int, repeats: int) -> str:
    """A section of a report."""
    sides = Sides()
    for _ in range(repeats):
        sides.add(OURS, measured_in(ROOT, kind, cells))
        sides.add("the other commit", measured_in(other, kind, cells))
    what = f"{cells} cells of {kind}, each commit's own `sweep run` from start to exit, in turn."
    return section("Two commits", what, table(COMPARISON_HEADER, sides.rows(cells)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="another checkout, with its own .venv")
    parser.add_argument("--work", nargs="+", default=["noop:100", "bert:10", "minilm:4"], metavar="KIND:CELLS")
    parser.add_argument("--repeats", type=int, default=2)
    arguments = parser.parse_args()
    for work in arguments.work:
        kind, _, cells = work.partition(":")
        print(compare(arguments.other.resolve(), kind, int(cells), arguments.repeats))


if __name__ == "__main__":
    main()
