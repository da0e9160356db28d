"""The whole set in one command, as Markdown.

python -m benchmarks.all [--out docs/results/performance.md] [--only study,minilm,...] [--repeats N]

Sized for about half an hour on two cores with nothing else running; `--full` adds the peers and sizes left out for that
(about an hour and a half). The file is rewritten after each part, so an interrupted run keeps what it measured.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from analysis.files import write_atomically
from benchmarks import evaluation, overhead, steady, study, utilisation
from benchmarks.work import prepare

SHORT_PEERS = ["plain", "processes", "raytune"]


def _study(model: str, *, seeds: int, rows: int | None, peers: list[str], repeats: int, title: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        work = prepare(Path(folder) / "work", model=model, seeds=seeds, train_rows=rows)  # type: ignore[arg-type]
        return study.compare(work, peers, repeats, title=title)


def parts(*, full: bool, repeats: int) -> dict[str, Callable[[], str]]:
    """Name -> what measures it and gives a section."""
    peers = list(study.PEERS) if full else SHORT_PEERS
    threads = len(os.sched_getaffinity(0))
    return {
        "study": lambda: _study(
            "bert", seeds=5, rows=None, peers=peers, repeats=repeats, title="A study of 10 cells: BERT 2 x 128, STS-B"
        ),
        "minilm": lambda: _study(
            "minilm",
            seeds=2,
            rows=640,
            peers=["plain", "processes"] if full else ["plain"],
            repeats=repeats,
            title="A larger encoder: MiniLM 6 x 384, 640 rows of STS-B, whole test set",
        ),
        "overhead": lambda: overhead.compare(1000 if full else 300, 100 if full else 30, repeats),
        "evaluation": lambda: evaluation.compare("bert", 5, threads=threads),
        "evaluation-minilm": lambda: evaluation.compare("minilm", 3 if full else 1, threads=threads),
        "utilisation": lambda: utilisation.measure(seeds=10, rows=None, epochs=2.0),
        "steady": lambda: steady.measure(200),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path, default=None, help="default: standard output only")
    arguments.add_argument("--only", default=None, help=f"of {','.join(parts(full=False, repeats=1))}; default all")
    arguments.add_argument("--repeats", type=int, default=1)
    arguments.add_argument("--full", action="store_true", help="all peers, full sizes")
    options = arguments.parse_args()
    # A timeout ends this process by SIGTERM: as an exception, so that what it started ends too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    known = parts(full=options.full, repeats=options.repeats)
    chosen = options.only.split(",") if options.only else list(known)
    if unknown := set(chosen) - set(known):
        arguments.error(f"--only: {', '.join(sorted(unknown))} is not valid; allowed: {', '.join(known)}")
    sections = []
    for name in chosen:
        begun = time.perf_counter()
        print(f"{name} ...", file=sys.stderr, flush=True)
        sections.append(known[name]())
        print(f"{name}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
        print(sections[-1], flush=True)
        if options.out is not None:
            write_atomically(options.out, ("## Measured\n\n" + "\n".join(sections)).encode())


if __name__ == "__main__":
    main()
