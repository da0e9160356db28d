"""Where a sequential study stops: its e-values taken seed by seed, in ascending order.

Seeds are trained in waves and several at once, so more may be recorded than the decision needed. The decision is
therefore made on every leading part of the seeds, and the first part that stops the study is the one that counts:
whatever was recorded beyond it, in whatever order, changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from analysis import schema
from analysis.comparing.pairing import Indexed, index, pair
from analysis.results.model import Problem, Results
from analysis.statistics.sequential import (
    SequentialDecision,
    Stream,
    StreamState,
    decide_sequential,
    seed_differences,
)

SUSPICIOUS_ZEROS = 5
"""Seeds after which differences that are all exactly zero stop a study: more of them would show nothing else."""

_Scores = Mapping[tuple[str, int], float]
"""(setting, seed) -> score."""


@dataclass(frozen=True, kw_only=True)
class StoppingRule:
    """What a sequential study has declared."""

    primary: tuple[str, ...]
    alpha: float
    margin: float | None
    max_seeds: int | None
    """Where it stops undecided; None: no limit."""
    baseline: str


@dataclass(frozen=True, kw_only=True)
class StoppingPoint:
    """What the leading seeds say."""

    decision: SequentialDecision
    seeds: tuple[int, ...]
    """The leading seeds that the decision rests on."""
    beyond: tuple[int, ...]
    """Leading seeds that came after a decision to stop."""


@dataclass(frozen=True, kw_only=True)
class _Endpoint:
    """One primary endpoint of one treatment, over all settings."""

    treatment: str
    endpoint: str
    scores: _Scores
    baseline_scores: _Scores
    treatment_failed: frozenset[int]
    """Seeds on which only the treatment failed by itself, in any setting."""
    baseline_failed: frozenset[int]
    conflicts: Mapping[int, str]
    """Seed -> which of its keys has two different scores: from there on the treatment is refused."""


def stopping_point(
    indexed: Indexed,
    *,
    rule: StoppingRule,
    treatments: Sequence[str],
    leading: Sequence[int],
    fingerprinted: bool,
    allow_unverified: bool = False,
) -> StoppingPoint:
    """The decision on the shortest leading part that stops the study, else on all of it.

    Args:
        indexed: What is recorded.
        rule: What was declared.
        treatments: Variants compared with the baseline.
        leading: Ascending seeds all of whose cells have ended.
        fingerprinted: As in `pairing.pair`.
        allow_unverified: The same.
    """
    endpoints = [
        one
        for treatment in treatments
        for one in _endpoints(indexed, rule, treatment, fingerprinted=fingerprinted, unverified=allow_unverified)
    ]
    for used in range(1, len(leading) + 1):
        decision = _decide(endpoints, rule, leading[:used])
        if decision.stop:
            return StoppingPoint(decision=decision, seeds=tuple(leading[:used]), beyond=tuple(leading[used:]))
    return StoppingPoint(decision=_decide(endpoints, rule, leading), seeds=tuple(leading), beyond=())


def leading_seeds(seeds: Sequence[int], waiting: Collection[int]) -> tuple[int, ...]:
    """Ascending seeds before the first that still waits for a cell."""
    ordered = sorted(seeds)
    first = next((position for position, seed in enumerate(ordered) if seed in waiting), len(ordered))
    return tuple(ordered[:first])


def has_ended(state: str, failure_kind: str | None) -> bool:
    """Finished, or failed by itself: running it again changes nothing."""
    return state == schema.STATE_FINISHED or (state == schema.STATE_FAILED and failure_kind == schema.FAILURE_CELL)


def until_stopped(results: Results, rule: StoppingRule, *, allow_unverified: bool) -> Results:
    """The results without the seeds that were recorded beyond the decision to stop; these become a problem shown."""
    indexed = index(results)
    seeds = {seed for _, _, seed in indexed.cells}
    waiting = {
        seed
        for seed in seeds
        for setting in indexed.settings
        for variant in indexed.variants
        if not any(has_ended(c.state, c.failure_kind) for c in indexed.cells.get((variant, setting, seed), ()))
    }
    point = stopping_point(
        indexed,
        rule=rule,
        treatments=[variant for variant in indexed.variants if variant != rule.baseline],
        leading=leading_seeds(tuple(seeds), waiting),
        fingerprinted=results.fingerprinted,
        allow_unverified=allow_unverified,
    )
    if not point.decision.stop:
        return results
    used = set(point.seeds)
    left_out = sorted(seeds - used)
    if not left_out:
        return results
    table = results.table
    listed = ", ".join(map(str, left_out))
    reason = f"not used: recorded beyond the {len(used)} seeds after which the study stopped"
    return replace(
        results,
        cells=tuple(cell for cell in results.cells if cell.seed in used),
        table=table[table[schema.COLUMN_SEED].isin(used)],
        problems=(*results.problems, Problem(where=f"seed {listed}", reason=reason)),
    )


def _decide(endpoints: Sequence[_Endpoint], rule: StoppingRule, seeds: Sequence[int]) -> SequentialDecision:
    streams = [_stream(one, set(seeds)) for one in endpoints]
    refused = {one.treatment: text for one in endpoints for seed, text in one.conflicts.items() if seed in seeds}
    decision = decide_sequential(
        streams, alpha=rule.alpha, margin=rule.margin, seeds=len(seeds), max_seeds=rule.max_seeds, refused=refused
    )
    if not decision.stop and len(seeds) >= SUSPICIOUS_ZEROS and all(_only_zeros(state) for state in decision.states):
        why = f"all differences of {len(seeds)} seeds are exactly 0: was one training evaluated twice?"
        return replace(decision, stop=True, why=why)
    return decision


def _only_zeros(state: StreamState) -> bool:
    return state.ties > 0 and state.wins == state.losses == 0


def _endpoints(
    indexed: Indexed, rule: StoppingRule, treatment: str, *, fingerprinted: bool, unverified: bool
) -> list[_Endpoint]:
    by_setting = {
        setting: pair(
            indexed,
            treatment=treatment,
            baseline=rule.baseline,
            setting=setting,
            fingerprinted=fingerprinted,
            allow_unverified=unverified,
        )
        for setting in indexed.settings
    }
    dropped = [drop for one in by_setting.values() for drop in one.dropped]

    def failed(side: str, endpoint: str) -> frozenset[int]:
        return frozenset(d.seed for d in dropped if d.loss_for == side and d.endpoint in (None, endpoint))

    conflicts = {
        drop.seed: drop.reason
        for one in by_setting.values()
        if one.conflict
        for drop in one.dropped
        if drop.reason == one.conflict
    }

    def scores(endpoint: str, *, of_treatment: bool) -> dict[tuple[str, int], float]:
        return {
            (setting, seed): value
            for setting, one in by_setting.items()
            for seed, value in zip(
                one.seeds, (one.treatment if of_treatment else one.baseline).get(endpoint, ()), strict=False
            )
            if not math.isnan(value)
        }

    return [
        _Endpoint(
            treatment=treatment,
            endpoint=endpoint,
            scores=scores(endpoint, of_treatment=True),
            baseline_scores=scores(endpoint, of_treatment=False),
            treatment_failed=failed(treatment, endpoint),
            baseline_failed=failed(rule.baseline, endpoint),
            conflicts=conflicts,
        )
        for endpoint in rule.primary
    ]


def _stream(one: _Endpoint, seeds: set[int]) -> Stream:
    def among(scores: _Scores) -> dict[tuple[str, int], float]:
        return {key: value for key, value in scores.items() if key[1] in seeds}

    if seeds & one.conflicts.keys():
        return Stream(treatment=one.treatment, endpoint=one.endpoint, differences=())
    return Stream(
        treatment=one.treatment,
        endpoint=one.endpoint,
        differences=seed_differences(among(one.scores), among(one.baseline_scores)),
        treatment_failures=len(one.treatment_failed & seeds),
        baseline_failures=len(one.baseline_failed & seeds),
    )
