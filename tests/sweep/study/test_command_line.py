"""Fields of a study given on the command line: read, checked and told as the file's are."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.errors import StudyError
from sweep.study import load_study
from tests.sweep.studies import noop, toy, write


def test_they_replace_the_files_fields(tmp_path: Path) -> None:
    path = write(tmp_path, toy(training={"epochs": 3, "batch_size": 16}))
    study = load_study(
        path, ["training.epochs=1", "training.learning_rate=2e-5", "seeds=[4, 7]", "variants.c={loss: cosine}"]
    )
    assert study.seeds == (4, 7)
    assert list(study.variants) == ["a", "b", "c"]
    training = study.spec("a", "default", 4).training
    assert (training["epochs"], training["learning_rate"], training["batch_size"]) == (1.0, 2e-5, 16)
    assert study.overridden[0] == "training.epochs=1"


def test_what_is_kept_says_so_and_means_the_same(tmp_path: Path) -> None:
    path = write(tmp_path, toy(variants={"no": {"loss": "angle"}, "b": {"loss": "cosent"}}) | {"baseline": "no"})
    study = load_study(path, ["training.epochs=1", "settings.grid.model.prompt=['q: ', 'p: ']"])
    assert study.text.startswith("# overridden on the command line: training.epochs=1 settings.grid.model.prompt=")
    again = load_study(write(tmp_path, study.text, "again.yaml"))
    assert (again.specs, again.seeds, again.baseline) == (study.specs, study.seeds, "no")
    assert load_study(path).text == path.read_text()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("training.epochs=-1", "command line: training.epochs: -1 is not valid; expected"),
        (
            "training.lr=1",
            "command line: training.lr: 1 is not valid; there is no such field; did you mean 'learning_rate'? ",
        ),
        ("training.bs=1", "did you mean 'batch_size'? "),
        (
            "lr=1e-5",
            "command line: lr: 1e-05 is not valid; there is no such field; it goes under `training: {learning_rate",
        ),
        ("dims=[8]", "command line: dims: [8] is not valid; there is no such field; did you mean 'matryoshka_dims'? "),
        ("epochs=1", "it goes under `training: {epochs: ...}`"),
        ("seeds", "command line: seeds: 'seeds' is not valid; expected FIELD=VALUE, such as training.epochs=1"),
        ("seeds={", "command line: seeds: '{' is not valid; it is not YAML"),
        ("name.x=1", "command line: name.x: '1' is not valid; name is 'toy-study' in the file, not a block"),
        ("baseline=z", "command line: baseline: 'z' is not valid; expected one of the variants: a, b"),
    ],
)
def test_errors_name_the_command_line(given: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError) as caught:
        load_study(write(tmp_path, toy()), [given])
    assert message in str(caught.value)
    assert str(caught.value).startswith("command line")


def test_errors_elsewhere_name_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, noop(seeds=-1))
    with pytest.raises(StudyError, match=r"study.yaml:\d+: seeds: -1"):
        load_study(path, ["options.x=1"])
