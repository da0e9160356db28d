"""Between Tune and the queue, without a Ray."""

from __future__ import annotations

from sweep.on_ray.trials import _CellSearcher
from sweep.run.cell_queue import CellQueue
from sweep.run.worker import Assignment
from tests.sweep.runs import a_cell


def test_a_store_that_is_back_is_seen_while_nothing_runs() -> None:
    """Tune, when nothing runs, asks for the next trial on and on and calls nobody else."""
    queue = CellQueue(retries=0)
    queue.add([(a_cell(), 0)])
    queue.hold(True)
    searcher = _CellSearcher(queue, {}, lambda: queue.hold(False))
    assert isinstance(searcher.suggest("trial"), dict)


def test_nobody_looks_twice_while_something_runs() -> None:
    queue = CellQueue(retries=0)
    queue.add([(a_cell(), 0)])
    work = queue.take()
    assert work is not None
    looked: list[bool] = []
    taken: dict[str, Assignment] = {"first": work}
    assert _CellSearcher(queue, taken, lambda: looked.append(True)).suggest("second") is None
    assert looked == []
