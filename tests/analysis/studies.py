"""Small recorded studies to analyse: cells, scores and, where wanted, per-example predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis import schema
from analysis.plan import AnalysisPlan
from analysis.results.model import CellRecord, HistoryEntry, PredictionTable, Results

FINGERPRINT = {"initial_weights": "w", "example_order": "o", "data": "d", "software": "s", "device": "cpu"}
Scores = Mapping[str, Mapping[str, Sequence[float]]]
"""Variant -> endpoint -> score per seed (NaN is kept)."""


def study(
    scores: Scores | Mapping[str, Scores],
    *,
    settings: bool = False,
    seeds: Sequence[int] | None = None,
    fingerprinted: bool = True,
    fingerprint: Callable[[str, int], Mapping[str, str]] = lambda variant, seed: FINGERPRINT,
    predictions: Callable[[str, str], PredictionTable | None] = lambda cell, split: None,
    declared_plan: AnalysisPlan | None = None,
    declared_baseline: str | None = None,
    history: Sequence[HistoryEntry] = (),
    search: Mapping[str, Any] | None = None,
    failed: Mapping[tuple[str, int], str] | None = None,
    fields: Callable[[str, int, str], Mapping[str, Any]] = lambda variant, seed, setting: {},
    variant_fields: tuple[str, ...] = ("loss.layout",),
    extra_rows: Sequence[tuple[Any, ...]] = (),
) -> Results:
    """Results as reading would give them; with `settings` the outer keys are settings."""
    by_setting: Mapping[str, Any] = scores if settings else {schema.DEFAULT_SETTING: scores}
    cells: list[CellRecord] = []
    rows: list[tuple[Any, ...]] = []
    for setting, variants in by_setting.items():
        for variant, endpoints in variants.items():
            count = max(len(v) for v in endpoints.values())
            for position in range(count):
                seed = seeds[position] if seeds is not None else position
                key = f"{variant}-s{seed}-{setting}"
                why = (failed or {}).get((variant, seed))
                own = fields(variant, seed, setting) or {
                    "trainable": "noop", "seed": seed, "loss.layout": variant, "setting": setting,
                }  # fmt: skip
                cells.append(
                    CellRecord(
                        cell=key,
                        variant=variant,
                        seed=seed,
                        setting=setting,
                        state=schema.STATE_FAILED if why else schema.STATE_FINISHED,
                        fields=own if fingerprinted else {},
                        variant_fields=variant_fields if fingerprinted else (),
                        fingerprint=fingerprint(variant, seed) if fingerprinted else {},
                        failure=why,
                        failure_kind=schema.FAILURE_CELL if why else None,
                    )
                )
                if why:
                    continue
                for name, values in endpoints.items():
                    e = schema.parse_endpoint(name)
                    rows.append((key, variant, seed, setting, e.metric, e.dim, values[position]))
    return Results(
        study="a-study",
        table=pd.DataFrame([*rows, *extra_rows], columns=list(schema.RESULT_COLUMNS)),
        cells=tuple(cells),
        fingerprinted=fingerprinted,
        predictions=predictions,
        declared_plan=declared_plan,
        declared_baseline=declared_baseline,
        variant_order=tuple(dict.fromkeys(c.variant for c in cells)),
        history=tuple(history),
        search=search,
    )


def predicted_study(
    *, shifts: Sequence[float], examples: int = 120, noise: float = 0.5, seed: int = 0, dims: Sequence[int] = (64,)
) -> Results:
    """A study whose scores are the correlations of simulated predictions; `shifts` per seed help the treatment."""
    from scipy import stats

    rng = np.random.default_rng(seed)
    labels = np.round(rng.uniform(0, 1, examples), 1)
    shared = rng.normal(size=examples)
    tables: dict[tuple[str, str], PredictionTable] = {}
    scores: dict[str, dict[str, list[float]]] = {v: {} for v in ("base", "new")}
    for position, shift in enumerate(shifts):
        own = 0.2 * rng.normal(size=(2, examples))
        for variant, extra, wobble in (("base", 0.0, own[0]), ("new", shift, own[1])):
            by_dim = dict.fromkeys(dims, labels * (1 + extra) + noise * (shared + wobble))
            tables[f"{variant}-s{position}-default", "test"] = PredictionTable(labels=labels, by_dim=by_dim)
            for d in dims:
                for name, r in (("spearman", stats.spearmanr), ("pearson", stats.pearsonr)):
                    value = float(r(labels, by_dim[d]).statistic)
                    scores[variant].setdefault(f"test/{name}_{d}", []).append(value)
    return study(scores, predictions=lambda cell, split: tables.get((cell, split)))
