"""What a study has cost and will cost, per variant, from the recorded times of its runs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from analysis import schema
from sweep.record.ledger import CellStatus, RecordedRun, to_run
from sweep.run.progress import duration


@dataclass(frozen=True, kw_only=True)
class VariantCost:
    """One variant's share. Times are seconds of cells as if run one after another."""

    variant: str
    spent_s: float
    """Of every attempt that has ended, lost and failed ones too: they were paid for."""
    left: int
    """Cells that a plain `sweep run` schedules."""
    expected_s: float | None
    """Of those; None while no cell has finished."""
    gpus: float
    """GPUs of one cell."""
    peak_mb: float | None = None
    """Highest recorded peak of memory, MiB."""

    @property
    def spent_gpu_h(self) -> float:
        """GPU-hours spent."""
        return self.spent_s * self.gpus / 3600

    @property
    def expected_gpu_h(self) -> float | None:
        """GPU-hours expected."""
        return None if self.expected_s is None else self.expected_s * self.gpus / 3600


def costs(statuses: Sequence[CellStatus], recorded: Sequence[RecordedRun], *, gpus: float) -> tuple[VariantCost, ...]:
    """Cost per variant, in the order of the cells.

    A cell to run is expected to take the median of the finished cells of its variant and setting; failing these, of
    its variant, of its setting, of all.

    Args:
        statuses: The study's cells.
        recorded: Recorded runs of the study.
        gpus: GPUs of one cell.
    """
    finished = [(run.label, _seconds(run)) for run in recorded if run.status == "FINISHED" and _seconds(run) > 0]
    left = to_run(statuses, retry_failed=False)
    out = []
    for variant in dict.fromkeys(status.cell.variant for status in statuses):
        own = [run for run in recorded if run.label[0] == variant]
        expected = [_expected(status.cell.variant, status.cell.setting, finished) for status in left
                    if status.cell.variant == variant]  # fmt: skip
        peaks = [run.metrics[schema.METRIC_MEMORY_PEAK] for run in own if schema.METRIC_MEMORY_PEAK in run.metrics]
        out.append(
            VariantCost(
                variant=variant,
                spent_s=sum(_seconds(run) for run in own),
                left=len(expected),
                expected_s=sum(expected) if finished else (0.0 if not expected else None),
                gpus=gpus,
                peak_mb=max(peaks, default=None),
            )
        )
    return tuple(out)


def _seconds(run: RecordedRun) -> float:
    return max(0, run.end_ms - run.start_ms) / 1000 if run.end_ms is not None else 0.0


def _expected(variant: str, setting: str, finished: Sequence[tuple[tuple[str, str, str], float]]) -> float:
    both = [seconds for (v, _, s), seconds in finished if (v, s) == (variant, setting)]
    same_variant = [seconds for (v, _, _), seconds in finished if v == variant]
    same_setting = [seconds for (_, _, s), seconds in finished if s == setting]
    return median(both or same_variant or same_setting or [seconds for _, seconds in finished] or [0.0])


def cost_lines(found: Sequence[VariantCost]) -> list[str]:
    """A line a variant: `cost of chunked: spent 1.2 GPU-hours, expected 0.4 for 2 cells`."""
    lines = []
    for cost in found:
        spent = f"{cost.spent_gpu_h:.2f} GPU-hours" if cost.gpus else duration(cost.spent_s)
        line = f"cost of {cost.variant}: spent {spent}"
        if cost.left:
            cells = f"{cost.left} {'cell' if cost.left == 1 else 'cells'}"
            if cost.expected_s is None:
                line += f", unknown for {cells} until one has finished"
            else:
                more = f"{cost.expected_gpu_h:.2f} GPU-hours" if cost.gpus else duration(cost.expected_s)
                line += f", about {more} more for {cells}"
        if cost.peak_mb is not None:
            line += f"; peak memory {cost.peak_mb:.0f} MiB"
        lines.append(line)
    return lines
