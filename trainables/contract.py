"""What every trainable must do, as tests that any project can run on its own trainable.

from trainables.contract import TrainableContract

class TestMine(TrainableContract):
    @pytest.fixture()
    def trainable(self): return my_module.train

    @pytest.fixture()
    def spec(self): return TrainSpec(trainable="my_module:train", seed=0)
"""

from __future__ import annotations

import math
import random
import re

import numpy as np

from trainables.spec import Progress, Trainable, TrainResult, TrainSpec

_SCORE = re.compile(r"^[^/\s]+/[^/\s]+_[1-9][0-9]*$")


def run(trainable: Trainable, spec: TrainSpec) -> tuple[TrainResult, list[Progress]]:
    """One training, and the progress it reported."""
    told: list[Progress] = []
    return trainable(spec, told.append), told


class TrainableContract:
    """Subclass it and give the fixtures `trainable` and `spec`."""

    def test_scores_are_named_and_finite(self, trainable: Trainable, spec: TrainSpec) -> None:
        """Every score is `split/metric_dim` and a finite number."""
        result, _ = run(trainable, spec)
        assert isinstance(result, TrainResult), f"expected a TrainResult, not a {type(result).__name__}"
        assert result.scores
        for name, value in result.scores.items():
            assert _SCORE.match(name), name
            assert isinstance(value, float)
            assert math.isfinite(value), name

    def test_equal_specs_give_bit_equal_results(self, trainable: Trainable, spec: TrainSpec) -> None:
        """A second training in the same process gives the same bits, whatever ran between."""
        first, _ = run(trainable, spec)
        run(trainable, spec.model_copy(update={"seed": spec.seed + 1}))
        second, _ = run(trainable, spec)
        assert dict(second.scores) == dict(first.scores)
        assert dict(second.fingerprint) == dict(first.fingerprint)
        for split, predictions in first.predictions.items():
            for dim, cosines in predictions.by_dim.items():
                assert np.array_equal(second.predictions[split].by_dim[dim], cosines)
            for key, values in predictions.values.items():
                assert np.array_equal(second.predictions[split].values[key], values)

    def test_another_seed_is_another_training(self, trainable: Trainable, spec: TrainSpec) -> None:
        """The seed does something."""
        first, _ = run(trainable, spec)
        other, _ = run(trainable, spec.model_copy(update={"seed": spec.seed + 1}))
        assert dict(other.scores) != dict(first.scores)

    def test_leaves_random_states_alone(self, trainable: Trainable, spec: TrainSpec) -> None:
        """What runs after a cell draws the same random numbers as without it."""
        random.seed(7)
        np.random.seed(7)  # noqa: NPY002  the global state is what must not change
        before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
        run(trainable, spec)
        assert random.getstate() == before[0]
        assert np.random.get_state()[1].tolist() == before[1]  # type: ignore[index]  # noqa: NPY002

    def test_predictions_fit_their_labels(self, trainable: Trainable, spec: TrainSpec) -> None:
        """Predictions have one finite cosine per label and dim; labels lie in 0..1."""
        result, _ = run(trainable, spec)
        for split, predictions in result.predictions.items():
            if not predictions.by_dim:
                continue
            labels = predictions.labels
            assert labels is not None, f"{split}: cosines without labels"
            assert labels.min() >= 0
            assert labels.max() <= 1
            for cosines in predictions.by_dim.values():
                assert cosines.shape == labels.shape
                assert np.isfinite(cosines).all()

    def test_scores_are_the_means_of_their_values(self, trainable: Trainable, spec: TrainSpec) -> None:
        """Where a metric has a value per example, its score is their mean; examples have one id and cluster each."""
        result, _ = run(trainable, spec)
        for split, predictions in result.predictions.items():
            for (statistic, dim), values in predictions.values.items():
                score = result.scores[f"{split}/{statistic}_{dim}"]
                assert math.isclose(float(values.mean()), score, rel_tol=1e-9, abs_tol=1e-12), (split, statistic, dim)
                for names in (predictions.ids, predictions.clusters):
                    assert names is None or len(names) == len(values)
            assert predictions.ids is None or len(set(predictions.ids)) == len(predictions.ids)

    def test_reports_progress(self, trainable: Trainable, spec: TrainSpec) -> None:
        """Progress is told at least once, and never runs past its end."""
        _, told = run(trainable, spec)
        assert told
        assert all(one.step <= one.total_steps for one in told if one.total_steps)

    def test_fingerprint_is_text(self, trainable: Trainable, spec: TrainSpec) -> None:
        """There is a fingerprint, and it can be compared and recorded as text."""
        result, _ = run(trainable, spec)
        assert result.fingerprint, "without a fingerprint no pair can be verified"
        assert all(isinstance(name, str) and isinstance(value, str) for name, value in result.fingerprint.items())
