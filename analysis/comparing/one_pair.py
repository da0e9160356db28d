"""One trained pair: two correlations that share the labels, compared over test examples alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis import schema
from analysis.comparing.example_influence import ExampleStore
from analysis.comparing.findings import OnePairFinding
from analysis.statistics.correlations import dependent_correlations
from analysis.statistics.influence import Statistic, correlation_difference, rank

JACKKNIFE_UP_TO = 5_000
"""Test examples up to which the exact jackknife (quadratic) of one pair is worth its time."""


def one_pair(
    endpoint: schema.Endpoint, cells: Sequence[tuple[str, ...]], examples: ExampleStore, *, fixed: bool
) -> OnePairFinding | None:
    """What the test examples alone say about one endpoint of a single pair; None where its predictions do not allow it.

    Args:
        endpoint: The endpoint.
        cells: Treatment's and baseline's cell keys, one each.
        examples: Stored predictions.
        fixed: Not a sequential study: p-values are given.
    """
    tables = [examples.predictions(side[0], endpoint.split) for side in cells]
    if endpoint.statistic not in schema.CORRELATIONS or tables[0] is None or tables[1] is None:
        return None
    if endpoint.dim not in tables[0].by_dim or endpoint.dim not in tables[1].by_dim:
        return None
    labels, t, b = tables[0].labels, tables[0].by_dim[endpoint.dim], tables[1].by_dim[endpoint.dim]
    if not np.array_equal(labels, tables[1].labels) or labels.size < 4:
        return None
    statistic: Statistic = "spearman" if endpoint.statistic == "spearman" else "pearson"
    rows = rank(np.stack([labels, t, b])).centred if statistic == "spearman" else np.stack([labels, t, b])
    if (rows.std(axis=1) == 0).any():
        return None
    r = np.corrcoef(rows)
    tests = dependent_correlations(float(r[0, 1]), float(r[0, 2]), float(r[1, 2]), labels.size)
    brute = correlation_difference(labels, b, t, statistic=statistic) if labels.size <= JACKKNIFE_UP_TO else None
    return OnePairFinding(
        n_examples=labels.size,
        correlation_treatment=float(r[0, 1]),
        correlation_baseline=float(r[0, 2]),
        correlation_between=float(r[1, 2]),
        zou_ci95=tests.zou_ci95,
        steiger_z=tests.steiger_z,
        steiger_p=tests.steiger_p if fixed else None,
        williams_t=tests.williams_t,
        williams_p=tests.williams_p if fixed else None,
        jackknife_se=brute.jackknife_se if brute else None,
    )
