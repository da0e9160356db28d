"""A batch of sentences without padding: several sentences share a row, kept apart by the attention mask.

Sentences differ in length, so a padded batch computes two to three tokens for each real one. Here sentences are laid
end to end in rows of about `ROW_TOKENS` tokens; a block-diagonal attention mask and positions that start anew let each
sentence see itself alone. The embeddings are those of the padded batch, up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sentence_transformers.util import batch_to_device
from torch.nn import functional

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

ROW_TOKENS = 64
"""Longer rows waste attention on masked pairs, shorter ones leave gaps; measured with 128 and 384 dims."""

_FLOAT32_AGREEMENT = 1e-4
_HALF_AGREEMENT = 3e-2
"""Largest difference from the padded embedding, relative to its length; a wrong mask is off by far more."""

_POSITIONS_AFTER_PADDING = frozenset({"roberta", "xlm-roberta", "camembert"})
"""Model types whose first position is the padding id + 1."""


@dataclass(frozen=True, kw_only=True)
class PackedBatch:
    """Sentences laid into rows."""

    input_ids: torch.Tensor
    """(rows, width) token ids."""
    positions: torch.Tensor
    """(rows, width) place of a token in its sentence, from 0."""
    sentence: torch.Tensor
    """(rows, width) which sentence a token belongs to; -1 where the row is not filled."""
    places: torch.Tensor
    """(sentences, longest) index of each token in the flattened rows; 0 beyond a sentence's end."""
    mask: torch.Tensor
    """(sentences, longest) 1 on tokens, 0 beyond a sentence's end."""

    def to(self, device: torch.device | str) -> PackedBatch:
        """The same batch on `device`."""
        return PackedBatch(**{name: tensor.to(device, non_blocking=True) for name, tensor in vars(self).items()})


def fill_rows(lengths: Sequence[int], width: int) -> list[list[int]]:
    """Put sentences into as few rows as first-fit decreasing finds (at most 11/9 of the least number).

    Args:
        lengths: tokens of each sentence, none above `width`.
        width: tokens of a row.

    Returns:
        Indices into `lengths`, one list per row.
    """
    rows: list[list[int]] = []
    free: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        length = lengths[index]
        for row, left in enumerate(free):
            if length <= left:
                rows[row].append(index)
                free[row] -= length
                break
        else:
            rows.append([index])
            free.append(width - length)
    return rows


def pack(sentences: Sequence[Sequence[int] | torch.Tensor], *, pad_id: int) -> PackedBatch:
    """Lay tokenized sentences into rows.

    Args:
        sentences: token ids of each, special tokens included; none empty.
        pad_id: what fills the ends of rows.
    """
    lengths = [len(ids) for ids in sentences]
    longest = max(lengths)
    rows = fill_rows(lengths, max(ROW_TOKENS, longest))
    width = max(sum(lengths[i] for i in row) for row in rows)
    input_ids = np.full((len(rows), width), pad_id, dtype=np.int64)
    positions = np.zeros((len(rows), width), dtype=np.int64)
    sentence = np.full((len(rows), width), -1, dtype=np.int64)
    places = np.zeros((len(sentences), longest), dtype=np.int64)
    steps = np.arange(longest)
    for row, members in enumerate(rows):
        begin = 0
        for index in members:
            length = lengths[index]
            end = begin + length
            input_ids[row, begin:end] = sentences[index]
            positions[row, begin:end] = steps[:length]
            sentence[row, begin:end] = index
            places[index, :length] = row * width + begin + steps[:length]
            begin = end
    mask = (steps < np.asarray(lengths)[:, None]).astype(np.int64)
    return PackedBatch(
        input_ids=torch.from_numpy(input_ids),
        positions=torch.from_numpy(positions),
        sentence=torch.from_numpy(sentence),
        places=torch.from_numpy(places),
        mask=torch.from_numpy(mask),
    )


def encode_packed(
    model: SentenceTransformer, batch: PackedBatch, extra: Mapping[str, Any] | None = None
) -> torch.Tensor:
    """Sentence embeddings, (sentences, size), with gradients where they are on.

    Args:
        model: an encoder for which `can_pack` holds.
        batch: on the model's device.
        extra: features that the modules after the transformer ask for, such as `prompt_length`.
    """
    transformer, *later = model.children()
    alone = batch.sentence[:, None, :, None] == batch.sentence[:, None, None, :]
    out = transformer(
        {
            "input_ids": batch.input_ids,
            "attention_mask": alone,
            "position_ids": batch.positions + _first_position(model),
        }
    )
    tokens = out["token_embeddings"]
    features = {
        **(extra or {}),
        "token_embeddings": functional.embedding(batch.places, tokens.reshape(-1, tokens.shape[-1])),
        "attention_mask": batch.mask,
    }
    for module in later:
        features = module(features)
    embeddings: torch.Tensor = features["sentence_embedding"]
    return embeddings


def _config(model: SentenceTransformer) -> Any:
    return getattr(getattr(model[0], "auto_model", None), "config", None)


def _first_position(model: SentenceTransformer) -> int:
    config = _config(model)
    return int(config.pad_token_id) + 1 if config.model_type in _POSITIONS_AFTER_PADDING else 0


def can_pack(
    model: SentenceTransformer, sentences: Sequence[Sequence[int]], padded: Mapping[str, Any], *, pad_id: int
) -> bool:
    """Whether this encoder gives packed sentences the embeddings that it gives padded ones; by trying.

    An architecture may ignore the positions or the mask it is handed, or look only a window away; no list of names
    can know. The states of the model and of the random generators are left as they were.

    Args:
        model: any encoder.
        sentences: token ids of sentences to try on; include the longest ones.
        padded: the same sentences as the library's features, on any device.
        pad_id: padding token.
    """
    if getattr(_config(model), "_attn_implementation", None) != "sdpa":
        return False
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            batch = pack(sentences, pad_id=pad_id).to(model.device)
            packed = encode_packed(model, batch, batch_constants(padded))
            expected = model(batch_to_device(dict(padded), model.device))["sentence_embedding"]
    except (TypeError, ValueError, RuntimeError, KeyError, IndexError):
        return False
    finally:
        model.train(was_training)
    agreement = _FLOAT32_AGREEMENT if expected.dtype == torch.float32 else _HALF_AGREEMENT
    error = (packed - expected).float().norm(dim=1) / expected.float().norm(dim=1).clamp_min(1e-12)
    return bool((error <= agreement).all())


def batch_constants(features: Mapping[str, Any]) -> dict[str, Any]:
    """Features that are no tensors, such as `prompt_length`: later modules may ask for them."""
    return {name: value for name, value in features.items() if not isinstance(value, torch.Tensor)}
