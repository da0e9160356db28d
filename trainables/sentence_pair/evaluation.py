"""Scores of a trained encoder: one encode at full size, every dim by truncation and renormalisation."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from trainables.errors import CollapsedModel, NonFiniteScore
from trainables.evaluation import Array, Embeddings, Text, evaluate_sets, open_test_sets
from trainables.spec import Predictions, TrainSpec

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from trainables.data.load import Pairs
    from trainables.sentence_pair.tokens import TokenCache

SENTENCES_AT_ONCE = 64
"""Sentences of similar length that are encoded together."""
EVALUATOR_BATCH = 16
"""Sentences that the library's EmbeddingSimilarityEvaluator encodes together; another size rounds otherwise."""

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
    from scipy.stats import pearsonr, spearmanr

    scores: dict[str, float] = {}
    assert predictions.labels is not None
    for dim, cosines in predictions.by_dim.items():
        if not np.isfinite(cosines).all():
            raise NonFiniteScore(f"{int((~np.isfinite(cosines)).sum())} predictions of {split} at dim {dim} are NaN")
        if np.ptp(cosines) <= CONSTANT_SPREAD:
            raise CollapsedModel(f"all {len(cosines)} predictions of {split} at dim {dim} are {float(cosines[0]):.6g}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # constant labels: the score is NaN and is refused below
            scores[f"{split}/spearman_{dim}"] = float(spearmanr(predictions.labels, cosines)[0])
            scores[f"{split}/pearson_{dim}"] = float(pearsonr(predictions.labels, cosines)[0])
    for name, value in scores.items():
        if not math.isfinite(value):
            raise NonFiniteScore(f"{name} is {value}")
    return scores


def cosines_by_dim(first: Array, second: Array, dims: Sequence[int]) -> dict[int, Array]:
    """Cosine of each pair at each dim: the leading `dim` columns, renormalised.

    By the library's own function in its own precision: near ties then rank as its evaluators rank them.

    Args:
        first: Embeddings, shape (pairs, size).
        second: Embeddings, shape (pairs, size).
        dims: Sizes to truncate to, none above `size`.

    Returns:
        dim -> cosines, shape (pairs,), float64.
    """
    from sentence_transformers.util import pairwise_cos_sim

    return {
        dim: pairwise_cos_sim(first[:, :dim], second[:, :dim]).detach().cpu().numpy().astype(np.float64) for dim in dims
    }


def evaluate(
    model: SentenceTransformer,
    pairs: Mapping[str, Pairs],
    dims: Sequence[int],
    *,
    tokens: TokenCache | None = None,
    prompt: str | None = None,
    length_aware: bool = True,
    into: Embeddings | None = None,
) -> dict[str, Predictions]:
    """Encode the distinct sentences of all splits once, longest first, and compare them at every dim.

    Args:
        model: The encoder; its mode (training or evaluation) is left as it was.
        pairs: Split -> sentence pairs.
        dims: Sizes, none above the model's.
        tokens: Kept tokens of all these sentences; None: the model tokenises them itself.
        prompt: Text put before every sentence.
        length_aware: False: encode each column as the library's evaluators do, so that padding and bits are theirs.
        into: Gets the embeddings of the distinct sentences, for test sets that share some.
    """
    if not pairs:
        return {}
    if not length_aware:
        out = {}
        for split, one in pairs.items():
            columns = [
                model.encode(list(c), prompt=prompt, batch_size=EVALUATOR_BATCH, show_progress_bar=False)
                for c in (one.sentence1, one.sentence2)
            ]
            out[split] = Predictions(labels=one.labels, by_dim=cosines_by_dim(columns[0], columns[1], dims))
        return out
    where: dict[str, int] = {}
    for one in pairs.values():
        for sentence in (*one.sentence1, *one.sentence2):
            where.setdefault(sentence, len(where))
    if tokens is None:
        vectors = model.encode(list(where), prompt=prompt, batch_size=SENTENCES_AT_ONCE, show_progress_bar=False)
    else:
        vectors = _encode(model, list(where), tokens)
    if into is not None:
        into.put((Text(sentence, prompt) for sentence in where), vectors)
    out = {}
    for split, one in pairs.items():
        first = vectors[[where[sentence] for sentence in one.sentence1]]
        second = vectors[[where[sentence] for sentence in one.sentence2]]
        out[split] = Predictions(labels=one.labels, by_dim=cosines_by_dim(first, second, dims))
    return out


def _encode(model: SentenceTransformer, sentences: Sequence[str], tokens: TokenCache) -> Array:
    """Embeddings in the order of `sentences`, shape (sentences, size)."""
    import torch
    from sentence_transformers.util import batch_to_device

    order = sorted(range(len(sentences)), key=lambda index: -tokens.length(sentences[index]))
    was_training = model.training
    model.eval()
    parts = []
    try:
        with torch.inference_mode():
            for start in range(0, len(order), SENTENCES_AT_ONCE):
                batch = [sentences[index] for index in order[start : start + SENTENCES_AT_ONCE]]
                features = batch_to_device(tokens.features(batch), model.device)
                parts.append(model(features)["sentence_embedding"].float().cpu())
    finally:
        model.train(was_training)
    vectors = np.empty((len(order), parts[0].shape[1]), dtype=np.float32)
    vectors[order] = torch.cat(parts).numpy()
    return vectors


def library_encoder(model: SentenceTransformer) -> Embeddings:
    """Embeddings by the model's own `encode`, in its evaluation mode."""

    def encode(texts: Sequence[str], prompt: str | None) -> Array:
        found: Array = model.encode(list(texts), prompt=prompt, batch_size=SENTENCES_AT_ONCE, show_progress_bar=False)
        return found

    return Embeddings(encode)


def untrained_scores(spec: TrainSpec) -> dict[str, float]:
    """Scores of an encoder as it stands before a study trains it: what learning is measured from.

    Args:
        spec: Whose model, data, test sets and dims are used; its seed fixes layers that the stored model lacks.

    Returns:
        `test/spearman_dim` and `test/pearson_dim`, and what each named test set gives, for every dim of the spec.

    Raises:
        InputError: data or model do not fit.
        CellFailed: no score exists.
    """
    from transformers import set_seed

    from trainables import runtime
    from trainables.data.load import load_split
    from trainables.encoder.models import load_model

    assert spec.model is not None
    assert spec.data is not None
    with runtime.isolated():
        pairs = {"test": load_split(spec, "test")} if "test" in spec.data.scored else {}
        sets = open_test_sets(spec)
        set_seed(spec.seed)
        model = load_model(spec).model
        embeddings = library_encoder(model)
        own = evaluate(model, pairs, spec.matryoshka_dims, prompt=spec.model.prompt, into=embeddings)
        scores = {name: value for split, one in own.items() for name, value in correlations(split, one).items()}
        for one in evaluate_sets(sets, spec, embeddings).values():
            scores.update(one.scores)
        return scores
