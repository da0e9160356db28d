from __future__ import annotations

import pytest

from analysis import schema
from sweep.record.ledger import changed_variants, reconcile, to_run
from tests.sweep.runs import a_cell, a_run


def test_a_cell_without_runs_is_to_run() -> None:
    (status,) = reconcile([a_cell()], [])
    assert (status.state, status.attempt, status.run_id) == (schema.STATE_TO_RUN, 0, None)


def test_a_finished_run_decides_whatever_came_before_or_after() -> None:
    cell = a_cell()
    runs = [
        a_run(cell, "KILLED", run_id="old", start_ms=1),
        a_run(cell, "FINISHED", run_id="done", start_ms=2, attempt=2),
        a_run(cell, "FAILED", run_id="late", start_ms=3, attempt=3),
    ]
    (status,) = reconcile([cell], runs)
    assert (status.state, status.run_id) == (schema.STATE_FINISHED, "done")


def test_order_of_cells_is_kept_and_order_of_runs_does_not_matter() -> None:
    cells = [a_cell(seed=seed) for seed in (2, 0, 1)]
    runs = [a_run(cells[1], "FINISHED", run_id="x"), a_run(cells[1], "KILLED", run_id="y", start_ms=0)]
    forward, backward = reconcile(cells, runs), reconcile(cells, runs[::-1])
    assert forward == backward
    assert [status.cell.seed for status in forward] == [2, 0, 1]


@pytest.mark.parametrize(("alive", "state"), [(True, schema.STATE_RUNNING), (False, schema.STATE_STALE)])
def test_an_open_run_is_running_or_stale_by_its_driver(alive: bool, state: str) -> None:
    cell = a_cell()
    (status,) = reconcile([cell], [a_run(cell, "RUNNING")], owner_alive=alive)
    assert status.state == state


def test_a_complete_run_of_a_dead_driver_says_that_it_needs_no_training() -> None:
    cell = a_cell()
    runs = [
        a_run(cell, "RUNNING", run_id="done", start_ms=1, **{schema.TAG_COMPLETE: "true"}),
        a_run(cell, "RUNNING", run_id="later", start_ms=2),
    ]
    (status,) = reconcile([cell], runs)
    assert (status.state, status.run_id) == (schema.STATE_STALE, "done")
    assert "without training" in status.reason


def test_a_failure_by_itself_runs_again_only_on_request_and_infrastructure_always() -> None:
    by_itself, lost = a_cell(seed=0), a_cell(seed=1)
    runs = [
        a_run(by_itself, "FAILED", **{schema.TAG_FAILURE: "loss is nan", schema.TAG_FAILURE_KIND: "cell"}),
        a_run(lost, "FAILED", run_id="r2", **{schema.TAG_FAILURE_KIND: "infrastructure"}),
    ]
    statuses = reconcile([by_itself, lost], runs)
    assert [status.state for status in statuses] == [schema.STATE_FAILED] * 2
    assert statuses[0].reason == "loss is nan"
    assert [status.cell.seed for status in to_run(statuses, retry_failed=False)] == [1]
    assert [status.cell.seed for status in to_run(statuses, retry_failed=True)] == [0, 1]


def test_a_killed_attempt_is_to_run_and_says_why() -> None:
    cell = a_cell()
    (status,) = reconcile([cell], [a_run(cell, "KILLED", attempt=2, **{schema.TAG_FAILURE: "its worker died"})])
    assert (status.state, status.attempt, status.reason) == (schema.STATE_TO_RUN, 2, "attempt 2: its worker died")


def test_a_changed_option_is_another_cell_and_the_field_is_named() -> None:
    old, new = a_cell(options={"sleep_s": 1.0}), a_cell(options={"sleep_s": 2.0})
    (status,) = reconcile([new], [a_run(old, "FINISHED")])
    assert (status.state, status.changed_fields) == (schema.STATE_TO_RUN, ("options.sleep_s",))
    assert changed_variants([status]) == ["a has changed (options.sleep_s): 1 cell to train as a@1"]


def test_a_revision_that_was_trained_with_one_seed_is_no_change_with_another() -> None:
    old = [a_cell(seed=seed, options={"sleep_s": 1.0}) for seed in (0, 1)]
    new = [a_cell(seed=seed, options={"sleep_s": 2.0}) for seed in (0, 1)]
    runs = [a_run(cell, "FINISHED", run_id=str(n)) for n, cell in enumerate([*old, new[0]])]
    assert [status.changed_fields for status in reconcile(new, runs)] == [(), ()]


def test_changed_data_under_the_same_name_is_named_as_a_digest() -> None:
    old, new = a_cell(digests={"data": "aaaa"}), a_cell(digests={"data": "bbbb"})
    (status,) = reconcile([new], [a_run(old, "FINISHED")])
    assert status.changed_fields == ("digest of data",)


def test_a_renamed_variant_is_not_a_change() -> None:
    cell = a_cell("a")
    renamed = a_run(cell, "FINISHED", **{schema.TAG_VARIANT: "before"})
    (status,) = reconcile([cell], [renamed])
    assert (status.state, status.changed_fields) == (schema.STATE_FINISHED, ())


def test_swapped_labels_are_not_a_change() -> None:
    """What a held before, b holds now: the recorded cell is still one of the study's."""
    one, two = a_cell("a"), a_cell("b")
    runs = [
        a_run(two, "FINISHED", run_id="r1", **{schema.TAG_VARIANT: "a"}),
        a_run(one, "FINISHED", run_id="r2", **{schema.TAG_VARIANT: "b"}),
    ]
    assert [status.state for status in reconcile([one, two], runs)] == [schema.STATE_FINISHED] * 2


def test_unresolved_digests_match_by_spec_only_when_asked() -> None:
    known = a_cell(digests={"data": "aaaa"})
    unknown = a_cell(unresolved=("data",))
    run = a_run(known, "FINISHED")
    (shown,) = reconcile([unknown], [run], match_spec=True)
    (strict,) = reconcile([unknown], [run])
    assert shown.state == schema.STATE_FINISHED
    assert "digest of data unresolved" in shown.reason
    assert strict.state == schema.STATE_TO_RUN
