"""What a person does who edits a loss or a trainable: see why it failed, stop in it, try other numbers."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import sweep
from analysis import schema
from sweep.cli import main
from sweep.record.study_run import open_study_run
from sweep.record.tracking import Tracking
from sweep.run import run_study as module
from sweep.run.launch import RunOptions
from sweep.study import Study, load_study
from tests.sweep.in_process import InProcess
from tests.sweep.studies import noop, write

OWN = """\
from trainables.spec import TrainResult

def train(spec, report):
    print("printed by the training")
    {line}
"""


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def own(folder: Path, name: str, line: str) -> Study:
    (folder / f"{name}.py").write_text(OWN.format(line=line))
    variants = {"a": {}, "b": {"options": {"x": 1}}}
    return load_study(write(folder, noop(name=folder.name, trainable=f"{name}:train", variants=variants, seeds=3)))


def run(study: Study, backend: InProcess, **options: Any) -> int:
    return module.run_study(study, backend, RunOptions(**options))


def test_a_failed_cells_traceback_is_shown_by_the_command_that_is_named(
    tmp_path: Path, store: Tracking, capsys: pytest.CaptureFixture[str]
) -> None:
    study = own(tmp_path, "own_fails", "raise ValueError('what went wrong')")
    assert run(study, InProcess(), tracking_uri=store.uri) == 1
    (line,) = [one for one in capsys.readouterr().err.splitlines() if one.startswith("its traceback: ")]
    words = shlex.split(line.removeprefix("its traceback: "))
    assert words[:2] == ["sweep", "status"]
    shown = CliRunner().invoke(main, words[1:])
    assert shown.exit_code == 0, shown.output
    assert "ValueError: what went wrong" in shown.stdout
    assert "own_fails.py" in shown.stdout
    assert line in CliRunner().invoke(main, ["status", str(study.path), "--tracking-uri", store.uri]).stdout
    wrong = CliRunner().invoke(main, ["status", str(study.path), "--failure", "c:9", "--tracking-uri", store.uri])
    assert "--failure: 'c:9' fits no cell" in wrong.output


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        (
            "own_dict",
            "return {'test/accuracy_8': 0.5}",
            "the trainable returned a dict; expected trainables.spec.TrainResult",
        ),
        (
            "own_name",
            "return TrainResult(scores={'accuracy': 0.5})",
            "a score named 'accuracy'; expected split/metric_size",
        ),
    ],
)
def test_a_result_of_the_wrong_form_stops_the_sweep(
    name: str, line: str, message: str, tmp_path: Path, store: Tracking, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = InProcess()
    assert run(own(tmp_path, name, line), backend, tracking_uri=store.uri) == 1
    assert message in capsys.readouterr().err
    assert len(backend.ran) < 6


def test_a_trainable_without_a_fingerprint_stops_after_its_first_cells(
    tmp_path: Path, store: Tracking, capsys: pytest.CaptureFixture[str]
) -> None:
    study = own(tmp_path, "own_bare", "return TrainResult(scores={'test/accuracy_8': 0.5 + spec.seed / 10})")
    backend = InProcess()
    assert run(study, backend, tracking_uri=store.uri) == 1
    said = capsys.readouterr().err
    assert "warning: trainable: own_bare:train seems to give no fingerprint" in said
    assert "gives no fingerprint, so no pair of its cells can be verified" in said
    assert len(backend.ran) < 6
    with pytest.raises(sweep_error(), match="gives no fingerprint"):
        run(study, backend, tracking_uri=store.uri)
    assert run(study, backend, tracking_uri=store.uri, allow_unverified=True) == 0
    assert len(backend.ran) == 6  # the first ones were not lost


def sweep_error() -> type[Exception]:
    from sweep.errors import SweepError

    return SweepError


def test_debug_stops_at_a_breakpoint_and_prints_the_scores(tmp_path: Path) -> None:
    (tmp_path / "own_stops.py").write_text(
        OWN.format(line="x = 41; breakpoint()\n    return TrainResult(scores={'test/accuracy_8': (x + 1) / 100})")
    )
    path = write(tmp_path, noop(trainable="own_stops:train", variants={"a": {}, "b": {"options": {"x": 1}}}))
    command = [sys.executable, "-m", "sweep.cli", "debug", str(path), "--variant", "b", "--seed", "5"]
    done = subprocess.run(command, input="p x + 1\nc\n", capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "(Pdb) 42" in done.stdout
    assert "printed by the training" in done.stdout
    assert "test/accuracy_8  0.420000" in done.stdout
    assert not (tmp_path / "mlflow.db").exists()


def test_debug_refuses_what_is_not_there(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["debug", str(write(tmp_path, noop())), "--variant", "c"])
    assert done.exit_code == 2
    assert "--variant: 'c' is not valid; expected one of a, b" in done.output


def test_plan_and_the_record_tell_what_was_overridden(tmp_path: Path, store: Tracking) -> None:
    path = write(tmp_path, noop())
    shown = CliRunner().invoke(main, ["plan", str(path), "seeds=2", "matryoshka_dims=[8]"])
    assert "overridden on the command line: seeds=2 matryoshka_dims=[8]\n" in shown.stdout
    assert "noop-study: 4 cells" in shown.stdout
    study = load_study(path, ["seeds=2"])
    kept = open_study_run(store, study)
    text = store.artifact_text(kept.run_id, schema.STUDY_ARTIFACT) or ""
    assert text.startswith("# overridden on the command line: seeds=2\n")
    again = open_study_run(store, load_study(path, ["seeds=2", "matryoshka_dims=[8]"]))
    assert again.run_id == kept.run_id


def test_from_python_as_from_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def ran(study: Study, backend: Any, options: RunOptions) -> int:
        seen.update(seeds=study.seeds, options=options)
        return 0

    monkeypatch.setattr(module, "run_study", ran)
    path = write(tmp_path, noop())
    assert sweep.run_study(path, seeds=2, max_concurrent=1) == 0
    assert seen["seeds"] == (0, 1)
    assert seen["options"].max_concurrent == 1
    assert sweep.load(path, "seeds=3").seeds == (0, 1, 2)


def test_import_sweep_is_light() -> None:
    code = "import sys, sweep; print([m for m in ('ray', 'mlflow', 'torch', 'pydantic', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
