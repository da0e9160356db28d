"""Tokenise each sentence once per launch, and make padded batches from what is kept.

The library tokenises every batch at every step and once per evaluated size. Token ids depend only on the model's
tokenizer, the prompt and the sentence, so they are kept (in a file, for the cells that follow: trainables.kept), and a
batch is only padded: the tensors are the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from trainables.encoder.models import LoadedModel
from trainables.kept import kept
from trainables.sentence_pair.packing import can_pack

_PER_TOKEN: Final = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_BATCH: Final = 256
_TRIED: Final = 8
"""Of the longest sentences, and as many of all lengths."""


@dataclass(kw_only=True)
class _Tokens:
    """What is kept: one long row of ids, and where each sentence's begin."""

    ids: np.ndarray[Any, np.dtype[np.int64]]
    types: np.ndarray[Any, np.dtype[np.int64]] | None
    starts: np.ndarray[Any, np.dtype[np.int64]]
    """One more than sentences."""
    constants: dict[str, Any]
    """Features that are the same for every batch, such as `prompt_length`."""


class TokenCache:
    """Token ids of sentences under one model and prompt."""

    def __init__(self, model: SentenceTransformer, sentences: Sequence[str], tokens: _Tokens) -> None:
        tokenizer = model.tokenizer
        self.pad_id = int(getattr(tokenizer, "pad_token_id", 0) or 0)
        self.unknown_id: int | None = getattr(tokenizer, "unk_token_id", None)
        self.special_ids = frozenset(getattr(tokenizer, "all_special_ids", ()) or ())
        self.constants = tokens.constants
        self._ids = torch.from_numpy(tokens.ids)
        self._types = None if tokens.types is None else torch.from_numpy(tokens.types)
        starts: list[int] = tokens.starts.tolist()
        self._spans: dict[str, tuple[int, int]] = {
            sentence: (starts[row], starts[row + 1]) for row, sentence in enumerate(sentences)
        }

    def length(self, sentence: str) -> int:
        """Tokens of a sentence, special ones included."""
        start, end = self._spans[sentence]
        return end - start

    def ids(self, sentence: str) -> Tensor:
        """Token ids of a sentence, special ones included; shape (length,)."""
        start, end = self._spans[sentence]
        return self._ids[start:end]

    def can_pack(self, model: SentenceTransformer) -> bool:
        """Whether batches of these sentences may be packed (see packing), by trying some of them.

        Args:
            model: The one whose tokens these are.
        """
        by_length = sorted(self._spans, key=lambda sentence: (-self.length(sentence), sentence))
        tried = [*by_length[:_TRIED], *by_length[:: -(-len(by_length) // _TRIED)]]
        ids = [self.ids(sentence).tolist() for sentence in tried]
        return can_pack(model, ids, self.features(tried), pad_id=self.pad_id)

    def features(self, sentences: Sequence[str]) -> dict[str, Any]:
        """What the model's own preprocessing gives for these sentences; tensors of shape (batch, longest)."""
        rows = [self.ids(sentence) for sentence in sentences]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.pad_id)
        lengths = torch.tensor([row.shape[0] for row in rows])
        mask = (torch.arange(ids.shape[1])[None, :] < lengths[:, None]).to(ids.dtype)
        out = {"input_ids": ids, "attention_mask": mask, **self.constants}
        if self._types is not None:
            types = [self._types[slice(*self._spans[sentence])] for sentence in sentences]
            out["token_type_ids"] = torch.nn.utils.rnn.pad_sequence(types, batch_first=True, padding_value=0)
        return out

    def unknown_share(self, sentences: Iterable[str]) -> float | None:
        """Share of unknown tokens among those that are not special; None where the tokenizer knows no such token."""
        if self.unknown_id is None:
            return None
        counted = self.special_ids - {self.unknown_id}
        total = unknown = 0
        for sentence in sentences:
            ids = self.ids(sentence).tolist()
            total += sum(token not in counted for token in ids)
            unknown += ids.count(self.unknown_id)
        return unknown / total if total else None


def token_cache(loaded: LoadedModel, prompt: str | None, sentences: Iterable[str]) -> TokenCache | None:
    """Tokens of all the sentences under this model and prompt.

    None where this model's batches are more than right-padded token ids (images, flattened batches), so that the
    library's own way must be used.
    """
    distinct = sorted(set(sentences), key=lambda s: (len(s), s))
    tokens = kept(
        ("tokens", loaded.identity, repr(prompt), _digest(distinct)), lambda: _tokenise(loaded.model, prompt, distinct)
    )
    return None if tokens is None else TokenCache(loaded.model, distinct, tokens)


def _digest(sentences: Sequence[str]) -> str:
    whole = hashlib.sha256()
    for sentence in sentences:
        text = sentence.encode("utf-8", errors="surrogatepass")
        whole.update(len(text).to_bytes(8, "big") + text)
    return whole.hexdigest()


def _tokenise(model: SentenceTransformer, prompt: str | None, sentences: Sequence[str]) -> _Tokens | None:
    ids: list[np.ndarray[Any, Any]] = []
    types: list[np.ndarray[Any, Any]] = []
    constants: dict[str, Any] | None = None
    for start in range(0, len(sentences), _BATCH):
        features = model.preprocess(sentences[start : start + _BATCH], prompt=prompt)
        lengths = _lengths(features)
        if lengths is None:
            return None
        others = {key: value for key, value in features.items() if key not in _PER_TOKEN}
        if any(isinstance(value, Tensor) for value in others.values()) or constants not in (None, others):
            return None
        constants = others
        for row, length in enumerate(lengths):
            ids.append(features["input_ids"][row, :length].numpy())
            if "token_type_ids" in features:
                types.append(features["token_type_ids"][row, :length].numpy())
    return _Tokens(
        ids=np.concatenate(ids),
        types=np.concatenate(types) if types else None,
        starts=np.cumsum([0, *(len(row) for row in ids)]),
        constants=constants or {},
    )


def _lengths(features: Mapping[str, Any]) -> list[int] | None:
    """Tokens of each row; None where the rows are more than right-padded token ids."""
    ids, mask = features.get("input_ids"), features.get("attention_mask")
    if not (isinstance(ids, Tensor) and isinstance(mask, Tensor) and ids.ndim == 2 and mask.shape == ids.shape):
        return None
    lengths = mask.sum(dim=1)
    left_filled = torch.arange(ids.shape[1])[None, :] < lengths[:, None]
    return [int(length) for length in lengths] if torch.equal(left_filled, mask.bool()) else None
