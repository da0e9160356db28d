"""A small study recorded in a real MLflow store, as the sweep records it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from mlflow.tracking import MlflowClient

from analysis import schema

DIMS = (16, 32)
EXAMPLES = 60


def predictions(labels: np.ndarray, variant: int, seed: int) -> dict[int, np.ndarray]:
    rng = np.random.default_rng([seed, variant])
    return {d: np.tanh(labels + 0.02 * variant + (0.4 - d / 200) * rng.standard_normal(labels.size)) for d in DIMS}


def record_study(
    folder: Path,
    *,
    study: str = "small",
    variants: tuple[str, ...] = ("chunked", "interleaved"),
    seeds: int = 5,
    plan: dict[str, Any] | None = None,
) -> str:
    """Record `variants` x `seeds` finished cells and return the tracking URI."""
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    client = MlflowClient(uri)
    experiment = client.create_experiment(study, artifact_location=str(folder / "artifacts"))
    parent = client.create_run(experiment, tags={schema.TAG_KIND: schema.KIND_STUDY, schema.TAG_STUDY: study})
    declared = {
        "plan": plan or {"primary": ["test/spearman_32"]},
        "baseline": variants[0],
        "variants": variants,
        "search": None,
    }
    client.log_text(parent.info.run_id, json.dumps(declared), schema.PLAN_ARTIFACT)
    for seed in range(seeds):
        for number, variant in enumerate(variants):
            record_cell(client, experiment, variant=variant, number=number, seed=seed)
    return uri


def record_cell(
    client: MlflowClient,
    experiment: str,
    *,
    variant: str,
    number: int,
    seed: int,
    status: str = "FINISHED",
    **more_tags: str,
) -> str:
    """Record one cell; only a finished one has scores. Returns the run's id."""
    fields = {"loss": "angle", "loss.layout": ("chunked", "interleaved")[number % 2], "matryoshka_dims": list(DIMS)}
    tags = {
        schema.TAG_KIND: schema.KIND_CELL,
        schema.TAG_SCHEMA: schema.SCHEMA_VERSION,
        schema.TAG_CELL: f"{variant}{seed}",
        schema.TAG_VARIANT: variant,
        schema.TAG_SEED: str(seed),
        schema.TAG_SETTING: schema.DEFAULT_SETTING,
        schema.TAG_VARIANT_FIELDS: json.dumps(["loss.layout"]),
        schema.TAG_FIELDS: json.dumps(fields | {"seed": seed}),
        "fingerprint.weights": f"w{seed}",
        "fingerprint.data": "d",
        **{key.replace("__", "."): value for key, value in more_tags.items()},
    }
    run = client.create_run(experiment, tags=tags, run_name=f"{variant}-s{seed}-default").info
    if status == "FINISHED":
        labels = np.random.default_rng(7).random(EXAMPLES)
        cosines = predictions(labels, number, seed)
        for dim, cosine in cosines.items():
            ranked = np.corrcoef(np.argsort(np.argsort(labels)), np.argsort(np.argsort(cosine)))[0, 1]
            client.log_metric(run.run_id, f"test/spearman_{dim}", float(ranked))
            client.log_metric(run.run_id, f"test/pearson_{dim}", float(np.corrcoef(labels, cosine)[0, 1]))
        client.log_metric(run.run_id, "time/train_s", 12.0)
        columns = {"label": labels} | {schema.prediction_column(dim): cosine for dim, cosine in cosines.items()}
        target = Path(run.artifact_uri) / schema.predictions_artifact("test")
        target.parent.mkdir(parents=True)
        pq.write_table(pa.table(columns), target)
    client.set_terminated(run.run_id, status=status)
    return str(run.run_id)
