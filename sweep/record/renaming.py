"""A cell's identity leaves out names, so a renamed variant or setting keeps its runs: they take the new name."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from analysis import schema
from sweep.study.cells import cell_key

if TYPE_CHECKING:
    from sweep.record.ledger import RecordedRun
    from sweep.record.tracking import Tracking
    from sweep.study import Study
    from sweep.study.cells import Cell

RUN_NAME_TAG: Final = "mlflow.runName"


def runs_to_rename(study: Study, cells: Sequence[Cell], runs: Iterable[RecordedRun]) -> list[tuple[RecordedRun, Cell]]:
    """Runs recorded under another variant or setting than their cell has now, each with a cell of these names.

    Args:
        study: As its file has it now.
        cells: Its cells.
        runs: Their runs; those of seeds that the study no longer lists are renamed alike.
    """
    runs = list(runs)
    cell_of = {cell.key: cell for cell in cells}
    unlisted = {int(run.label[1]) for run in runs if run.key not in cell_of and run.label[1].isdecimal()}
    for cell in {(cell.variant, cell.setting): cell for cell in cells if cell.kind == schema.KIND_CELL}.values():
        for seed in unlisted:
            cell_of.setdefault(cell_key(study.spec(cell.variant, cell.setting, seed), cell.digests), cell)
    found = [(run, cell_of[run.key]) for run in runs if run.key in cell_of]
    # A search's trials are numbered anew with every search: their names say nothing that lasts.
    return [
        (run, cell)
        for run, cell in found
        if cell.kind == schema.KIND_CELL and (run.label[0], run.label[2]) != (cell.variant, cell.setting)
    ]


def follow_names(
    tracking: Tracking, study: Study, cells: Sequence[Cell], runs: Iterable[RecordedRun], *, say: Callable[[str], None]
) -> int:
    """Give runs the names that their cells have now, and keep what a variant was called first.

    Args:
        tracking: The store.
        study: As its file has it now.
        cells: Its cells.
        runs: Their runs.
        say: Gets one line for each new name.

    Returns:
        How many runs were renamed.
    """
    names: Counter[tuple[str, str]] = Counter()
    for run, cell in runs_to_rename(study, cells, runs):
        variant, seed, setting = run.label
        tracking.set_tags(
            run.run_id,
            {
                schema.TAG_VARIANT: cell.variant,
                schema.TAG_SETTING: cell.setting,
                schema.TAG_VARIANT_FIELDS: json.dumps(list(cell.variant_fields)),
                schema.TAG_FIRST_VARIANT: run.tags.get(schema.TAG_FIRST_VARIANT, variant),
                RUN_NAME_TAG: f"{cell.variant}-s{seed}-{cell.setting}",
            },
        )
        same_setting = setting == cell.setting
        before = variant if same_setting else f"{variant} in setting {setting}"
        now = cell.variant if same_setting else f"{cell.variant} in setting {cell.setting}"
        names[before, now] += 1
    for (before, now), count in names.items():
        say(f"note: {before} is now called {now}: {count} recorded cells renamed, none trained again")
    return names.total()
