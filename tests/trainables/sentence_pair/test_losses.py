from __future__ import annotations

from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses as library
from sentence_transformers.sentence_transformer.modules import Dense
from sentence_transformers.util import pairwise_angle_sim

from analysis import schema
from analysis.comparing.angle_roles import role, role_counts
from tests.trainables.conftest import toy_spec
from trainables.errors import InputError
from trainables.sentence_pair.losses import (
    Embedded,
    PositivesOnly,
    WeightedSum,
    build_loss,
    check_losses,
    embeddings_given,
    interleave_to_chunks,
    interleaved_angle_sim,
    interleaved_swapped_angle_sim,
)
from trainables.spec import TrainSpec


@pytest.fixture
def model() -> SentenceTransformer:
    return SentenceTransformer(modules=[Dense(in_features=2, out_features=12)], device="cpu")


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    x, y = (torch.randn(9, 12, generator=generator) for _ in range(2))
    return x, y, torch.rand(9, generator=generator)


def spec_of(*loss: dict[str, Any], dims: tuple[int, ...] = (4, 8, 12)) -> TrainSpec:
    return toy_spec(loss=list(loss), matryoshka_dims=dims)


def value_of(model: SentenceTransformer, loss: Any, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    x, y, labels = batch
    with embeddings_given(model):
        return loss([Embedded(x), Embedded(y)], labels)


def test_chunked_against_library(model: SentenceTransformer, batch: tuple[torch.Tensor, ...]) -> None:
    ours = build_loss(model, spec_of({"name": "angle"}))
    theirs = library.MatryoshkaLoss(model, library.AnglELoss(model), [4, 8, 12])
    assert torch.equal(value_of(model, ours, batch), value_of(model, theirs, batch))


def test_interleaved_against_theory_is_chunked_of_the_permuted(batch: tuple[torch.Tensor, ...]) -> None:
    x, y, _ = batch
    permutation = [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]
    assert torch.equal(interleaved_angle_sim(x, y), pairwise_angle_sim(x[:, permutation], y[:, permutation]))
    assert torch.equal(interleave_to_chunks(x), x[:, permutation])


def test_interleaved_against_complex_numbers(batch: tuple[torch.Tensor, ...]) -> None:
    x, y, _ = (part.double() for part in batch)
    x, y = torch.nn.functional.normalize(x, dim=1), torch.nn.functional.normalize(y, dim=1)
    z = torch.complex(x[:, 0::2], x[:, 1::2])
    w = torch.complex(y[:, 0::2], y[:, 1::2])
    product = (z * w.conj()).sum(dim=1)  # cosine is its real part, sine its imaginary part
    torch.testing.assert_close(interleaved_angle_sim(x, y), (product.real + product.imag).abs())


def test_swapped_is_exchanging_the_sentences(batch: tuple[torch.Tensor, ...]) -> None:
    x, y, _ = batch
    torch.testing.assert_close(interleaved_swapped_angle_sim(x, y), interleaved_angle_sim(y, x), rtol=0, atol=1e-6)
    assert not torch.allclose(interleaved_swapped_angle_sim(x, y), interleaved_angle_sim(x, y), atol=1e-3)


def test_layouts_differ_in_the_loss(model: SentenceTransformer, batch: tuple[torch.Tensor, ...]) -> None:
    values = {
        layout: value_of(model, build_loss(model, spec_of({"name": "angle", "layout": layout})), batch).item()
        for layout in ("chunked", "interleaved", "interleaved_swapped")
    }
    assert len(set(values.values())) == 3


def test_weighted_sum_is_the_sum_of_its_terms(model: SentenceTransformer, batch: tuple[torch.Tensor, ...]) -> None:
    both = build_loss(
        model, spec_of({"name": "cosent", "weight": 1.5}, {"name": "angle", "layout": "interleaved", "weight": 0.5})
    )
    alone = [
        value_of(model, build_loss(model, spec_of(term)), batch)
        for term in ({"name": "cosent"}, {"name": "angle", "layout": "interleaved"})
    ]
    torch.testing.assert_close(value_of(model, both, batch), 1.5 * alone[0] + 0.5 * alone[1])


def test_weighted_sum_encodes_each_column_once(model: SentenceTransformer, batch: tuple[torch.Tensor, ...]) -> None:
    x, y, labels = batch
    calls = []
    model.forward = lambda features: calls.append(1) or {"sentence_embedding": features["raw"]}  # type: ignore[method-assign]
    loss = build_loss(model, spec_of({"name": "cosent"}, {"name": "angle"}, {"name": "cosine"}))
    loss([{"raw": x}, {"raw": y}], labels)
    assert len(calls) == 2


def test_in_batch_loss_learns_from_positive_pairs_only(
    model: SentenceTransformer, batch: tuple[torch.Tensor, ...]
) -> None:
    x, y, _ = batch
    labels = torch.tensor([1.0, 0.2, 0.9, 0.0, 0.8, 0.1, 0.3, 0.2, 0.79])
    kept = [0, 2, 4]
    ours = PositivesOnly(library.MultipleNegativesRankingLoss(model), from_label=0.8)
    theirs = library.MultipleNegativesRankingLoss(model)
    assert torch.equal(value_of(model, ours, (x, y, labels)), value_of(model, theirs, (x[kept], y[kept], labels[kept])))


def test_in_batch_loss_without_positive_pairs_is_zero(
    model: SentenceTransformer, batch: tuple[torch.Tensor, ...]
) -> None:
    x, y, labels = batch
    x.requires_grad_()
    loss = PositivesOnly(library.MultipleNegativesRankingLoss(model), from_label=0.8)
    value = value_of(model, loss, (x, y, 0.5 * labels))
    value.backward()
    assert value.item() == 0.0
    assert x.grad is not None
    assert not x.grad.any()


def test_model_is_left_as_it_was(model: SentenceTransformer, batch: tuple[torch.Tensor, ...]) -> None:
    loss = WeightedSum(model, [library.CoSENTLoss(model)], [2.0])
    value_of(model, loss, batch)
    assert "forward" not in model.__dict__


@pytest.mark.parametrize(
    ("term", "message"),
    [
        ({"name": "angel"}, "loss: 'angel' is not valid; one of angle, cosent, cosine"),
        ({"name": "TripletLoss"}, "does not take sentence pairs with a similarity"),
        ({"name": "cosent", "args": {"scal": 3}}, "cosent takes scale, similarity_fct"),
        ({"name": "MultipleNegativesRankingLoss"}, "loss_args.positive_from: None is not valid"),
        ({"name": "no_such_module:Loss"}, "importing it says ModuleNotFoundError"),
        ({"name": "json:Nothing"}, "the module has no 'Nothing'"),
    ],
)
def test_wrong_loss_is_one_clear_line(term: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        check_losses(spec_of(term))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_dim_above_the_model(model: SentenceTransformer) -> None:
    with pytest.raises(InputError, match="cannot exceed the model's embedding dimension of 12"):
        build_loss(model, spec_of({"name": "cosent"}, dims=(4, 16)))


@pytest.mark.parametrize("layout", schema.ANGLE_LAYOUTS)
def test_the_layouts_are_those_of_the_reports_role_table(
    model: SentenceTransformer, batch: tuple[torch.Tensor, ...], layout: schema.AngleLayout
) -> None:
    """The library's chunked AnglE, on columns moved to where `role` says their parts are, is the layout's loss."""
    x, y, labels = batch
    roles = [role(layout, index, 12) for index in range(12)]
    real = [index for index, (part, _) in enumerate(roles) if part == "real"]
    columns = real + [roles[index][1] for index in real]
    assert sorted(columns) == list(range(12))
    ours = build_loss(model, spec_of({"name": "angle", "layout": layout}, dims=(12,)))
    theirs = library.AnglELoss(model)
    moved = x[:, columns], y[:, columns], labels
    torch.testing.assert_close(value_of(model, ours, batch), value_of(model, theirs, moved))


def test_roles_over_several_sizes() -> None:
    """Per index: times real, times imaginary, number of partners."""
    for index, counts in enumerate(role_counts("interleaved", (4, 8, 16))):
        sizes = sum(index < dim for dim in (4, 8, 16))
        assert counts == ((sizes, 0, 1) if index % 2 == 0 else (0, sizes, 1))
    chunked = role_counts("chunked", (4, 8, 16))
    assert chunked[2] == (2, 1, 3)  # imaginary at 4 (with 0), real at 8 (with 6) and at 16 (with 10)
    assert chunked[15] == (0, 1, 1)


def test_no_roles_at_an_odd_size() -> None:
    with pytest.raises(ValueError, match="dim 7"):
        role("chunked", 0, 7)
