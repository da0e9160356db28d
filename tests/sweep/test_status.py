"""What a study has cost and will cost, from recorded times."""

from __future__ import annotations

import pytest

from analysis import schema
from sweep.record.ledger import CellStatus, RecordedRun, reconcile
from sweep.status import StudyCost, VariantCost, study_cost
from sweep.study.cells import Cell
from trainables.spec import TrainSpec


def cell(variant: str, seed: int, setting: str = "default") -> Cell:
    key = f"{variant}{seed}{setting}"
    return Cell(
        key=key, spec_key=key, spec=TrainSpec(trainable="noop", seed=seed), variant=variant, seed=seed,
        setting=setting, digests={},
    )  # fmt: skip


def run(
    variant: str, seed: int, status: str, seconds: float, peak: float | None = None, setting: str = "default"
) -> RecordedRun:
    tags = {
        schema.TAG_CELL: f"{variant}{seed}{setting}", schema.TAG_VARIANT: variant, schema.TAG_SEED: str(seed),
        schema.TAG_SETTING: setting, schema.TAG_FAILURE_KIND: schema.FAILURE_INFRASTRUCTURE,
    }  # fmt: skip
    metrics = {} if peak is None else {schema.METRIC_MEMORY_PEAK: peak}
    end = 1_000 + round(seconds * 1000)
    return RecordedRun(run_id=f"{variant}{seed}{setting}{status}", status=status, tags=tags, start_ms=1_000,
                       end_ms=end, metrics=metrics)  # fmt: skip


CELLS = [cell(variant, seed) for seed in range(3) for variant in ("slow", "fast")]


def test_a_lost_attempt_is_paid_and_the_rest_is_expected_at_the_variants_own_pace() -> None:
    recorded = [
        run("slow", 0, "FINISHED", 3600, peak=900.0),
        run("slow", 1, "KILLED", 1800),
        run("fast", 0, "FINISHED", 360, peak=700.0),
    ]
    slow, fast = study_cost(reconcile(CELLS, recorded), recorded, gpus=0.5).variants
    assert (slow.variant, slow.spent_s, slow.left) == ("slow", pytest.approx(5400), 2)
    assert slow.expected_s == pytest.approx(7200)
    assert (fast.spent_s, fast.expected_s) == (pytest.approx(360), pytest.approx(720))
    assert slow.peak_mb == 900.0


def test_a_variant_without_finished_cells_is_expected_at_the_pace_of_the_others() -> None:
    recorded = [run("slow", 0, "FINISHED", 100)]
    _, fast = study_cost(reconcile(CELLS, recorded), recorded, gpus=1).variants
    assert (fast.spent_s, fast.expected_s) == (0, pytest.approx(300))


def test_nothing_finished_is_unknown_and_nothing_left_is_zero() -> None:
    slow, _ = study_cost(reconcile(CELLS, []), [], gpus=1).variants
    assert slow.expected_s is None
    recorded = [run(one.variant, one.seed, "FINISHED", 10) for one in CELLS]
    slow, _ = study_cost(reconcile(CELLS, recorded), recorded, gpus=1).variants
    assert (slow.left, slow.expected_s) == (0, 0)


def test_lines_name_gpu_hours_on_gpus_and_time_elsewhere() -> None:
    gpu = VariantCost(variant="a", spent_s=7200, left=2, expected_s=3600, gpus=1, peak_mb=512.4)
    cpu = VariantCost(variant="b", spent_s=120, left=1, expected_s=None, gpus=0)
    assert StudyCost(variants=(gpu, cpu), basis=1, gpus=0).lines() == [
        "cost of a: spent 2.00 GPU-hours, about 1.00 GPU-hours more for 2 cells; peak memory 512 MiB",
        "cost of b: spent 2 min, unknown for 1 cell until one has finished",
    ]


SETTINGS = ("small", "large")
CROSSED = [cell(variant, seed, setting) for seed in range(3) for setting in SETTINGS for variant in ("slow", "fast")]


def test_the_total_is_the_sum_of_the_variants() -> None:
    """A cell to run goes by its own variant and setting, in the total as in the variant's line."""
    recorded = [
        run("slow", 0, "FINISHED", 6000, setting="large"), run("fast", 0, "FINISHED", 600, setting="large"),
        run("slow", 0, "FINISHED", 60, setting="small"), run("fast", 0, "FINISHED", 60, setting="small"),
        run("slow", 1, "FINISHED", 60, setting="small"), run("fast", 1, "FINISHED", 60, setting="small"),
        run("slow", 2, "FINISHED", 60, setting="small"), run("fast", 2, "FINISHED", 60, setting="small"),
        run("slow", 1, "FINISHED", 6000, setting="large"), run("slow", 2, "FINISHED", 6000, setting="large"),
        run("fast", 1, "FINISHED", 600, setting="large"),
    ]  # fmt: skip
    found = study_cost(reconcile(CROSSED, recorded), recorded, gpus=0)
    assert [(one.variant, one.left, one.expected_s) for one in found.variants] == [("slow", 0, 0), ("fast", 1, 600)]
    assert found.lines()[1].endswith("about 10 min more for 1 cell")
    assert str(found) == "1 cell to run: about 10 min of cell time (from 11 finished cells)"


def test_a_setting_without_the_variant_goes_by_the_variant_then_by_the_setting() -> None:
    recorded = [run("slow", 0, "FINISHED", 100, setting="small"), run("slow", 0, "FINISHED", 900, setting="large")]
    slow, fast = study_cost(reconcile(CROSSED, recorded), recorded, gpus=0.5).variants
    assert (slow.left, slow.expected_s) == (4, 2 * 100 + 2 * 900)
    assert (fast.left, fast.expected_s) == (6, 3 * 100 + 3 * 900)
    total = study_cost(reconcile(CROSSED, recorded), recorded, gpus=0.5)
    assert (total.left, total.basis, total.expected_s) == (10, 2, 5000)
    assert str(total) == "10 cells to run: about 83 min of cell time, 0.7 GPU-hours (from 2 finished cells)"


@pytest.mark.parametrize("status", ["RUNNING", "SCHEDULED"])
def test_an_open_attempt_has_not_been_paid_yet(status: str) -> None:
    """Even where its run carries an end, of an earlier closing: how long it really ran is not known before it ends."""
    recorded = [run("slow", 0, status, 90_000), run("fast", 0, "FINISHED", 60)]
    slow, fast = study_cost(reconcile(CELLS, recorded), recorded, gpus=0).variants
    assert (slow.spent_s, slow.left, slow.expected_s) == (0, 3, 180)
    assert (fast.spent_s, fast.left) == (60, 2)


def test_a_cell_that_failed_by_itself_is_not_run_again_unasked() -> None:
    statuses = [
        CellStatus(cell=CELLS[0], state="failed", failure_kind=schema.FAILURE_CELL),
        CellStatus(cell=CELLS[1], state="failed", failure_kind=schema.FAILURE_INFRASTRUCTURE),
    ]
    assert study_cost(statuses, [], gpus=0).left == 1


def test_nothing_left_costs_nothing() -> None:
    recorded = [run(one.variant, one.seed, "FINISHED", 10) for one in CELLS]
    assert str(study_cost(reconcile(CELLS, recorded), recorded, gpus=0)) == "nothing to run"
