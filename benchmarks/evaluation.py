"""All dims of one evaluation: one pass over distinct sentences against one EmbeddingSimilarityEvaluator per dim.

python -m benchmarks.evaluation [--model bert|minilm] [--repeats N] [--threads N]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import Measured
from benchmarks.tables import OURS, Sides, disagreement, section, table
from benchmarks.work import Encoder, prepare


def compare(
    model_name: Encoder, repeats: int, *, threads: int, test_rows: int | None = None, device: str = "cpu"
) -> str:
    """Evaluate one encoder both ways, `repeats` times after one warming up; a section of a report."""
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer

    from benchmarks.peers import library
    from trainables.data.load import Pairs
    from trainables.encoder.models import LoadedModel
    from trainables.sentence_pair.evaluation import correlations, evaluate
    from trainables.sentence_pair.tokens import token_cache

    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        work = prepare(Path(folder) / "work", model=model_name, seeds=1, test_rows=test_rows, device=device)
        rows = work.rows("test")
        model = SentenceTransformer(str(work.model), device=device)
    pairs = Pairs(
        sentence1=tuple(rows["sentence1"]),
        sentence2=tuple(rows["sentence2"]),
        labels=np.array(rows["score"]),
        ids=tuple(map(str, range(len(rows["score"])))),
        digest="",
        source="",
    )

    def one_pass() -> dict[str, float]:
        tokens = token_cache(LoadedModel(model=model, identity=""), None, (*pairs.sentence1, *pairs.sentence2))
        if tokens is None:
            raise SystemExit(f"{model_name}: its tokens cannot be kept")
        predictions = evaluate(model, {"test": pairs}, work.dims, tokens=tokens)
        return correlations("test", predictions["test"])

    sides, worst = Sides(), 0.0
    ways: dict[str, Callable[[], dict[str, float]]] = {
        OURS: one_pass,
        "one evaluator per dim": lambda: library.evaluate(model, work, {"test": rows}),
    }
    for repeat in range(repeats + 1):
        scores = {}
        for name, way in ways.items():
            begun = time.perf_counter()
            scores[name] = way()
            if repeat:
                sides.add(name, Measured(seconds=time.perf_counter() - begun, memory_mb=()))
        theirs = scores["one evaluator per dim"]
        worst = max(worst, disagreement({("", 0): scores[OURS]}, {("", 0): theirs}))
    body = table(
        ("way", "seconds: median (min-max)", "x ours"),
        [
            [name, sides.seconds(name).text(2), "1" if name == OURS else sides.ratio(name).text(2)]
            for name in sides.measured
        ],
    )
    what = f"{len(rows['score'])} pairs, {len(work.dims)} dims, {model_name}, {threads} threads, {device}."
    notes = [
        f"Largest difference of a score: {worst:.1e}.",
        f"{repeats} repeats in one process, after one not counted.",
    ]
    return section(f"Evaluation: {model_name}", what, body, notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("bert", "minilm"), default="bert")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--test-rows", type=int, default=None, help="default all")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    options = parser.parse_args()
    print(
        compare(
            options.model, options.repeats, threads=options.threads, test_rows=options.test_rows, device=options.device
        )
    )


if __name__ == "__main__":
    main()
