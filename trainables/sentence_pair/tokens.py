"""Tokenise each sentence once per process, and make padded batches from what is kept.

The library tokenises every batch at every step and once per evaluated size. Token ids depend only on the model's
tokenizer, the prompt and the sentence, so they are kept, and a batch is only padded: the tensors are the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from trainables.encoder.models import LoadedModel
from trainables.sentence_pair.packing import can_pack

_PER_TOKEN: Final = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_BATCH: Final = 256
_KEPT: Final = 4
_TRIED: Final = 8
"""Of the longest sentences, and as many of all lengths."""


class TokenCache:
    """Token ids of sentences under one model and prompt."""

    def __init__(self, model: SentenceTransformer, prompt: str | None) -> None:
        tokenizer = model.tokenizer
        self._prompt = prompt
        self.pad_id = int(getattr(tokenizer, "pad_token_id", 0) or 0)
        self.unknown_id: int | None = getattr(tokenizer, "unk_token_id", None)
        self.special_ids = frozenset(getattr(tokenizer, "all_special_ids", ()) or ())
        self._ids: dict[str, Tensor] = {}
        self._types: dict[str, Tensor] = {}
        self.constants: dict[str, Any] = {}
        """Features that are the same for every batch, such as `prompt_length`."""
        self._packs: dict[int, bool] = {}

    def add(self, model: SentenceTransformer, sentences: Iterable[str]) -> bool:
        """Tokenise what is not there yet.

        Returns:
            False if this model's batches are more than right-padded token ids (images, flattened batches), so that
            the library's own way must be used.
        """
        new = sorted({sentence for sentence in sentences if sentence not in self._ids}, key=lambda s: (len(s), s))
        for start in range(0, len(new), _BATCH):
            batch = new[start : start + _BATCH]
            features = model.preprocess(batch, prompt=self._prompt)
            if not self._keep(batch, features):
                return False
        return True

    def _keep(self, batch: Sequence[str], features: Mapping[str, Any]) -> bool:
        ids, mask = features.get("input_ids"), features.get("attention_mask")
        if not (isinstance(ids, Tensor) and isinstance(mask, Tensor) and ids.ndim == 2 and mask.shape == ids.shape):
            return False
        lengths = mask.sum(dim=1).tolist()
        left_filled = torch.arange(ids.shape[1])[None, :] < mask.sum(dim=1)[:, None]
        if not torch.equal(left_filled, mask.bool()):
            return False
        constants = {key: value for key, value in features.items() if key not in _PER_TOKEN}
        if any(isinstance(value, Tensor) for value in constants.values()):
            return False
        if self.constants and constants != self.constants:
            return False
        self.constants = constants
        types = features.get("token_type_ids")
        for row, (sentence, length) in enumerate(zip(batch, lengths, strict=True)):
            self._ids[sentence] = ids[row, :length].clone()
            if types is not None:
                self._types[sentence] = types[row, :length].clone()
        return True

    def length(self, sentence: str) -> int:
        """Tokens of a sentence, special ones included."""
        return self._ids[sentence].shape[0]

    def ids(self, sentence: str) -> Tensor:
        """Token ids of a sentence, special ones included; shape (length,)."""
        return self._ids[sentence]

    def can_pack(self, model: SentenceTransformer, sentences: Iterable[str]) -> bool:
        """Whether batches of these sentences may be packed (see packing), by trying some of them.

        The answer depends on the longest sentence, never on what else this process has seen.

        Args:
            model: The one whose tokens these are.
            sentences: All that a cell trains and evaluates on; kept here.
        """
        by_length = sorted(set(sentences), key=lambda sentence: (-self.length(sentence), sentence))
        longest = self.length(by_length[0])
        if longest not in self._packs:
            tried = [*by_length[:_TRIED], *by_length[:: -(-len(by_length) // _TRIED)]]
            ids = [self.ids(sentence).tolist() for sentence in tried]
            self._packs[longest] = can_pack(model, ids, self.features(tried), pad_id=self.pad_id)
        return self._packs[longest]

    def features(self, sentences: Sequence[str]) -> dict[str, Any]:
        """What the model's own preprocessing gives for these sentences; tensors of shape (batch, longest)."""
        rows = [self._ids[sentence] for sentence in sentences]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.pad_id)
        lengths = torch.tensor([row.shape[0] for row in rows])
        mask = (torch.arange(ids.shape[1])[None, :] < lengths[:, None]).to(ids.dtype)
        out = {"input_ids": ids, "attention_mask": mask, **self.constants}
        if self._types:
            types = [self._types[sentence] for sentence in sentences]
            out["token_type_ids"] = torch.nn.utils.rnn.pad_sequence(types, batch_first=True, padding_value=0)
        return out

    def unknown_share(self, sentences: Iterable[str]) -> float | None:
        """Share of unknown tokens among those that are not special; None where the tokenizer knows no such token."""
        if self.unknown_id is None:
            return None
        counted = self.special_ids - {self.unknown_id}
        total = unknown = 0
        for sentence in sentences:
            ids = self._ids[sentence].tolist()
            total += sum(token not in counted for token in ids)
            unknown += ids.count(self.unknown_id)
        return unknown / total if total else None


_caches: OrderedDict[tuple[str, str | None], TokenCache] = OrderedDict()


def token_cache(loaded: LoadedModel, prompt: str | None, sentences: Iterable[str]) -> TokenCache | None:
    """The process's cache for this model and prompt, holding all the sentences; None where it does not apply."""
    key = (loaded.identity, prompt)
    cache = _caches.setdefault(key, TokenCache(loaded.model, prompt))
    _caches.move_to_end(key)
    while len(_caches) > _KEPT:
        _caches.popitem(last=False)
    return cache if cache.add(loaded.model, sentences) else None
