"""What is trained on without padding has the library's loss and gradient, or is padded instead; silent steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from tests.trainables.conftest import silent, toy_spec
from trainables import runtime
from trainables.checks import check_spec
from trainables.sentence_pair.train import train
from trainables.toy_encoder import toy_encoder_folder

LOSSES = """
import torch
from torch import nn

class Base(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, sentence_features, labels):
        sides = [self.model(features)["sentence_embedding"] for features in sentence_features]
        return ((torch.cosine_similarity(*sides) - labels.view(-1)) ** 2).mean()

    def compute_loss_from_embeddings(self, embeddings, labels):
        return ((torch.cosine_similarity(*embeddings) - labels.view(-1)) ** 2).mean()

class Same(Base):
    pass

class Factor(Base):
    def forward(self, sentence_features, labels):
        factor = 1 if "attention_mask" in sentence_features[0] else 3
        return factor * super().forward(sentence_features, labels)

class Detached(Base):
    def forward(self, sentence_features, labels):
        value = super().forward(sentence_features, labels)
        return value if "attention_mask" in sentence_features[0] else value.detach() + 0.5 * (value - value.detach())

class Tokens(Base):
    def forward(self, sentence_features, labels):
        penalty = sum(self.model(features)["token_embeddings"].abs().mean() for features in sentence_features)
        return super().forward(sentence_features, labels) + 0.01 * penalty
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Same", None),
        ("Factor", "the loss is"),
        ("Detached", "the gradient differs from the library's padded batch"),
        ("Tokens", "the loss needs more than embeddings (KeyError: 'token_embeddings')"),
    ],
)
def test_a_loss_that_needs_more_than_embeddings_is_padded(tmp_path: Path, name: str, said: str | None) -> None:
    module = f"fast_{name.lower()}"  # modules stay imported: each its own
    (tmp_path / f"{module}.py").write_text(LOSSES)
    result = train(toy_spec(root=tmp_path, loss=[{"name": f"{module}:{name}"}]), silent)
    notes = [note for note in result.notes if note.startswith("length_aware: not used: ")]
    assert (notes != []) == (said is not None)
    if said is not None:
        assert said in notes[0]
        padded = train(
            toy_spec(root=tmp_path, loss=[{"name": f"{module}:{name}"}], options={"length_aware": False}), silent
        )
        assert dict(padded.scores) == pytest.approx(dict(result.scores), abs=1e-4)


def test_steps_without_gradient_are_counted() -> None:
    spec = toy_spec(
        loss=[{"name": "angle"}],
        data={"name": "toy", "limit": {"train": 17, "validation": 20, "test": 20}},
        training={"epochs": 2, "batch_size": 16, "learning_rate": 1e-3},
    )
    assert any(note.startswith("training.batch_size: 17 rows in batches of 16") for note in check_spec(spec))
    assert "no gradient in 2 of 4 steps" in train(spec, silent).notes
    assert not [note for note in train(toy_spec(), silent).notes if "no gradient" in note]


def test_a_batch_of_one_is_warned_about() -> None:
    one = toy_spec(training={"epochs": 1, "batch_size": 1, "gradient_accumulation_steps": 8})
    (warning,) = check_spec(one)
    assert "training.batch_size: 1: cosent compares the pairs of a batch" in warning
    assert check_spec(toy_spec(loss=[{"name": "cosine"}], training={"epochs": 1, "batch_size": 1})) == ()


@pytest.mark.parametrize("length_aware", [True, False])
def test_a_models_own_default_prompt_stands_before_nothing(tmp_path: Path, length_aware: bool) -> None:
    """Training and evaluation use the spec's prompt, which is recorded; the model's own is said to be unused."""
    plain, prompted = tmp_path / "plain", tmp_path / "prompted"
    with runtime.isolated():
        model = SentenceTransformer(str(toy_encoder_folder("toy-random")), device="cpu")
        for folder in (plain, prompted):
            model.save(str(folder), create_model_card=False)
    file = prompted / "config_sentence_transformers.json"
    config = {**json.loads(file.read_text()), "prompts": {"query": "kato pelu "}, "default_prompt_name": "query"}
    file.write_text(json.dumps(config))
    specs = [toy_spec(model={"name": str(f)}, options={"length_aware": length_aware}) for f in (plain, prompted)]
    assert any("'kato pelu ' is not used" in line for line in check_spec(specs[1]))
    without, with_default = (train(spec, silent) for spec in specs)
    assert dict(without.scores) == dict(with_default.scores)
    assert any("'kato pelu ' is not used" in note for note in with_default.notes)
    used = train(toy_spec(model={"name": str(prompted), "prompt": "kato pelu "}), silent)
    assert dict(used.scores) != dict(without.scores)
