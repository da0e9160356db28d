"""A study whose folder was moved or copied: what is read, what is written and where, and how its store is mended."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from analysis import schema
from analysis.cli import main as analysis_main
from sweep.cli import main as sweep_main
from sweep.errors import TrackingError
from sweep.record.relocate import relocate
from sweep.record.study_run import open_study_run
from sweep.record.tracking import Tracking
from sweep.run.launch import RunOptions
from sweep.run.run_study import run_study
from sweep.study import Study, load_study
from tests.sweep.in_process import InProcess
from tests.sweep.studies import write

NAME = "moving"
DECLARED = "test/spearman_16"


def study_data(**changes: object) -> dict[str, object]:
    return {
        "version": 1,
        "name": NAME,
        "trainable": "closed-form",
        "matryoshka_dims": [16, 64],
        "variants": {
            # The baseline is not the first: one that is taken by default would be another.
            "new": {"options": {"effect": 0.02, "effect_sd": 0.01}},
            "old": {"options": {"effect": 0.0, "effect_sd": 0.01}},
        },
        "baseline": "old",
        "seeds": 3,
        "resources": {"cpus": 1},
        "analysis": {"primary": [DECLARED], "margin": 0.005},
        **changes,
    }


@pytest.fixture
def old(store: Tracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a study that has been run there."""
    monkeypatch.setenv("PAIRSWEEP_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "old"
    folder.mkdir()
    shutil.move(tmp_path / "mlflow.db", folder / "mlflow.db")
    assert train(folder, write(folder, study_data())) == 0
    return folder


@pytest.fixture
def new(old: Path, tmp_path: Path) -> Path:
    """Where the folder goes; not there yet."""
    return tmp_path / "new"


def uri_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'mlflow.db'}"


def train(folder: Path, file: Path | None = None, seeds: int | None = None) -> int:
    study: Study = load_study(file or folder / "study.yaml")
    study = study if seeds is None else study.with_seeds(seeds)
    return run_study(study, InProcess(), RunOptions(tracking_uri=uri_of(folder)))


def report(folder: Path, *words: str) -> tuple[str, str]:
    """What `analysis report` prints, and says beside it."""
    command = ["report", NAME, "--tracking-uri", uri_of(folder), *words]
    done = CliRunner().invoke(analysis_main, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def recorded_places(folder: Path) -> list[str]:
    """Every artifact URI in the store."""
    with closing(sqlite3.connect(folder / "mlflow.db")) as database:
        rows = database.execute("SELECT artifact_uri FROM runs").fetchall()
        rows += database.execute("SELECT artifact_location FROM experiments WHERE name = ?", (NAME,)).fetchall()
    return [uri for (uri,) in rows]


def test_the_report_of_a_moved_study_is_the_one_before(old: Path, new: Path) -> None:
    before, said = report(old, "--format", "json")
    assert "moved" not in said
    old.rename(new)
    after, said = report(new, "--format", "json")
    assert after == before
    assert json.loads(after)["plan"]["primary"] == [DECLARED]
    assert said.count("note: this folder was moved or copied from ") == 1
    assert str(old / "mlruns") in said
    assert str(new / "mlruns") in said


@pytest.mark.parametrize("old_is", ["there", "gone"])
def test_a_run_in_the_new_folder_leaves_the_old_one_alone(
    old: Path, new: Path, old_is: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(old, new)
    if old_is == "gone":
        shutil.rmtree(old)
    before = content(old)
    capsys.readouterr()
    assert train(new, seeds=4) == 0
    said = capsys.readouterr().err
    assert said.count("note: this folder was moved or copied from ") == 1
    assert "7 runs' files are now looked for in" in said  # six cells and the study run
    assert content(old) == before
    assert old.exists() == (old_is == "there")
    assert all(place.startswith((new / "mlruns").as_uri()) for place in recorded_places(new))
    assert len(list(new.glob("mlruns/*/*/artifacts/predictions/test.parquet"))) == 8
    told, said = report(new, "--format", "json")
    assert "moved" not in said
    assert "No crossed interval" not in report(new, "--full")[0]
    assert json.loads(told)["plan"]["baseline"] == "old"
    assert train(new, seeds=4) == 0
    assert "moved or copied" not in capsys.readouterr().err


def test_report_files_are_attached_in_the_copy(old: Path, new: Path) -> None:
    shutil.copytree(old, new)
    before = content(old)
    report(new, "--log")
    assert content(old) == before
    assert list(new.glob("mlruns/*/*/artifacts/reports/report.json"))


def test_files_that_cannot_be_reached_are_named(old: Path, new: Path) -> None:
    report(old)
    new.mkdir()
    shutil.move(old / "mlflow.db", new / "mlflow.db")
    shutil.move(old / "study.yaml", new / "study.yaml")
    old.rename(old.with_name("elsewhere"))
    told = " ".join(report(new, "--full")[0].split())
    assert "Files cannot be reached" in told
    assert "none were stored" not in told
    for text in (str(old / "mlruns"), str(new / "mlruns"), "sweep relocate STUDY --artifacts FOLDER"):
        assert "".join(text.split()) in "".join(told.split())  # a long path breaks at the edge of the page
    plan = json.loads(report(new, "--format", "json")[0])["plan"]
    assert (plan["primary"], plan["baseline"]) == ([DECLARED], "old")  # from the tag
    with pytest.raises(TrackingError, match=r"sweep relocate STUDY --artifacts FOLDER"):
        train(new, seeds=4)
    assert not old.exists()


def test_a_plan_that_is_lost_is_said_on_top(old: Path) -> None:
    shutil.rmtree(old / "mlruns")
    with closing(sqlite3.connect(old / "mlflow.db")) as database, database:
        database.execute('DELETE FROM tags WHERE "key" = ?', (schema.TAG_PLAN,))
    assert "declared at the first run cannot be read" in " ".join(report(old)[0].split())


def test_a_lost_plan_is_not_declared_anew(old: Path) -> None:
    (plan,) = old.glob(f"mlruns/*/*/artifacts/{schema.PLAN_ARTIFACT}")
    before = plan.read_bytes()
    plan.unlink()
    other = load_study(write(old, study_data(analysis={"primary": ["test/spearman_64"]}), "other.yaml"))
    open_study_run(Tracking(uri_of(old)), other)
    assert plan.read_bytes() == before


def test_relocate_names_what_is_missing_mends_and_does_nothing_twice(old: Path, new: Path, tmp_path: Path) -> None:
    new.mkdir()
    shutil.move(old / "mlflow.db", new / "mlflow.db")
    shutil.move(old / "study.yaml", new / "study.yaml")
    backup = tmp_path / "backup"
    old.rename(backup)
    uri = uri_of(new)
    before = recorded_places(new)
    with pytest.raises(TrackingError, match=r"mlruns/.* does not hold the files of 'moving': missing are moving \("):
        relocate(NAME, uri)
    (cell, *_) = (path for path in backup.glob("mlruns/*/*") if (path / "artifacts" / "predictions").is_dir())
    cell.rename(tmp_path / "aside")
    with pytest.raises(TrackingError, match=cell.name):
        relocate(NAME, uri, backup / "mlruns")
    assert recorded_places(new) == before
    (tmp_path / "aside").rename(cell)
    command = ["relocate", str(new / "study.yaml"), "--artifacts", str(backup), "--tracking-uri", uri]
    done = CliRunner().invoke(sweep_main, command)
    assert done.exit_code == 0, done.output
    assert "7 runs' files are now looked for in" in done.stderr
    assert all(place.startswith((backup / "mlruns").as_uri()) for place in recorded_places(new))
    assert "nothing to do" in CliRunner().invoke(sweep_main, command).stderr
    assert "No crossed interval" not in report(new, "--full")[0]


def test_relocate_is_for_sqlite_alone() -> None:
    with pytest.raises(TrackingError, match=r"http://localhost:1 is not a SQLite file"):
        relocate(NAME, "http://localhost:1")
