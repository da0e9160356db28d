"""Removes what finished cells and killed launches left behind."""

from __future__ import annotations

import shutil
import sys

from analysis.showing import counted
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
        removed = waiting = unreadable = 0
        for path, found in spool.waiting():
            if isinstance(found, ValueError):
                unreadable += 1
            elif found.cell in finished:
                spool.remove(path)
                removed += 1
            else:
                waiting += 1
        scratch = scratch_folder(study.name, uri)
        scratched = scratch.exists()
        if scratched:
            shutil.rmtree(scratch, ignore_errors=True)
    finally:
        lock.release()
    print(_sentence(removed, waiting, unreadable, scratched), file=sys.stderr)
    return 0


def _sentence(removed: int, waiting: int, unreadable: int, scratched: bool) -> str:
    """What was removed and what is kept, in words; what is not there is not spoken of."""
    gone = [f"{counted(removed, 'waiting result')} of finished cells"] if removed else []
    gone += ["the scratch folder of a launch that was killed"] if scratched else []
    text = f"removed {' and '.join(gone)}" if gone else "nothing to remove"
    if waiting:
        text += f"; kept {counted(waiting, 'waiting result')} that `sweep run` will record"
    if unreadable:
        text += f"; kept {counted(unreadable, 'waiting result')} that cannot be read"
    return text
