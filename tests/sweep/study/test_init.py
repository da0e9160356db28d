"""`sweep init`: what it writes is a valid study, and it never overwrites."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from sweep.cli import main
from sweep.study import load_study
from sweep.study.reference import study_schema
from sweep.study.yaml_reader import read_document


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def sweep(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


OWN = ["--train", "a.csv", "--test", "b.csv", "--label-range", "0,5", "--columns", "sentence1=a b,sentence2=c,label=no"]


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--variants", "chunked,interleaved,cosent"],
        ["--variant", "cosent", "--variant", "mine=my_losses:Margin", "--variant", "no=cosine"],
        ["--model", "cl-nagoya/ruri-v3-130m", "--data", "jsts", "--dims", "32,64", "--gpus", "0.5", "--cpus", "4"],
        ["--model", "./a folder: odd", *OWN],
        ["--name", "名前", "--seeds", "1"],
        ["--name", "2024"],
    ],
)
def test_what_it_writes_is_a_study(flags: list[str], tmp_path: Path) -> None:
    done = sweep("init", "s.yaml", *flags)
    assert (done.exit_code, done.stdout) == (0, "s.yaml\n"), done.stderr
    load_study("s.yaml")
    Draft202012Validator(study_schema()).validate(read_document(Path("s.yaml")).data)
    assert sum(line.startswith("#") for line in Path("s.yaml").read_text(encoding="utf-8").splitlines()) > 5
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]


def test_flags_arrive() -> None:
    sweep("init", "s.yaml", "--name", "n", "--variants", "cosent,b=angle", *OWN, "--dims", "16,8", "--seeds", 9)
    study = load_study("s.yaml")
    assert (study.name, study.baseline, study.seeds) == ("n", "cosent", tuple(range(9)))
    flat = study.specs["b", "default"].flat()
    assert flat["data.columns"] == {"sentence1": "a b", "sentence2": "c", "label": "no"}
    assert flat["data.label_range"] == [0, 5]
    assert flat["matryoshka_dims"] == [8, 16]
    assert study.primary == ("test/spearman_16",)


def test_its_output_passes_check() -> None:
    sweep("init", "--name", "first")
    done = sweep("check", "first.yaml")
    assert (done.exit_code, done.stderr) == (0, "")


def test_it_never_overwrites() -> None:
    Path("s.yaml").write_text("mine")
    done = sweep("init", "s.yaml")
    assert done.exit_code == 2
    assert done.stderr == "sweep: s.yaml: it exists already; choose another name or remove it\n"
    assert Path("s.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "give a FILE or --name"),
        (["s.yaml", "--variants", "chunkd"], "did you mean 'chunked'?"),
        (["s.yaml", "--variants", "cosent,cosent"], "it is given twice"),
        (["s.yaml", "--dims", "a"], "--dims: 'a' is not valid; expected whole numbers"),
        (["s.yaml", "--dims", "33"], "33 is odd"),
        (["s.yaml", "--columns", "a"], "--columns: 'a' is not valid"),
        (["s.yaml", "--label-range", "5"], "--label-range: '5' is not valid; expected LOW,HIGH"),
        (["s.yaml", "--train", "a.csv", "--test", "b.csv"], "data.label_range: (missing) is not valid"),
        (["s.yaml", "--name", "a/b"], "name: 'a/b' is not valid"),
        (["nowhere/s.yaml"], "it cannot be written"),
    ],
)
def test_wrong_flags(flags: list[str], message: str, tmp_path: Path) -> None:
    done = sweep("init", *flags)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("model", "rate"), [("toy", 1e-3), ("toy-random", 1e-3), ("cl-nagoya/ruri-v3-130m", 2e-5)])
def test_the_learning_rate_suits_the_model(model: str, rate: float) -> None:
    sweep("init", "s.yaml", "--model", model)
    assert load_study("s.yaml").specs["chunked", "default"].training["learning_rate"] == rate


@pytest.mark.parametrize(("variants", "seeds"), [("cosent,cosine", 6), ("cosent,cosine,chunked", 7)])
def test_the_fewest_seeds_are_those_that_check_wants(variants: str, seeds: int) -> None:
    sweep("init", "s.yaml", "--variants", variants)
    assert len(load_study("s.yaml").seeds) == seeds
    assert f": {seeds}, if all agree." in Path("s.yaml").read_text()
    assert sweep("check", "s.yaml").stderr == ""
