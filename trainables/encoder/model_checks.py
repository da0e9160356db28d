"""A model's embedding size and completeness, read from its configuration files; loads no weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from trainables.errors import InputError
from trainables.locations import ModelLocation, hub_commit, locate_model
from trainables.spec import TrainSpec

TOY_SIZE: Final = 64
"""Embedding size of the built-in toy encoders."""
_WEIGHTS: Final = (
    "model.safetensors",
    "pytorch_model.bin",
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
)
_SIZE_KEYS: Final = ("hidden_size", "d_model", "dim", "n_embd")


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(where=str(path), field="model", value=path.name, allowed=f"must be JSON ({error})") from None


def _size_of_folder(folder: Path) -> int:
    """Embedding size of a model folder.

    Raises:
        InputError: a file is missing or has no size.
    """
    modules = _json(folder / "modules.json") if (folder / "modules.json").is_file() else [{"path": ""}]
    size = None
    for module in modules:
        kind = str(module.get("type", "")).rsplit(".", 1)[-1]
        inside = folder / str(module.get("path", ""))
        if kind in ("Pooling", "Normalize", "Dropout"):
            continue
        config_file = inside / "config.json"
        if not config_file.is_file():
            raise InputError(
                where=str(folder), field="model.name", value=str(folder), allowed=f"the folder lacks {config_file.name}"
            )
        config = _json(config_file)
        if kind == "Dense":
            size = config.get("out_features")
            continue
        if not any((inside / name).is_file() for name in _WEIGHTS):
            raise InputError(
                where=str(inside), field="model.name", value=inside.name, allowed=f"the folder lacks {_WEIGHTS[0]}"
            )
        if not any(
            (inside / name).is_file() for name in ("tokenizer.json", "vocab.txt", "spiece.model", "tokenizer.model")
        ):
            raise InputError(
                where=str(inside), field="model.name", value=inside.name, allowed="the folder lacks tokenizer.json"
            )
        size = next((config[key] for key in _SIZE_KEYS if isinstance(config.get(key), int)), None)
    if not isinstance(size, int):
        raise InputError(
            where=str(folder), field="model.name", value=folder.name, allowed="config.json names no hidden_size"
        )
    return size


def hub_snapshot(location: ModelLocation, revision: str | None) -> Path | None:
    """What the local cache has of a hub model; None where it has nothing."""
    from huggingface_hub import constants

    commit = hub_commit(location.name, revision, kind="models")
    if commit is None:
        return None
    folder = Path(constants.HF_HUB_CACHE) / f"models--{location.name.replace('/', '--')}" / "snapshots" / commit
    return folder if folder.is_dir() else None


def _size_from_hub(location: ModelLocation, revision: str | None) -> int | None:
    snapshot = hub_snapshot(location, revision)
    if snapshot is not None:
        return _size_of_folder(snapshot)
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    try:
        config = _json(Path(hf_hub_download(location.name, "config.json", revision=revision, etag_timeout=10)))
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        field, value = ("revision", revision) if isinstance(error, RevisionNotFoundError) else ("name", location.name)
        raise InputError(
            where="model hub",
            field=f"model.{field}",
            value=value,
            allowed="no such thing on the hub, nor such a folder here",
        ) from None
    except Exception as error:
        why = type(error).__name__
        raise InputError(
            where="model hub",
            field="model.name",
            value=location.name,
            allowed=f"cannot be reached ({why}) and is not cached here; name a local folder, package:<module> or toy",
        ) from None
    return next((config[key] for key in _SIZE_KEYS if isinstance(config.get(key), int)), None)


def unused_prompt_note(prompt: str) -> str:
    """Said where a model brings a default prompt and the study names none."""
    return f"model: its own default prompt {prompt!r} is not used; model.prompt puts a text before every sentence"


def unused_prompt(spec: TrainSpec) -> str | None:
    """The default prompt that the model's folder names, where the spec has no prompt; None where there is none.

    A hub model that is not on this machine yet is not asked.
    """
    assert spec.model is not None
    location = locate_model(spec)
    folder = location.folder
    if location.kind == "hub":
        folder = hub_snapshot(location, spec.model.revision)
    file = None if folder is None else folder / "config_sentence_transformers.json"
    if spec.model.prompt is not None or file is None or not file.is_file():
        return None
    config = _json(file)
    prompt = (config.get("prompts") or {}).get(config.get("default_prompt_name"))
    return prompt if isinstance(prompt, str) else None


def embedding_size(spec: TrainSpec) -> int | None:
    """Embedding size of the spec's model; None where only loading it would tell.

    Raises:
        InputError: no such folder, package or hub id, or the folder is incomplete.
    """
    location = locate_model(spec)
    if location.kind == "toy":
        return TOY_SIZE
    if location.folder is not None:
        return _size_of_folder(location.folder)
    assert spec.model is not None
    return _size_from_hub(location, spec.model.revision)
