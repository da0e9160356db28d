"""Loading an encoder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from sentence_transformers import SentenceTransformer

from trainables.encoder.fetch import fetched_folder
from trainables.encoder.model_checks import unused_prompt_note
from trainables.errors import InputError
from trainables.locations import folder_digest, hub_commit, locate_model
from trainables.spec import TrainSpec
from trainables.toy_encoder import toy_encoder_folder

SAVED_PROMPT: Final = "study"
"""What the study's prompt is called in a saved model."""
_UNUSED_PROMPT: Final = "_pairsweep_unused_prompt"


def device_name() -> str:
    """`cuda` where a GPU is visible to this process, else `cpu`."""
    return "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """An encoder, and what it was loaded from."""

    model: SentenceTransformer
    identity: str
    """Equal for two models that were loaded from the same contents in the same way."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know about how it is used."""
        unused = getattr(self.model, _UNUSED_PROMPT, None)
        return () if unused is None else (unused_prompt_note(unused),)


def load_model(spec: TrainSpec) -> LoadedModel:
    """A fresh encoder with its initial weights, on the device of this process.

    Seed torch before: layers that the stored model lacks are drawn at random.

    Raises:
        InputError: the model cannot be loaded, or is too small for the spec's dims.
    """
    assert spec.model is not None
    location = locate_model(spec)
    path, identity = location.name, f"hub {location.name} {spec.model.revision}"
    if location.kind == "toy":
        path = identity = str(toy_encoder_folder(location.name))
    elif location.folder is not None:
        path = str(location.folder)
        identity = f"{path} {folder_digest(location.folder)}"
    else:
        identity += f" {hub_commit(location.name, spec.model.revision, kind='models')}"
        path = str(fetched_folder(location, spec.model.revision) or path)  # there, no network is asked
    key = f"{identity} {spec.model.dtype} {spec.model.max_seq_length} {spec.model.prompt is None}"
    model = _load(path, spec)
    return LoadedModel(model=model.to(device_name()), identity=key)


def _load(path: str, spec: TrainSpec) -> SentenceTransformer:
    assert spec.model is not None
    try:
        model = SentenceTransformer(
            path,
            device="cpu",
            revision=spec.model.revision,
            model_kwargs={"dtype": getattr(torch, spec.model.dtype)},
        )
    except Exception as error:
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(
            where=f"model {spec.model.name}",
            field="model.name",
            value=spec.model.name,
            allowed=f"cannot be loaded ({why})",
        ) from error
    # The library would put a default prompt before what it evaluates, but not before what it trains on. Here the
    # spec's prompt, which is recorded, stands before both; without one, nothing does.
    if model.default_prompt_name is not None and spec.model.prompt is None:
        setattr(model, _UNUSED_PROMPT, model.prompts.get(model.default_prompt_name))
    model.default_prompt_name = None
    if spec.model.max_seq_length is not None:
        model.max_seq_length = spec.model.max_seq_length
    size = model.get_embedding_dimension()
    for field, dims in (("matryoshka_dims", spec.matryoshka_dims), ("trained_dims", spec.trained_dims or ())):
        if size is not None and dims and max(dims) > size:
            raise InputError(
                where=f"model {spec.model.name}",
                field=field,
                value=max(dims),
                allowed=f"the model gives {size} dimensions",
            )
    return model


def save_model(model: SentenceTransformer, folder: Path, *, prompt: str | None) -> None:
    """Write an encoder so that a plain `SentenceTransformer(folder).encode(sentences)` gives what was evaluated.

    Args:
        model: The encoder; left as it is.
        folder: Where.
        prompt: Text that was put before every sentence; it becomes the saved model's default prompt.
    """
    before = dict(model.prompts), model.default_prompt_name
    try:
        if prompt is not None:
            model.prompts[SAVED_PROMPT] = prompt
            model.default_prompt_name = SAVED_PROMPT
        # Without a model card: writing one asks the hub, and would store sentences of the training data.
        model.save(str(folder), create_model_card=False)
    finally:
        model.prompts, model.default_prompt_name = before


def parameters_per_token(model: SentenceTransformer) -> int:
    """Parameters that take part in each token's computation: all but the embedding tables."""
    tables: set[int] = {id(p) for m in model.modules() if isinstance(m, torch.nn.Embedding) for p in m.parameters()}
    return sum(p.numel() for p in model.parameters() if id(p) not in tables)


def layer_count(model: SentenceTransformer) -> int:
    """Transformer layers, or 1 where the model does not say."""
    config: Any = getattr(model[0], "config", None)
    count = getattr(config, "num_hidden_layers", None)
    return count if isinstance(count, int) and count > 0 else 1
