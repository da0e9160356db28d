"""How near a cell is to its limit: the share of its time that goes into matrix products, by torch's profiler.

python -m benchmarks.limit [--model bert|minilm] [--rows N]

One cell in one process with one thread, after one that is not counted.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.ours import study_of
from benchmarks.tables import section, table
from benchmarks.work import prepare

MATRIX_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm")


def measure(model: str, rows: int | None) -> str:
    """Profile one cell; a section of a report."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from trainables.sentence_pair.train import train
    from trainables.spec import LossSpec, TrainSpec

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        work = prepare(Path(folder) / "work", model=model, seeds=1, train_rows=rows)  # type: ignore[arg-type]
        described = study_of(work, "limit")
        spec = TrainSpec(
            model=described["model"],
            data=described["data"],
            loss=(LossSpec(name="angle", layout=work.variants[0]),),
            matryoshka_dims=work.dims,
            training=described["training"],
            seed=0,
        )
        train(spec, lambda progress: None)
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            train(spec, lambda progress: None)
        trained = len(work.rows("train")["score"])
    events = profiled.key_averages()
    seconds = sum(event.self_cpu_time_total for event in events) / 1e6
    products = sum(event.self_cpu_time_total for event in events if event.key in MATRIX_PRODUCTS) / 1e6
    body = table(
        ("a cell, s", "matrix products, s", "share"),
        [[f"{seconds:.1f}", f"{products:.1f}", f"{products / seconds:.0%}"]],
    )
    return section(f"Limit: {model}", f"{trained} training rows and an evaluation on the whole test set.", body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("bert", "minilm"), default="bert")
    parser.add_argument("--rows", type=int, default=None, help="training rows; default all")
    options = parser.parse_args()
    print(measure(options.model, options.rows))


if __name__ == "__main__":
    main()
