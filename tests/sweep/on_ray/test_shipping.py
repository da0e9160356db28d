"""What leaves the machine with a study, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.errors import ClusterError
from sweep.on_ray import shipping
from sweep.on_ray.shipping import STUDY_FOLDER, Shipment, is_secret, shipment_of
from sweep.study import load_study

STUDY = """
name: s
model: {name: toy}
data: {train: pairs/train.csv, test: pairs/test.csv, label_range: [0, 5]}
matryoshka_dims: [16]
variants: {a: {loss: cosent}, b: {loss: "my_losses:Margin"}}
seeds: 2
"""


def shipped(folder: Path, study: str = STUDY) -> Shipment:
    (folder / "study.yaml").write_text(study)
    return shipment_of(load_study(folder / "study.yaml"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pairs").mkdir()
    for name in ("train", "test", "unnamed"):
        (tmp_path / "pairs" / f"{name}.csv").write_text("sentence1,sentence2,label\na,b,1\n")
    (tmp_path / "my_losses.py").write_text("from helpers import scale\nclass Margin: ...\n")
    (tmp_path / "helpers.py").write_text("scale = 1\n")
    return tmp_path


def names(shipment: Shipment) -> set[str]:
    return {name.removeprefix(STUDY_FOLDER + "/") for name in shipment.files}


def test_the_study_its_modules_and_the_data_it_names(folder: Path) -> None:
    assert names(shipped(folder)) == {"study.yaml", "my_losses.py", "helpers.py", "pairs/train.csv", "pairs/test.csv"}


def test_a_link_to_a_study_ships_the_study(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    shipped(folder)
    link = tmp_path_factory.mktemp("elsewhere") / "link.yaml"
    link.symlink_to(folder / "study.yaml")
    assert shipment_of(load_study(link)).study_file == f"{STUDY_FOLDER}/study.yaml"


def test_nothing_hidden_cached_recorded_or_secret(folder: Path) -> None:
    unwanted = [
        ".env", ".git/hooks/hook.py", ".venv/x.py", "env/pyvenv.cfg", "env/lib/x.py", "__pycache__/x.py",
        "mlflow.db", "mlruns/x.py", "notes.txt", "aws_credentials.py", "id_rsa", "key.pem", "results.parquet",
    ]  # fmt: skip
    for name in unwanted:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x = 1\n")
    shipment = shipped(folder)
    assert names(shipment) & set(unwanted) == set()
    assert shipment.left_out == ("aws_credentials.py",)


def test_a_package_of_ones_own_goes_with_its_data(folder: Path) -> None:
    (folder / "own").mkdir()
    for name in ("__init__.py", "losses.py", "table.json", ".hidden", "secret_key.txt"):
        (folder / "own" / name).write_text("")
    found = names(shipped(folder, STUDY.replace("my_losses:Margin", "own.losses:Margin")))
    assert {"own/__init__.py", "own/losses.py", "own/table.json"} <= found
    assert not {"own/.hidden", "own/secret_key.txt"} & found


def test_a_local_model_folder_goes_whole(folder: Path) -> None:
    (folder / "encoder").mkdir()
    (folder / "encoder" / "model.safetensors").write_bytes(b"0")
    found = names(shipped(folder, STUDY.replace("{name: toy}", "{name: ./encoder}")))
    assert "encoder/model.safetensors" in found


def test_what_lies_outside_or_is_missing_is_named(folder: Path) -> None:
    (folder / "study").mkdir()
    outside = STUDY.replace("pairs/train.csv", "../pairs/train.csv").replace("pairs/test.csv", "../pairs/test.csv")
    with pytest.raises(ClusterError, match=r"data.train: '../pairs/train.csv' lies outside the study's folder"):
        shipped(folder / "study", outside)
    (folder / "pairs" / "test.csv").unlink()
    with pytest.raises(ClusterError, match=r"data.test: 'pairs/test.csv' does not exist"):
        shipped(folder)


def test_an_absolute_path_means_a_file_on_every_node(folder: Path) -> None:
    found = shipped(folder, STUDY.replace("pairs/", "/shared/pairs/"))
    assert not any(name.endswith(".csv") for name in found.files)


def test_too_much_is_refused_with_the_largest_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pairs" / "train.csv").write_bytes(b"0" * 3 * 2**20)
    monkeypatch.setattr(shipping, "MAX_BYTES", 3 * 2**20)
    with pytest.raises(ClusterError, match=r"at most 3 MiB are shipped; largest: pairs/train.csv \(3.0 MiB\)"):
        shipped(folder)


def test_the_program_goes_along_below_no_name_that_shadows_it(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (folder / "analysis.py").write_text("raise RuntimeError('a user module of that name')\n")
    target = tmp_path_factory.mktemp("job")
    shipped(folder).write(target)
    assert {path.name for path in target.iterdir()} == {"sweep", "trainables", "analysis", STUDY_FOLDER}
    assert (target / "analysis" / "schema.py").is_file()
    assert (target / STUDY_FOLDER / "analysis.py").is_file()
    assert not list(target.rglob("*.pyc"))


@pytest.mark.parametrize(
    "name", ["my_secrets.py", "AWS_Credentials.json", "server.pem", "id_rsa.pub", "db_password.txt"]
)
def test_names_that_say_secret(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["tokenizer.json", "keys.py", "my_losses.py", "monkey.py"])
def test_names_that_do_not(name: str) -> None:
    assert not is_secret(name)
