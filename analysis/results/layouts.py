"""Tables that other tools write: which tool's a table is, and what its columns can hold.

Recognised by their columns alone: `mlflow.search_runs(...).to_csv`, the CSV of MLflow's page of runs, the CSV of W&B's
table of runs, Optuna's `trials_dataframe().to_csv` and the CSV of its dashboard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.errors import ResultsError
from analysis.results.delimited import RawTable
from analysis.results.fields import FINISHED_STATES, STATE_COLUMNS


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What a tool's table looks like; names of columns in lower case."""

    title: str
    """Whose table it is, as a message says it."""
    noun: str = "rows"
    """What a row is."""
    params: tuple[str, ...] = ()
    """Prefixes of columns that say how a run was made; empty: any column may."""
    metrics: tuple[str, ...] = ()
    """Prefixes of columns that hold scores; empty: any column may."""
    bookkeeping: frozenset[str] = frozenset()
    """Columns that are neither."""
    states: tuple[str, ...] = STATE_COLUMNS
    """Columns that say how a run ended; the first that is there counts."""
    finished: frozenset[str] = FINISHED_STATES
    """States of runs that count, in lower case."""
    must_say_state: bool = False
    """Without such a column the table is refused."""
    run: str | None = None
    """Column that names the run: one run is one cell."""

    @property
    def prefixes(self) -> tuple[str, ...]:
        """All prefixes, the longest first."""
        return tuple(sorted({*self.params, *self.metrics}, key=lambda prefix: -len(prefix)))

    def bare(self, name: str) -> str:
        """A column's name without the tool's prefix: `loss` of `params.loss`."""
        lower = name.lower()
        return next((name[len(prefix) :] for prefix in self.prefixes if lower.startswith(prefix)), name)

    def may_say_how(self, name: str) -> bool:
        """Whether a column (in lower case) can say how a run was made."""
        return name not in self.bookkeeping and (not self.params or name.startswith(self.params))

    def may_be_score(self, name: str) -> bool:
        """Whether a column (in lower case) can hold scores."""
        return name not in self.bookkeeping and (not self.metrics or name.startswith(self.metrics))

    def state_column(self, raw: RawTable) -> str | None:
        """The column that says how a run ended; None where there is none.

        Raises:
            ResultsError: there is none, and this tool's table has one.
        """
        found = next((name for name in self.states if name in raw.header), None)
        if found is None and self.must_say_state:
            raise ResultsError(
                f"{raw.path}: column {self.states[0]!r} is missing, so finished {self.noun} cannot be told apart"
            )
        return found


PLAIN = Layout(title="a table")
MLFLOW = Layout(
    title="MLflow's table of runs",
    noun="runs",
    params=("params.", "tags."),
    metrics=("metrics.",),
    states=("status",),
    finished=frozenset({"finished"}),
    must_say_state=True,
    run="run_id",
)
MLFLOW_PAGE = Layout(
    title="the CSV of MLflow's page of runs",
    noun="runs",
    bookkeeping=frozenset(
        {"start time", "duration", "run id", "name", "source type", "source name", "user", "status"}
        | {"dataset", "created", "models", "source", "version", "description"}
    ),
    states=("status",),
    finished=frozenset({"finished"}),
    must_say_state=True,
    run="run id",
)
OPTUNA = Layout(
    title="Optuna's table of trials",
    noun="trials",
    params=("params_", "user_attrs_"),
    metrics=("user_attrs_", "value"),
    bookkeeping=frozenset({"number", "state", "datetime_start", "datetime_complete", "duration"}),
    states=("state",),
    finished=frozenset({"complete"}),
    must_say_state=True,
)
OPTUNA_DASHBOARD = Layout(
    title="the CSV of Optuna's dashboard",
    noun="trials",
    params=("param ", "userattribute "),
    bookkeeping=frozenset({"number", "state"}),
    states=("state",),
    finished=frozenset({"complete"}),
    must_say_state=True,
)
WANDB = Layout(
    title="W&B's table of runs",
    noun="runs",
    bookkeeping=frozenset(
        {"name", "state", "notes", "user", "tags", "created", "runtime", "sweep", "id", "group", "job type"}
        | {"updated", "end time", "commit", "github", "hostname", "host", "jobtype", "description", "agent"}
        | {"_runtime", "_step", "_timestamp", "_wandb.runtime", "_wandb", "projectid", "gpu count", "gpu type"}
        | {"linked artifacts", "logged artifacts", "command", "directory", "python version", "os version", "username"}
    ),
    states=("state",),
    finished=frozenset({"finished"}),
)


def layout_of(raw: RawTable) -> Layout:
    """Whose table this is; `PLAIN` where no tool's columns are recognised.

    Raises:
        ResultsError: the export of one of W&B's charts, which has no runs.
    """
    header = set(raw.header)
    _refuse_charts(raw)
    if "run_id" in header and any(name.startswith(("metrics.", "params.", "tags.")) for name in header):
        return MLFLOW
    if {"run id", "start time", "status"} <= header:
        return MLFLOW_PAGE
    if {"number", "state"} <= header and any(name.startswith(("user_attrs_", "params_")) for name in header):
        return OPTUNA
    if {"number", "state"} <= header and any(name.startswith(OPTUNA_DASHBOARD.params) for name in header):
        return OPTUNA_DASHBOARD
    if {"name", "state"} <= header and header & {"runtime", "created", "notes", "sweep", "_wandb", "_runtime"}:
        return WANDB
    return PLAIN


def _refuse_charts(raw: RawTable) -> None:
    """W&B's charts: every line a curve, of one run or of a group's mean, with its lowest and highest beside it."""
    ranges = [name for name in raw.original if name.lower().endswith(("__min", "__max"))]
    if ranges:
        raise ResultsError(
            f"{raw.path}: this is the export of a W&B chart (column {ranges[0]!r}): a grouped line is the mean of"
            " several runs with their lowest and highest value, and no seed can be taken out of it again; export the"
            " table of runs instead (Runs, ungrouped, Export to CSV)"
        )


def values_of(raw: RawTable, name: str) -> Sequence[str]:
    """A column's fields that are not empty, as written."""
    return [row[name] for _, row in raw.rows if row[name]]


def find_column(raw: RawTable, layout: Layout, text: str) -> str | None:
    """The column (in lower case) that somebody means: in any case, with or without the tool's prefix."""
    lower = text.lower()
    if lower in raw.header:
        return lower
    bare: dict[str, list[str]] = {}
    for name in raw.header:
        bare.setdefault(layout.bare(name), []).append(name)
    found = bare.get(lower, [])
    if len(found) == 1:
        return found[0]
    # `params.loss` and `metrics.loss`: how a run was made comes first.
    return next((name for prefix in layout.params for name in found if name.startswith(prefix)), None)
