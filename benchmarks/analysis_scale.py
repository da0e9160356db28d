"""How long a report takes: cells x 10 endpoints with per-example predictions, read from MLflow/SQLite.

Fabricates a store (by MLflow's own schema, filled in bulk), then runs `analysis report` as a user would, each time
in a new process: cold (empty cache) and cached, beside `mlflow.search_runs` over the same runs.

    python -m benchmarks.analysis_scale                      # 200 and 2,000 cells
    python -m benchmarks.analysis_scale --cells 20000        # needs about 1.5 GB of disk
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
import numpy as np

from analysis import schema

DIMS = (32, 64, 128, 256, 512)
VARIANTS = ("chunked", "interleaved")
EFFECT = 0.01
"""Added signal of the second variant, against noise of 1."""
STUDY = "scale"


def fabricate(folder: Path, *, cells: int, seeds: int, examples: int, rng: np.random.Generator) -> str:
    """Write a store of `cells` finished cells (2 variants x seeds x settings) and return its tracking URI."""
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{folder / 'mlflow.db'}"
    client = MlflowClient(uri)
    experiment = client.create_experiment(STUDY, artifact_location=str(folder / "artifacts"))
    parent = client.create_run(experiment, tags={schema.TAG_KIND: schema.KIND_STUDY, schema.TAG_STUDY: STUDY})
    plan = {
        "plan": {"primary": ["test/spearman_512"]},
        "baseline": VARIANTS[0],
        "variants": list(VARIANTS),
        "search": None,
    }
    client.log_text(parent.info.run_id, json.dumps(plan), schema.PLAN_ARTIFACT)
    client.set_terminated(parent.info.run_id)
    labels = rng.integers(0, 26, examples) / 25
    with closing(sqlite3.connect(folder / "mlflow.db")) as database, database:
        for number in range(cells):
            setting, rest = divmod(number, len(VARIANTS) * seeds)
            seed, variant = divmod(rest, len(VARIANTS))
            _insert(database, int(experiment), folder, number, variant, seed, setting, labels, rng)
    return uri


def _insert(
    database: sqlite3.Connection,
    experiment: int,
    folder: Path,
    number: int,
    variant: int,
    seed: int,
    setting: int,
    labels: np.ndarray,
    rng: np.random.Generator,
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    run, start = uuid.uuid4().hex, 1_800_000_000_000 + 1000 * number
    artifacts = folder / "artifacts" / run / "artifacts"
    (artifacts / "predictions").mkdir(parents=True)
    cosines = {dim: _predict(labels, variant, dim, rng) for dim in DIMS}
    table = {schema.PREDICTION_LABEL_COLUMN: labels} | {schema.prediction_column(d): c for d, c in cosines.items()}
    pq.write_table(pa.table(table), artifacts / schema.predictions_artifact("test"))
    scores = {}
    for dim, cosine in cosines.items():
        scores[f"test/spearman_{dim}"] = _correlation(_ranks(labels), _ranks(cosine))
        scores[f"test/pearson_{dim}"] = _correlation(labels, cosine)
    rate = 1e-6 * (setting + 1)
    fields = {
        "trainable": "sentence-pair", "model.name": "toy", "data.name": "toy", "loss": "angle",
        "loss.layout": VARIANTS[variant], "matryoshka_dims": list(DIMS), "learning_rate": rate, "batch_size": 32,
        "epochs": 3.0, "seed": seed,
    }  # fmt: skip
    tags = {
        "mlflow.runName": f"{VARIANTS[variant]}-s{seed}-{rate:g}",
        schema.TAG_KIND: schema.KIND_CELL, schema.TAG_STUDY: STUDY, schema.TAG_SCHEMA: schema.SCHEMA_VERSION,
        schema.TAG_CELL: uuid.uuid5(uuid.NAMESPACE_OID, str(number)).hex, schema.TAG_VARIANT: VARIANTS[variant],
        schema.TAG_SEED: str(seed), schema.TAG_SETTING: f"learning_rate={rate:g}", schema.TAG_COMPLETE: "true",
        schema.TAG_VARIANT_FIELDS: json.dumps(["loss.layout"]), schema.TAG_FIELDS: json.dumps(fields),
        "fingerprint.weights": f"w{seed}", "fingerprint.batches": f"b{seed}", "fingerprint.data": "d",
        "fingerprint.versions": "v",
    }  # fmt: skip
    database.execute(
        "INSERT INTO runs (run_uuid, name, source_type, user_id, status, start_time, end_time, lifecycle_stage,"
        " artifact_uri, experiment_id) VALUES (?, ?, 'LOCAL', 'user', 'FINISHED', ?, ?, 'active', ?, ?)",
        (run, tags["mlflow.runName"], start, start + 900, str(artifacts), experiment),
    )
    database.executemany(
        'INSERT INTO tags ("key", value, run_uuid) VALUES (?, ?, ?)', [(k, v, run) for k, v in tags.items()]
    )
    database.executemany(
        'INSERT INTO params ("key", value, run_uuid) VALUES (?, ?, ?)', [(k, str(v), run) for k, v in fields.items()]
    )
    logged = scores | {"time/train_s": 600.0, "time/eval_s": 20.0, "memory/peak_mb": 900.0}
    rows = [(key, value, start, 0, 0, run) for key, value in logged.items()]
    for name in ("metrics", "latest_metrics"):
        database.executemany(
            f'INSERT INTO {name} ("key", value, timestamp, step, is_nan, run_uuid) VALUES (?, ?, ?, ?, ?, ?)', rows
        )


def _predict(labels: np.ndarray, variant: int, dim: int, rng: np.random.Generator) -> np.ndarray:
    signal = labels * (1 + 0.1 * np.log2(dim) + EFFECT * variant + 0.02 * rng.standard_normal())
    return np.asarray(np.tanh(signal + 0.4 * rng.standard_normal(labels.size)))


def _ranks(values: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata

    return rankdata(values)


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a, b)[0, 1])


def timed_report(uri: str, cache: Path) -> tuple[float, float, str]:
    """Seconds until the report is printed, seconds until the process ends, and its first line."""
    environment = os.environ | {"PAIRSWEEP_CACHE": str(cache), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "analysis.cli", "report", STUDY, "--tracking-uri", uri, "--format", "json"]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        text = ""
        for line in process.stdout:
            text += line
            if line == "}\n":
                break
        printed = time.perf_counter() - start
        process.stdout.read()
        if process.wait():
            raise SystemExit(f"analysis report ended with {process.returncode}")
    report = json.loads(text)
    ends = [e["crossed_ci95"] for c in report["comparisons"] for e in c["endpoints"]]
    if not ends or any(end is None for end in ends):
        raise SystemExit("a crossed interval is missing: this would not time the whole work")
    return printed, time.perf_counter() - start, report["headline"]


def timed_search_runs(uri: str) -> float:
    """Seconds of `mlflow.search_runs` over the same runs, mlflow's import left out."""
    code = (
        "import time, mlflow; start = time.perf_counter();"
        f"runs = mlflow.search_runs(experiment_names=[{STUDY!r}], max_results=100000);"
        "print(time.perf_counter() - start)"
    )
    environment = os.environ | {"MLFLOW_TRACKING_URI": uri}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def sizes(cells: tuple[int, ...]) -> Iterator[int]:
    """What was asked, else 200 and 2,000."""
    yield from cells or (200, 2000)


@click.command(help=__doc__)
@click.option("--cells", type=click.IntRange(20), multiple=True, help="Number of cells; may be repeated.")
@click.option("--seeds", type=click.IntRange(2), default=10, show_default=True)
@click.option("--examples", type=click.IntRange(10), default=1500, show_default=True)
def main(cells: tuple[int, ...], seeds: int, examples: int) -> None:
    print(
        "cells   cold s (printed)  cached s (printed)  mlflow.search_runs s  cold / search_runs  cached / search_runs"
    )
    for number in sizes(cells):
        folder = Path(tempfile.mkdtemp(prefix="analysis-scale-"))
        try:
            uri = fabricate(folder, cells=number, seeds=seeds, examples=examples, rng=np.random.default_rng(1))
            cold, _, headline = timed_report(uri, folder / "cache")
            cached = min(timed_report(uri, folder / "cache")[0] for _ in range(2))
            search = timed_search_runs(uri)
            print(
                f"{number:6d}  {cold:16.2f}  {cached:18.2f}  {search:20.2f}  {cold / search:18.2f}"
                f"  {cached / search:20.2f}\n        {headline[:110]}",
                flush=True,
            )
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
