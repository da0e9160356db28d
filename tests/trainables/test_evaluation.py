"""Scoring one encoder on several test sets: against a direct computation, with every text encoded once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer import losses as library

from tests.trainables.conftest import silent, toy_spec
from trainables import runtime
from trainables.checks import check_inputs
from trainables.data.load import load_split
from trainables.encoder.models import load_model
from trainables.errors import InputError
from trainables.evaluation import Array, Embeddings, Scored, Text, columns_taken, evaluate_sets, open_test_sets
from trainables.sentence_pair.evaluation import correlations, cosines_by_dim, untrained_scores
from trainables.sentence_pair.losses import build_loss
from trainables.sentence_pair.train import train
from trainables.spec import DatasetRecord, Predictions, TrainSpec

SIZE = 6


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def vector(text: Text) -> Array:
    """Of a text and its prompt, always the same."""
    return np.random.default_rng(list(f"{text.prompt}|{text.text}".encode())).standard_normal(SIZE).astype(np.float32)


@dataclass
class Counted:
    """An encoder that notes what it was asked."""

    asked: list[Text] = field(default_factory=list)

    def __call__(self, texts: Sequence[str], prompt: str | None) -> Array:
        some = [Text(text, prompt) for text in texts]
        self.asked += some
        return np.stack([vector(text) for text in some])


@dataclass(kw_only=True)
class Sums:
    """A set that scores the sum of its streamed embeddings, weighted by their rows."""

    kept: Sequence[Text]
    streamed: Sequence[Text]
    record: DatasetRecord = field(default_factory=lambda: DatasetRecord(split="s", source="s", digest="s", rows=1))
    notes: tuple[str, ...] = ()

    def scorer(self, kept: Array, dims: Sequence[int]) -> SumScorer:
        return SumScorer(kept=kept, dims=dims)


@dataclass(kw_only=True)
class SumScorer:
    kept: Array
    dims: Sequence[int]
    rows: dict[int, Array] = field(default_factory=dict)

    def add(self, rows: Array, vectors: Array) -> None:
        for row, one in zip(rows.tolist(), vectors, strict=True):
            assert row not in self.rows, "given twice"
            self.rows[row] = one

    def finish(self) -> Scored:
        scores = {}
        for dim in self.dims:
            total = sum((row + 1) * float(one[:dim].sum()) for row, one in sorted(self.rows.items()))
            scores[f"s/sum_{dim}"] = total + float(self.kept[:, :dim].sum())
        return Scored(scores=scores, predictions=Predictions())


def direct(one: Sums, dim: int, order: Array) -> float:
    streamed = sum((row + 1) * float(vector(text)[order][:dim].sum()) for row, text in enumerate(one.streamed))
    return streamed + float(np.stack([vector(text)[order] for text in one.kept])[:, :dim].sum())


def named(*takes: str) -> TrainSpec:
    """A spec whose sets take these columns."""
    sets = {f"set{at}": {"name": "toy", "take": take} for at, take in enumerate(takes)}
    return toy_spec(matryoshka_dims=[2, 4], evaluate=sets)


@pytest.mark.parametrize("block", [1, 2, 3, 100])
def test_every_text_is_encoded_once_and_reaches_every_set(block: int) -> None:
    a, b, c, d = (Text(one) for one in "abcd")
    asked = Text("a", "query: ")
    first = Sums(kept=[asked, a], streamed=[b, c, b, d])
    second = Sums(kept=[c], streamed=[d, a])
    encoder = Counted()
    found = evaluate_sets({"set0": first, "set1": second}, named("first", "last"), Embeddings(encoder), block=block)
    assert sorted(encoder.asked, key=str) == sorted([asked, a, b, c, d], key=str)
    for dim in (2, 4):
        assert found["set0"].scores[f"s/sum_{dim}"] == pytest.approx(direct(first, dim, np.arange(SIZE)), abs=1e-5)
        last = np.arange(SIZE)[::-1]
        assert found["set1"].scores[f"s/sum_{dim}"] == pytest.approx(direct(second, dim, last), abs=1e-5)


def test_progress_ends_at_the_number_of_texts() -> None:
    told: list[tuple[int, int]] = []
    one = Sums(kept=[Text("a")], streamed=[Text(str(number)) for number in range(10)])
    evaluate_sets(
        {"set0": one},
        named("first"),
        Embeddings(Counted()),
        on_progress=lambda done, of: told.append((done, of)),
        block=4,
    )
    assert told == [(1, 11), (5, 11), (9, 11), (11, 11)]


def test_what_is_known_is_not_encoded_again() -> None:
    encoder = Counted()
    embeddings = Embeddings(encoder)
    embeddings.put([Text("a")], vector(Text("a"))[None])
    evaluate_sets({"set0": Sums(kept=[Text("a")], streamed=[Text("a"), Text("b")])}, named("first"), embeddings)
    assert encoder.asked == [Text("b")]


def test_columns() -> None:
    assert columns_taken("first", 5) is None
    last, drawn = columns_taken("last", 5), columns_taken("random", 64)
    assert last is not None
    assert drawn is not None
    assert last.tolist() == [4, 3, 2, 1, 0]
    assert sorted(drawn.tolist()) == list(range(64))
    assert drawn.tolist() == np.asarray(columns_taken("random", 64)).tolist()
    assert drawn.tolist() != list(range(64))


# -- sentence pairs ---------------------------------------------------------------------------------------------------

NAMED = {
    "again": {"name": "toy", "limit": 40},
    "held": {"name": "toy", "split": "validation"},
    "last": {"name": "toy", "limit": 40, "take": "last"},
}


def test_a_named_set_scores_as_the_split_it_is() -> None:
    """The same pairs under another name have the same scores to the bit: their sentences are encoded once."""
    plain = train(toy_spec(), silent)
    result = train(toy_spec(evaluate=NAMED), silent)
    for dim in (8, 64):
        for metric in ("spearman", "pearson"):
            score = result.scores[f"test/{metric}_{dim}"]
            assert result.scores[f"again/{metric}_{dim}"] == score
            assert plain.scores[f"test/{metric}_{dim}"] == score, "the data's own splits do not change"
    assert result.scores["last/spearman_64"] == pytest.approx(result.scores["test/spearman_64"], abs=1e-6)
    assert result.scores["last/spearman_8"] != result.scores["test/spearman_8"]
    assert {one.split for one in result.datasets} == {"train", "validation", "test", *NAMED}
    assert set(result.predictions) == {"validation", "test", *NAMED}
    assert result.fingerprint["data"] != plain.fingerprint["data"]
    assert result.fingerprint["example_order"] == plain.fingerprint["example_order"]


def test_last_columns_against_the_definition() -> None:
    spec = toy_spec(evaluate=NAMED)
    pairs = load_split(spec, "test")
    with runtime.isolated():
        model = load_model(spec).model
        first, second = (model.encode(list(side)) for side in (pairs.sentence1, pairs.sentence2))
    expected = correlations(
        "test", Predictions(labels=pairs.labels, by_dim=cosines_by_dim(first[:, -8:], second[:, -8:], [8]))
    )
    assert untrained_scores(spec)["last/spearman_8"] == pytest.approx(expected["test/spearman_8"], abs=1e-4)


def test_named_sets_instead_of_the_datas_own() -> None:
    spec = toy_spec(data={"name": "toy", "limit": {"train": 64}, "splits": ["train"]}, evaluate=NAMED)
    scores = train(spec, silent).scores
    assert {name.split("/")[0] for name in scores} == set(NAMED)
    assert check_inputs(spec) == (), "a split that is not asked for is not missed"


def test_nothing_to_score_is_refused() -> None:
    with pytest.raises(ValueError, match="evaluate: nothing would be scored"):
        toy_spec(data={"name": "toy", "splits": ["train"]})


def test_training_needs_the_train_split() -> None:
    with pytest.raises(ValueError, match="splits: train must be among them"):
        toy_spec(data={"name": "toy", "splits": ["test"]})


def test_a_wrong_file_is_named_before_anything_trains(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("sentence1,sentence2,label\na,b,1\nc,d,9\n")
    spec = toy_spec(evaluate={"own": {"file": "own.csv", "label_range": [0, 5]}}, root=tmp_path)
    with pytest.raises(InputError, match=r"own\.csv:3: label: 9"):
        check_inputs(spec)
    with pytest.raises(InputError, match=r"own\.csv:3: label: 9"):
        open_test_sets(spec)


# -- sizes that are trained -------------------------------------------------------------------------------------------


def test_the_loss_is_applied_at_the_trained_sizes() -> None:
    with runtime.isolated():
        model = load_model(toy_spec()).model
        default = build_loss(model, toy_spec())
        some = build_loss(model, toy_spec(trained_dims=[16, 32]))
        none = build_loss(model, toy_spec(trained_dims=[]))
    assert isinstance(default, library.MatryoshkaLoss)
    assert isinstance(some, library.MatryoshkaLoss)
    assert sorted(default.matryoshka_dims) == [8, 64]
    assert sorted(some.matryoshka_dims) == [16, 32]
    assert isinstance(none, library.CoSENTLoss)


def test_sizes_trained_elsewhere_are_evaluated_all_the_same() -> None:
    plain, without = train(toy_spec(), silent), train(toy_spec(trained_dims=[]), silent)
    assert set(without.scores) == set(plain.scores)
    assert without.scores["test/spearman_64"] != plain.scores["test/spearman_64"]


def test_training_the_evaluated_sizes_is_the_default() -> None:
    assert toy_spec(trained_dims=[64, 8]).canonical_json() == toy_spec().canonical_json()
    assert toy_spec(trained_dims=[]).flat()["trained_dims"] == []


def test_an_odd_size_may_be_evaluated_where_angle_does_not_train_it() -> None:
    angle = [{"name": "angle"}]
    assert toy_spec(loss=angle, matryoshka_dims=[7, 64], trained_dims=[64]).loss_dims == (64,)
    with pytest.raises(ValueError, match="trained_dims: 7 is odd"):
        toy_spec(loss=angle, trained_dims=[7, 64])


def test_a_trained_size_above_the_models_is_refused() -> None:
    with pytest.raises(InputError, match="trained_dims: 128"):
        check_inputs(toy_spec(trained_dims=[128]))
