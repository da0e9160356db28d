"""A search end to end, without Ray: a real store, an Optuna database, then the comparison and its report."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from analysis import schema
from analysis.comparing.study import compare
from analysis.results.load import load
from sweep.record.tracking import Tracking
from sweep.run.run_study import run_study
from sweep.study import load_study
from sweep.tune.tune import tune
from tests.sweep.in_process import InProcess

PLANTED = '''\
"""Closed-form scores with an optimum in learning rate and batch size."""

import math

from trainables.synthetic import closed_form


def planted(spec, report):
    options = dict(spec.options)
    miss = abs(math.log10(spec.training["learning_rate"] / options.pop("best_learning_rate")))
    effect = options.pop("effect", 0.0) - 0.05 * miss - (0.01 if spec.training["batch_size"] == 16 else 0.0)
    return closed_form(spec.model_copy(update={"options": {**options, "effect": effect}}), report)
'''
STUDY = """\
version: 1
name: planted
trainable: planted:planted
matryoshka_dims: [16, 64]
variants:
  plain: {options: {best_learning_rate: 1e-5}}
  improved: {options: {best_learning_rate: 3e-5, effect: 0.05}}
seeds: 3
analysis: {primary: [test/spearman_64]}
search:
  space: {learning_rate: {low: 1e-6, high: 1e-4, log: true}, batch_size: [16, 32]}
  trials: 3
  startup: 2
  seeds: [100, 101]
  endpoint: validation/spearman_64
"""


def exploratory(study: str, uri: str) -> tuple[str, ...]:
    found = compare(
        load(study, tracking_uri=uri), plan=None, baseline=None, allow_unverified=False, rng=np.random.default_rng(0)
    )
    (comparison,) = found.comparisons
    assert comparison.endpoints[0].n_pairs >= 3
    differing = {difference.field for difference in comparison.declared_differences}
    assert differing & {"learning_rate", "batch_size"}
    return found.plan.exploratory


def test_searched_frozen_compared(tmp_path: Path, store: Tracking, capsys: pytest.CaptureFixture[str]) -> None:
    uri, backend = store.uri, InProcess()
    (tmp_path / "planted.py").write_text(PLANTED)
    path = tmp_path / "planted.yaml"
    path.write_text(STUDY)

    assert tune(load_study(path), backend) == 0
    said = capsys.readouterr()
    assert said.out == f"{tmp_path / 'planted.tuned.yaml'}\n"
    assert "validation/spearman_64" in said.err
    assert "[ 1/12] finished" in said.err  # the whole budget from the start: 2 variants x 3 trials x 2 seeds
    assert "[12/12] finished" in said.err
    assert "test/" not in said.err  # a search neither shows nor stores what its variants are compared on
    searched = store.recorded_runs("planted", schema.KIND_SEARCH)
    assert not [name for run in searched for name in run.metrics if name.startswith("test/")]
    assert not list(tmp_path.rglob("predictions/test.parquet"))
    assert len(list(tmp_path.rglob("predictions/validation.parquet"))) == 12
    assert Counter((run.label[0], run.status) for run in searched) == {
        ("plain", "FINISHED"): 6,
        ("improved", "FINISHED"): 6,
    }
    assert store.recorded_runs("planted") == []  # no comparison ever sees a search trial
    frozen = load_study(tmp_path / "planted.tuned.yaml")
    assert frozen.searched_by is not None
    assert frozen.searched_by.budget == {"plain": 3, "improved": 3}
    for variant, value in frozen.searched_by.best.items():
        chosen = [
            run.metrics["validation/spearman_64"]
            for run in searched
            if run.label[0] == variant and run.label[2] == f"trial-{frozen.searched_by.chosen_trial[variant]}"
        ]
        assert value == pytest.approx(sum(chosen) / 2, abs=1e-12)

    # The same command again: nothing is trained, the same file.
    assert tune(load_study(path), backend) == 0
    assert len(store.recorded_runs("planted", schema.KIND_SEARCH)) == 12

    assert run_study(frozen, backend) == 0
    assert exploratory(frozen.name, uri) == ()

    assert run_study(frozen.with_seeds([0, 1, 2, 100]), backend) == 0
    (reason,) = exploratory(frozen.name, uri)
    assert reason.startswith("seeds 100 were also used to choose the settings")
