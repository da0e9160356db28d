"""Which recorded runs get other names; that the report then reads alike is tested on whole launches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from sweep.record.ledger import runs_to_rename
from sweep.study import Study, load_study
from sweep.study.cells import Cell, expand
from tests.sweep.runs import a_run
from tests.sweep.studies import toy, write
from tests.sweep.study.test_cells import Known

ANGLE, COSENT = {"loss": "angle", "layout": "chunked"}, {"loss": "cosent"}


def declared(folder: Path, **changes: Any) -> tuple[Study, list[Cell]]:
    study = load_study(write(folder, toy(training={"batch_size": 4}, **changes)))
    return study, expand(study, lambda spec: Known())


def test_a_grid_around_what_was_the_only_setting_names_it(tmp_path: Path) -> None:
    _, before = declared(tmp_path, seeds=2)
    runs = [a_run(cell, "FINISHED", run_id=cell.run_name) for cell in before]
    study, after = declared(tmp_path, seeds=2, settings={"grid": {"batch_size": [4, 8]}})
    found = {run.run_id: (cell.variant, cell.setting) for run, cell in runs_to_rename(study, after, runs)}
    assert found == {cell.run_name: (cell.variant, "batch_size=4") for cell in before}


def test_seeds_that_are_no_longer_listed_and_failed_attempts_are_renamed_too(tmp_path: Path) -> None:
    _, before = declared(tmp_path, seeds=4)
    runs = [a_run(cell, "FAILED" if cell.seed == 1 else "FINISHED", run_id=cell.run_name) for cell in before]
    study, after = declared(tmp_path, seeds=2, variants={"angle": ANGLE, "b": COSENT})
    found = {(run.run_id, cell.variant) for run, cell in runs_to_rename(study, after, runs)}
    assert found == {(f"a-s{seed}-default", "angle") for seed in range(4)}


def test_what_is_as_named_or_no_cell_any_more_stays(tmp_path: Path) -> None:
    study, cells = declared(tmp_path, seeds=2)
    runs = [a_run(cell, "FINISHED") for cell in cells]
    assert runs_to_rename(study, cells, runs) == []
    study, changed = declared(tmp_path, seeds=2, variants={"c": ANGLE | {"layout": "interleaved"}, "b": COSENT})
    assert runs_to_rename(study, changed, runs) == []


def test_trials_of_a_search_keep_their_names(tmp_path: Path) -> None:
    study, cells = declared(tmp_path, seeds=2)
    runs = [a_run(replace(cell, setting="trial 7"), "FINISHED") for cell in cells]
    assert runs_to_rename(study, [replace(cell, kind="search") for cell in cells], runs) == []
