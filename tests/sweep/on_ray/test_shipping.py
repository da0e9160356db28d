"""What leaves the machine with a study, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from sweep.cli import main
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


SECRETS = ["tokens.py", "hf_token.py", "creds.py", "my_creds.py", "openai_api-key.py", "aws_access_key.py", "token.py"]


def test_more_names_that_say_secret_are_left_out_and_named(folder: Path) -> None:
    for name in SECRETS:
        (folder / name).write_text("x = 1\n")
    shipment = shipped(folder)
    assert names(shipment) & set(SECRETS) == set()
    assert shipment.left_out == tuple(sorted(SECRETS))


@pytest.mark.parametrize("name", [".env", "prod.env", ".netrc", "key.p12", "id_ecdsa", "service-account.json", "creds"])
def test_files_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["added_tokens.json", "special_tokens_map.json", "tokenize.py", "accredited.py"])
def test_files_of_tokenizers(name: str) -> None:
    assert not is_secret(name)


# Put together here, so that no file of this project holds one.
KEYS = {
    "AWS access key": "AKIA" + "IOSFODNN7EXAMPLE",
    "AWS secret key": "aws_secret_access_key = '" + "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY" + "'",
    "Hugging Face": "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567",
    "GitHub": "ghp_" + "aB3" * 12,
    "GitHub, fine": "github_pat_" + "aB3_" * 12,
    "OpenAI": "sk-" + "aB3" * 16,
    "OpenAI project": "sk-proj-" + "aB3_" * 16,
    "Anthropic": "sk-ant-api03-" + "aB3" * 16,
    "Google": "AIza" + "aB3_-" * 7,
    "Slack": "xoxb-" + "123456789012-abcdefABCDEF",
    "PEM": "-----BEGIN " + "PRIVATE KEY-----",
    "OpenSSH": "-----BEGIN OPENSSH " + "PRIVATE KEY-----",
    "GitLab": "glpat-" + "aB3-" * 6,
}


@pytest.mark.parametrize("key", KEYS)
def test_a_file_that_holds_a_key_does_not_leave_whatever_its_name(key: str, folder: Path) -> None:
    (folder / "helpers.py").write_text(f"scale = 1\nkey = '''{KEYS[key]}'''\n")
    (folder / "settings.py").write_bytes(f"key = '''{KEYS[key]}'''".encode("utf-16"))
    shipment = shipped(folder)
    assert {"helpers.py", "settings.py"} & names(shipment) == set()
    first, second = shipment.left_out
    assert first.startswith("helpers.py (")
    assert first.endswith(" in line 2)")
    assert second.startswith("settings.py (")
    assert KEYS[key] not in first


@pytest.mark.parametrize("name", ["study.yaml", "pairs/train.csv", "my_losses.py"])
def test_a_named_file_that_holds_a_key_is_refused(name: str, folder: Path) -> None:
    study = STUDY + (f"# {KEYS['GitHub']}\n" if name == "study.yaml" else "")
    if name != "study.yaml":
        (folder / name).write_text(f"{(folder / name).read_text()}# {KEYS['GitHub']}\n")
    with pytest.raises(ClusterError, match=f"{name}: looks like a GitHub token in line") as caught:
        shipped(folder, study)
    assert KEYS["GitHub"] not in str(caught.value)


SEARCH = """
search: {space: {learning_rate: [1e-5, 2e-5]}, trials: 2, seeds: [100], storage: "STORAGE"}
"""


@pytest.mark.parametrize(
    "storage",
    [
        "postgresql://me:s3cret@db/optuna",
        "postgresql+psycopg://me:s3/c@ret@db/optuna",
        "mysql://db/optuna?user=me&password=s3cret",
    ],
)
def test_a_search_storage_with_a_password_stays_here(storage: str, folder: Path) -> None:
    (folder / "study.yaml").write_text(STUDY + SEARCH.replace("STORAGE", storage))
    for words in (["--list"], ["--address", "http://127.0.0.1:1"]):
        done = CliRunner().invoke(main, ["submit", str(folder / "study.yaml"), *words])
        assert done.exit_code == 2
        assert f"{folder / 'study.yaml'}: search.storage: '{storage.split(':')[0]}://db/optuna" in done.stderr
        assert "give the address without it" in done.stderr
        assert not any(part in done.output for part in ("s3cret", "s3/c", "c@ret"))


def test_any_other_address_with_a_password_in_the_study_file_does_too(folder: Path) -> None:
    with pytest.raises(ClusterError, match=r"study\.yaml: line 2 holds an address with a password") as caught:
        shipped(folder, "\n# runs: http://me:s3cret@server:5000" + STUDY)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("storage", ["postgresql://db/optuna", "postgresql://me@db:5432/optuna", "sqlite:///o@b.db"])
def test_a_search_storage_without_one_is_shipped(storage: str, folder: Path) -> None:
    assert "study.yaml" in names(shipped(folder, STUDY + SEARCH.replace("STORAGE", storage)))


@pytest.mark.parametrize(
    "text",
    [
        "task-oriented-dialogue-systems-of-2024",
        "sk-internationalization",
        "hf_hub_download",
        "AKIA",
        "risk-" + "a1" * 20,
    ],
)
def test_text_that_only_resembles_a_key(text: str, folder: Path) -> None:
    (folder / "helpers.py").write_text(f"x = '{text}'\n")
    assert "helpers.py" in names(shipped(folder))


def test_the_program_goes_whole(folder: Path) -> None:
    own = {name for name in shipped(folder).own if name.endswith(".py")}
    root = Path(shipping.__file__).parents[2]
    assert own == {
        path.relative_to(root).as_posix()
        for package in shipping.OWN_PACKAGES
        for path in (root / package).rglob("*.py")
    }


def test_a_listing_sends_nothing(folder: Path) -> None:
    (folder / "creds.py").write_text("x = 1\n")
    shipment = shipped(folder)
    done = CliRunner().invoke(main, ["submit", str(folder / "study.yaml"), "--list"], catch_exceptions=False)
    assert done.exit_code == 0
    *files, total = [line.split() for line in done.stdout.splitlines()]
    assert {name: int(size) for size, name in files} == {
        name: file.stat().st_size for name, file in {**shipment.files, **shipment.own}.items()
    }
    assert int(total[0]) == shipment.size == sum(int(size) for size, _ in files)
    assert done.stderr == "not shipped: creds.py\n"
