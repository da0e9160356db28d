"""The `sweep` command: help, exit codes, exact messages, options that arrive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sweep.cli import main
from sweep.errors import ClusterError, TrackingUnavailable
from sweep.files import spool_folder
from sweep.on_ray.ray_backend import RayBackend
from sweep.record.spool import SUFFIX
from sweep.run.launch import RunOptions
from sweep.study import Study
from tests.sweep.studies import noop, toy, write

COMMANDS = ["init", "check", "plan", "status", "run", "submit", "debug", "retire", "tune", "clean", "relocate"]
HEAVY = [
    "torch", "ray", "mlflow", "transformers", "sentence_transformers", "datasets", "optuna", "scipy", "pandas",
    "matplotlib", "numpy",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def sweep(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


def test_commands_stand_in_the_order_of_their_use() -> None:
    assert list(main.commands) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_an_example(command: str) -> None:
    done = sweep(command, "--help")
    assert done.exit_code == 0
    assert f"Example:\n    sweep {command} " in done.stdout


def test_version() -> None:
    assert sweep("--version").stdout == "pairsweep 0.1.0\n"


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]])
def test_help_is_light(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom sweep.cli import main\n"
        f"try: main({arguments!r})\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


def test_plan_is_light(tmp_path: Path) -> None:
    path = write(tmp_path, toy())
    heavy = [name for name in HEAVY if name != "numpy"]
    code = (
        "import sys\nfrom sweep.cli import main\n"
        f"try: main(['plan', {str(path)!r}])\nexcept SystemExit: pass\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize("command", ["check", "plan", "status", "submit", "clean"])
def test_an_interrupt_is_one_line_and_exit_130(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: Path) -> Study:
        raise KeyboardInterrupt

    monkeypatch.setattr("sweep.study.load_study", interrupted)
    address = ["--address", "http://127.0.0.1:1"] if command == "submit" else []
    done = sweep(command, write(tmp_path, toy()), *address)
    assert (done.exit_code, done.output) == (130, "interrupted\n")


def test_an_interrupted_init_is_one_line_and_exit_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sweep.study.template.write_study_file", interrupted)
    done = sweep("init", "--name", "x")
    assert (done.exit_code, done.output) == (130, "interrupted\n")


@pytest.mark.parametrize("command", ["check", "plan", "status", "run", "tune", "clean"])
def test_a_wrong_study_file_is_one_line_and_exit_2(command: str, tmp_path: Path) -> None:
    path = write(tmp_path, toy(lose="angle"))
    done = sweep(command, path)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"sweep: {path}:21: lose: 'angle' is not valid; there is no such field;")


@pytest.mark.parametrize("command", ["check", "plan", "status", "run", "tune", "clean"])
def test_no_such_file(command: str) -> None:
    done = sweep(command, "nowhere.yaml")
    assert done.exit_code == 2
    assert done.stderr == "sweep: nowhere.yaml: study: 'nowhere.yaml' is not valid; there is no such file\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan"],
        ["plan", "study.yaml", "--nonsense"],
        ["nonsense"],
        ["run", "study.yaml", "--seeds", "five"],
        ["run", "study.yaml", "--seeds", "0"],
        ["run", "study.yaml", "--seeds", "1,1"],
        ["run", "study.yaml", "--seeds", "1,,2"],
        ["run", "study.yaml", "--seeds", "-3"],
        ["run", "study.yaml", "--max-concurrent", "0"],
        ["run", "study.yaml", "--retries", "-1"],
        ["submit", "study.yaml"],
    ],
)
def test_wrong_use_is_exit_2(arguments: list[str], tmp_path: Path) -> None:
    write(tmp_path, noop())
    done = sweep(*arguments)
    assert done.exit_code == 2
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    "given",
    [
        ["--seeds", "0"],
        ["--seeds", "1,1"],
        ["--seeds", "10001"],
        ["--seeds", "4294967296,1"],
        ["--seeds", "7"],
        ["--max-concurrent", "0"],
        ["--retries", "-1"],
        ["--rerun", "c:9"],
        ["--tracking-uri", "sqlite:////dev/null/x.db"],
        ["--tracking-uri", "sqlite:////tmp"],
        ["--tracking-uri", "mlruns"],
    ],
)
def test_plan_refuses_what_run_refuses(given: list[str], tmp_path: Path) -> None:
    search = {"trials": 2, "space": {"learning_rate": [1e-5, 2e-5]}, "seeds": [6], "endpoint": "validation/spearman_64"}
    path = write(tmp_path, toy(search=search) if "7" in given else noop())
    planned, run = (sweep(command, path, *given) for command in ("plan", "run"))
    assert run.exit_code == 2, run.output
    assert (planned.exit_code, planned.stderr.splitlines()[-1]) == (2, run.stderr.splitlines()[-1])


def test_plan_takes_every_option_of_run(tmp_path: Path) -> None:
    own = {option.name for option in main.commands["plan"].params} - {"as_json", "every_cell"}
    assert own == {option.name for option in main.commands["run"].params} - {"address"}
    given = [
        "--seeds",
        2,
        "--max-concurrent",
        3,
        "--retries",
        1,
        "--retry-failed",
        "--accept-changes",
        "--rerun",
        "a:1",
    ]
    assert sweep("plan", write(tmp_path, noop()), *given).exit_code == 0


def test_wrong_tracking_uri(tmp_path: Path) -> None:
    done = sweep("plan", write(tmp_path, noop()), "--tracking-uri", "mlruns")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "tracking URI: 'mlruns' is not valid" in done.stderr


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `sweep run` hands to the runner."""
    seen: dict[str, Any] = {}

    def run_study(study: Study, backend: RayBackend, options: RunOptions) -> int:
        seen.update(study=study, address=backend._address, **asdict(options))
        return 1

    monkeypatch.setattr("sweep.run.run_study.run_study", run_study)
    return seen


def test_options_of_run_arrive(tmp_path: Path, launched: dict[str, Any]) -> None:
    flags = ["--retry-failed", "--accept-changes", "--tracking-uri", "http://head:5000", "--rerun", "abc"]
    numbers = ["--seeds", 7, "--max-concurrent", 3, "--retries", 1]
    done = sweep("run", write(tmp_path, noop()), *flags, *numbers)
    assert done.exit_code == 1
    assert launched.pop("study").seeds == tuple(range(7))
    assert launched == {
        "tracking_uri": "http://head:5000",
        "max_concurrent": 3,
        "retries": 1,
        "retry_failed": True,
        "allow_unverified": False,
        "accept_changes": True,
        "rerun": ("abc",),
        "address": None,
    }


def test_a_list_of_seeds(tmp_path: Path, launched: dict[str, Any]) -> None:
    sweep("run", write(tmp_path, noop()), "--seeds", "4,2")
    assert launched["study"].seeds == (4, 2)


@pytest.mark.parametrize(("variable", "expected"), [("http://there:1", "http://there:1"), (None, "sqlite:///")])
def test_default_tracking_uri(
    variable: str | None, expected: str, tmp_path: Path, launched: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", variable)
    sweep("run", write(tmp_path, noop()))
    assert launched["tracking_uri"].startswith(expected)
    assert variable or launched["tracking_uri"].endswith(f"{tmp_path}/mlflow.db")


def test_run_gives_every_option_of_a_launch() -> None:
    names = {option.name for option in main.commands["run"].params} - {"study", "overrides", "seeds", "address"}
    assert names == {field.name for field in fields(RunOptions)}


def test_the_address_of_a_cluster_arrives(tmp_path: Path, launched: dict[str, Any]) -> None:
    sweep("run", write(tmp_path, noop()), "--address", "auto")
    assert launched["address"] == "auto"


def test_submit_passes_the_options_of_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr("sweep.on_ray.submit.submit_study", lambda study, **options: seen.update(options) or 0)
    path = write(tmp_path, noop())
    given = ["--seeds", "0,3", "--retry-failed", "--rerun", "x", "--rerun", "y", "--retries", "0"]
    done = sweep("submit", path, "--address", "http://head:8265", "--no-wait", *given)
    assert done.exit_code == 0
    assert (seen["address"], seen["wait"]) == ("http://head:8265", False)
    run = main.commands["run"]
    there = run.make_context("run", [str(path), *seen["run_options"]]).params
    here = run.make_context("run", [str(path), *given]).params
    assert there == here


@pytest.mark.parametrize(("error", "code"), [(ClusterError("no cluster"), 2), (TrackingUnavailable("away"), 1)])
def test_an_errors_own_exit_code(error: Exception, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> int:
        raise error

    monkeypatch.setattr("sweep.run.run_study.run_study", fail)
    done = sweep("run", write(tmp_path, noop()))
    assert (done.exit_code, done.stdout, done.stderr) == (code, "", f"sweep: {error}\n")


@pytest.mark.parametrize("command", ["run", "clean"])
def test_an_impossible_home_is_named(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "file" / "home"
    home.parent.write_text("a file")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    done = sweep(command, write(tmp_path, noop()), "--tracking-uri", "http://127.0.0.1:9")
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith(f"; HOME is '{home}', which is no folder that can be written: set HOME to one\n")


def test_clean_says_in_words_what_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEP_SPOOL_DIR", str(tmp_path / "spool"))
    path = write(tmp_path, noop(seeds=1))
    assert sweep("clean", path).stderr == "nothing to remove\n"
    spool_folder("noop-study").mkdir(parents=True)
    (spool_folder("noop-study") / f"{'0' * 64}{SUFFIX}").write_bytes(b"damaged")
    assert sweep("clean", path).stderr == "nothing to remove; kept 1 waiting result that cannot be read\n"


def test_a_start_says_what_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, noop())
    monkeypatch.setattr("sweep.run.run_study.run_study", lambda *_: 0)
    assert sweep("run", path).stderr == ""
    monkeypatch.setattr("sweep.console._on_terminal", lambda: True)
    assert sweep("run", path).stderr == f"checking {path} ...\n"


def test_ray_in_an_impossible_home_names_it(tmp_path: Path) -> None:
    env = {**os.environ, "HOME": "/dev/null/x", "SWEEP_SPOOL_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "sweep.cli", "run", str(write(tmp_path, noop()))],
        env=env, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 2
    assert "HOME is '/dev/null/x', which is no folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_check_says_valid(tmp_path: Path) -> None:
    path = write(tmp_path, toy())
    done = sweep("check", path)
    assert (done.exit_code, done.stdout) == (0, f"{path}: valid, 12 cells\n")
    assert json.loads(sweep("check", path, "--json").stdout) == {
        "study": "toy-study", "valid": True, "error": None, "warnings": [],
    }  # fmt: skip


def test_check_reads_the_data(tmp_path: Path) -> None:
    data = {"train": "no.csv", "test": "no.csv", "label_range": [0, 5]}
    path = write(tmp_path, toy(data=data))
    done = sweep("check", path)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert "no.csv" in done.stderr
    found = json.loads(sweep("check", path, "--json").stdout)
    assert found["valid"] is False
    assert f"sweep: {found['error']}\n" == done.stderr
