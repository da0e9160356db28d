"""Launches of cells that are decided on while they run; the launch itself is played by the test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sweep.console import EXIT_INTERRUPTED
from sweep.errors import TrackingError
from sweep.run import run_study as module
from sweep.run.cell_source import CellSource
from sweep.run.launch import RunOptions
from sweep.study.cells import Cell
from tests.sweep.in_process import InProcess
from tests.sweep.runs import a_cell


class Launches:
    """Stands for a launch: what each was given, and what it asked for and got."""

    def __init__(self, code: int = 0, asks: bool = True) -> None:
        self.code, self.asks = code, asks
        self.given: list[list[int]] = []

    def __call__(self, source: CellSource, cells: Sequence[Cell], *_: Any) -> int:
        seeds = [cell.seed for cell in cells]
        while self.asks and (further := source.next_cells()):
            seeds += [cell.seed for cell in further]
        self.given.append(seeds)
        return self.code


class Batches:
    """A source of so many cells each time."""

    study: Any = None

    def __init__(self, *sizes: int) -> None:
        self._cells = iter([[a_cell(seed=10 * i + n) for n in range(size)] for i, size in enumerate(sizes)])

    def to_come(self) -> None:
        return None

    def next_cells(self) -> list[Cell]:
        return next(self._cells, [])


def fed(monkeypatch: pytest.MonkeyPatch, launches: Launches, source: CellSource) -> int:
    monkeypatch.setattr(module, "_claim_and_launch", launches)
    return module.run_cells(source, InProcess(), RunOptions())


def test_one_launch_takes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = Launches()
    assert fed(monkeypatch, launches, Batches(2, 1, 2)) == 0
    assert launches.given == [[0, 1, 10, 20, 21]]


def test_a_launch_that_does_not_ask_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one whose cells were all recorded by a driver that died before it could close them."""
    launches = Launches(asks=False)
    assert fed(monkeypatch, launches, Batches(2, 1)) == 0
    assert launches.given == [[0, 1], [10]]


def test_nothing_needed_is_nothing_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = Launches()
    assert fed(monkeypatch, launches, Batches()) == 0
    assert launches.given == []


def test_an_interrupted_launch_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = Launches(code=EXIT_INTERRUPTED, asks=False)
    assert fed(monkeypatch, launches, Batches(2, 1)) == EXIT_INTERRUPTED
    assert launches.given == [[0, 1]]


def test_an_error_waits_for_the_end_of_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    class Breaks:
        study: Any = None
        asked = 0

        def to_come(self) -> None:
            return None

        def next_cells(self) -> list[Cell]:
            self.asked += 1
            if self.asked > 1:
                raise TrackingError("the store is gone")
            return [a_cell()]

    launches, source = Launches(), Breaks()
    with pytest.raises(TrackingError, match="the store is gone"):
        fed(monkeypatch, launches, source)
    assert launches.given == [[0]]
    assert source.asked == 2
