"""Our side: a study file for the work, the command that runs it, and what it recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from analysis import schema
from benchmarks.measure import Command, python
from benchmarks.work import Work


def write_study(path: Path, study: Mapping[str, Any]) -> Path:
    """Write a study file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(dict(study), sort_keys=False), encoding="utf-8")
    return path


def study_of(work: Work, name: str, *, cpus: int = 1, gpus: float = 0) -> dict[str, Any]:
    """The study that trains what the peers train."""
    data: dict[str, Any] = {split: str(work.data(split)) for split in ("train", *work.evaluation_splits)}
    return {
        "version": 1,
        "name": name,
        "model": {"name": str(work.model)},
        "data": {
            **data,
            "columns": {"sentence1": "sentence1", "sentence2": "sentence2", "label": "score"},
            "label_range": [0, 1],
        },
        "matryoshka_dims": list(work.dims),
        "variants": {layout: {"loss": "angle", "layout": layout} for layout in work.variants},
        "baseline": work.variants[0],
        "seeds": list(work.seeds),
        "training": {"epochs": work.epochs, "batch_size": work.batch_size, "learning_rate": work.learning_rate},
        "resources": {"cpus": cpus, "gpus": gpus},
    }


def sweep_run(study: Path, store: str, *arguments: str) -> Command:
    """`sweep run`, recorded in `store` (a tracking URI)."""
    return Command(arguments=python("sweep.cli", "run", study, "--tracking-uri", store, *arguments))


@dataclass(frozen=True, kw_only=True)
class RecordedCell:
    """One FINISHED cell as MLflow has it."""

    variant: str
    seed: int
    begun_s: float
    """Unix time at which its run was created."""
    ended_s: float
    metrics: Mapping[str, float]
    params: Mapping[str, str]
    tags: Mapping[str, str]
    run_id: str

    @property
    def scores(self) -> dict[str, float]:
        """Endpoint -> value."""
        out = {}
        for name, value in self.metrics.items():
            try:
                schema.parse_endpoint(name)
            except ValueError:
                continue
            if not name.startswith(schema.NOT_ENDPOINT_PREFIXES):
                out[name] = value
        return out


def recorded(store: str, study: str) -> list[RecordedCell]:
    """The finished cells of a study, in the order in which they began."""
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=store)
    experiment = client.get_experiment_by_name(study)
    if experiment is None:
        raise SystemExit(f"{store}: no experiment {study!r}")
    kind = f"tags.`{schema.TAG_KIND}` = '{schema.KIND_CELL}' and attributes.status = 'FINISHED'"
    runs: list[Any] = []
    token = None
    while True:
        page = client.search_runs([experiment.experiment_id], kind, max_results=1000, page_token=token)
        runs.extend(page)
        token = page.token
        if not token:
            break
    cells = [
        RecordedCell(
            variant=run.data.tags[schema.TAG_VARIANT],
            seed=int(run.data.tags[schema.TAG_SEED]),
            begun_s=run.info.start_time / 1000,
            ended_s=run.info.end_time / 1000,
            metrics=run.data.metrics,
            params=run.data.params,
            tags=run.data.tags,
            run_id=run.info.run_id,
        )
        for run in runs
    ]
    return sorted(cells, key=lambda cell: cell.begun_s)


def recorded_scores(store: str, study: str) -> dict[tuple[str, int], dict[str, float]]:
    """(variant, seed) -> endpoint -> value."""
    return {(cell.variant, cell.seed): cell.scores for cell in recorded(store, study)}
