"""Training losses: AnglE in three layouts, CoSENT, cosine, the library's others, users' own, and weighted sums.

Every loss here is a function of the two sentence embeddings and the labels, so that the embeddings of a batch are
computed once, whatever the number of terms and of sizes.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses as library
from sentence_transformers.util import pairwise_angle_sim
from torch import Tensor, nn

from analysis.schema import AngleLayout
from trainables.errors import InputError
from trainables.spec import LossSpec, TrainSpec
from trainables.user_code import is_import_path, load_object

SHORT_NAMES: Final = {"angle": "AnglELoss", "cosent": "CoSENTLoss", "cosine": "CosineSimilarityLoss"}
GRADED: Final = ("CoSENTLoss", "AnglELoss", "CosineSimilarityLoss", "ContrastiveLoss", "OnlineContrastiveLoss")
"""The library's losses that take sentence pairs with a graded (or binary) similarity."""
IN_BATCH: Final = ("MultipleNegativesRankingLoss", "MultipleNegativesSymmetricRankingLoss")
"""The library's losses that take pairs of equal meaning and use the rest of the batch as negatives."""
POSITIVE_FROM: Final = "positive_from"
"""Our argument of the in-batch losses: pairs with at least this label (0..1) are the positive ones."""
EMBEDDING = "sentence_embedding"


# -- Losses on embeddings that are already there ----------------------------------------------------------------------


class Embedded(dict[str, Any]):
    """Features of one column whose embeddings, shape (batch, size), are already computed."""

    def __init__(self, embeddings: Tensor) -> None:
        super().__init__({EMBEDDING: embeddings})


@contextmanager
def embeddings_given(model: SentenceTransformer) -> Iterator[None]:
    """Inside, the model returns what Embedded features hold instead of computing it.

    Losses call the model themselves; this is how they are handed embeddings that were computed in a better way.
    Each call gives a fresh dict, because MatryoshkaLoss writes into the one it gets.
    """
    patched: Any = model
    original = patched.forward
    was_own = "forward" in patched.__dict__

    def forward(features: dict[str, Any], **_: Any) -> dict[str, Any]:
        return dict(features) if isinstance(features, Embedded) else original(features)

    patched.forward = forward
    try:
        yield
    finally:
        if was_own:
            patched.forward = original
        else:
            del patched.forward


class WeightedSum(nn.Module):
    """sum of weight x term over one and the same embeddings of a batch."""

    def __init__(self, model: SentenceTransformer, terms: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        self.model = model
        self.terms = nn.ModuleList(terms)
        self.weights = tuple(weights)

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor) -> Tensor:
        """Embed each column once, then sum the terms; a scalar."""
        columns = [Embedded(self.model(features)[EMBEDDING]) for features in sentence_features]
        with embeddings_given(self.model):
            values = [weight * term(columns, labels) for term, weight in zip(self.terms, self.weights, strict=True)]
        total: Tensor = values[0]
        for value in values[1:]:
            total = total + value
        return total


class PositivesOnly(nn.Module):
    """An in-batch loss on those pairs of a batch whose label says that they mean the same."""

    def __init__(self, loss: nn.Module, *, from_label: float) -> None:
        super().__init__()
        self.loss = loss
        self.model = loss.model
        self.from_label = from_label

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor) -> Tensor:
        """The loss over the positive pairs; zero where fewer than two are left to be each other's negatives."""
        model: Any = self.model
        embeddings = [model(features)[EMBEDDING] for features in sentence_features]
        positive = labels.view(-1) >= self.from_label
        if int(positive.sum()) < 2:
            nothing: Tensor = 0.0 * torch.stack([column.sum() for column in embeddings]).sum()
            return nothing
        with embeddings_given(model):
            value: Tensor = self.loss([Embedded(column[positive]) for column in embeddings], labels[positive])
        return value


# -- AnglE: the layouts -----------------------------------------------------------------------------------------------


# Matryoshka training applies the loss at several sizes d: under chunking an index changes its partner, and some
# their role, from size to size; interleaved, none does (analysis.comparing.angle_roles has the rule, index by index).


def interleave_to_chunks(embeddings: Tensor) -> Tensor:
    """Even columns first, then odd ones: turns the pairs (2i, 2i + 1) into (i, i + d/2).

    Args:
        embeddings: Shape (batch, d), d even.
    """
    return torch.cat((embeddings[:, 0::2], embeddings[:, 1::2]), dim=1)


def interleaved_angle_sim(x: Tensor, y: Tensor) -> Tensor:
    """AnglE's similarity with real parts at even and imaginary parts at odd columns; shape (batch,)."""
    return pairwise_angle_sim(interleave_to_chunks(x), interleave_to_chunks(y))


def interleaved_swapped_angle_sim(x: Tensor, y: Tensor) -> Tensor:
    """The same with real and imaginary parts exchanged; equal to exchanging `x` and `y`. Shape (batch,)."""
    return pairwise_angle_sim(torch.cat((x[:, 1::2], x[:, 0::2]), dim=1), torch.cat((y[:, 1::2], y[:, 0::2]), dim=1))


class InterleavedAnglELoss(library.CoSENTLoss):
    """AnglE over an interleaved embedding; the library's AnglE in all else."""

    def __init__(self, model: SentenceTransformer, scale: float = 20.0, *, swapped: bool = False) -> None:
        super().__init__(
            model, scale=scale, similarity_fct=interleaved_swapped_angle_sim if swapped else interleaved_angle_sim
        )


# -- From the spec to a loss ------------------------------------------------------------------------------------------


def _angle(model: SentenceTransformer, layout: AngleLayout | None, **args: Any) -> nn.Module:
    if layout in (None, "chunked"):
        return library.AnglELoss(model, **args)
    return InterleavedAnglELoss(model, swapped=layout == "interleaved_swapped", **args)


def _class_of(term: LossSpec, spec: TrainSpec) -> Any:
    """The class that a loss's name stands for."""
    if is_import_path(term.name):
        return load_object(term.name, field="loss", root=spec.root)
    name = SHORT_NAMES.get(term.name, term.name)
    if name in (*GRADED, *IN_BATCH):
        return getattr(library, name)
    allowed = ", ".join((*SHORT_NAMES, *GRADED[3:], *IN_BATCH))
    if isinstance(getattr(library, name, None), type):
        allowed = f"this one does not take sentence pairs with a similarity; use {allowed} or module:Class"
    else:
        allowed = f"one of {allowed}, or module:Class"
    raise InputError(where="study", field="loss", value=term.name, allowed=allowed)


def _build_term(model: SentenceTransformer, term: LossSpec, spec: TrainSpec) -> nn.Module:
    kind = _class_of(term, spec)
    args = dict(term.args)
    positive_from = args.pop(POSITIVE_FROM, None) if kind.__name__ in IN_BATCH else None
    if kind.__name__ in IN_BATCH and not (
        isinstance(positive_from, (int, float)) and not isinstance(positive_from, bool) and 0 <= positive_from <= 1
    ):
        raise InputError(
            where="study",
            field=f"loss_args.{POSITIVE_FROM}",
            value=positive_from,
            allowed="this loss learns from pairs of equal meaning; give the label (0 to 1) from which a pair is one",
        )
    try:
        inspect.signature(kind).bind(model, **args)
    except TypeError as error:
        raise InputError(
            where="study",
            field="loss_args",
            value=dict(term.args),
            allowed=f"{term.name} takes {_arguments(kind)} ({error})",
        ) from None
    try:
        loss = _angle(model, term.layout, **args) if term.name == "angle" else kind(model, **args)
    except Exception as error:
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(
            where="study", field="loss_args", value=dict(term.args), allowed=f"{term.name} does not accept this ({why})"
        ) from error
    if not isinstance(loss, nn.Module):
        raise InputError(where="study", field="loss", value=term.name, allowed="must give a torch.nn.Module")
    return PositivesOnly(loss, from_label=float(positive_from)) if positive_from is not None else loss


def _arguments(kind: Any) -> str:
    names = [name for name in inspect.signature(kind).parameters if name not in ("self", "model")]
    return ", ".join(names) or "no arguments"


def uses_embeddings_only(loss: nn.Module) -> bool:
    """True if the loss can be computed from sentence embeddings, so that a batch may be encoded in any way.

    A user's own loss says so by having the library's `compute_loss_from_embeddings(embeddings, labels)`.
    """
    if isinstance(loss, WeightedSum):
        return all(uses_embeddings_only(term) for term in loss.terms)
    if isinstance(loss, library.MatryoshkaLoss):
        return uses_embeddings_only(loss.loss)
    if isinstance(loss, PositivesOnly):
        return True
    return callable(getattr(loss, "compute_loss_from_embeddings", None))


def build_loss(model: SentenceTransformer, spec: TrainSpec) -> nn.Module:
    """The spec's loss inside MatryoshkaLoss; by itself where it is trained at the full size alone.

    Raises:
        InputError: an unknown loss, one that takes no graded pairs, or arguments that do not fit.
    """
    terms = [_build_term(model, term, spec) for term in spec.loss]
    single = len(terms) == 1 and spec.loss[0].weight == 1.0
    inner = terms[0] if single else WeightedSum(model, terms, [term.weight for term in spec.loss])
    if not spec.loss_dims:
        return inner
    try:
        return library.MatryoshkaLoss(model, inner, list(spec.loss_dims))
    except ValueError as error:
        field = "matryoshka_dims" if spec.trained_dims is None else "trained_dims"
        raise InputError(where="study", field=field, value=list(spec.loss_dims), allowed=str(error)) from None


def check_losses(spec: TrainSpec) -> None:
    """Construct the spec's loss over a small stand-in encoder.

    Raises:
        InputError: as build_loss does.
    """
    from sentence_transformers.sentence_transformer.modules import Dense

    size = max((*spec.matryoshka_dims, *spec.loss_dims))
    model = SentenceTransformer(modules=[Dense(in_features=2, out_features=size)], device="cpu")
    build_loss(model, spec)
