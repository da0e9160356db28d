from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer import losses as library
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from tests.trainables.conftest import silent, toy_spec
from trainables import runtime
from trainables.data.load import load_split
from trainables.errors import CollapsedModel, InputError, NonFiniteLoss
from trainables.sentence_pair.tokens import TokenCache
from trainables.sentence_pair.train import train
from trainables.sentence_pair.trainer import training_arguments
from trainables.spec import Progress, TrainSpec
from trainables.toy_encoder import toy_encoder_folder

DIMS = [8, 16, 64]


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def without_dropout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The random toy encoder with dropout 0, as a local folder."""
    folder = tmp_path_factory.mktemp("encoder") / "model"
    with runtime.isolated():
        model = SentenceTransformer(str(toy_encoder_folder("toy-random")), device="cpu")
        model.save(str(folder), create_model_card=False)
    config_file = next(path for path in folder.rglob("config.json") if "hidden_size" in path.read_text())
    config = json.loads(config_file.read_text())
    config.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    config_file.write_text(json.dumps(config))
    return folder


def plain_script(model_folder: Path, spec: TrainSpec, output: Path) -> dict[str, float]:
    """What a careful user would write: the library's trainer, and its evaluator once per dim."""
    train_pairs, test = load_split(spec, "train"), load_split(spec, "test")
    with runtime.isolated():
        model = SentenceTransformer(str(model_folder), device="cpu")
        loss = library.MatryoshkaLoss(model, library.AnglELoss(model), DIMS)
        arguments = SentenceTransformerTrainingArguments(
            output_dir=str(output), num_train_epochs=2, per_device_train_batch_size=16, learning_rate=1e-3,
            warmup_steps=0.25, seed=spec.seed, use_cpu=True, save_strategy="no", report_to="none", disable_tqdm=True,
            logging_strategy="no", dataloader_pin_memory=False,
        )  # fmt: skip
        rows = Dataset.from_dict(
            {
                "sentence1": list(train_pairs.sentence1),
                "sentence2": list(train_pairs.sentence2),
                "label": train_pairs.labels.tolist(),
            }
        )
        SentenceTransformerTrainer(model=model, args=arguments, train_dataset=rows, loss=loss).train()
        scores = {}
        for dim in DIMS:
            one = EmbeddingSimilarityEvaluator(
                list(test.sentence1), list(test.sentence2), test.labels.tolist(), truncate_dim=dim
            )(model)
            scores[f"test/spearman_{dim}"] = one["spearman_cosine"]
            scores[f"test/pearson_{dim}"] = one["pearson_cosine"]
        scores["weights"] = _sum_of_weights(model)
    return scores


def _sum_of_weights(model: torch.nn.Module) -> float:
    return float(sum(tensor.detach().double().abs().sum() for tensor in model.state_dict().values()))


def script_spec(folder: Path, **options: bool) -> TrainSpec:
    return toy_spec(
        model={"name": str(folder)},
        data={"name": "toy", "limit": {"train": 100, "validation": 40}},
        loss=[{"name": "angle"}],
        matryoshka_dims=DIMS,
        training={"epochs": 2, "batch_size": 16, "learning_rate": 1e-3, "warmup_ratio": 0.25},
        options=options,
        seed=5,
    )


def test_cell_equals_a_plain_script(
    without_dropout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from trainables.sentence_pair import train as module

    weights: list[float] = []
    original = module.evaluate
    monkeypatch.setattr(
        module, "evaluate", lambda model, *a, **k: weights.append(_sum_of_weights(model)) or original(model, *a, **k)
    )
    exact = train(script_spec(without_dropout, length_aware=False), silent)
    sliced = train(script_spec(without_dropout), silent)
    assert capsys.readouterr() == ("", "")
    theirs = plain_script(without_dropout, script_spec(without_dropout), tmp_path)
    assert weights[0] == theirs["weights"]
    for name, value in exact.scores.items():
        if name.startswith("test/"):
            assert value == theirs[name], name
            assert sliced.scores[name] == pytest.approx(theirs[name], abs=1e-4), name
    assert exact.fingerprint["example_order"] == sliced.fingerprint["example_order"]


def test_slices_give_the_same_training(without_dropout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainables.sentence_pair import train as module

    plain = train(script_spec(without_dropout, length_aware=False), silent)
    monkeypatch.setattr(TokenCache, "can_pack", lambda *_: False)
    monkeypatch.setattr(module, "overhead_tokens", lambda **_: 1.0)  # many slices
    sliced = train(script_spec(without_dropout), silent)
    for name, value in plain.scores.items():
        assert sliced.scores[name] == pytest.approx(value, abs=1e-4), name


_FRESH = """
import json, sys
from trainables import runtime
runtime.configure(1)
from trainables.spec import TrainSpec
from trainables.sentence_pair.train import train
from trainables.sentence_pair.trainer import training_arguments
result = train(TrainSpec(**json.loads(sys.argv[1])), lambda progress: None)
print(json.dumps({"scores": dict(result.scores), "fingerprint": dict(result.fingerprint)}))
"""


def test_several_devices_do_not_multiply_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SentenceTransformerTrainingArguments, "n_gpu", property(lambda self: self.__dict__["_n_gpu"]))
    setup = SentenceTransformerTrainingArguments.__post_init__

    def on_two_devices(self: SentenceTransformerTrainingArguments) -> None:
        setup(self)
        self._n_gpu = 2

    monkeypatch.setattr(SentenceTransformerTrainingArguments, "__post_init__", on_two_devices)
    spec = toy_spec()
    with runtime.isolated():
        arguments = training_arguments(spec, tmp_path)
    assert arguments.n_gpu == 1
    assert arguments.train_batch_size == spec.training["batch_size"]


def test_fresh_and_reused_process_give_the_same_bits() -> None:
    spec = toy_spec(loss=[{"name": "angle", "layout": "interleaved"}])
    train(toy_spec(seed=9, training={"epochs": 1, "batch_size": 8}), silent)
    torch.rand(3)
    reused = train(spec, silent)
    fresh = subprocess.run(
        [sys.executable, "-c", _FRESH, spec.model_dump_json()], capture_output=True, text=True, check=True, timeout=120
    )
    shown = json.loads(fresh.stdout)
    assert shown["scores"] == dict(reused.scores)
    assert shown["fingerprint"] == dict(reused.fingerprint)


def test_variants_of_a_seed_see_the_same() -> None:
    chunked = train(toy_spec(loss=[{"name": "angle"}]), silent).fingerprint
    cosent = train(toy_spec(loss=[{"name": "cosent"}]), silent).fingerprint
    assert dict(chunked) == dict(cosent)


def test_example_order_does_not_depend_on_batch_size_but_on_the_seed() -> None:
    def order(seed: int, batch_size: int, **training: Any) -> str:
        fields = {"epochs": 1, "batch_size": batch_size, **training}
        return train(toy_spec(seed=seed, training=fields), silent).fingerprint["example_order"]

    assert order(0, 16) == order(0, 32)
    assert order(0, 16) != order(1, 16)
    assert order(0, 16) != order(0, 16, max_steps=2)


def test_process_is_left_as_it_was() -> None:
    torch.manual_seed(4)
    expected = torch.rand(4)
    torch.manual_seed(4)
    before = Path.cwd(), torch.get_num_threads(), torch.get_default_dtype(), sorted(Path.cwd().iterdir())
    train(toy_spec(), silent)
    assert torch.equal(torch.rand(4), expected)
    assert before == (Path.cwd(), torch.get_num_threads(), torch.get_default_dtype(), sorted(Path.cwd().iterdir()))


def test_memory_is_returned() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    if not Path("/proc/self/statm").exists():
        pytest.skip("needs /proc to read the resident memory")
    spec = toy_spec(data={"name": "toy", "limit": {"train": 32, "validation": 20, "test": 20}})
    for _ in range(2):
        train(spec, silent)
    before = resident()
    for _ in range(3):
        train(spec, silent)
    assert resident() - before < 12 * 2**20


def test_nan_loss_fails_early() -> None:
    told: list[Progress] = []
    with pytest.raises(NonFiniteLoss, match=r"training loss is (nan|inf) at step \d+ of 40"):
        train(
            toy_spec(training={"epochs": 10, "batch_size": 16, "learning_rate": 1e30, "max_grad_norm": 0}), told.append
        )
    assert max(one.step for one in told) < 40


def test_collapsed_model_fails(tmp_path: Path) -> None:
    (tmp_path / "collapsing_loss.py").write_text(
        "import torch\n"
        "class Collapse(torch.nn.Module):\n"
        "    def __init__(self, model):\n"
        "        super().__init__()\n"
        "        self.model = model\n"
        "    def forward(self, features, labels):\n"
        "        out = [self.model(one)['sentence_embedding'] for one in features]\n"
        "        with torch.no_grad():\n"
        "            for parameter in self.model.parameters():\n"
        "                parameter.data.zero_()\n"
        "            self.model[0].auto_model.encoder.layer[-1].output.LayerNorm.bias.data.fill_(1.0)\n"
        "        return 0.0 * sum(part.sum() for part in out)\n"
    )
    spec = toy_spec(loss=[{"name": "collapsing_loss:Collapse"}], root=tmp_path)
    with pytest.raises(CollapsedModel, match="all 40 predictions of validation at dim 8 are 1"):
        train(spec, silent)


def test_result_is_complete() -> None:
    told: list[Progress] = []
    result = train(toy_spec(), told.append)
    assert set(result.scores) == {
        f"{split}/{name}_{dim}"
        for split in ("validation", "test")
        for name in ("spearman", "pearson")
        for dim in (8, 64)
    }
    assert result.predictions["test"].by_dim[8].dtype == np.float64
    assert result.predictions["test"].labels.shape == (40,)
    assert [step for step, _ in result.loss_curve] == [1, 2, 3, 4]
    assert set(result.times) == {"load_s", "train_s", "eval_s"}
    assert set(result.fingerprint) == {
        "initial_weights", "example_order", "data", "software", "device", "dtype", "instruction_set", "threads",
    }  # fmt: skip
    assert result.notes == ("unknown tokens: train 0.0%, test 0.0%",)
    assert [one.split for one in result.datasets] == ["train", "validation", "test"]
    assert {one.phase for one in told} == {"load", "train", "evaluate"}
    assert (told[-2].phase, [one.step for one in told if one.phase == "train"][-1]) == ("evaluate", 4)


def test_in_batch_and_graded_losses_together() -> None:
    result = train(
        toy_spec(
            loss=[
                {"name": "angle", "weight": 1.0},
                {"name": "MultipleNegativesRankingLoss", "weight": 0.5, "args": {"positive_from": 0.8}},
            ],
        ),
        silent,
    )
    assert np.isfinite([value for _, value in result.loss_curve]).all()


@pytest.mark.parametrize("kind", ["prompt", "bfloat16", "accumulation", "no_duplicates"])
def test_other_ways_to_train(kind: str) -> None:
    changes: dict[str, dict[str, Any]] = {
        "prompt": {"model": {"name": "toy-random", "prompt": "the ", "max_seq_length": 8}},
        "bfloat16": {"model": {"name": "toy-random", "dtype": "bfloat16"}},
        "accumulation": {"training": {"epochs": 1, "batch_size": 8, "gradient_accumulation_steps": 2}},
        "no_duplicates": {"training": {"epochs": 1, "batch_size": 16, "batch_sampler": "no_duplicates"}},
    }
    plain, changed = train(toy_spec(), silent), train(toy_spec(**changes[kind]), silent)
    assert dict(changed.scores) != dict(plain.scores)
    assert len(changed.loss_curve) == 4


def test_wrong_option_is_one_clear_line() -> None:
    with pytest.raises(InputError, match=r"options\.slices: 4 is not valid; options are length_aware, deterministic"):
        train(toy_spec(options={"slices": 4}), silent)
