"""Sequential studies: seeds are added until every comparison is decided or the limit is reached.

Where a study stands and how many seeds come next is worked out here; analysis.comparing.stopping has the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from analysis import schema
from analysis.revisions import content_of
from sweep.errors import TrackingError
from sweep.record.study_run import note_seeds
from sweep.record.tracking import Tracking
from sweep.run.preflight import resolved_cells
from sweep.study import Study
from sweep.study.cells import Cell

if TYPE_CHECKING:
    from analysis.results.model import CellRecord, Results
    from analysis.statistics.sequential import SequentialDecision, StreamState
    from sweep.record.ledger import RecordedRun


@dataclass(frozen=True, kw_only=True)
class SequentialState:
    """Where a sequential study stands."""

    decision: SequentialDecision
    seeds: tuple[int, ...]
    """The leading seeds that the decision rests on."""
    beyond: tuple[int, ...]
    """Seeds that are recorded too but came after the decision to stop."""
    missing: tuple[int, ...]
    """Seeds with a cell that has neither finished nor failed by itself."""


class SequentialStudy:
    """The seeds of one sequential study: which cells are needed next, until it stops (see `CellSource`)."""

    def __init__(
        self, study: Study, tracking: Tracking, *, slots: Callable[[], int], say: Callable[[str], None]
    ) -> None:
        """Prepare.

        Args:
            study: As its file has it.
            tracking: The store.
            slots: How many cells can run at once.
            say: Gets a line whenever seeds are added.
        """
        self._tracking, self._slots, self._say = tracking, slots, say
        recorded = tracking.recorded_runs(study.name)
        self.study, self._cells, self.state = state_now(study, tracking, recorded, resolved_cells)
        self._began = False

    def next_cells(self) -> list[Cell]:
        """The cells that are needed next: first those of all seeds so far, then those of each seed that is added."""
        self.state = sequential_state(self.study, self._cells, recorded_results(self.study.name, self._tracking))
        first, self._began = not self._began, True
        if not self.state.decision.states:
            return list(self._cells) if first else []  # one variant: nothing to decide
        if self.state.decision.stop:
            decided = set(self.state.seeds)
            return [cell for cell in self._cells if cell.seed in decided] if first else []
        if self.state.missing:
            return list(self._cells) if first else []  # what comes back unfinished was given up by the runner
        added = self._add_seeds()
        return list(self._cells) if first else [cell for cell in self._cells if cell.seed in added]

    def to_come(self) -> None:
        """Nobody knows when it is decided."""

    def _add_seeds(self) -> set[int]:
        decision, seeds = self.state.decision, self.study.seeds
        count = seeds_to_add(
            decision,
            run=len(seeds),
            slots=self._slots(),
            cells_per_seed=len(self.study.specs),
            limit=self.study.analysis.max_seeds,
        )
        added = seeds_after(self.study, seeds, count)
        self._say(f"{decision.why}; adding seed {', '.join(map(str, added))}")
        self.study = self.study.with_seeds((*seeds, *added))
        run = self._tracking.study_run(self.study.name)
        if run is not None:
            note_seeds(self._tracking, run, self.study.seeds)
        self._cells = resolved_cells(self.study)
        return set(added)


def state_now(
    study: Study, tracking: Tracking, recorded: Iterable[RecordedRun], resolve: Callable[[Study], list[Cell]]
) -> tuple[Study, list[Cell], SequentialState]:
    """The study with the seeds added since, its cells, and where it stands.

    Args:
        study: As its file has it.
        tracking: The store.
        recorded: The runs of its cells.
        resolve: Makes its cells.
    """
    cells = resolve(study)
    meant = {(cell.variant, cell.setting): cell.content for cell in cells}.values()
    trained = [(run.label[1], content_of(run.tags)) for run in recorded if run.label[1].isdigit()]
    seeds = {int(seed) for seed, content in trained if any(one.fits(content) for one in meant)}
    so_far = seeds_so_far(study, seeds)
    if so_far != tuple(study.seeds):
        study = study.with_seeds(so_far)
        cells = resolve(study)
    return study, cells, sequential_state(study, cells, recorded_results(study.name, tracking))


def recorded_results(name: str, tracking: Tracking) -> Results:
    """What is recorded of a study; nothing where it has not run.

    Raises:
        TrackingError: the store cannot be read.
    """
    from analysis.errors import ResultsError
    from analysis.results.mlflow_study import MlflowStudy
    from analysis.results.model import Results

    if tracking.study_run(name) is None:
        import pandas as pd

        return Results(study=name, table=pd.DataFrame(columns=list(schema.RESULT_COLUMNS)), cells=())
    try:
        return MlflowStudy(name, tracking.uri).results(every_revision=True)
    except ResultsError as error:
        raise TrackingError(str(error)) from error


def state_lines(study: Study, state: SequentialState) -> list[str]:
    """Where a sequential study stands, for people: E against its threshold, and what it would still take."""
    decision = state.decision
    lines = [_stream_line(stream) for stream in decision.states]
    if decision.stop:
        lines.append(f"stopped: {decision.why}")
    elif state.missing:
        lines.append(f"{decision.why}; seed {', '.join(map(str, state.missing))} not finished")
    else:
        lines.append(decision.why)
    if not decision.stop:
        lines.append(_outlook(study, state))
    if state.beyond:
        beyond = ", ".join(map(str, state.beyond))
        lines.append(f"seed {beyond} was trained at the same time and is not needed for the decision")
    return lines


def _stream_line(stream: StreamState) -> str:
    line = (
        f"{stream.treatment}, {stream.endpoint}: {stream.wins} wins, {stream.losses} losses"
        + (f", {stream.ties} ties" if stream.ties else "")
        + f"; E = {stream.e_value:.3g} of {stream.e_threshold:g}"
    )
    if stream.e_lower is not None and stream.e_upper is not None:
        line += f"; equivalence E = {min(stream.e_lower, stream.e_upper):.3g} of {stream.equivalence_threshold:g}"
    return line + (f" ({stream.decided})" if stream.decided else "")


def _outlook(study: Study, state: SequentialState) -> str:
    to_go, limit = state.decision.seeds_to_go, study.analysis.max_seeds
    from analysis.statistics.sequential import fewest_more

    least = fewest_more(state.decision)
    if not any(stream.wins or stream.losses for stream in state.decision.states):
        text = f"at least {_seeds(least)} are needed"
    elif to_go is None:
        text = f"at the win rate so far it would never be decided; at least {_seeds(least)} more are needed"
    else:
        text = f"{_seeds(to_go)} more would decide it if the win rate so far went on"
    return text if limit is None else f"{text}; the limit is {limit} seeds"


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def seeds_so_far(study: Study, recorded: Collection[int]) -> tuple[int, ...]:
    """The study's own seeds, and those added since, as the record shows."""
    seeds = list(study.seeds)
    following = seeds_after(study, seeds, len([seed for seed in recorded if seed > max(seeds)]) + len(_avoided(study)))
    last = max((index for index, seed in enumerate(following) if seed in recorded), default=-1)
    return (*seeds, *following[: last + 1])


def seeds_after(study: Study, seeds: Sequence[int], count: int) -> list[int]:
    """The next seeds of a study: the numbers above its largest, without those that a search has used."""
    out: list[int] = []
    seed = max(seeds)
    while len(out) < count:
        seed += 1
        if seed not in _avoided(study):
            out.append(seed)
    return out


def _avoided(study: Study) -> tuple[int, ...]:
    return study.searched_by.seeds if study.searched_by is not None else ()


def sequential_state(study: Study, cells: Iterable[Cell], results: Results) -> SequentialState:
    """Decide on what is recorded.

    Args:
        study: With all the seeds that it has so far.
        cells: Its cells.
        results: What is recorded of it.
    """
    from analysis.comparing.pairing import index
    from analysis.comparing.stopping import StoppingRule, has_ended, leading_seeds, stopping_point

    ended = {record.cell for record in results.cells if has_ended(record.state, record.failure_kind)}
    cells = list(cells)
    waiting = {cell.seed for cell in cells if cell.key not in ended}
    current = {cell.key: cell for cell in cells}
    indexed = index(
        replace(
            results,
            cells=tuple(_as_named(record, current[record.cell]) for record in results.cells if record.cell in current),
            table=results.table[results.table[schema.COLUMN_CELL].isin(current)],
        )
    )
    plan = study.analysis
    point = stopping_point(
        indexed,
        rule=StoppingRule(
            primary=_primaries(study, indexed.endpoints),
            alpha=plan.alpha,
            margin=plan.margin,
            max_seeds=plan.max_seeds,
            baseline=study.baseline,
        ),
        treatments=[variant for variant in study.variants if variant != study.baseline],
        leading=leading_seeds(study.seeds, waiting),
        fingerprinted=results.fingerprinted,
    )
    return SequentialState(
        decision=point.decision,
        seeds=point.seeds,
        beyond=point.beyond,
        missing=tuple(seed for seed in study.seeds if seed in waiting),
    )


def _as_named(record: CellRecord, cell: Cell) -> CellRecord:
    """What is recorded of a cell, under the names that the study has now."""
    return replace(record, variant=cell.variant, setting=cell.setting)


def _primaries(study: Study, recorded: Sequence[str]) -> tuple[str, ...]:
    """As declared; else the largest recorded size's test Spearman, as the report chooses it."""
    from analysis.comparing.plan_in_force import default_primaries

    return study.primary or default_primaries(recorded, every_dim=False)


def seeds_to_add(decision: SequentialDecision, *, run: int, slots: int, cells_per_seed: int, limit: int | None) -> int:
    """How many seeds to add: as many as the slots hold whole, and not fewer than any decision needs.

    Args:
        decision: On the seeds so far.
        run: How many those are.
        slots: Cells that can run at once.
        cells_per_seed: Variants x settings.
        limit: `max_seeds`, or None.
    """
    from analysis.statistics.sequential import fewest_more

    size = max(slots // cells_per_seed, fewest_more(decision))
    return size if limit is None else max(0, min(size, limit - run))
