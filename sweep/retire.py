"""`sweep retire`: takes recorded cells out of sight and brings them back; MLflow keeps them among its deleted runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from analysis.revisions import split_name
from analysis.showing import counted
from sweep.errors import ClaimedError, SweepError
from sweep.files import lock_file
from sweep.record.ledger import RecordedRun, numbered, recorded_revisions
from sweep.record.study_lock import Owner, StudyLock, is_live
from sweep.record.tracking import Tracking
from sweep.record.tracking_uri import database_file
from sweep.run.preflight import planned_cells
from sweep.study import Study

WAIT_S = 10.0


def retire(study: Study, names: Sequence[str], *, tracking_uri: str, undo: bool = False) -> list[str]:
    """Retire the cells of these names, or bring retired ones back.

    Args:
        study: Whose cells.
        names: Each a revision `mine@1`, a variant, or `VARIANT:SEED` or `VARIANT:SEED:SETTING`; none, with `undo`: all.
        tracking_uri: The store.
        undo: Bring back.

    Returns:
        What was done, a line each.

    Raises:
        SweepError: a name that fits nothing, a driver that runs the study, or a store that cannot be written.
    """
    tracking = Tracking(tracking_uri, wait_s=WAIT_S)
    path = lock_file(study.name, tracking.uri, database_file(tracking.uri))
    if is_live(study.name, tracking, path):
        raise ClaimedError(f"study {study.name!r} is being run; wait for it or stop it")
    lock = StudyLock(path)
    lock.acquire(study.name, Owner.here())
    try:
        runs = tracking.retired_runs(study.name) if undo else tracking.recorded_runs(study.name)
        chosen = _chosen(runs, names, what="retired" if undo else "recorded")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        for run in chosen:
            if undo:
                tracking.restore(run.run_id)
            else:
                tracking.retire(run.run_id, now)
        left = tracking.recorded_runs(study.name)
    finally:
        lock.release()
    count = counted(len(chosen), "run")
    if undo:
        return [f"{count} brought back"]
    back = " ".join(["sweep retire", str(study.path), "--undo", *names])
    lines = [f"{count} retired: no report, status or sweep sees them; bring them back with: {back}"]
    finished = {run.key for run in left if run.finished}
    retired = {run.key for run in chosen if run.finished}
    again = sum(cell.key in retired - finished for cell in numbered(planned_cells(study), left))
    if again:
        lines.append(f"the study file still means {again} of their cells: `sweep run` would train them again")
    return lines


def _chosen(runs: Sequence[RecordedRun], names: Sequence[str], *, what: str) -> list[RecordedRun]:
    revisions = recorded_revisions(runs)
    if not names:
        return list(runs)
    by_id = {run.run_id: run for run in runs}
    chosen: dict[str, RecordedRun] = {}
    for name in names:
        variant, number = split_name(name, revisions)
        of_revision = [
            by_id[run.run_id] for one in revisions.get(variant, ()) if number in (None, one.number) for run in one.runs
        ]
        fits = of_revision or [run for run in runs if name in (":".join(run.label[:2]), ":".join(run.label))]
        if not fits:
            known = ", ".join(one.name for group in revisions.values() for one in group) or "nothing"
            raise SweepError(
                f"{name!r} fits no {what} cell; expected VARIANT@REVISION, VARIANT, VARIANT:SEED or"
                f" VARIANT:SEED:SETTING; {what}: {known}"
            )
        chosen.update((run.run_id, run) for run in fits)
    return list(chosen.values())
