"""Removes what finished cells and killed launches left behind."""

from __future__ import annotations

import shutil
import sys

from sweep.files import lock_file, scratch_folder, spool_folder
from sweep.record.retry import START_WAIT_S
from sweep.record.spool import Spool
from sweep.record.study_lock import Owner, StudyLock
from sweep.record.tracking import Tracking
from sweep.record.tracking_uri import absolute_uri, database_file, default_uri
from sweep.study import Study


def clean_study(study: Study, *, tracking_uri: str | None = None) -> int:
    """Remove what finished cells left behind: their waiting results, and scratch of launches that were killed.

    Returns:
        Exit code 0.

    Raises:
        ClaimedError: the study is being run.
        SweepError: the store cannot be asked.
    """
    uri = absolute_uri(tracking_uri or default_uri())
    lock = StudyLock(lock_file(study.name, uri, database_file(uri)))
    lock.acquire(study.name, Owner.here())
    try:
        runs = Tracking(uri, wait_s=START_WAIT_S).recorded_runs(study.name)
        finished = {run.key for run in runs if run.status == "FINISHED"}
        spool = Spool(spool_folder(study.name))
        removed = kept = 0
        for path, found in spool.waiting():
            if not isinstance(found, ValueError) and found.cell in finished:
                spool.remove(path)
                removed += 1
            else:
                kept += 1
        scratch = scratch_folder(study.name, uri)
        if scratch.exists():
            shutil.rmtree(scratch, ignore_errors=True)
            removed += 1
    finally:
        lock.release()
    line = f"removed {removed}, kept {kept} waiting to be recorded by `sweep run`"
    print(line, file=sys.stderr)
    return 0
