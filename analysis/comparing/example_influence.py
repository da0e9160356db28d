"""What stored per-example predictions say: influence values of a comparison, and one trained pair on its own.

Labels are ranked once, cells once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis import schema
from analysis.comparing.findings import OnePairFinding
from analysis.results.model import PredictionTable
from analysis.statistics.correlations import dependent_correlations
from analysis.statistics.influence import (
    Influence,
    Ranked,
    Statistic,
    correlation_difference,
    pearson_influence,
    rank,
    spearman_influence,
)
from analysis.statistics.paired import Floats

MISMATCH = 1e-3
"""A recorded correlation that differs from the stored predictions' by more is reported."""
JACKKNIFE_UP_TO = 5_000
"""Test examples up to which the exact jackknife (quadratic) of one pair is worth its time."""


@dataclass(frozen=True, kw_only=True)
class PairInfluence:
    """Influence values of the differences of one endpoint over the seeds of a comparison."""

    values: Floats | None
    """(seeds, examples); NaN rows where a cell has no predictions; None when no seed has any."""
    missing: str | None
    """Why there are none, or not for all seeds."""
    test_set: int
    disagreements: tuple[str, ...]
    """Cells whose stored predictions give another correlation than was recorded."""
    contradicted: Mapping[int, str]
    """Position among the seeds -> the first of these sentences."""


class ExampleStore:
    """Reads predictions through one function and remembers what is asked for again: baselines and label ranks."""

    def __init__(self, read: Callable[[str, str], PredictionTable | None]) -> None:
        self._read = read
        self._labels: list[tuple[Floats, Ranked]] = []
        self._cells: dict[tuple[str, str], tuple[int, dict[tuple[str, int], tuple[float, Floats]]] | None] = {}

    def forget(self) -> None:
        """Drop remembered cells (not label ranks): another setting comes next."""
        self._cells.clear()

    def test_set(self, labels: Floats) -> int:
        """A number for these labels; equal labels in equal order are the same test set."""
        for number, (known, _) in enumerate(self._labels):
            if known is labels or np.array_equal(known, labels):
                return number
        self._labels.append((labels, rank(labels)))
        return len(self._labels) - 1

    def cell(self, cell: str, split: str) -> tuple[int, dict[tuple[str, int], tuple[float, Floats]]] | None:
        """(test set, {(statistic, dim): (correlation, influence)}) of one cell; None without predictions."""
        key = (cell, split)
        if key not in self._cells:
            table = self._read(cell, split)
            self._cells[key] = None if table is None or not table.by_dim else self._influences(table)
        return self._cells[key]

    def _influences(self, table: PredictionTable) -> tuple[int, dict[tuple[str, int], tuple[float, Floats]]]:
        number = self.test_set(table.labels)
        dims = list(table.by_dim)
        predictions = np.stack([table.by_dim[d] for d in dims])
        by_statistic: dict[str, Influence] = {
            "spearman": spearman_influence(self._labels[number][1], predictions),
            "pearson": pearson_influence(table.labels, predictions),
        }
        return number, {
            (statistic, dim): (float(found.correlation[i]), found.values[i])
            for statistic, found in by_statistic.items()
            for i, dim in enumerate(dims)
        }

    def pair(
        self,
        endpoint: schema.Endpoint,
        *,
        seeds: Sequence[int],
        treatment: Sequence[str],
        baseline: Sequence[str],
        scores: tuple[Sequence[float], Sequence[float]],
    ) -> PairInfluence:
        """Influence of treatment minus baseline for each seed.

        Args:
            endpoint: Which metric at which dim.
            seeds: Seeds, for messages.
            treatment: Cell keys of the treatment, one per seed.
            baseline: The same.
            scores: Recorded scores of treatment and baseline, to check the predictions against.
        """
        if endpoint.statistic not in schema.CORRELATIONS:
            return _nothing(f"{endpoint.statistic} is not a correlation")
        rows: list[Floats | None] = []
        sets: set[int] = set()
        lacking, disagreements = [], []
        contradicted: dict[int, str] = {}
        for i, (t, b) in enumerate(zip(treatment, baseline, strict=True)):
            found = [self.cell(c, endpoint.split) for c in (t, b)]
            parts = [f[1].get((endpoint.statistic, endpoint.dim)) if f else None for f in found]
            if parts[0] is None or parts[1] is None or not found[0] or not found[1] or found[0][0] != found[1][0]:
                lacking.append(seeds[i])
                rows.append(None)
                continue
            for cell, part, recorded in zip((t, b), parts, (scores[0][i], scores[1][i]), strict=True):
                if part is not None and abs(part[0] - recorded) > MISMATCH:
                    text = f"{cell}: {endpoint} is recorded as {recorded:.4f}, its predictions give {part[0]:.4f}"
                    disagreements.append(text)
                    contradicted.setdefault(i, text)
            sets.add(found[0][0])
            rows.append(parts[0][1] - parts[1][1])
        known = [r for r in rows if r is not None]
        if not known:
            if not seeds:
                return _nothing("there are no pairs")
            why = getattr(self._read, "unreachable", None) or "none were stored, or they are gone since"
            return _nothing(f"no per-example predictions can be read: {why}")
        if len(sets) > 1:
            return replace(
                _nothing("the seeds were evaluated on different test sets"),
                disagreements=tuple(disagreements),
                contradicted=contradicted,
            )
        values = np.full((len(rows), known[0].size), np.nan)
        for i, row in enumerate(rows):
            if row is not None:
                values[i] = row
        plural = "seed" if len(lacking) == 1 else "seeds"
        missing = f"left out for want of predictions: {plural} {', '.join(map(str, lacking))}" if lacking else None
        return PairInfluence(
            values=values,
            missing=missing,
            test_set=sets.pop(),
            disagreements=tuple(disagreements),
            contradicted=contradicted,
        )

    def predictions(self, cell: str, split: str) -> PredictionTable | None:
        """The predictions themselves, for the one pair of a study with one seed."""
        return self._read(cell, split)


def _nothing(why: str) -> PairInfluence:
    return PairInfluence(values=None, missing=why, test_set=-1, disagreements=(), contradicted={})


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
