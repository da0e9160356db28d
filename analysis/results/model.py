"""What a set of recorded results is, once read: the hand-over from reading to the method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from analysis import schema
from analysis.showing import visible

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from analysis.plan import AnalysisPlan


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something that was not used, or that a reader must know; shown in the report, never swallowed."""

    where: str
    """Cell, run, file or line."""
    reason: str

    def __post_init__(self) -> None:
        _make_visible(self, "where", "reason")


@dataclass(frozen=True, kw_only=True)
class CellRecord:
    """One recorded cell."""

    cell: str
    variant: str
    seed: int
    setting: str
    """Label of the setting (derived from `fields` where there are any; see analysis.comparing.pairing)."""
    state: str
    """A state of analysis.schema; only `finished` cells carry scores."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Flat resolved spec."""
    variant_fields: tuple[str, ...] = ()
    """Flat fields that the variant declares: these may differ inside a pair."""
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    """Empty: unverified."""
    failure: str | None = None
    failure_kind: str | None = None
    run_id: str | None = None
    times: Mapping[str, float] = field(default_factory=dict)
    """Seconds, such as `train_s`."""
    notes: tuple[str, ...] = ()
    """What its training had to say about itself."""

    def __post_init__(self) -> None:
        _make_visible(self, "variant", "setting", "failure")


@dataclass(frozen=True, kw_only=True)
class PredictionTable:
    """Per-example results of one cell on one test set."""

    labels: np.ndarray[Any, np.dtype[np.float64]] | None = None
    """(examples,); None where a metric is the mean of `values` instead of a correlation with labels."""
    by_dim: Mapping[int, np.ndarray[Any, np.dtype[np.float64]]] = field(default_factory=dict)
    """Predicted similarities: dim -> (examples,)"""
    values: Mapping[tuple[str, int], np.ndarray[Any, np.dtype[np.float64]]] = field(default_factory=dict)
    """(statistic, dim), such as ("ndcg_at_10", 256) -> each example's value, (examples,); the score is their mean."""
    ids: tuple[str, ...] | None = None
    """Name of each example, unique; None: examples are told apart by their order."""
    clusters: tuple[str, ...] | None = None
    """Cluster of each example; None: they are independent."""

    @property
    def examples(self) -> int:
        """How many there are."""
        columns = [*self.values.values(), *self.by_dim.values(), *([] if self.labels is None else [self.labels])]
        return len(columns[0]) if columns else 0

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        columns = [*self.values.values(), *self.by_dim.values(), *([] if self.labels is None else [self.labels])]
        texts = sum(len(names) for names in (self.ids, self.clusters) if names is not None)
        return sum(column.nbytes for column in columns) + 64 * texts


@dataclass(frozen=True, kw_only=True)
class HistoryEntry:
    """A change of the seed list (`kind` = seeds) or a report made (`kind` = report)."""

    kind: str
    time: str
    detail: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything recorded about a study that an analysis may use."""

    study: str
    table: pd.DataFrame
    """analysis.schema.RESULT_COLUMNS, one row per finished cell x metric x dim."""
    cells: tuple[CellRecord, ...]
    """All cells, finished or not, in the order of recording."""
    problems: tuple[Problem, ...] = ()
    fingerprinted: bool = True
    """False for a plain CSV: pairs go by seed number and the report says so on top."""
    predictions: Callable[[str, str], PredictionTable | None] = lambda cell, split: None
    """(cell key, split) -> predictions; None where none are stored."""
    declared_plan: AnalysisPlan | None = None
    """The plan recorded at the study's first run."""
    default_primary: tuple[str, ...] = ()
    """What the study said would be primary where the plan names none; empty where it could not know."""
    declared_baseline: str | None = None
    variant_order: tuple[str, ...] = ()
    metric_order: tuple[str, ...] = ()
    """Metrics as whoever asked for them named them: the first is primary by default."""
    history: tuple[HistoryEntry, ...] = ()
    turned: tuple[str, ...] = ()
    """Metrics of which less is better: their scores stand in the table with the other sign."""
    warnings: tuple[str, ...] = ()
    """What a reader must know before the numbers, one sentence each."""
    search: Mapping[str, Any] | None = None
    """Provenance of a search whose chosen settings this study uses: split, seeds and budget per variant."""

    def __repr__(self) -> str:
        finished = self.table[schema.COLUMN_CELL].nunique() if schema.COLUMN_CELL in self.table else len(self.cells)
        return (
            f"<Results {self.study}: {finished} finished of {len(self.cells)} cells>\n"
            f"  variants: {', '.join(self.variant_order) or 'none'}; problems: {len(self.problems)}\n"
            "  .table scores, .cells, .problems, .warnings, .declared_plan; analysis.compare(this) compares"
        )

    def __post_init__(self) -> None:
        _make_visible(self, "study", "declared_baseline")
        object.__setattr__(self, "variant_order", tuple(visible(name) for name in self.variant_order))
        for column in (schema.COLUMN_VARIANT, schema.COLUMN_SETTING):
            hidden = {label: shown for label in self.table[column].unique() if (shown := visible(label)) != label}
            if hidden:
                object.__setattr__(self, "table", self.table.assign(**{column: self.table[column].replace(hidden)}))


def _make_visible(record: object, *names: str) -> None:
    """Labels come from anywhere, and are shown everywhere: whatever could move or hide text is written out once."""
    for name in names:
        text = getattr(record, name)
        if isinstance(text, str):
            object.__setattr__(record, name, visible(text))
