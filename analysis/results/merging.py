"""Several studies of the same variants as one: what differs between them (data, model, ...) becomes a setting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from analysis import schema
from analysis.errors import ResultsError
from analysis.results.model import CellRecord, PredictionTable, Problem, Results
from analysis.results.repeats import same_score
from analysis.showing import counted

if TYPE_CHECKING:
    import pandas as pd


def together(studies: Sequence[Results]) -> Results:
    """One set of results of all studies; a single study is returned as it is.

    A plan, baseline or search counts as declared where all studies declare the same.

    Raises:
        ResultsError: the studies compare different variants, or only some of them carry fingerprints.
    """
    first = studies[0]
    if len(studies) == 1:
        return first
    for other in studies[1:]:
        if _variants(other) != _variants(first):
            raise ResultsError(
                f"{first.study} compares {', '.join(sorted(_variants(first)))} and {other.study} "
                f"{', '.join(sorted(_variants(other)))}: studies taken together need the same variants"
            )
        if other.fingerprinted != first.fingerprinted:
            without = first.study if other.fingerprinted else other.study
            raise ResultsError(f"{without} carries no fingerprints and the other does: it cannot stand beside it")
    import pandas as pd

    problems = [replace(p, where=f"{study.study}: {p.where}") for study in studies for p in study.problems]
    owner: dict[str, int] = {}
    cells: list[CellRecord] = []
    tables: list[pd.DataFrame] = []
    for number, study in enumerate(studies):
        known = {cell for cell, holder in owner.items() if holder < number}
        new = [cell for cell in study.cells if cell.cell not in known]
        if len(new) < len(study.cells):
            again = len(study.cells) - len(new)
            are, count = ("is", "counts") if again == 1 else ("are", "count")
            text = f"{counted(again, 'cell')} {are} recorded in an earlier study too and {count} once"
            problems.append(Problem(where=study.study, reason=text))
        cells += new
        owner |= dict.fromkeys((cell.cell for cell in new), number)
        repeated = study.table[schema.COLUMN_CELL].isin(known)
        if repeated.any():
            different = _other_scores(study.table[repeated], pd.concat(tables))
            if len(different):
                row = different.iloc[0]
                endpoint = schema.Endpoint(row[schema.COLUMN_METRIC], int(row[schema.COLUMN_DIM]))
                text = (
                    f"other scores than an earlier study records of the same cells: {len(different)}, neither is used;"
                    f" the first: {row[schema.COLUMN_VARIANT]}, seed {row[schema.COLUMN_SEED]},"
                    f" setting {row[schema.COLUMN_SETTING]}, {endpoint}"
                )
                problems.append(Problem(where=study.study, reason=text))
            tables.append(different)
        tables.append(study.table[~repeated])
    declared: dict[str, Any] = {}
    for name in ("declared_plan", "declared_baseline", "search"):
        values = [getattr(study, name) for study in studies]
        declared[name] = values[0] if all(value == values[0] for value in values) else None
        if declared[name] is None and any(value is not None for value in values):
            text = f"the studies do not share one {name.replace('_', ' ')}: none counts"
            problems.append(Problem(where="studies taken together", reason=text))
    defaults = {study.default_primary for study in studies}
    return Results(
        study=" + ".join(dict.fromkeys(study.study for study in studies)),
        table=pd.concat(tables, ignore_index=True),
        cells=tuple(cells),
        problems=tuple(problems),
        fingerprinted=first.fingerprinted,
        default_primary=defaults.pop() if len(defaults) == 1 else (),
        predictions=_Predictions(studies=tuple(studies), owner=owner),
        variant_order=first.variant_order,
        history=tuple(
            replace(entry, detail={"study": study.study, **entry.detail})
            for study in studies
            for entry in study.history
        ),
        **declared,
    )


def _other_scores(table: pd.DataFrame, before: pd.DataFrame) -> pd.DataFrame:
    """Rows of a table whose cell has another score before; kept beside it, they are the conflict that they are."""
    key = [schema.COLUMN_CELL, schema.COLUMN_METRIC, schema.COLUMN_DIM]
    known: dict[Any, float] = dict(
        zip(before[key].itertuples(index=False, name=None), before[schema.COLUMN_VALUE], strict=True)
    )
    rows = zip(table[key].itertuples(index=False, name=None), table[schema.COLUMN_VALUE], strict=True)
    return table[[cell in known and not same_score(known[cell], value) for cell, value in rows]]


def _variants(results: Results) -> set[str]:
    return {cell.variant for cell in results.cells}


@dataclass(frozen=True, kw_only=True)
class _Predictions:
    """Asks the study that a cell is of."""

    studies: tuple[Results, ...]
    owner: dict[str, int]

    def __call__(self, cell: str, split: str) -> PredictionTable | None:
        return self.studies[self.owner[cell]].predictions(cell, split) if cell in self.owner else None

    @property
    def problems(self) -> list[Problem]:
        """What could not be read so far."""
        found: Iterable[Sequence[Problem]] = (getattr(s.predictions, "problems", ()) for s in self.studies)
        return [problem for problems in found for problem in problems]
