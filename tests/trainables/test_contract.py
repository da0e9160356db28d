"""All built-in trainables keep the contract that users can run on their own."""

from __future__ import annotations

import pytest

from tests.trainables.conftest import toy_spec
from trainables.contract import TrainableContract
from trainables.registry import load_trainable
from trainables.spec import Trainable, TrainSpec


class TestNoop(TrainableContract):
    @pytest.fixture
    def trainable(self) -> Trainable:
        return load_trainable("noop")

    @pytest.fixture
    def spec(self) -> TrainSpec:
        return TrainSpec(trainable="noop", seed=3)


class TestClosedForm(TrainableContract):
    @pytest.fixture
    def trainable(self) -> Trainable:
        return load_trainable("closed-form")

    @pytest.fixture
    def spec(self) -> TrainSpec:
        return TrainSpec(trainable="closed-form", seed=3, options={"cell_sd": 0.1}, matryoshka_dims=(8, 16))


class TestSentencePair(TrainableContract):
    @pytest.fixture
    def trainable(self) -> Trainable:
        return load_trainable("sentence-pair")

    @pytest.fixture
    def spec(self) -> TrainSpec:
        return toy_spec()
