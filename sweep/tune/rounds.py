"""The searches of all variants in lockstep, round by round: propose, train what the round needs, store what came out.

A trial is one training per tuning seed; its value is their mean score. Trials are cells of kind `search`, run and
recorded like all others, so a killed search loses no finished training. Knows neither Ray nor MLflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from analysis import schema
from sweep.errors import StudyError
from sweep.record.ledger import CellStatus, RecordedRun, reconcile
from sweep.study.cells import Cell, cell_key
from sweep.study.search_block import Point, SearchBlock, search_endpoint
from sweep.tune.optuna import Tried, propose

if TYPE_CHECKING:
    from sweep.study import Study
    from sweep.tune.optuna import VariantSearch


class SearchRounds:
    """The searches of all variants of one study, as a `CellSource`: which cells are needed next, until none are."""

    def __init__(
        self,
        study: Study,
        search: SearchBlock,
        *,
        base: Mapping[str, Cell],
        states: Mapping[str, VariantSearch],
        recorded: Callable[[], Sequence[RecordedRun]],
        say: Callable[[str], None],
    ) -> None:
        """Prepare.

        Args:
            study: Declares the search.
            search: Its search block.
            base: Variant -> one of its cells, for its digests and the spec that a point is laid over.
            states: Variant -> its stored trials.
            recorded: Asks which search trials are recorded.
            say: Gets one line for each trial that ended.
        """
        self.study, self._search, self._base, self._states = study, search, base, states
        self._recorded, self._say = recorded, say
        self._endpoint = search_endpoint(search, study.common_dims)
        self._given_out: set[str] = set()

    def next_cells(self) -> list[Cell]:
        """The cells that are needed next; nothing when all trials have ended, or when one could not be trained.

        Raises:
            StudyError: the endpoint is not among what a finished cell recorded.
        """
        for first in range(0, self._search.trials, self._search.parallel):
            numbers = range(first, min(first + self._search.parallel, self._search.trials))
            unfinished = self._round(numbers)
            if unfinished is None:
                continue
            # A cell that comes back unfinished was given up by the runner: the next command tries it again.
            new = [cell for cell in unfinished if cell.key not in self._given_out]
            self._given_out.update(cell.key for cell in new)
            return new
        return []

    def to_come(self) -> tuple[int, int]:
        """Trainings of the whole budget, and those of trials that have not begun."""
        seeds, budget = len(self._search.seeds), self._search.trials
        begun = sum(min(budget, len(state.trials())) for state in self._states.values())
        return budget * seeds * len(self._states), (budget * len(self._states) - begun) * seeds

    def trials(self) -> dict[str, list[Tried]]:
        """Variant -> its trials by number, at most the budget."""
        return {variant: state.trials()[: self._search.trials] for variant, state in self._states.items()}

    @property
    def complete(self) -> bool:
        """Whether every variant has used its whole budget."""
        return all(
            len(trials) == self._search.trials and all(trial.state != "running" for trial in trials)
            for trials in self.trials().values()
        )

    def _round(self, numbers: range) -> list[Cell] | None:
        """Open trials, end those whose cells have ended; the cells still waited for, None when the round is over."""
        waiting: list[Cell] = []
        opened = [
            (variant, trial) for number in numbers for variant in self._states if (trial := self._open(variant, number))
        ]
        if not opened:
            return None
        recorded = list(self._recorded())
        scores = {run.key: run.metrics for run in recorded if run.status == "FINISHED"}
        for variant, trial in opened:
            cells = [self._cell(variant, trial.number, trial.point, seed) for seed in self._search.seeds]
            statuses = reconcile(cells, recorded)
            if not self._finish(variant, trial, statuses, scores):
                waiting += [status.cell for status in statuses if _unfinished(status)]
        return waiting or None

    def _open(self, variant: str, number: int) -> Tried | None:
        """The trial of that number if it has no result yet: begun now, or found as a killed search left it."""
        state = self._states[variant]
        trials = state.trials()
        if number < len(trials):
            return trials[number] if trials[number].state == "running" else None
        point = propose(self._search, trials, number)
        state.begin(number, point)
        return Tried(number=number, point=point, state="running")

    def _cell(self, variant: str, number: int, point: Point, seed: int) -> Cell:
        base = self._base[variant]
        spec = base.spec.model_copy(update={"seed": seed, "training": {**base.spec.training, **point}})
        return Cell(
            key=cell_key(spec, base.digests),
            spec_key=cell_key(spec, {}),
            spec=spec,
            variant=variant,
            seed=seed,
            setting=trial_label(number, self._search.trials),
            variant_fields=base.variant_fields,
            digests=base.digests,
            unresolved=base.unresolved,
            kind=schema.KIND_SEARCH,
        )

    def _finish(
        self,
        variant: str,
        trial: Tried,
        statuses: Sequence[CellStatus],
        scores: Mapping[str, Mapping[str, float]],
    ) -> bool:
        """Store what came out; False while a cell of the trial has neither finished nor failed by itself."""
        head = f"{variant} {trial_label(trial.number, self._search.trials)} ({shown(trial.point)})"
        failed = [status for status in statuses if _failed_by_itself(status)]
        if any(_unfinished(status) for status in statuses):
            return False
        if failed:
            self._states[variant].finish(trial.number, None)
            self._say(f"{head}: FAILED, {failed[0].reason}")
            return True
        values = [self._score(scores[status.cell.key]) for status in statuses]
        value = math.fsum(values) / len(values)
        self._states[variant].finish(trial.number, value)
        self._say(f"{head}: {self._endpoint} {value:.4f}")
        return True

    def _score(self, metrics: Mapping[str, float]) -> float:
        if self._endpoint in metrics:
            return metrics[self._endpoint]
        known = sorted(name for name in metrics if name.startswith(("validation/", "test/")) and "_by_dim" not in name)
        split = self._endpoint.partition("/")[0]
        allowed = f"of {split}, all that this search sees, the trainable records {', '.join(known) or 'no score'}"
        raise StudyError(file=str(self.study.path), field="search.endpoint", value=self._endpoint, allowed=allowed)


def _failed_by_itself(status: CellStatus) -> bool:
    return status.state == schema.STATE_FAILED and status.failure_kind == schema.FAILURE_CELL


def _unfinished(status: CellStatus) -> bool:
    return status.state != schema.STATE_FINISHED and not _failed_by_itself(status)


def trial_label(number: int, trials: int) -> str:
    """`trial-03`: numbers start at 0 and are as wide as the budget's last."""
    return f"trial-{number:0{len(str(trials - 1))}d}"


def shown(point: Point) -> str:
    """`learning_rate=2e-05, batch_size=16`."""
    return ", ".join(f"{name}={value}" for name, value in point.items())
