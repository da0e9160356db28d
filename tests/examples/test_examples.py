"""The examples do what their files say. The documentation's tests also run each of them as a user does."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sweep.run.preflight import check_study
from sweep.study import load_study
from trainables.contract import TrainableContract
from trainables.registry import load_trainable
from trainables.spec import Trainable, TrainResult, TrainSpec

EXAMPLES = Path(__file__).parents[2] / "examples"
STUDIES = sorted(EXAMPLES.glob("*.yaml"))


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PAIRSWEEP_CACHE", str(tmp_path))
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield
    for name in ("my_losses", "make_pairs", "random_features"):
        sys.modules.pop(name, None)


def trained(study: str, variant: str, *, limit: dict[str, int] | None = None) -> TrainResult:
    """The first cell of a variant, from random weights, so that no encoder has to be built first."""
    spec = load_study(EXAMPLES / study).spec(variant, "default", 0)
    assert spec.model is not None
    assert spec.data is not None
    smaller = {
        "model": spec.model.model_copy(update={"name": "toy-random"}),
        "data": spec.data.model_copy(update={"limit": limit}),
        "matryoshka_dims": (16, 64),
    }
    return load_trainable(spec.trainable)(spec.model_copy(update=smaller), lambda progress: None)


@pytest.mark.parametrize("study", STUDIES, ids=lambda path: path.name)
def test_every_study_passes_the_checks_before_a_run(study: Path) -> None:
    assert check_study(load_study(study)) == []


def test_there_is_a_study_for_each_kind_of_own_thing() -> None:
    assert {path.stem for path in STUDIES} >= {"own_loss", "own_data", "random_features"}


class TestOwnLoss:
    def test_it_trains(self) -> None:
        result = trained("own_loss.yaml", "mine", limit={"train": 64, "validation": 20, "test": 40})
        assert {"test/spearman_16", "test/spearman_64"} <= set(result.scores)
        assert result.loss_curve[-1][1] > 0

    def test_against_theory(self) -> None:
        """Cosines 1 and 0 against labels .95 and .5: within the margin, and .4 beyond it."""
        import torch

        loss = importlib.import_module("my_losses").Margin(torch.nn.Identity(), margin=0.1)
        first = {"sentence_embedding": torch.tensor([[1.0, 0.0], [1.0, 0.0]])}
        second = {"sentence_embedding": torch.tensor([[2.0, 0.0], [0.0, 3.0]])}
        value = loss([first, second], torch.tensor([0.95, 0.5]))
        assert value.item() == pytest.approx(0.4**2 / 2, rel=1e-5)


class TestOwnData:
    def test_it_trains_on_the_files(self) -> None:
        result = trained("own_data.yaml", "cosent")
        assert [(one.split, one.source, one.rows) for one in result.datasets] == [
            ("train", "pairs/train.csv", 96),
            ("validation", "pairs/validation.csv", 32),
            ("test", "pairs/test.csv", 64),
        ]
        assert result.predictions["test"].labels.min() >= 0
        assert result.predictions["test"].labels.max() <= 1

    def test_the_script_writes_the_files_that_are_there(self, tmp_path: Path) -> None:
        importlib.import_module("make_pairs").main(tmp_path)
        for split in ("train", "validation", "test"):
            assert (tmp_path / f"{split}.csv").read_bytes() == (EXAMPLES / "pairs" / f"{split}.csv").read_bytes()


class TestOwnTrainable(TrainableContract):
    @pytest.fixture
    def spec(self) -> TrainSpec:
        return load_study(EXAMPLES / "random_features.yaml").spec("relu", "default", 3)

    @pytest.fixture
    def trainable(self, spec: TrainSpec) -> Trainable:
        return load_trainable(spec.trainable, spec.root)

    def test_both_variants_of_a_seed_are_a_pair(self, trainable: Trainable, spec: TrainSpec) -> None:
        other = load_study(EXAMPLES / "random_features.yaml").spec("cosine", "default", 3)
        first, second = (trainable(one, lambda progress: None) for one in (spec, other))
        assert first.fingerprint == second.fingerprint
        assert dict(first.scores) != dict(second.scores)

    def test_a_cut_training_is_the_same_training(self, trainable: Trainable, spec: TrainSpec) -> None:
        """Sizes are cut from one draw of features: fewer sizes change no score."""
        whole = trainable(spec, lambda progress: None)
        draws = whole.predictions["test"].by_dim[64]
        only = trainable(spec.model_copy(update={"matryoshka_dims": (64,)}), lambda progress: None)
        assert np.array_equal(only.predictions["test"].by_dim[64], draws)
