"""The trials of one variant's search in an Optuna storage: what was tried, what is under way, what came out.

A trial is stored in one transaction together with its point, so a killed search leaves no half-made trial: it is
either not there, or running with a known point, and is then finished by the next command under the same number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

from sweep.console import one_line
from sweep.errors import TrackingError
from sweep.study.search_block import Point, SearchBlock
from sweep.tune.proposals import Tried, distributions

STORAGE_FILE: Final = "optuna.db"
BUSY_TIMEOUT_S: Final = 60.0


def open_storage(url: str) -> Any:
    """The Optuna storage behind a SQLAlchemy URL.

    Raises:
        TrackingError: the URL is malformed, its database driver is not installed, or the database does not answer.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    arguments = {"connect_args": {"timeout": BUSY_TIMEOUT_S}} if url.startswith("sqlite") else {}
    try:
        return optuna.storages.RDBStorage(url, engine_kwargs=arguments)
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        allowed = "use an SQLAlchemy URL, such as sqlite:///optuna.db or postgresql://HOST/NAME"
        raise TrackingError(f"search storage {_without_password(url)}: {reason}; {allowed}") from error


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


def _without_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
