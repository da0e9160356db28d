"""What is left to pay: the time of the cells to run, from the times of recorded cells. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from analysis import schema
from sweep.record.ledger import CellStatus, RecordedRun, to_run
from sweep.run.progress import duration


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Time of the cells that are left."""

    cells: int
    """Cells that a plain `sweep run` schedules."""
    basis: int
    """Recorded cells that the estimate rests on; 0: nothing is known yet."""
    cell_s: float
    """Sum over the cells to run, in seconds; as if run one after another."""
    gpu_s: float
    """The same times the GPUs of a cell."""

    def __str__(self) -> str:
        count = f"{self.cells} {'cell' if self.cells == 1 else 'cells'} to run"
        if not self.cells:
            return "nothing to run"
        if not self.basis:
            return f"{count}; their cost is unknown until one has finished"
        seen = f"from {self.basis} finished {'cell' if self.basis == 1 else 'cells'}"
        cost = f"about {duration(self.cell_s)} of cell time"
        if self.gpu_s:
            cost += f", {self.gpu_s / 3600:.1f} GPU-hours"
        return f"{count}: {cost} ({seen})"


def estimate_cost(statuses: Sequence[CellStatus], recorded: Sequence[RecordedRun], *, gpus: float) -> Estimate:
    """Cost of what is left. A cell costs the median of finished cells of its setting, else of all finished cells.

    Args:
        statuses: The study's cells.
        recorded: Recorded runs of the study.
        gpus: GPUs of one cell.
    """
    seconds: dict[str, list[float]] = {}
    for run in recorded:
        if run.status == "FINISHED" and run.end_ms is not None and run.end_ms > run.start_ms:
            setting = run.tags.get(schema.TAG_SETTING, schema.DEFAULT_SETTING)
            seconds.setdefault(setting, []).append((run.end_ms - run.start_ms) / 1000)
    everything = [value for values in seconds.values() for value in values]
    left = to_run(statuses, retry_failed=False)
    total = sum(median(seconds.get(status.cell.setting) or everything or [0.0]) for status in left)
    return Estimate(cells=len(left), basis=len(everything), cell_s=total, gpu_s=total * gpus)
