"""Cost per variant from recorded times."""

from __future__ import annotations

import pytest

from analysis import schema
from sweep.cost import VariantCost, cost_lines, costs
from sweep.record.ledger import RecordedRun, reconcile
from sweep.study.cells import Cell
from trainables.spec import TrainSpec


def cell(variant: str, seed: int) -> Cell:
    key = f"{variant}{seed}"
    return Cell(
        key=key, spec_key=key, spec=TrainSpec(trainable="noop", seed=seed), variant=variant, seed=seed,
        setting="default", digests={},
    )  # fmt: skip


def run(variant: str, seed: int, status: str, seconds: float, peak: float | None = None) -> RecordedRun:
    tags = {
        schema.TAG_CELL: f"{variant}{seed}", schema.TAG_VARIANT: variant, schema.TAG_SEED: str(seed),
        schema.TAG_SETTING: "default", schema.TAG_FAILURE_KIND: schema.FAILURE_INFRASTRUCTURE,
    }  # fmt: skip
    metrics = {} if peak is None else {schema.METRIC_MEMORY_PEAK: peak}
    end = 1_000 + round(seconds * 1000)
    return RecordedRun(run_id=f"{variant}{seed}{status}", status=status, tags=tags, start_ms=1_000, end_ms=end,
                       metrics=metrics)  # fmt: skip


CELLS = [cell(variant, seed) for seed in range(3) for variant in ("slow", "fast")]


def test_a_lost_attempt_is_paid_and_the_rest_is_expected_at_the_variants_own_pace() -> None:
    recorded = [
        run("slow", 0, "FINISHED", 3600, peak=900.0),
        run("slow", 1, "KILLED", 1800),
        run("fast", 0, "FINISHED", 360, peak=700.0),
    ]
    slow, fast = costs(reconcile(CELLS, recorded), recorded, gpus=0.5)
    assert (slow.variant, slow.spent_gpu_h, slow.left) == ("slow", pytest.approx(0.75), 2)
    assert slow.expected_gpu_h == pytest.approx(1.0)
    assert (fast.spent_gpu_h, fast.expected_gpu_h) == (pytest.approx(0.05), pytest.approx(0.1))
    assert slow.peak_mb == 900.0


def test_a_variant_without_finished_cells_is_expected_at_the_pace_of_the_others() -> None:
    recorded = [run("slow", 0, "FINISHED", 100)]
    _, fast = costs(reconcile(CELLS, recorded), recorded, gpus=1)
    assert (fast.spent_s, fast.expected_s) == (0, pytest.approx(300))


def test_nothing_finished_is_unknown_and_nothing_left_is_zero() -> None:
    slow, _ = costs(reconcile(CELLS, []), [], gpus=1)
    assert slow.expected_s is None
    recorded = [run(one.variant, one.seed, "FINISHED", 10) for one in CELLS]
    slow, _ = costs(reconcile(CELLS, recorded), recorded, gpus=1)
    assert (slow.left, slow.expected_s) == (0, 0)


def test_lines_name_gpu_hours_on_gpus_and_time_elsewhere() -> None:
    gpu = VariantCost(variant="a", spent_s=7200, left=2, expected_s=3600, gpus=1, peak_mb=512.4)
    cpu = VariantCost(variant="b", spent_s=120, left=1, expected_s=None, gpus=0)
    assert cost_lines([gpu, cpu]) == [
        "cost of a: spent 2.00 GPU-hours, about 1.00 GPU-hours more for 2 cells; peak memory 512 MiB",
        "cost of b: spent 2 min, unknown for 1 cell until one has finished",
    ]
