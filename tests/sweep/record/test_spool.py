from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from sweep.errors import SweepError
from sweep.record.recording import recording_of
from sweep.record.spool import Spool, Spooled
from tests.sweep.runs import a_cell
from trainables.spec import Predictions, TrainResult


def a_result() -> Spooled:
    cell = a_cell()
    predictions = Predictions(labels=np.array([0.1, 0.9]), by_dim={8: np.array([0.25, 1 / 3])})
    result = TrainResult(
        scores={"test/spearman_8": 1 / 3},
        predictions={"test": predictions},
        loss_curve=((1, 0.5),),
        fingerprint={"device": "cpu"},
    )
    recording = recording_of(cell, result, time_ms=5)
    return Spooled(study="s", cell=cell.key, run_name="a-s0-default", tags={"t": "ä"}, run_id=None, recording=recording)


def test_a_result_comes_back_bit_equal(tmp_path: Path) -> None:
    spool, one = Spool(tmp_path / "new" / "folder"), a_result()
    path = spool.put(one.cell, one.pack())
    assert list(spool.waiting()) == [(path, one)]
    spool.remove(path)
    assert list(spool.waiting()) == []


def test_a_truncated_file_is_named_and_set_aside(tmp_path: Path) -> None:
    spool, one = Spool(tmp_path), a_result()
    path = spool.put(one.cell, one.pack()[:-40])
    ((found, error),) = spool.waiting()
    assert found == path
    assert isinstance(error, ValueError)
    aside = spool.set_aside(path)
    assert aside.exists()
    assert list(spool.waiting()) == []


def test_a_half_written_file_is_never_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool, one = Spool(tmp_path), a_result()

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(SweepError, match="No space left on device"):
        spool.put(one.cell, one.pack())
    assert list(tmp_path.iterdir()) == []
