"""When a sequential study stops: the e-values of its seeds, taken one by one in their order.

Seeds are trained in waves and several at once, so more may be recorded than the decision needed. The decision is
therefore made on every leading part of the seed list, and the first part that decides is the one that counts:
whatever was trained beyond it, in whatever order, changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from analysis import schema
from sweep.cells import Cell
from sweep.study import Study

if TYPE_CHECKING:
    from analysis.pairing import Indexed
    from analysis.sequential import SequentialDecision, Stream, StreamState
    from analysis.tidy import Results

SUSPICIOUS_ZEROS: Final = 5
"""Seeds after which differences that are all exactly zero stop a study: more of them would show nothing else."""

Scores = dict[tuple[str, int], float]
"""(setting, seed) -> score."""


@dataclass(frozen=True, kw_only=True)
class _Pairs:
    """One primary endpoint of one treatment, over all settings."""

    treatment: str
    endpoint: str
    scores: Scores
    baseline_scores: Scores
    treatment_failed: frozenset[int]
    baseline_failed: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class SequentialStanding:
    """Where a sequential study stands."""

    decision: SequentialDecision
    seeds: tuple[int, ...]
    """The leading seeds that the decision rests on."""
    beyond: tuple[int, ...]
    """Leading seeds that are recorded too but came after the decision."""
    missing: tuple[int, ...]
    """Seeds of the list with a cell that has neither finished nor failed by itself."""


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
    from analysis.pairing import index

    ended = {record.cell for record in results.cells if _ended(record.state, record.failure_kind)}
    waiting = {cell.seed for cell in cells if cell.key not in ended}
    leading = _leading(study.seeds, waiting)
    current = {cell.key for cell in cells}
    kept = replace(
        results,
        cells=tuple(record for record in results.cells if record.cell in current),
        table=results.table[results.table[schema.COLUMN_CELL].isin(current)],
    )
    pairs = _pairs(study, index(kept), fingerprinted=results.fingerprinted)
    used, decision = _first_decision(study, pairs, leading)
    return SequentialStanding(
        decision=decision,
        seeds=leading[:used],
        beyond=leading[used:],
        missing=tuple(seed for seed in study.seeds if seed in waiting),
    )


def _ended(state: str, failure_kind: str | None) -> bool:
    return state == schema.STATE_FINISHED or (state == schema.STATE_FAILED and failure_kind == schema.FAILURE_CELL)


def _leading(seeds: Sequence[int], waiting: Collection[int]) -> tuple[int, ...]:
    first = next((position for position, seed in enumerate(seeds) if seed in waiting), len(seeds))
    return tuple(seeds[:first])


def _pairs(study: Study, indexed: Indexed, *, fingerprinted: bool) -> list[_Pairs]:
    """Every primary endpoint of every treatment; the pairs are those that the report uses."""
    from analysis.pairing import pair

    out = []
    for treatment in (variant for variant in study.variants if variant != study.baseline):
        by_setting = {
            setting: pair(
                indexed,
                treatment=treatment,
                baseline=study.baseline,
                setting=setting,
                fingerprinted=fingerprinted,
                allow_unverified=False,
            )
            for setting in indexed.settings
        }
        failed = {
            side: frozenset(drop.seed for one in by_setting.values() for drop in one.dropped if drop.loss_for == side)
            for side in (treatment, study.baseline)
        }
        for endpoint in _primaries(study, indexed.endpoints):
            scores, baseline_scores = (
                {
                    (setting, seed): value
                    for setting, one in by_setting.items()
                    for seed, value in zip(one.seeds, getattr(one, side).get(endpoint, ()), strict=False)
                    if not math.isnan(value)
                }
                for side in ("treatment", "baseline")
            )
            out.append(
                _Pairs(
                    treatment=treatment,
                    endpoint=endpoint,
                    scores=scores,
                    baseline_scores=baseline_scores,
                    treatment_failed=failed[treatment],
                    baseline_failed=failed[study.baseline],
                )
            )
    return out


def _primaries(study: Study, recorded: Sequence[str]) -> tuple[str, ...]:
    """As declared; else the largest recorded size's test Spearman, as the report chooses it."""
    if study.primary:
        return study.primary
    known = [schema.parse_endpoint(name) for name in recorded]
    dims = [endpoint.dim for endpoint in known if endpoint.metric == "test/spearman"]
    return (str(schema.Endpoint("test/spearman", max(dims))),) if dims else ()


def _first_decision(study: Study, pairs: Sequence[_Pairs], leading: Sequence[int]) -> tuple[int, SequentialDecision]:
    """(seeds used, decision) on the shortest leading part that stops the study, else on all of it."""
    from analysis.sequential import decide_sequential

    plan = study.analysis
    for used in range(len(leading) + 1):
        streams = [_stream(one, leading[:used]) for one in pairs]
        decision = decide_sequential(
            streams, alpha=plan.alpha, margin=plan.margin, seeds=used, max_seeds=plan.max_seeds
        )
        if not decision.stop and used >= SUSPICIOUS_ZEROS and all(_only_zeros(state) for state in decision.states):
            why = f"all differences of {used} seeds are exactly 0: was one training evaluated twice?"
            decision = replace(decision, stop=True, why=why)
        if used and decision.stop:
            return used, decision
    return len(leading), decision


def _only_zeros(state: StreamState) -> bool:
    return state.ties > 0 and state.wins == state.losses == 0


def _stream(pairs: _Pairs, seeds: Sequence[int]) -> Stream:
    from analysis.sequential import Stream, seed_differences

    used = set(seeds)

    def of(scores: Mapping[tuple[str, int], float]) -> Scores:
        return {key: value for key, value in scores.items() if key[1] in used}

    return Stream(
        treatment=pairs.treatment,
        endpoint=pairs.endpoint,
        differences=seed_differences(of(pairs.scores), of(pairs.baseline_scores)),
        treatment_failures=len(pairs.treatment_failed & used),
        baseline_failures=len(pairs.baseline_failed & used),
    )


def fewest_more(decision: SequentialDecision) -> int:
    """Further seeds without which the study cannot be decided, however they fall; at least 1 while it is undecided.

    A seed at most doubles an e-value, which bounds equivalence; for a difference the bound is exact.
    """
    from analysis.sequential import e_value, reached

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
