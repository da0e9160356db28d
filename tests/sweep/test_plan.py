"""`sweep plan` and `sweep status`: cells, states, cost, and what to know."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from analysis import schema
from sweep.cli import main
from sweep.record.ledger import CellStatus, RecordedRun
from sweep.run.preflight import planned_cells
from sweep.status import StudyCost, StudyStatus, print_table, running_lines
from sweep.study import Study, load_study
from sweep.study.cells import Cell
from tests.sweep.studies import ARTICLE, noop, toy, write

ROOT = Path(__file__).parents[2]
CELL_FIELDS = {"key", "variant", "seed", "setting", "state", "spec"}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def sweep(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def recorded(cell: Cell, *, seconds: float = 60, status: str = "FINISHED", **tags: str) -> RecordedRun:
    """A run as the store would give it."""
    own = {
        schema.TAG_CELL: cell.key,
        schema.TAG_SPEC: cell.spec_key,
        schema.TAG_VARIANT: cell.variant,
        schema.TAG_SEED: str(cell.seed),
        schema.TAG_SETTING: cell.setting,
        schema.TAG_FIELDS: json.dumps(cell.spec.flat()),
    }
    end = None if status == "RUNNING" else int(seconds * 1000)
    return RecordedRun(run_id=cell.key[:8], status=status, tags={**own, **tags}, start_ms=0, end_ms=end)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> list[RecordedRun]:
    """What the store knows; a test fills it."""
    runs: list[RecordedRun] = []
    monkeypatch.setattr("sweep.record.tracking.Tracking.recorded_runs", lambda self, study, kind=None: runs)
    return runs


def loaded(folder: Path, study: dict[str, Any] | str) -> Study:
    return load_study(write(folder, study))


def test_the_articles_ten_cells() -> None:
    done = sweep("plan", ROOT / "studies" / "angle_mrl_jsts.yaml", "--json")
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout)
    assert plan["study"] == "angle-mrl-jsts"
    assert [(cell["seed"], cell["variant"], cell["setting"]) for cell in plan["cells"]] == [
        (seed, variant, "default") for seed in range(5) for variant in ("chunked", "interleaved")
    ]
    for cell in plan["cells"]:
        assert cell.keys() >= CELL_FIELDS
        assert cell["state"] == "to_run"
        assert cell["spec"].items() >= {
            "model.name": "cl-nagoya/ruri-v3-130m",
            "data.name": "jsts",
            "matryoshka_dims": [32, 64, 128, 256, 512],
            "batch_size": 32,
            "learning_rate": 2e-5,
            "epochs": 3.0,
            "loss": "angle",
            "loss.layout": cell["variant"],
            "seed": cell["seed"],
        }.items()  # fmt: skip
    assert len({cell["key"] for cell in plan["cells"]}) == 10
    assert any(line.startswith("5 seeds cannot reach alpha = .05") for line in plan["warnings"])


def test_json_is_alone_on_stdout(tmp_path: Path) -> None:
    done = sweep("plan", write(tmp_path, ARTICLE), "--json")
    json.loads(done.stdout)
    assert done.stderr == ""


def test_it_works_without_model_or_data_and_says_so(tmp_path: Path) -> None:
    data = {"train": "no.csv", "test": "no.csv", "label_range": [0, 5]}
    variants = {"a": {"loss": "angle"}, "b": {"loss": "nowhere:Loss"}}
    done = sweep("plan", write(tmp_path, toy(model={"name": "nobody/nothing"}, data=data, variants=variants)))
    assert done.exit_code == 0
    for what in ("model nobody/nothing", "data no.csv", "module nowhere"):
        assert f"warning: digest unresolved: {what}" in done.stderr
    assert not (tmp_path / "mlflow.db").exists()


def test_a_matrix_comes_first(tmp_path: Path) -> None:
    lines = sweep("plan", write(tmp_path, noop(seeds=2))).stdout.splitlines()
    assert [line.split() for line in lines[:2]] == [["setting", "a", "*", "b"], ["default", "0/2", "0/2"]]
    assert lines[2] == ""
    assert lines[3].split()[:3] == ["#", "state", "variant"]
    assert lines[8] == "noop-study: 4 cells: 4 to run (* baseline)"


def test_the_matrix_counts_seeds_and_names_what_needs_attention(tmp_path: Path, store: list[RecordedRun]) -> None:
    path = write(tmp_path, noop(seeds=21))
    cells = planned_cells(load_study(path))
    failed = {schema.TAG_FAILURE: "loss became NaN", schema.TAG_FAILURE_KIND: "cell"}
    store += [recorded(cells[0]), recorded(cells[2]), recorded(cells[1], status="FAILED", **failed)]
    text = sweep("status", path).stdout
    lines = text.splitlines()
    assert lines[1].split() == ["default", "2/21", "0/21,", "1", "failed"]
    assert lines[3] == "need attention:"
    assert lines[5].split()[:4] == ["1", "failed", "b", "0"]
    assert lines[5].endswith("loss became NaN")
    assert text.count("to run") == 1
    assert len(sweep("status", path, "--cells").stdout.splitlines()) > 42


def test_what_runs_where_and_since_when(tmp_path: Path) -> None:
    study = loaded(tmp_path, noop(seeds=1))
    cell = planned_cells(study)[1]
    run = recorded(cell, status="RUNNING", **{schema.TAG_OWNER: "gpu-1:4711:abc"})
    found = StudyStatus(
        study=study,
        statuses=(CellStatus(cell=cell, state="running", run_id=run.run_id),),
        warnings=(),
        cost=StudyCost(variants=(), basis=0, gpus=0),
        running={cell.key: run},
    )
    (line,) = running_lines(found, now=720)
    assert re.fullmatch(r"running b-s0-default since \d\d:\d\d:\d\d \(12 min\), by the driver on gpu-1", line)


def test_watch_looks_again_until_it_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: list[RecordedRun]
) -> None:
    path = write(tmp_path, noop(seeds=2))
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        store.append(recorded(planned_cells(load_study(path))[0]))
        if len(looks) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("sweep.status.time.sleep", sleep)
    done = sweep("status", path, "--watch")
    assert done.exit_code == 0
    assert looks == [2.0, 2.0]
    assert ["default", "0/2", "0/2"] in [line.split() for line in done.stdout.splitlines()]
    assert ["default", "1/2", "0/2"] in [line.split() for line in done.stdout.splitlines()]


def test_a_search_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = {"batch_size": [2, 4, 8]}
    search = {"space": space, "trials": 3, "startup": 1, "seeds": [100], "endpoint": "validation/spearman_64"}
    path = write(tmp_path, toy(search=search))
    cell = replace(planned_cells(load_study(path))[0], seed=100, setting="trial-1")
    monkeypatch.setattr(
        "sweep.record.tracking.Tracking.recorded_runs",
        lambda self, study, kind=schema.KIND_CELL: [recorded(cell)] if kind == schema.KIND_SEARCH else [],
    )
    lines = sweep("status", path).stdout.splitlines()
    assert f"search of {cell.variant}: 1 of 3 trials over" in lines


def test_the_table_off_a_terminal(tmp_path: Path) -> None:
    done = sweep("plan", write(tmp_path, noop(seeds=2)))
    lines = done.stdout.splitlines()[3:]
    assert lines[0].split() == ["#", "state", "variant", "seed", "setting", "key", "note"]
    assert [line.split()[:6] for line in lines[1:5]] == [
        ["1", "to", "run", "a", "*", "0"],
        ["2", "to", "run", "b", "0", "default"],
        ["3", "to", "run", "a", "*", "1"],
        ["4", "to", "run", "b", "1", "default"],
    ]
    assert lines[5] == "noop-study: 4 cells: 4 to run (* baseline)"
    assert lines[6] == "4 cells to run; their cost is unknown until one has finished"
    assert "\x1b" not in done.output


def test_the_table_on_a_terminal(tmp_path: Path) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    study = loaded(tmp_path, noop(seeds=1))
    out = Terminal()
    print_table(study, [CellStatus(cell=cell, state="finished") for cell in planned_cells(study)], out)
    assert "finished" in out.getvalue()


def test_states_of_recorded_cells(tmp_path: Path, store: list[RecordedRun]) -> None:
    path = write(tmp_path, noop(seeds=2))
    cells = planned_cells(load_study(path))
    store += [
        recorded(cells[0]),
        recorded(cells[1], status="FAILED", **{schema.TAG_FAILURE: "loss became NaN", schema.TAG_FAILURE_KIND: "cell"}),
        recorded(cells[2], status="RUNNING"),
    ]
    found = json.loads(sweep("status", path, "--json").stdout)["cells"]
    assert [cell["state"] for cell in found] == ["finished", "failed", "stale", "to_run"]
    assert found[1]["reason"] == "loss became NaN"
    lines = sweep("status", path).stdout.splitlines()
    assert any(line.startswith("noop-study: 4 cells: 1 finished, 1 to run, 1 failed, 1 stale") for line in lines), lines


def test_more_seeds_show_what_is_left(tmp_path: Path, store: list[RecordedRun]) -> None:
    path = write(tmp_path, noop(seeds=5))
    store += [recorded(cell) for cell in planned_cells(load_study(path))]
    found = json.loads(sweep("plan", path, "--seeds", 8, "--json").stdout)["cells"]
    assert [cell["state"] for cell in found] == ["finished"] * 10 + ["to_run"] * 6


def test_changed_fields_are_named(tmp_path: Path, store: list[RecordedRun]) -> None:
    store += [recorded(cell) for cell in planned_cells(loaded(tmp_path, noop(seeds=2)))]
    found = json.loads(sweep("plan", write(tmp_path, noop(seeds=2, training={"batch_size": 4})), "--json").stdout)
    assert [cell["changed_fields"] for cell in found["cells"]] == [["batch_size"]] * 4
    assert any(line.startswith("a has changed (batch_size): 2 cells to train as a@2") for line in found["warnings"])
    assert any(line.startswith("b@1: 2 finished cells of another revision") for line in found["warnings"])


def test_cells_of_a_variant_that_the_file_has_no_more_are_counted(tmp_path: Path, store: list[RecordedRun]) -> None:
    store += [recorded(cell) for cell in planned_cells(loaded(tmp_path, noop(seeds=2)))]
    found = json.loads(
        sweep(
            "plan",
            write(
                tmp_path,
                noop(seeds=2, variants={"a": {"options": {"sleep_s": 0.0}}, "c": {"options": {"sleep_s": 0.5}}}),
            ),
            "--json",
        ).stdout
    )
    assert "2 finished cells are recorded under this name but not described by the study file" in found["warnings"]
