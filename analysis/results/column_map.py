"""What the columns of a table are: as somebody says it in the options of a report, and found in the table at hand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from analysis import schema
from analysis.errors import ResultsError
from analysis.results.delimited import RawTable
from analysis.results.fields import whole_number
from analysis.results.layouts import Layout, find_column

_SPLIT = re.compile(r"(user_attrs_|userattribute )?(test|eval|validation|val)/")
SHOWN_NAMES = 30


@dataclass(frozen=True, kw_only=True)
class ColumnMap:
    """Names as given; a column may be named in any case and without the prefix of the tool that wrote it."""

    variant: str | None = None
    """Column that tells the compared variants apart."""
    seed: str | None = None
    """Column of the seeds: whole numbers."""
    settings: tuple[str, ...] = ()
    """Columns that together say the setting."""
    metrics: tuple[str, ...] = ()
    """Columns of scores, or, in a table with a column `metric`, its values; empty: those that are named like scores."""
    dim: str | None = None
    """Column of the dims, or a pattern with one group that takes the dim out of a metric's name."""
    average_over: tuple[str, ...] = ()
    """Columns whose rows are repeats inside a seed, to be averaged."""

    def __bool__(self) -> bool:
        """Whether anything was said."""
        return any((self.variant, self.seed, self.settings, self.metrics, self.dim, self.average_over))


@dataclass(frozen=True, kw_only=True)
class ScoreName:
    """What the scores of one column are of; the row says what the column's name does not."""

    metric: str | None
    """None: the row's column `metric` says it."""
    dim_column: str | None = None
    dim_pattern: re.Pattern[str] | None = None

    def of(self, row: Mapping[str, str]) -> schema.Endpoint | None:
        """The endpoint of a row's score; None where its dim is no whole number from 1."""
        metric = self.metric if self.metric is not None else written(row[schema.COLUMN_METRIC])
        if self.dim_column is None:
            return self.of_name(metric)
        size = whole_number(row[self.dim_column]) or 0
        return schema.Endpoint(metric, size) if size >= 1 else None

    def of_name(self, metric: str) -> schema.Endpoint:
        """The endpoint of a metric whose name may hold the dim: `spearman@256` with the pattern `@(\\d+)`."""
        found = None if self.dim_pattern is None else self.dim_pattern.search(metric)
        size = None if found is None else whole_number(found[1] or "")
        if found is None or size is None or size < 1:
            return schema.endpoint_named(metric)
        return schema.Endpoint((metric[: found.start()] + metric[found.end() :]).strip("_-/@.") or metric, size)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Where a table says what; names of columns in lower case."""

    variant: str
    seed: str
    settings: tuple[str, ...] = ()
    scores: Mapping[str, ScoreName]
    """Column of scores -> what they are of."""
    only_metrics: frozenset[str] = frozenset()
    """In a table with a column `metric`: those that count; empty: all."""
    average_over: tuple[str, ...] = ()
    metric_order: tuple[str, ...] = ()
    """Metrics as they were asked for, as `schema.Endpoint` names them."""

    def label(self, row: Mapping[str, str], layout: Layout) -> str:
        """The setting of a row as text: `lr=2e-5,batch_size=32`; a column called `setting` speaks for itself."""
        if len(self.settings) == 1 and layout.bare(self.settings[0]) == schema.COLUMN_SETTING:
            return row[self.settings[0]]
        return ",".join(f"{layout.bare(name)}={row[name] or 'none'}" for name in self.settings)

    @property
    def read(self) -> frozenset[str]:
        """All columns that say something."""
        long = {schema.COLUMN_METRIC} if any(name.metric is None for name in self.scores.values()) else set()
        dims = {name.dim_column for name in self.scores.values() if name.dim_column is not None}
        return frozenset({self.variant, self.seed, *self.settings, *self.scores, *self.average_over, *long, *dims})


def find_columns(raw: RawTable, layout: Layout, asked: ColumnMap) -> Columns:
    """The columns that somebody named, in this table.

    Raises:
        ResultsError: variant or seed are not named, a name is not there, or there are no scores.
    """
    if asked.variant is None or asked.seed is None:
        raise ResultsError(f"{raw.path}: --variant COLUMN and --seed COLUMN are needed, both")
    variant, seed = _column(raw, layout, "variant", asked.variant), _column(raw, layout, "seed", asked.seed)
    settings = tuple(dict.fromkeys(_column(raw, layout, "setting", text) for text in asked.settings))
    over = tuple(dict.fromkeys(_column(raw, layout, "average-over", text) for text in asked.average_over))
    taken = (variant, seed, *settings, *over)
    twice = next((name for name in taken if taken.count(name) > 1), None)
    if twice is not None:
        raise ResultsError(
            f"{raw.path}: column {twice!r} is named twice; a column says one thing: variant, seed, setting or repeats"
        )
    dim = None if asked.dim is None else find_column(raw, layout, asked.dim)
    pattern = None if asked.dim is None or dim is not None else _pattern(raw, asked.dim)
    form = ScoreName(metric=None, dim_column=dim, dim_pattern=pattern)
    if is_long(raw) and not any(find_column(raw, layout, name) for name in asked.metrics):
        wanted = dict.fromkeys(written(name) for name in asked.metrics)
        known = dict.fromkeys(written(row[schema.COLUMN_METRIC]) for _, row in raw.rows)
        lacking = next((name for name in wanted if name not in known), None)
        if lacking is not None:
            raise ResultsError(f"{raw.path}: --metric {lacking}: not in column 'metric'; found {some(known)}")
        scores, only, names = {schema.COLUMN_VALUE: form}, frozenset(wanted), list(wanted)
    else:
        columns = dict.fromkeys(_score_column(raw, layout, name) for name in asked.metrics)
        columns = columns or dict.fromkeys(named_like_scores(raw, layout, taken))
        if not columns:
            raise ResultsError(f"{raw.path}: no column is named like a score; say which with --metric COLUMN")
        both = next((name for name in columns if name in taken), None)
        if both is not None:
            raise ResultsError(f"{raw.path}: column {both!r} cannot be a metric and also variant, seed or setting")
        original = dict(zip(raw.header, raw.original, strict=True))
        names = [written(_bare_metric(original[column], layout)) for column in columns]
        scores = {
            column: ScoreName(metric=name, dim_column=dim, dim_pattern=pattern)
            for column, name in zip(columns, names, strict=True)
        }
        only = frozenset()
    asked_order = [name if dim is not None else form.of_name(name).metric for name in names] if asked.metrics else []
    return Columns(
        variant=variant,
        seed=seed,
        settings=settings,
        scores=scores,
        only_metrics=only,
        average_over=over,
        metric_order=tuple(dict.fromkeys(asked_order)),
    )


def is_long(raw: RawTable) -> bool:
    """Whether scores stand in a column `value` and what they are of in a column `metric`."""
    return {schema.COLUMN_METRIC, schema.COLUMN_VALUE} <= set(raw.header)


def named_like_scores(raw: RawTable, layout: Layout, taken: Sequence[str] = ()) -> list[str]:
    """Columns whose names alone say that they hold scores: `metrics.accuracy`, `test/spearman_512`."""
    no_scores = (*schema.NOT_ENDPOINT_PREFIXES, "system/")
    return [
        name
        for name in raw.header
        if (name.startswith("metrics.") or _SPLIT.match(name))
        and layout.may_be_score(name)
        and name not in taken
        and not layout.bare(name).startswith(no_scores)
    ]


def written(metric: str) -> str:
    """A metric's name without blanks, as endpoints are written."""
    return re.sub(r"\s+", "_", metric)


def some(names: Iterable[str]) -> str:
    """Names for a message, not more than a reader can use."""
    known = [name for name in names if name]
    more = f" and {len(known) - SHOWN_NAMES} more" if len(known) > SHOWN_NAMES else ""
    return ", ".join(known[:SHOWN_NAMES]) + more


def _column(raw: RawTable, layout: Layout, option: str, text: str) -> str:
    found = find_column(raw, layout, text)
    if found is None:
        raise ResultsError(f"{raw.path}: --{option} {text}: there is no such column; found {some(raw.original)}")
    return found


def _score_column(raw: RawTable, layout: Layout, text: str) -> str:
    """The column of a metric: where a param has the same name, the score is meant."""
    scored = next((p + text.lower() for p in layout.metrics if p + text.lower() in raw.header), None)
    return scored or _column(raw, layout, "metric", text)


def _bare_metric(name: str, layout: Layout) -> str:
    prefix = next((p for p in layout.metrics if p.endswith((".", "_", " ")) and name.lower().startswith(p)), "")
    return name[len(prefix) :]


def _pattern(raw: RawTable, text: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise ResultsError(f"{raw.path}: --dim {text}: neither a column nor a pattern: {error}") from None
    if pattern.groups != 1:
        raise ResultsError(
            f"{raw.path}: --dim {text}: there is no such column, and a pattern needs one group for the number, such as"
            r" '_(\d+)$'"
        )
    return pattern
