"""Scores of an encoder as it stands before a study trains it: what learning is measured from."""

from __future__ import annotations

from trainables import runtime
from trainables.data.load import load_split
from trainables.encoder.models import load_model
from trainables.sentence_pair.evaluation import correlations, evaluate
from trainables.spec import TrainSpec


def untrained_scores(spec: TrainSpec) -> dict[str, float]:
    """Evaluate a spec's encoder on the test split without training it.

    Args:
        spec: Whose model, data and dims are used; its seed fixes layers that the stored model lacks.

    Returns:
        `test/spearman_dim` and `test/pearson_dim` for every dim of the spec.

    Raises:
        InputError: data or model do not fit.
        CellFailed: no score exists.
    """
    assert spec.model is not None
    with runtime.isolated():
        from transformers import set_seed

        pairs = {"test": load_split(spec, "test")}
        set_seed(spec.seed)
        predictions = evaluate(load_model(spec).model, pairs, spec.matryoshka_dims, prompt=spec.model.prompt)
        return correlations("test", predictions["test"])
