"""A trainable that has no sentences and no embedding: ridge regression on random features of a curve.

A trainable is any function from a spec to scores. Here the "dimension" is the number of random features, so one
training is scored at every size, from one draw of features, as an embedding is cut.
"""

import hashlib

import numpy as np

from trainables.spec import Predictions, Progress, Report, TrainResult, TrainSpec

KINDS = {"cosine": np.cos, "relu": lambda z: np.maximum(z, 0.0)}


def train(spec: TrainSpec, report: Report) -> TrainResult:
    kind, ridge = KINDS[spec.options["features"]], float(spec.options.get("ridge", 1e-3))
    x, y = curve()
    known, unseen = slice(0, 200), slice(200, None)

    rng = np.random.default_rng(spec.seed)  # the seed fixes everything that is drawn
    largest = max(spec.matryoshka_dims)
    slopes, shifts = rng.normal(0, 6, largest), rng.uniform(-6, 6, largest)

    predicted = {}
    for step, size in enumerate(spec.matryoshka_dims, start=1):
        features = kind(x[:, None] * slopes[:size] + shifts[:size])
        gram = features[known].T @ features[known] + ridge * np.eye(size)
        predicted[size] = features[unseen] @ np.linalg.solve(gram, features[known].T @ y[known])
        report(Progress(phase="train", step=step, total_steps=len(spec.matryoshka_dims)))

    return TrainResult(
        scores={f"test/pearson_{size}": float(np.corrcoef(y[unseen], p)[0, 1]) for size, p in predicted.items()},
        # Stored predictions are what the report tells seed noise from test-set noise by.
        predictions={"test": Predictions(labels=y[unseen], by_dim=predicted)},
        # What both variants of a seed must share, or they are no pair.
        fingerprint={"data": digest(x, y), "draws": digest(slopes, shifts)},
    )


def curve() -> tuple[np.ndarray, np.ndarray]:
    """400 points of a noisy curve, labels in 0..1; the same for every cell."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 400)
    y = np.sin(5 * x) + np.abs(x) + rng.normal(0, 0.3, 400)
    return x, (y - y.min()) / (y.max() - y.min())


def digest(*arrays: np.ndarray) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
