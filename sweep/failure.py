"""Why a cell failed, as it was recorded: its traceback and the last lines of its output."""

from __future__ import annotations

from typing import Final

from sweep.errors import SweepError
from sweep.record.recording import FAILURE_ARTIFACT, OUTPUT_ARTIFACT
from sweep.record.study_run import chosen_for_rerun
from sweep.record.tracking import Tracking
from sweep.status import SHOW_WAIT_S, study_status
from sweep.study import Study

LAST_LINES: Final = 40


def failure_text(study: Study, asked: str, tracking_uri: str) -> str:
    """The recorded `failure.txt` of a cell's last attempt, and the end of its `output.txt`.

    Args:
        study: A validated study.
        asked: The cell as `--rerun` names one: `VARIANT:SEED`, `VARIANT:SEED:SETTING` or the start of its key.
        tracking_uri: Of the tracking store.

    Raises:
        SweepError: no such cell, several, or one that has not failed.
        TrackingError: not a usable store.
    """
    found = study_status(study, tracking_uri)
    try:
        cells = chosen_for_rerun([status.cell for status in found.statuses], [asked])
    except ValueError as error:
        raise SweepError(f"--failure: {error}") from None
    statuses = [status for status in found.statuses if status.cell.key in {cell.key for cell in cells}]
    tracking = Tracking(tracking_uri, wait_s=SHOW_WAIT_S)
    parts: list[str] = []
    for status in statuses:
        story = None if status.run_id is None else tracking.artifact_text(status.run_id, FAILURE_ARTIFACT)
        if story is None:
            if len(statuses) > 1:
                continue
            state = status.state.replace("_", " ")
            raise SweepError(f"--failure: {status.cell.run_name} is {state} and has no recorded failure")
        parts += [f"{status.cell.run_name}: {status.reason}", "", story.rstrip()]
        output = tracking.artifact_text(str(status.run_id), OUTPUT_ARTIFACT)
        if output and "The last lines of its output:" not in story:
            parts += ["", "The last lines of its output:", *output.splitlines()[-LAST_LINES:]]
    if not parts:
        raise SweepError(f"--failure: {asked!r} names no cell with a recorded failure")
    return "\n".join(parts)
