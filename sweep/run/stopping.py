"""Where a sequential study stands, and how many seeds its next wave takes; analysis.comparing.stopping has the rule."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from analysis import schema
from sweep.study import Study
from sweep.study.cells import Cell

if TYPE_CHECKING:
    from analysis.results.model import CellRecord, Results
    from analysis.statistics.sequential import SequentialDecision, StreamState


@dataclass(frozen=True, kw_only=True)
class SequentialStanding:
    """Where a sequential study stands."""

    decision: SequentialDecision
    seeds: tuple[int, ...]
    """The leading seeds that the decision rests on."""
    beyond: tuple[int, ...]
    """Seeds that are recorded too but came after the decision to stop."""
    missing: tuple[int, ...]
    """Seeds with a cell that has neither finished nor failed by itself."""


def seeds_so_far(study: Study, recorded: Collection[int]) -> tuple[int, ...]:
    """The study's own seeds, and those that waves have added, as the record shows."""
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


def sequential_standing(study: Study, cells: Iterable[Cell], results: Results) -> SequentialStanding:
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
    return SequentialStanding(
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


def fewest_more(decision: SequentialDecision) -> int:
    """Further seeds without which the study cannot be decided, however they fall; at least 1 while it is undecided.

    A seed at most doubles an e-value, which bounds equivalence; for a difference the bound is exact.
    """
    from analysis.statistics.sequential import e_value, reached

    def for_difference(state: StreamState) -> int:
        more, high, low = 0, max(state.wins, state.losses), min(state.wins, state.losses)
        while not reached(e_value(high + more, low), state.e_threshold):
            more += 1
        return more

    def for_equivalence(state: StreamState) -> float:
        if state.e_lower is None or state.e_upper is None or state.equivalence_threshold is None:
            return math.inf
        smallest = min(state.e_lower, state.e_upper)
        return math.ceil(math.log2(state.equivalence_threshold / smallest) - 1e-9) if smallest > 0 else math.inf

    needed = []
    for treatment in dict.fromkeys(state.treatment for state in decision.states):
        own = [state for state in decision.states if state.treatment == treatment]
        if any(state.decided in ("better", "worse") for state in own):
            continue
        different = min(for_difference(state) for state in own)
        equivalent = max(0.0 if state.decided == "equivalent" else for_equivalence(state) for state in own)
        needed.append(max(0, int(min(different, equivalent))))
    return max(1, *needed) if needed else 1


def wave_size(decision: SequentialDecision, *, run: int, slots: int, cells_per_seed: int, limit: int | None) -> int:
    """How many seeds to add: as many as the slots hold whole, and not fewer than any decision needs.

    Args:
        decision: On the seeds so far.
        run: How many those are.
        slots: Cells that can run at once.
        cells_per_seed: Variants x settings.
        limit: `max_seeds`, or None.
    """
    size = max(slots // cells_per_seed, fewest_more(decision))
    return size if limit is None else max(0, min(size, limit - run))
