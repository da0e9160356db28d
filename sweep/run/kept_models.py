"""What `keep: {model: last}` costs, said before anything runs, and which finished cells have no model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analysis import schema
from analysis.showing import counted
from sweep.record.ledger import CellStatus, RecordedRun
from sweep.record.recording import NO_MODEL_GIVEN
from sweep.run.memory import shown_bytes
from sweep.study import Study
from sweep.study.cells import Cell
from trainables.errors import InputError
from trainables.spec import BUILTIN_TRAINABLE, TrainSpec


def disk_use(study: Study, cells: Sequence[Cell]) -> str | None:
    """`keep: about 250 MiB for 12 cells`, of the cells to run; None where no model is to be kept.

    Args:
        study: A validated study.
        cells: Those that a plain `sweep run` schedules.
    """
    if study.keep.model is None or not cells:
        return None
    known, unknown = 0.0, 0
    sizes: dict[tuple[str, str], int | None] = {}
    for cell in cells:
        place = cell.variant, cell.setting
        if place not in sizes:
            sizes[place] = _size(cell.spec)
        size = sizes[place]
        known += size or 0
        unknown += size is None
    if unknown == len(cells):
        return f"keep: unknown disk use for {counted(unknown, 'cell')}: the size of the model cannot be read here"
    shown = shown_bytes(known) if known >= 10 * 2**20 else f"{known / 2**20:.1f} MiB"
    line = f"keep: about {shown} for {counted(len(cells) - unknown, 'cell')}"
    return line if not unknown else f"{line}; unknown for {unknown} more, whose model's size cannot be read here"


def _size(spec: TrainSpec) -> int | None:
    if spec.trainable != BUILTIN_TRAINABLE:
        return None
    from trainables.encoder.model_size import saved_bytes

    try:
        return saved_bytes(spec)
    except (InputError, OSError, ValueError, KeyError):  # the check of the model says what is wrong with it
        return None


def without_model(study: Study, statuses: Sequence[CellStatus], runs: Iterable[RecordedRun]) -> list[str]:
    """That finished cells have no kept model, though the study keeps models: they ran before it did, or lost it.

    Cells whose trainable gives none do not count.
    """
    if study.keep.model is None:
        return []
    known = {run.run_id: run.tags for run in runs}
    finished = [status for status in statuses if status.state == schema.STATE_FINISHED]
    tags = [known.get(status.run_id or "", {}) for status in finished]
    lacking = [
        one for one in tags if schema.TAG_MODEL not in one and NO_MODEL_GIVEN not in one.get(schema.TAG_NOTES, "")
    ]
    if not lacking:
        return []
    have = "1 finished cell has" if len(lacking) == 1 else f"{len(lacking)} finished cells have"
    return [f"keep: {have} no kept model; `sweep run --rerun CELL` trains one again"]
