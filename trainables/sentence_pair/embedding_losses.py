"""Losses on embeddings that are already there, and combinations of losses that share them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

EMBEDDING = "sentence_embedding"


class Embedded(dict[str, Any]):
    """Features of one column whose embeddings, shape (batch, size), are already computed."""

    def __init__(self, embeddings: Tensor) -> None:
        super().__init__({EMBEDDING: embeddings})


@contextmanager
def embeddings_given(model: SentenceTransformer) -> Iterator[None]:
    """Inside, the model returns what Embedded features hold instead of computing it.

    Losses call the model themselves; this is how they are handed embeddings that were computed in a better way.
    Each call gives a fresh dict, because MatryoshkaLoss writes into the one it gets.
    """
    patched: Any = model
    original = patched.forward
    was_own = "forward" in patched.__dict__

    def forward(features: dict[str, Any], **_: Any) -> dict[str, Any]:
        return dict(features) if isinstance(features, Embedded) else original(features)

    patched.forward = forward
    try:
        yield
    finally:
        if was_own:
            patched.forward = original
        else:
            del patched.forward


class WeightedSum(nn.Module):
    """sum of weight x term over one and the same embeddings of a batch."""

    def __init__(self, model: SentenceTransformer, terms: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        self.model = model
        self.terms = nn.ModuleList(terms)
        self.weights = tuple(weights)

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor) -> Tensor:
        """Embed each column once, then sum the terms; a scalar."""
        columns = [Embedded(self.model(features)[EMBEDDING]) for features in sentence_features]
        with embeddings_given(self.model):
            values = [weight * term(columns, labels) for term, weight in zip(self.terms, self.weights, strict=True)]
        total: Tensor = values[0]
        for value in values[1:]:
            total = total + value
        return total


class PositivesOnly(nn.Module):
    """An in-batch loss on those pairs of a batch whose label says that they mean the same."""

    def __init__(self, loss: nn.Module, *, from_label: float) -> None:
        super().__init__()
        self.loss = loss
        self.model = loss.model
        self.from_label = from_label

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor) -> Tensor:
        """The loss over the positive pairs; zero where fewer than two are left to be each other's negatives."""
        model: Any = self.model
        embeddings = [model(features)[EMBEDDING] for features in sentence_features]
        positive = labels.view(-1) >= self.from_label
        if int(positive.sum()) < 2:
            nothing: Tensor = 0.0 * torch.stack([column.sum() for column in embeddings]).sum()
            return nothing
        with embeddings_given(model):
            value: Tensor = self.loss([Embedded(column[positive]) for column in embeddings], labels[positive])
        return value
