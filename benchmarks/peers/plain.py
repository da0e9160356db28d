"""A shell loop's worth of Python: the cells one after the other in one process, scores as JSON lines.

python -m benchmarks.peers.plain WORK.json --threads 2 --out scores.jsonl [--share 0/2]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--share", default="0/1", help="I/N: every Nth cell, beginning with the Ith")
    options = parser.parse_args()
    first, step = map(int, options.share.split("/"))

    import torch

    from benchmarks.peers.library import train_cell
    from benchmarks.work import Work

    torch.set_num_threads(options.threads)
    with options.out.open("w", encoding="utf-8") as out:
        for variant, seed in Work.load(options.work).cells[first::step]:
            scores = train_cell(options.work, variant, seed)
            out.write(json.dumps({"variant": variant, "seed": seed, "scores": scores}) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
