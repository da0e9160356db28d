"""What a saved model will take on disk, told before it is loaded, against what it does take."""

from __future__ import annotations

from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from tests.trainables.conftest import toy_spec
from trainables.encoder.model_size import saved_bytes
from trainables.encoder.models import load_model, save_model

HEADER = 16 * 1024
"""Most that a small safetensors file holds beside its weights."""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_toy_encoders_size_is_known_without_building_it(tmp_path: Path, dtype: str) -> None:
    spec = toy_spec(model={"name": "toy-random", "dtype": dtype})
    model = load_model(spec).model
    assert saved_bytes(spec) == sum(one.numel() * one.element_size() for one in model.parameters())
    save_model(model, tmp_path, prompt=None)
    size = (tmp_path / "model.safetensors").stat().st_size
    assert saved_bytes(spec) == pytest.approx(size, abs=HEADER)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_folders_size_is_read_from_its_headers(tmp_path: Path, dtype: str) -> None:
    """Whatever number format it is stored in: it is saved in the one it is trained in."""
    trained = toy_spec(model={"name": "toy-random", "dtype": "bfloat16"})
    save_model(load_model(trained).model, tmp_path, prompt=None)
    spec = toy_spec(model={"name": str(tmp_path), "dtype": dtype})
    assert saved_bytes(spec) == saved_bytes(toy_spec(model={"name": "toy-random", "dtype": dtype}))


def test_what_is_not_here_has_no_known_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert saved_bytes(toy_spec(model={"name": "nobody/nothing"})) is None


def test_a_models_own_prompts_stay_as_they_are(tmp_path: Path) -> None:
    model = load_model(toy_spec()).model
    before = dict(model.prompts)
    save_model(model, tmp_path, prompt="query: ")
    assert (dict(model.prompts), model.default_prompt_name) == (before, None)
    saved = SentenceTransformer(str(tmp_path), device="cpu")
    assert saved.prompts[saved.default_prompt_name or ""] == "query: "
