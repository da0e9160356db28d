"""Where a study stands: its cells held against what is recorded, with everything worth saying about that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweep.cost import VariantCost, costs
from sweep.estimate import Estimate, estimate_cost
from sweep.record.ledger import CellStatus, RecordedRun, changed_cells, reconcile
from sweep.run.preflight import planned_cells, unresolved_notices
from sweep.study import Study
from sweep.study.warnings import study_warnings

if TYPE_CHECKING:
    from sweep.run.sequential import SequentialState

SHOW_WAIT_S = 10.0
"""Longest wait for a tracking store that is away, where nothing is to be written."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A study's cells, their states, and what to know about them."""

    study: Study
    """With the seeds added so far, in a sequential study."""
    statuses: tuple[CellStatus, ...]
    warnings: tuple[str, ...]
    estimate: Estimate
    costs: tuple[VariantCost, ...]
    """Spent and expected, per variant."""
    sequential: SequentialState | None = None
    """Of a sequential study: its e-values against their thresholds."""


def standing(study: Study, tracking_uri: str) -> Standing:
    """Ask the store what it knows of a study. Reads no data and no weights; writes nothing.

    Raises:
        TrackingError: not a usable store.
        TrackingUnavailable: the store did not answer in time.
    """
    from sweep.files import lock_file
    from sweep.record.study_lock import is_live
    from sweep.record.tracking import Tracking
    from sweep.record.tracking_uri import database_file

    tracking = Tracking(tracking_uri, wait_s=SHOW_WAIT_S)
    recorded = tracking.recorded_runs(study.name)
    sequential = None
    if study.analysis.stopping == "sequential":
        from sweep.run.sequential import state_now

        study, cells, sequential = state_now(study, tracking, recorded, planned_cells)
    else:
        cells = planned_cells(study)
    lock = lock_file(study.name, tracking.uri, database_file(tracking.uri))
    alive = any(run.status == "RUNNING" for run in recorded) and is_live(study.name, tracking, lock)
    statuses = reconcile(cells, recorded, owner_alive=alive, match_spec=True)
    warnings = [*study_warnings(study), *unresolved_notices(cells), *_changes(statuses), *_others(cells, recorded)]
    return Standing(
        study=study,
        statuses=tuple(statuses),
        warnings=tuple(warnings),
        estimate=estimate_cost(statuses, recorded, gpus=study.resources.gpus),
        costs=costs(statuses, recorded, gpus=study.resources.gpus),
        sequential=sequential,
    )


def _changes(statuses: Sequence[CellStatus]) -> list[str]:
    return [
        f"changed since it was recorded: {name}, in {count} {'cell' if count == 1 else 'cells'}; "
        "`sweep run` extends a mixed study only with --accept-changes"
        for name, count in changed_cells(statuses).items()
    ]


def _others(cells: Sequence[object], recorded: Sequence[RecordedRun]) -> list[str]:
    """Finished cells of the same experiment that the study file does not describe."""
    keys = {getattr(cell, "key", "") for cell in cells} | {getattr(cell, "spec_key", "") for cell in cells}
    from analysis import schema

    other = {
        run.key
        for run in recorded
        if run.status == "FINISHED" and run.key not in keys and run.tags.get(schema.TAG_SPEC, "") not in keys
    }
    if not other:
        return []
    count = "1 finished cell is" if len(other) == 1 else f"{len(other)} finished cells are"
    return [f"{count} recorded under this name but not described by the study file"]
