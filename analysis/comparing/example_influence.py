"""What stored per-example predictions say: influence values of a comparison, and one trained pair on its own.

Labels are ranked once, cells once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

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
    clusters: NDArray[np.intp] | None
    """(examples,): cluster of each example, numbered from 0; None: independent."""
    disagreements: tuple[str, ...]
    """What is wrong with the stored predictions: another score than was recorded, or other examples."""
    contradicted: Mapping[int, str]
    """Position among the seeds -> the first of these sentences."""


@dataclass(frozen=True, kw_only=True)
class _TestSet:
    """What makes two tables results on the same examples."""

    examples: int
    labels: Floats | None
    ranked: Ranked | None
    ids: tuple[str, ...] | None
    clusters: tuple[str, ...] | None

    @cached_property
    def numbered(self) -> NDArray[np.intp] | None:
        """(examples,): `clusters` as numbers from 0."""
        return None if self.clusters is None else np.unique(self.clusters, return_inverse=True)[1]

    def with_names(self, table: PredictionTable, order: NDArray[np.intp] | None) -> _TestSet:
        """The same examples, with the names and clusters that another table knows: older cells recorded none."""
        return replace(
            self, ids=self.ids or _ordered(table.ids, order), clusters=self.clusters or _ordered(table.clusters, order)
        )


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """What one cell's predictions say on one test set."""

    test_set: int
    by_endpoint: Mapping[tuple[str, int], tuple[float, Floats]]
    """(statistic, dim) -> (score, influence of each example on it, (examples,))."""


class ExampleStore:
    """Reads predictions through one function and remembers what is asked for again: baselines and label ranks."""

    def __init__(
        self, read: Callable[[str, str], PredictionTable | None], *, turned: Collection[str] = frozenset()
    ) -> None:
        """Args:
        read: (cell key, split) -> what is stored.
        turned: Metrics, such as `test/loss`, whose scores stand with the other sign.
        """
        self._read = read
        self._turned = frozenset(turned)
        self._sets: list[_TestSet] = []
        self._cells: dict[tuple[str, str], _Cell | None] = {}

    def forget(self) -> None:
        """Drop remembered cells (not label ranks): another setting comes next."""
        self._cells.clear()

    def _placed(self, table: PredictionTable) -> tuple[int, NDArray[np.intp] | None]:
        """Number of the test set, and the rows in its order where they are stored in another."""
        for number, known in enumerate(self._sets):
            if known.examples != table.examples:
                continue
            order = None
            if known.ids is not None and table.ids is not None and known.ids != table.ids:
                at = {name: row for row, name in enumerate(table.ids)}
                if any(name not in at for name in known.ids):
                    continue
                order = np.array([at[name] for name in known.ids], dtype=np.intp)
            elif (known.ids is None) != (table.ids is None) and table.labels is None:
                continue  # neither names nor labels say that the rows are the same
            same_clusters = None in (known.clusters, table.clusters) or known.clusters == _ordered(
                table.clusters, order
            )
            if _same(known.labels, table.labels, order) and same_clusters:
                if known.ids is None or known.clusters is None:
                    self._sets[number] = known.with_names(table, order)
                return number, order
        self._sets.append(
            _TestSet(
                examples=table.examples,
                labels=table.labels,
                ranked=None if table.labels is None else rank(table.labels),
                ids=table.ids,
                clusters=table.clusters,
            )
        )
        return len(self._sets) - 1, None

    def _cell(self, cell: str, split: str) -> _Cell | None:
        """What one cell's predictions say; None without any."""
        key = (cell, split)
        if key not in self._cells:
            table = self._read(cell, split)
            self._cells[key] = None if table is None or not table.examples else self._influences(table)
        return self._cells[key]

    def _influences(self, table: PredictionTable) -> _Cell:
        number, order = self._placed(table)
        found: dict[tuple[str, int], tuple[float, Floats]] = {}
        labels, ranked = self._sets[number].labels, self._sets[number].ranked
        if labels is not None and ranked is not None and table.by_dim:
            dims = list(table.by_dim)
            predictions = np.stack([table.by_dim[d] for d in dims])
            if order is not None:
                predictions = predictions[:, order]
            by_statistic: dict[str, Influence] = {
                "spearman": spearman_influence(ranked, predictions),
                "pearson": pearson_influence(labels, predictions),
            }
            for statistic, one in by_statistic.items():
                for i, dim in enumerate(dims):
                    found[statistic, dim] = (float(one.correlation[i]), one.values[i])
        for key, values in table.values.items():
            mean = float(values.mean())
            found[key] = (mean, (values if order is None else values[order]) - mean)
        return _Cell(test_set=number, by_endpoint=found)

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
        key = (endpoint.statistic, endpoint.dim)
        sign = -1.0 if endpoint.metric in self._turned else 1.0
        rows: list[Floats | None] = []
        sets: set[int] = set()
        lacking, disagreements = [], []
        contradicted: dict[int, str] = {}
        others = 0
        for i, (t, b) in enumerate(zip(treatment, baseline, strict=True)):
            found = [self._cell(c, endpoint.split) for c in (t, b)]
            others += sum(one is not None and key not in one.by_endpoint for one in found)
            first, second = found
            if first is None or second is None or key not in first.by_endpoint or key not in second.by_endpoint:
                lacking.append(seeds[i])
                rows.append(None)
                continue
            if first.test_set != second.test_set:
                lacking.append(seeds[i])
                rows.append(None)
                disagreements.append(self._difference(seeds[i], endpoint.split, first.test_set, second.test_set))
                continue
            parts = [one.by_endpoint[key] for one in (first, second)]
            for cell, (value, _), recorded in zip((t, b), parts, (scores[0][i], scores[1][i]), strict=True):
                if abs(sign * value - recorded) > MISMATCH * max(1.0, abs(recorded)):
                    text = f"{cell}: {endpoint} is recorded as {recorded:.4f}, its predictions give {sign * value:.4f}"
                    disagreements.append(text)
                    contradicted.setdefault(i, text)
            sets.add(first.test_set)
            rows.append(sign * (parts[0][1] - parts[1][1]))
        known = [r for r in rows if r is not None]
        if not known:
            if not seeds:
                return _nothing("there are no pairs")
            if others:
                return _nothing(f"no per-example values of {endpoint.statistic} are stored", disagreements)
            if disagreements:
                return _nothing("the two variants were evaluated on different test sets", disagreements)
            why = getattr(self._read, "unreachable", None) or "none were stored, or they are gone since"
            return _nothing(f"no per-example predictions can be read: {why}")
        if len(sets) > 1:
            return replace(
                _nothing("the seeds were evaluated on different test sets", disagreements), contradicted=contradicted
            )
        values = np.full((len(rows), known[0].size), np.nan)
        for i, row in enumerate(rows):
            if row is not None:
                values[i] = row
        plural = "seed" if len(lacking) == 1 else "seeds"
        missing = f"left out for want of predictions: {plural} {', '.join(map(str, lacking))}" if lacking else None
        number = sets.pop()
        return PairInfluence(
            values=values,
            missing=missing,
            test_set=number,
            clusters=self._sets[number].numbered,
            disagreements=tuple(disagreements),
            contradicted=contradicted,
        )

    def _difference(self, seed: int, split: str, first: int, second: int) -> str:
        """In what two test sets differ, with the names of examples that only one has."""
        t, b = self._sets[first], self._sets[second]
        where = f"seed {seed} on {split}: the two variants were not evaluated on the same examples"
        if t.ids is not None and b.ids is not None:
            parts = [
                f"only {side}: {', '.join(only[:3])}" + (f" and {len(only) - 3} more" if len(only) > 3 else "")
                for side, only in (
                    ("treatment", sorted(set(t.ids) - set(b.ids))),
                    ("baseline", sorted(set(b.ids) - set(t.ids))),
                )
                if only
            ]
            if parts:
                return f"{where} ({'; '.join(parts)})"
        if t.examples != b.examples:
            return f"{where} ({t.examples:,} and {b.examples:,})"
        return f"{where} (labels or clusters differ)"

    def predictions(self, cell: str, split: str) -> PredictionTable | None:
        """The predictions themselves, for the one pair of a study with one seed."""
        return self._read(cell, split)


def _same(labels: Floats | None, others: Floats | None, order: NDArray[np.intp] | None) -> bool:
    if labels is None or others is None:
        return labels is others
    return labels is others or np.array_equal(labels, others if order is None else others[order])


def _ordered(names: tuple[str, ...] | None, order: NDArray[np.intp] | None) -> tuple[str, ...] | None:
    return names if names is None or order is None else tuple(names[row] for row in order.tolist())


def _nothing(why: str, disagreements: Sequence[str] = ()) -> PairInfluence:
    return PairInfluence(
        values=None, missing=why, test_set=-1, clusters=None, disagreements=tuple(disagreements), contradicted={}
    )


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
    if labels is None or not _same(labels, tables[1].labels, None) or tables[0].ids != tables[1].ids or labels.size < 4:
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
