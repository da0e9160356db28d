"""Which point a search tries next: a pure function of what was tried before.

Ray Tune's own `OptunaSearch` is not used. It keeps the link between its trials and Optuna's in memory, so that a
killed driver leaves trials RUNNING for ever and a restarted one draws the same random points again from its
re-seeded sampler; it also turns one Optuna trial into one training, where a trial here is one training per tuning
seed. Instead every proposal has its own generator, seeded by (sampler seed, trial number), and sees exactly the
trials of earlier rounds. A search that was killed and resumed is then the undisturbed search, and the number of
workers cannot change it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from sweep.study.search_block import Point, Range, Scalar, SearchBlock, number_of_points, rounded
from trainables.training_fields import TRAINING_FIELDS

TPE_TRIES = 20
"""Redraws of a point that was tried before, in a finite space; then an untried point is taken at random."""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One earlier trial of the same variant."""

    number: int
    point: Point
    state: Literal["running", "complete", "fail"]
    value: float | None = None
    """Mean of the endpoint over the tuning seeds; None unless complete."""


def distributions(space: Mapping[str, Range | tuple[Scalar, ...]]) -> dict[str, Any]:
    """The space in Optuna's terms."""
    import optuna

    out: dict[str, Any] = {}
    for name, domain in space.items():
        if isinstance(domain, tuple):
            out[name] = optuna.distributions.CategoricalDistribution(domain)
        elif TRAINING_FIELDS[name].type is int:
            out[name] = optuna.distributions.IntDistribution(int(domain.low), int(domain.high), log=domain.log)
        else:
            out[name] = optuna.distributions.FloatDistribution(domain.low, domain.high, log=domain.log)
    return out


def propose(search: SearchBlock, history: Sequence[Tried], number: int) -> Point:
    """The point of trial `number`.

    Args:
        search: Space, sampler seed, and how many trials are proposed at once.
        history: At least the trials below `number`, in any order. Of its own round only the points are used, never
            the values: those may be there or not, depending on where a search was interrupted.
        number: Of the trial, from 0.
    """
    first_of_round = number - number % search.parallel
    earlier = sorted((trial for trial in history if trial.number < number), key=lambda trial: trial.number)
    frozen = [_as_optuna(search, trial, told=trial.number < first_of_round) for trial in earlier]
    tried = [trial.point for trial in earlier]
    rng = np.random.default_rng([search.sampler_seed, number])
    finite = number_of_points(search.space) is not None
    for _ in range(TPE_TRIES if finite else 1):
        point = _ask(search, frozen, seed=int(rng.integers(2**32)))
        if not finite or point not in tried:
            return point
    untried = [point for point in _all_points(search.space) if point not in tried]
    return untried[int(rng.integers(len(untried)))]


def _ask(search: SearchBlock, frozen: Sequence[Any], *, seed: int) -> Point:
    import optuna

    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=search.startup, constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.add_trials(frozen)
    params = study.ask(fixed_distributions=distributions(search.space)).params
    return {name: rounded(params[name], domain) for name, domain in search.space.items()}


def _as_optuna(search: SearchBlock, trial: Tried, *, told: bool) -> Any:
    import optuna

    states = {
        "running": optuna.trial.TrialState.RUNNING,
        "complete": optuna.trial.TrialState.COMPLETE,
        "fail": optuna.trial.TrialState.FAIL,
    }
    return optuna.trial.create_trial(
        state=states[trial.state if told else "running"],
        value=trial.value if told else None,
        params=cast(dict[str, Any], trial.point),
        distributions=distributions(search.space),
    )


def _all_points(space: Mapping[str, Range | tuple[Scalar, ...]]) -> list[Point]:
    values = [
        domain if isinstance(domain, tuple) else range(int(domain.low), int(domain.high) + 1)
        for domain in space.values()
    ]
    return [dict(zip(space, combination, strict=True)) for combination in itertools.product(*values)]
