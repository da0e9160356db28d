from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from tests.trainables.conftest import toy_spec
from trainables import runtime
from trainables.data.load import load_split
from trainables.encoder.models import load_model
from trainables.errors import CollapsedModel, NonFiniteScore
from trainables.sentence_pair.evaluation import correlations, cosines_by_dim, evaluate
from trainables.sentence_pair.tokens import token_cache
from trainables.spec import Predictions

DIMS = (8, 16, 64)


def test_cosines_against_library() -> None:
    """Batches of other sizes round otherwise, so cosines agree to 1e-6; ranks of near ties need not."""
    spec = toy_spec(data={"name": "toy"}, matryoshka_dims=DIMS)
    test = load_split(spec, "test")
    with runtime.isolated():
        loaded = load_model(spec)
        kept = token_cache(loaded, None, (*test.sentence1, *test.sentence2))
        assert kept is not None
        for tokens in (kept, None):
            ours = evaluate(loaded.model, {"test": test}, DIMS, tokens=tokens)["test"]
            for dim in DIMS:
                sides = [
                    loaded.model.encode(list(side), truncate_dim=dim, convert_to_tensor=True).double()
                    for side in (test.sentence1, test.sentence2)
                ]
                theirs = torch.nn.functional.cosine_similarity(*sides).numpy()
                np.testing.assert_allclose(ours.by_dim[dim], theirs, atol=1e-6)


def test_scores_against_the_librarys_evaluator() -> None:
    """Encoded as the library does it, scores are its own to the last bit, near ties included."""
    spec = toy_spec(data={"name": "toy"}, matryoshka_dims=DIMS)
    test = load_split(spec, "test")
    with runtime.isolated():
        model = load_model(spec).model
        scores = correlations("test", evaluate(model, {"test": test}, DIMS, length_aware=False)["test"])
        for dim in DIMS:
            evaluator = EmbeddingSimilarityEvaluator(
                list(test.sentence1), list(test.sentence2), test.labels.tolist(), truncate_dim=dim
            )
            theirs = evaluator(model)
            assert scores[f"test/spearman_{dim}"] == theirs["spearman_cosine"]
            assert scores[f"test/pearson_{dim}"] == theirs["pearson_cosine"]


def test_each_distinct_sentence_is_encoded_once() -> None:
    spec = toy_spec()
    pairs = {"test": load_split(spec, "test"), "validation": load_split(spec, "test")}
    with runtime.isolated():
        model = load_model(spec).model
        seen: list[str] = []
        original = model.encode
        model.encode = lambda sentences, **named: seen.extend(sentences) or original(sentences, **named)  # type: ignore[method-assign]
        evaluate(model, pairs, (8,))
    assert len(seen) == len(set(seen))


def test_cosines_against_definition() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((2, 20, 16))
    for dim, cosines in cosines_by_dim(x, y, (2, 16)).items():
        a, b = x[:, :dim], y[:, :dim]
        expected = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        np.testing.assert_allclose(cosines, expected, atol=1e-6)


def test_correlations_against_scipy_with_ties() -> None:
    rng = np.random.default_rng(4)
    labels, cosines = rng.integers(0, 4, 50) / 3, rng.integers(0, 9, 50) / 9
    scores = correlations("test", Predictions(labels=labels, by_dim={8: cosines}))
    assert scores["test/spearman_8"] == pytest.approx(spearmanr(labels, cosines).statistic, abs=1e-12)
    assert scores["test/pearson_8"] == pytest.approx(pearsonr(labels, cosines).statistic, abs=1e-12)


def test_degenerate_constant_predictions() -> None:
    labels = np.linspace(0, 1, 5)
    with pytest.raises(CollapsedModel, match=r"all 5 predictions of test at dim 8 are 0.5"):
        correlations("test", Predictions(labels=labels, by_dim={8: np.full(5, 0.5) + 1e-12 * labels}))


def test_degenerate_non_finite_predictions() -> None:
    labels = np.linspace(0, 1, 5)
    with pytest.raises(NonFiniteScore, match="1 predictions of test at dim 8 are NaN"):
        correlations("test", Predictions(labels=labels, by_dim={8: np.array([0, 1, 2, 3, math.nan])}))


def test_degenerate_constant_labels() -> None:
    with pytest.raises(NonFiniteScore, match="test/spearman_8 is nan"):
        correlations("test", Predictions(labels=np.ones(5), by_dim={8: np.linspace(0, 1, 5)}))
