"""Tables of other tools: what is taken for variant, seed, setting and scores where nobody says it."""

from __future__ import annotations

from analysis import schema
from analysis.errors import ResultsError
from analysis.results.column_map import Columns, ScoreName, named_like_scores
from analysis.results.delimited import RawTable
from analysis.results.fields import same_number
from analysis.results.layouts import MLFLOW, OPTUNA, Layout
from analysis.results.mapped import Mapped, mapped_rows
from analysis.results.model import Problem
from analysis.results.proposal import proposal

SEARCHED = "trials of a search: if it chose settings by these same scores, the comparison is exploratory"
_NAMES = {
    MLFLOW.title: ("params.{}", "tags.sweep.{}", "tags.{}"),
    OPTUNA.title: ("user_attrs_{}", "params_{}"),
}


def rows_of_tool(raw: RawTable, layout: Layout) -> Mapped:
    """Scores of a tool's table that calls its columns `variant` and `seed` and its scores as a study file does.

    Raises:
        ResultsError: it does not, and what to write instead; or as in `mapped_rows`.
    """
    forms = _NAMES.get(layout.title, ("{}",))
    named = {name: _first(raw, forms, name) for name in ("variant", "seed", "setting")}
    for name in ("variant", "seed"):
        if named[name] is None:
            raise ResultsError(
                f"{raw.path}: looks like {layout.title}, but no column is called {name}; {proposal(raw, layout)}"
            )
    scores = {}
    for column in named_like_scores(raw, layout):
        original = raw.original[raw.header.index(column)]
        bare = next((original[len(p) :] for p in layout.metrics if column.startswith(p)), original)
        try:
            endpoint = schema.parse_endpoint(bare)
        except ValueError:
            continue  # a parameter, a curve over dims, or a metric that is no endpoint
        scores[column] = ScoreName(metric=str(endpoint))
    if not scores:
        raise ResultsError(
            f"{raw.path}: looks like {layout.title}, but no score is named like test/spearman_256;"
            f" {proposal(raw, layout)}"
        )
    kind = f"tags.{schema.TAG_KIND}"
    lines = tuple((at, row) for at, row in raw.rows if row.get(kind, "") in ("", schema.KIND_CELL))
    columns = Columns(
        variant=str(named["variant"]),
        seed=str(named["seed"]),
        settings=() if named["setting"] is None else (str(named["setting"]),),
        scores=scores,
    )
    found = mapped_rows(raw.with_rows(lines), layout, columns)
    return with_search(raw, layout, found)


def with_search(raw: RawTable, layout: Layout, found: Mapped) -> Mapped:
    """What was found, with a word on where trials of a search come from."""
    if layout.noun != "trials":
        return found
    found.problems.append(Problem(where=raw.path.name, reason=SEARCHED))
    return found


def _first(raw: RawTable, forms: tuple[str, ...], name: str) -> str | None:
    return next((form.format(name) for form in forms if form.format(name) in raw.header), None)


SETTING_WORDS = ("lr", "learning_rate", "batch_size", "epochs", "max_steps", "weight_decay", "warmup_ratio")
"""Columns by which tables of any tool say how a variant was trained."""


def settings_by_variant(raw: RawTable, layout: Layout, variant: str | None = None) -> tuple[str, ...]:
    """A sentence per column whose values differ between variants, though each variant has one: is it what is compared?

    Two variants and a column lr, 2e-5 in a and 3e-5 in b, give `lr differs between variants (a: 2e-5; b: 3e-5): ...`.

    Args:
        raw: The table.
        layout: Whose it is.
        variant: Column of the variants; None: the one that is called so, else the first.
    """
    called = [n for n in raw.header if layout.bare(n) == schema.COLUMN_VARIANT or n.endswith((".variant", "_variant"))]
    variant = variant or (called[0] if called else raw.header[0])
    out = []
    for name in raw.header:
        if layout.bare(name) not in SETTING_WORDS or name == variant:
            continue
        by_variant: dict[str, dict[str, str]] = {}
        for _, row in raw.rows:
            if row[variant] and row[name]:
                by_variant.setdefault(row[variant], {}).setdefault(same_number(row[name]), row[name])
        alike = {tuple(sorted(values)) for values in by_variant.values()}
        if len(by_variant) > 1 and len(alike) > 1 and all(len(values) == 1 for values in by_variant.values()):
            shown = "; ".join(f"{one}: {next(iter(values.values()))}" for one, values in by_variant.items())
            out.append(
                f"{name} differs between variants ({shown}): if that is not what they are compared for, the"
                " difference is not theirs."
            )
    return tuple(out)
