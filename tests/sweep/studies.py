"""Study files for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from sweep.study import Study, load_study

ARTICLE = """\
version: 1
name: angle-mrl-jsts
model: {name: cl-nagoya/ruri-v3-130m}
data: {name: jsts}
matryoshka_dims: [32, 64, 128, 256, 512]
variants:
  chunked: {loss: angle, layout: chunked}
  interleaved: {loss: angle, layout: interleaved}
baseline: chunked
seeds: 5
training: {epochs: 3, batch_size: 32, learning_rate: 2e-5, warmup_ratio: 0.1}
resources: {cpus: 4, gpus: 1}
analysis: {primary: [test/spearman_512], alpha: 0.05, margin: 0.002, stopping: fixed}
"""


def toy(**changes: Any) -> dict[str, Any]:
    """A small valid study as plain data; None removes a field."""
    data: dict[str, Any] = {
        "version": 1,
        "name": "toy-study",
        "model": {"name": "toy"},
        "data": {"name": "toy"},
        "matryoshka_dims": [16, 32, 64],
        "variants": {"a": {"loss": "angle", "layout": "chunked"}, "b": {"loss": "cosent"}},
        "seeds": 6,
        "analysis": {"primary": ["test/spearman_64"]},
    }
    data.update(changes)
    return {key: value for key, value in data.items() if value is not None}


def noop(**changes: Any) -> dict[str, Any]:
    """A study of the trainable that needs neither model nor data."""
    data: dict[str, Any] = {
        "version": 1,
        "name": "noop-study",
        "trainable": "noop",
        "variants": {"a": {"options": {"sleep_s": 0.0}}, "b": {"options": {"sleep_s": 0.001}}},
        "seeds": 6,
    }
    data.update(changes)
    return {key: value for key, value in data.items() if value is not None}


def write(folder: Path, study: dict[str, Any] | str, name: str = "study.yaml") -> Path:
    """Write a study file."""
    path = folder / name
    path.write_text(study if isinstance(study, str) else yaml.safe_dump(study, sort_keys=False), encoding="utf-8")
    return path


def two_seeds(folder: Path, **changes: Any) -> Study:
    """A study of four cells that train nothing, called as its folder is."""
    given = {
        "name": folder.name,
        "matryoshka_dims": [8],
        "variants": {"a": {}, "b": {"options": {"sleep_s": 0.01}}},
        "baseline": "a",
        "seeds": 2,
        "resources": {"cpus": 2},
        **changes,
    }
    return load_study(write(folder, noop(**given)))
