"""Proposals: a pure function of earlier trials, equal for equal histories, never a point twice."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sweep.study.search_block import Point, SearchBlock
from sweep.tune.optuna import Tried, propose

LEARNING_RATE = {"learning_rate": {"low": 1e-6, "high": 1e-4, "log": True}}


def search(**changed: Any) -> SearchBlock:
    given = {"space": {**LEARNING_RATE, "batch_size": [16, 32]}, "trials": 12, "seeds": [100], **changed}
    return SearchBlock.model_validate(given)


def value_of(point: Point, best: float) -> float:
    return -abs(math.log10(float(str(point["learning_rate"])) / best))


def whole_search(block: SearchBlock, best: float = 2e-5) -> list[Tried]:
    """A search in rounds of `parallel`, every trial told when its round ends."""
    trials: list[Tried] = []
    while len(trials) < block.trials:
        points: list[Tried] = []
        for number in range(len(trials), min(len(trials) + block.parallel, block.trials)):
            point = propose(block, [*trials, *points], number)
            points.append(Tried(number=number, point=point, state="running"))
        trials += [
            Tried(number=one.number, point=one.point, state="complete", value=value_of(one.point, best))
            for one in points
        ]
    return trials


def test_startup_points_do_not_depend_on_the_variant() -> None:
    low, high = (whole_search(search(startup=5), best) for best in (2e-6, 8e-5))
    assert [one.point for one in low[:5]] == [one.point for one in high[:5]]
    assert [one.point for one in low] != [one.point for one in high]


def test_other_sampler_seeds_give_other_points() -> None:
    assert propose(search(), [], 0) != propose(search(sampler_seed=1), [], 0)


@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("interrupted_at", [0, 3, 7, 10])
def test_a_resumed_search_is_the_undisturbed_one(parallel: int, interrupted_at: int) -> None:
    block = search(parallel=parallel)
    whole = whole_search(block)
    # Whatever of its own round is already told when it is proposed again, the point is the same.
    first = interrupted_at - interrupted_at % parallel
    running = [Tried(number=one.number, point=one.point, state="running") for one in whole]
    for history in (whole[:interrupted_at], [*whole[:first], *running[first:interrupted_at]]):
        assert propose(block, history, interrupted_at) == whole[interrupted_at].point


def test_tpe_gathers_around_the_optimum() -> None:
    """Against chance: the later half of the trials lies closer to the optimum than the random start."""
    trials = whole_search(search(trials=40, startup=10))
    start, late = trials[:10], trials[-10:]
    miss = [sum(-(one.value or 0.0) for one in some) / len(some) for some in (start, late)]
    assert miss[1] < miss[0] / 2


def test_a_finite_space_is_covered_without_repetition() -> None:
    block = search(space={"batch_size": [8, 16], "warmup_steps": {"low": 0, "high": 2}}, trials=6)
    trials: list[Tried] = []
    for number in range(6):
        point = propose(block, trials, number)
        trials.append(Tried(number=number, point=point, state="complete", value=float(number)))
    assert len({tuple(one.point.items()) for one in trials}) == 6


def test_failed_trials_are_no_evidence_but_their_points_stay_tried() -> None:
    block = search(space={"batch_size": [8, 16]}, trials=2)
    first = propose(block, [], 0)
    second = propose(block, [Tried(number=0, point=first, state="fail")], 1)
    assert {first["batch_size"], second["batch_size"]} == {8, 16}
