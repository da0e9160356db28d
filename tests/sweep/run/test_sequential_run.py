"""A sequential study end to end, without Ray: a real store, a planted effect."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from analysis import schema
from sweep.record.study_run import history_of
from sweep.record.tracking import Tracking
from sweep.run.run_study import run_study
from sweep.status import status_json, study_status
from sweep.study import load_study
from tests.sweep.in_process import InProcess

STUDY = Path(__file__).parents[3] / "studies" / "closed_form_sequential.yaml"


def test_stops_at_seven_seeds_when_every_seed_agrees(
    tmp_path: Path, store: Tracking, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = store.uri
    study = load_study(shutil.copy(STUDY, tmp_path))

    before = study_status(study, uri)
    assert before.sequential is not None
    assert before.sequential.missing == (0, 1, 2, 3, 4)

    assert run_study(study, InProcess()) == 0
    said = capsys.readouterr().err
    assert "after 5 seeds improved undecided: E has not reached 20; adding seed 5, 6" in said
    assert "improved, test/spearman_64: 7 wins, 0 losses; E = 26.8 of 20 (better)" in said
    assert "stopped: decided after 7 seeds" in said

    recorded = store.recorded_runs(study.name)
    assert Counter(run.status for run in recorded) == {"FINISHED": 14}
    assert {run.label[1] for run in recorded} == {str(seed) for seed in range(7)}
    parent = store.study_run(study.name)
    assert parent is not None
    changes = history_of(parent.tags, schema.HISTORY_TAG_SEEDS)
    assert [entry["seeds"] for entry in changes] == [list(range(5)), list(range(7))]

    # The same command again: the same decision, nothing trained, nothing added to the history.
    assert run_study(study, InProcess()) == 0
    said = capsys.readouterr().err
    assert "14 of 14 cells finished" in said
    assert "stopped: decided after 7 seeds" in said
    assert len(store.recorded_runs(study.name)) == 14
    parent = store.study_run(study.name)
    assert parent is not None
    assert history_of(parent.tags, schema.HISTORY_TAG_SEEDS) == changes

    after = study_status(study, uri)
    assert [status.state for status in after.statuses] == [schema.STATE_FINISHED] * 14
    assert not [line for line in after.warnings if "not described" in line]
    shown = json.loads(status_json(after))["sequential"]
    assert (shown["decision"]["stop"], shown["decision"]["states"][0]["decided"]) == (True, "better")
    assert shown["decision"]["states"][0]["e_value"] == pytest.approx(26.8125)
