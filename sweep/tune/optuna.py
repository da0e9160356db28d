"""Optuna behind a search: which point a variant tries next, and the storage of what was tried.

Which point is next is a pure function of what was tried before. Every proposal has its own generator, seeded by
(sampler seed, trial number), and sees exactly the trials of earlier rounds. A search that was killed and resumed is
then the undisturbed search, and the number of workers cannot change it. Ray Tune's own `OptunaSearch` is not used: it
keeps the link between its trials and Optuna's in memory, so that a killed driver leaves trials RUNNING for ever and a
restarted one draws the same random points again; and one of its trials is one training, where a trial here is one
training per tuning seed.

A trial is stored in one transaction together with its point, so a killed search leaves no half-made trial: it is
either not there, or running with a known point, and is then finished by the next command under the same number.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

import numpy as np

from analysis.showing import shown_uri
from sweep.console import one_line
from sweep.errors import TrackingError
from sweep.record.tracking_uri import database_file, make_private
from sweep.study.search_block import Point, Range, Scalar, SearchBlock, number_of_points, rounded
from trainables.training_fields import TRAINING_FIELDS

STORAGE_FILE: Final = "optuna.db"
BUSY_TIMEOUT_S: Final = 60.0
TPE_TRIES: Final = 20
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


def open_storage(url: str) -> Any:
    """The Optuna storage behind a SQLAlchemy URL.

    Raises:
        TrackingError: the URL is malformed, its database driver is not installed, or the database does not answer.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    arguments = {"connect_args": {"timeout": BUSY_TIMEOUT_S}} if url.startswith("sqlite") else {}
    file = database_file(url)
    if file is not None and file.is_absolute():  # not `:memory:`
        make_private(file)
    try:
        return optuna.storages.RDBStorage(url, engine_kwargs=arguments)
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        allowed = "use an SQLAlchemy URL, such as sqlite:///optuna.db or postgresql://HOST/NAME"
        raise TrackingError(f"search storage {shown_uri(url)}: {reason}; {allowed}") from error


def default_storage(tracking_file: Path | None) -> str:
    """SQLite beside the tracking database; in the current folder where that is a server."""
    folder = Path.cwd() if tracking_file is None else tracking_file.parent
    return f"sqlite:///{folder / STORAGE_FILE}"


def storage_url(url: str, root: Path) -> str:
    """The URL as the study file means it: a relative SQLite file lies in the study file's folder."""
    scheme, separator, path = url.partition(":///")
    if scheme.startswith("sqlite") and separator and path and not path.startswith("/"):
        return f"{scheme}:///{root / path}"
    return url


@contextmanager
def _told() -> Iterator[None]:
    """Errors of the database as one line; optuna has repeated what was worth repeating."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (StorageInternalError, SQLAlchemyError) as error:
        raise TrackingError(f"search storage: {one_line(error)}; the same command continues the search") from error


class VariantSearch:
    """The search of one variant."""

    def __init__(self, storage: Any, name: str, search: SearchBlock) -> None:
        """Open or create the Optuna study `name`; another space, seed or data must come with another name."""
        import optuna

        self._search = search
        with _told():
            self._study = optuna.create_study(
                storage=storage, study_name=name, direction="maximize", load_if_exists=True
            )

    def trials(self) -> list[Tried]:
        """All trials so far, by number."""
        with _told():
            return [_tried(trial) for trial in self._study.get_trials(deepcopy=False)]

    def begin(self, number: int, point: Point) -> None:
        """Store a trial as running.

        Raises:
            TrackingError: another process has added a trial meanwhile.
        """
        import optuna

        trial = optuna.trial.create_trial(
            state=optuna.trial.TrialState.RUNNING,
            params=cast(dict[str, Any], point),
            distributions=distributions(self._search.space),
        )
        with _told():
            self._study.add_trial(trial)
            stored = self._study.get_trials(deepcopy=False)
        if len(stored) != number + 1 or stored[number].params != point:
            raise TrackingError(f"search {self._study.study_name}: another process is writing to it; stop that one")

    def finish(self, number: int, value: float | None) -> None:
        """Store what came out of a trial; None: it failed, which uses up its share of the budget."""
        import optuna

        with _told():
            if value is None:
                self._study.tell(number, state=optuna.trial.TrialState.FAIL)
            else:
                self._study.tell(number, value)


def best_of(trials: list[Tried]) -> Tried | None:
    """The complete trial with the largest value, the earliest among equals; None where all failed."""
    complete = [trial for trial in trials if trial.value is not None]
    return max(complete, key=lambda trial: (trial.value or 0.0, -trial.number), default=None)


def _tried(trial: Any) -> Tried:
    from optuna.trial import TrialState

    states: dict[Any, Any] = {TrialState.COMPLETE: "complete", TrialState.FAIL: "fail"}
    state = states.get(trial.state, "running")
    return Tried(
        number=trial.number,
        point=dict(trial.params),
        state=state,
        value=trial.value if state == "complete" else None,
    )
