"""What is checked before anything is scheduled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sweep.errors import PreflightError, TrackingError
from sweep.run import preflight
from sweep.study import Study, load_study
from tests.sweep.studies import noop, toy, write

ROWS = "a\tb\ty\n" + "".join(f"one {i}\ttwo {i}\t{i % 5}\n" for i in range(12))
OWN = {
    "train": "pairs.tsv", "test": "pairs.tsv", "label_range": [0, 5],
    "columns": {"sentence1": "a", "sentence2": "b", "label": "y"},
}  # fmt: skip


def study(folder: Path, content: dict[str, Any]) -> Study:
    return load_study(write(folder, content))


def refused(folder: Path, content: dict[str, Any]) -> str:
    with pytest.raises(PreflightError) as caught:
        preflight.check_study(study(folder, content))
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_own_files_pass(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text(ROWS)
    preflight.check_study(study(tmp_path, toy(data=OWN)))


def test_a_missing_file(tmp_path: Path) -> None:
    line = refused(tmp_path, toy(data=OWN))
    assert "data.train" in line
    assert "pairs.tsv" in line
    assert line.startswith(str(tmp_path))


def test_a_missing_column_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text(ROWS)
    line = refused(tmp_path, toy(data={**OWN, "columns": {"sentence1": "a", "sentence2": "b", "label": "z"}}))
    assert str(tmp_path / "pairs.tsv") in line
    assert "'z'" in line


def test_a_label_out_of_range_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text(ROWS + "one\ttwo\t7\n")
    line = refused(tmp_path, toy(data=OWN))
    assert f"{tmp_path / 'pairs.tsv'}:14" in line


def test_a_size_above_the_models(tmp_path: Path) -> None:
    line = refused(tmp_path, toy(matryoshka_dims=[64, 4096], analysis=None))
    assert line.startswith(f"{tmp_path / 'study.yaml'}: ")
    assert "matryoshka_dims: 4096" in line


def test_a_setting_is_named_only_where_there_are_some(tmp_path: Path) -> None:
    wrong = toy(model={"name": "./nowhere"})
    assert refused(tmp_path, wrong).endswith("variant 'a')")
    line = refused(tmp_path, wrong | {"settings": {"named": {"small": {"training": {"batch_size": 4}}}}})
    assert line.endswith("variant 'a', setting 'small')")


def test_a_folder_that_holds_no_model(tmp_path: Path) -> None:
    assert "model.name: './nowhere'" in refused(tmp_path, toy(model={"name": "./nowhere"}))


def test_a_trainable_that_does_not_import(tmp_path: Path) -> None:
    line = refused(tmp_path, noop(trainable="no_such_module_here:train"))
    assert "trainable: 'no_such_module_here:train'" in line


def test_the_variant_at_fault_is_named(tmp_path: Path) -> None:
    variants = {"a": {"options": {"sleep_s": 0.0}}, "b": {"trainable": "no_such_module_here:train"}}
    line = refused(tmp_path, noop(variants=variants))
    assert line.startswith(f"{tmp_path / 'study.yaml'}: variants.b.trainable: 'no_such_module_here:train' is not valid")
    assert "variant 'b'" in line


def test_seeds_are_not_checked_one_by_one(tmp_path: Path) -> None:
    looked_at: list[str] = []
    preflight.check_study(study(tmp_path, noop(seeds=500)), on_progress=looked_at.append)
    assert looked_at == ["checking a", "checking b"]


def test_cells_whose_identity_is_unknown_do_not_run(tmp_path: Path) -> None:
    loaded = study(tmp_path, toy(data=OWN))
    with pytest.raises(PreflightError, match=r"study\.yaml: data: data pairs\.tsv cannot be read here"):
        preflight.check_resolved(loaded, preflight.planned_cells(loaded))


def test_a_file_as_store_of_several_machines(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    preflight.check_tracking(uri)
    with pytest.raises(TrackingError, match=r"but the cluster has 2; run an MLflow server on the head"):
        preflight.check_tracking(uri, nodes=2)
    preflight.check_tracking("http://head:5000", nodes=2)


@pytest.mark.parametrize("uri", ["mlruns", "file:///tmp/mlruns", "ftp://host", ""])
def test_not_a_tracking_store(uri: str) -> None:
    with pytest.raises(TrackingError, match="tracking URI"):
        preflight.check_tracking(uri)


def test_a_store_that_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(TrackingError, match="is a folder, expected a file"):
        preflight.check_tracking(f"sqlite:///{tmp_path}")


def test_a_store_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not by chmod: the superuser may write anywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(TrackingError, match=f"{tmp_path} cannot be written"):
        preflight.check_tracking(f"sqlite:///{tmp_path}/mlflow.db")


NODES = [{"CPU": 8.0, "GPU": 0.0}, {"CPU": 2.0, "GPU": 2.0}]


@pytest.mark.parametrize("resources", [{"cpus": 8}, {"cpus": 2, "gpus": 1}, {"cpus": 1, "gpus": 0.5}])
def test_resources_that_fit(resources: dict[str, float], tmp_path: Path) -> None:
    preflight.check_resources(study(tmp_path, noop(resources=resources)), NODES)


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"cpus": 9}, r"resources\.cpus: 9 is not valid; expected at most 8"),
        ({"cpus": 8, "gpus": 1}, "no single machine has both"),
    ],
)
def test_resources_that_do_not_fit(resources: dict[str, float], message: str, tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=message):
        preflight.check_resources(study(tmp_path, noop(resources=resources)), NODES)


def test_a_gpu_where_no_machine_has_one(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"resources\.gpus: 0.5 is not valid; expected at most 0"):
        preflight.check_resources(study(tmp_path, noop(resources={"gpus": 0.5})), NODES[:1])
