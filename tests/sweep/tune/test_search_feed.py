"""Feeding launches with cells that are decided on while they run; the launch itself is played by the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sweep.console import EXIT_INTERRUPTED
from sweep.errors import TrackingError
from sweep.run import feed
from sweep.run.feed import Feed
from sweep.run.run_options import RunOptions
from sweep.study.cells import Cell
from tests.sweep.runs import a_cell


class Launches:
    """Stands for run_cells: what each launch was given, and what it asked for and got."""

    def __init__(self, code: int = 0, asks: bool = True) -> None:
        self.code, self.asks = code, asks
        self.given: list[list[int]] = []

    def __call__(
        self, study: Any, cells: Sequence[Cell], options: RunOptions, *, more: Callable[[], Sequence[Cell]]
    ) -> int:
        seeds = [cell.seed for cell in cells]
        while self.asks and (further := more()):
            seeds += [cell.seed for cell in further]
        self.given.append(seeds)
        return self.code


def waves(*sizes: int) -> Callable[[], list[Cell]]:
    cells = iter([[a_cell(seed=10 * wave + n) for n in range(size)] for wave, size in enumerate(sizes)])
    return lambda: next(cells, [])


def fed(monkeypatch: pytest.MonkeyPatch, launches: Launches, needed_next: Callable[[], Sequence[Cell]]) -> int:
    monkeypatch.setattr(feed, "run_cells", launches)
    return Feed(needed_next).run(lambda: None, RunOptions())  # type: ignore[arg-type, return-value]


def test_one_launch_takes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = Launches()
    assert fed(monkeypatch, launches, waves(2, 1, 2)) == 0
    assert launches.given == [[0, 1, 10, 20, 21]]


def test_a_launch_that_does_not_ask_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one whose cells were all recorded by a driver that died before it could close them."""
    launches = Launches(asks=False)
    assert fed(monkeypatch, launches, waves(2, 1)) == 0
    assert launches.given == [[0, 1], [10]]


def test_nothing_needed_is_nothing_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = Launches()
    assert fed(monkeypatch, launches, waves()) == 0
    assert launches.given == []


def test_an_interrupted_launch_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = Launches(code=EXIT_INTERRUPTED, asks=False)
    assert fed(monkeypatch, launches, waves(2, 1)) == EXIT_INTERRUPTED
    assert launches.given == [[0, 1]]


def test_an_error_waits_for_the_end_of_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    launches, asked = Launches(), []

    def needed_next() -> list[Cell]:
        asked.append(1)
        if len(asked) > 1:
            raise TrackingError("the store is gone")
        return [a_cell()]

    with pytest.raises(TrackingError, match="the store is gone"):
        fed(monkeypatch, launches, needed_next)
    assert launches.given == [[0]]
    assert len(asked) == 2
