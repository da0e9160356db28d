"""Scores of a trained encoder: one encode at full size, every dim by truncation and renormalisation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trainables.errors import CollapsedModel, NonFiniteScore
from trainables.spec import Predictions

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from trainables.data import Pairs

Array = np.ndarray[Any, np.dtype[np.float64]]

CONSTANT_SPREAD = 1e-9
"""Cosines within this range are one value: float noise on a collapsed model must not become a rank."""


def correlations(split: str, predictions: Predictions) -> dict[str, float]:
    """Spearman (midranks) and Pearson correlation of cosines with labels, per dim.

    Returns:
        `split/spearman_dim` and `split/pearson_dim`.

    Raises:
        CollapsedModel: all cosines of a dim are equal.
        NonFiniteScore: a cosine or a correlation is NaN or infinite.
    """
    from scipy.stats import rankdata

    label_ranks = rankdata(predictions.labels)
    scores: dict[str, float] = {}
    for dim, cosines in predictions.by_dim.items():
        if not np.isfinite(cosines).all():
            raise NonFiniteScore(f"{int((~np.isfinite(cosines)).sum())} predictions of {split} at dim {dim} are NaN")
        if np.ptp(cosines) <= CONSTANT_SPREAD:
            raise CollapsedModel(f"all {len(cosines)} predictions of {split} at dim {dim} are {float(cosines[0]):.6g}")
        scores[f"{split}/spearman_{dim}"] = _pearson(label_ranks, rankdata(cosines))
        scores[f"{split}/pearson_{dim}"] = _pearson(predictions.labels, cosines)
    for name, value in scores.items():
        if not math.isfinite(value):
            raise NonFiniteScore(f"{name} is {value}")
    return scores


def _pearson(x: Array, y: Array) -> float:
    x, y = x - x.mean(), y - y.mean()
    scale = math.sqrt(float(x @ x)) * math.sqrt(float(y @ y))
    return float(x @ y) / scale if scale else math.nan


def cosines_by_dim(first: Array, second: Array, dims: Sequence[int]) -> dict[int, Array]:
    """Cosine of each pair at each dim: the leading `dim` columns, renormalised.

    Args:
        first: Embeddings, shape (pairs, size).
        second: Embeddings, shape (pairs, size).
        dims: Sizes to truncate to, none above `size`.

    Returns:
        dim -> cosines, shape (pairs,), float64.
    """
    # Running sums over columns give every dim in one pass over the embeddings.
    first, second = first.astype(np.float64), second.astype(np.float64)
    products = np.cumsum(first * second, axis=1)
    squares1, squares2 = np.cumsum(first**2, axis=1), np.cumsum(second**2, axis=1)
    out = {}
    for dim in dims:
        norms = np.sqrt(squares1[:, dim - 1]) * np.sqrt(squares2[:, dim - 1])
        with np.errstate(divide="ignore", invalid="ignore"):
            out[dim] = products[:, dim - 1] / norms
    return out


def evaluate(
    model: SentenceTransformer, pairs: Mapping[str, Pairs], dims: Sequence[int], *, batch_size: int
) -> dict[str, Predictions]:
    """Encode the distinct sentences of all splits once, longest first, and compare them at every dim.

    Args:
        model: In evaluation mode or not; it is encoded in evaluation mode.
        pairs: Split -> sentence pairs.
        dims: Sizes, none above the model's.
        batch_size: Sentences encoded at once.
    """
    where: dict[str, int] = {}
    for one in pairs.values():
        for sentence in (*one.sentence1, *one.sentence2):
            where.setdefault(sentence, len(where))
    embeddings = model.encode(
        list(where), batch_size=batch_size, show_progress_bar=False, convert_to_numpy=True, normalize_embeddings=False
    )
    vectors = np.asarray(embeddings, dtype=np.float64)
    out = {}
    for split, one in pairs.items():
        first = vectors[[where[sentence] for sentence in one.sentence1]]
        second = vectors[[where[sentence] for sentence in one.sentence2]]
        out[split] = Predictions(
            labels=np.asarray(one.labels, dtype=np.float64), by_dim=cosines_by_dim(first, second, dims)
        )
    return out
