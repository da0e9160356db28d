from __future__ import annotations

import threading
import time
from typing import Any, ClassVar

import pytest

from sweep.record.retry import Backoff
from sweep.run import cell_queue
from sweep.run.cell_queue import CellQueue
from sweep.study.cells import Cell
from tests.sweep.runs import a_cell


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_queue, "RETRY_BACKOFF", Backoff(first_s=0.0, most_s=0.0))


def test_cells_come_in_order_and_only_as_many_as_fit() -> None:
    queue = CellQueue(retries=0)
    queue.add((a_cell(seed=seed), 0) for seed in range(3))
    queue.set_slots(2)
    first, second, third = queue.take(), queue.take(), queue.take()
    assert first is not None
    assert second is not None
    assert [first.cell.seed, second.cell.seed] == [0, 1]
    assert third is None
    queue.ended(first.launch)
    following = queue.take()
    assert following is not None
    assert following.cell.seed == 2


def test_max_concurrent_is_below_the_slots() -> None:
    queue = CellQueue(retries=0, max_concurrent=1)
    queue.add((a_cell(seed=seed), 0) for seed in range(2))
    queue.set_slots(8)
    assert queue.take() is not None
    assert queue.take() is None


def test_a_lost_attempt_is_repeated_as_often_as_allowed_with_a_new_number() -> None:
    queue = CellQueue(retries=2)
    queue.add([(a_cell(), 3)])
    attempts = []
    for pause in (0.0, 0.0, None):
        work = queue.take()
        assert work is not None
        attempts.append(work.attempt)
        queue.ended(work.launch)
        assert queue.retry(work.launch) == pause
    assert attempts == [4, 5, 6]
    assert queue.is_finished()


def test_not_finished_while_an_attempt_is_being_closed() -> None:
    """The store has yet to say whether a lost worker had recorded everything."""
    queue = CellQueue(retries=0)
    queue.add([(a_cell(), 0)])
    work = queue.take()
    assert work is not None
    queue.ended(work.launch)
    assert not queue.is_finished()
    queue.closed(work.launch)
    assert queue.is_finished()


def test_a_stop_hands_out_nothing_more_and_retries_nothing() -> None:
    queue = CellQueue(retries=5)
    queue.add((a_cell(seed=seed), 0) for seed in range(2))
    work = queue.take()
    assert work is not None
    queue.stop()
    assert queue.take() is None
    assert not queue.is_finished()
    queue.ended(work.launch)
    assert queue.retry(work.launch) is None
    assert queue.is_finished()


def test_more_cells_are_asked_for_only_when_all_are_done() -> None:
    class Source:
        study: Any = None
        batches: ClassVar[list[list[Cell]]] = [[a_cell(seed=1)], []]
        asked = 0

        def to_come(self) -> None:
            return None

        def next_cells(self) -> list[Cell]:
            self.asked += 1
            return self.batches.pop(0)

    source = Source()
    queue = CellQueue(retries=0, source=source)
    queue.add([(a_cell(seed=0), 0)])
    first = queue.take()
    assert first is not None
    assert not queue.is_finished()
    assert source.asked == 0
    queue.ended(first.launch)
    queue.closed(first.launch)
    assert not queue.is_finished()
    second = queue.take()
    assert second is not None
    assert second.cell.seed == 1
    queue.ended(second.launch)
    queue.closed(second.launch)
    assert queue.is_finished()


def test_waiting_for_the_last_cell_to_be_closed_ends_with_it() -> None:
    queue = CellQueue(retries=0)
    queue.add([(a_cell(), 0)])
    queue.set_slots(1)
    work = queue.take()
    assert work is not None
    queue.wait_closed(60.0)  # nothing is being closed
    queue.ended(work.launch)
    threading.Timer(0.05, queue.closed, [work.launch]).start()
    began = time.monotonic()
    queue.wait_closed(60.0)
    assert time.monotonic() - began < 30
    assert queue.is_finished()
