"""Whether encoding a batch without padding gives the library's loss and gradient; by trying, on one batch.

`packing.can_pack` compares embeddings without gradients. A loss of one's own may look at more than embeddings, and a
model's gradient may take another way than its embeddings: only loss and gradient together are what a training sees.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from trainables import runtime

if TYPE_CHECKING:
    from trainables.sentence_pair.trainer import CellTrainer

_FLOAT32_AGREEMENT: Final = 2e-3
_HALF_AGREEMENT: Final = 0.2
"""Largest difference, relative to the padded batch's: of the loss, and of the gradient (Euclidean, all parameters).

Rounding gives 1e-5 in float32; a forgotten factor or a missing part of the gradient gives 0.5 or more.
"""
_SMALLEST: Final = 1e-6
"""Losses and gradients below this are nothing but rounding, and are compared on this scale."""


def disagreement(trainer: CellTrainer, fast: Mapping[str, Any], padded: Mapping[str, Any]) -> str | None:
    """How loss and gradient of one batch differ between the two ways to encode it; dropout is off.

    Works on copies of model and loss: weights, gradients, states of losses and random generators stay as they are.

    Args:
        trainer: Before its training.
        fast: The batch as it is to be trained on.
        padded: The same rows as the library's collator gives them.

    Returns:
        One phrase, or None where they agree.
    """
    with runtime.random_states_kept():
        theirs, their_gradient = _loss_and_gradient(trainer, padded)
        try:
            ours, our_gradient = _loss_and_gradient(trainer, fast)
        except Exception as error:  # what a user's loss does with features that hold embeddings alone is its own
            return f"the loss needs more than embeddings ({type(error).__name__}: {error})".splitlines()[0]
    half = trainer.args.bf16 or trainer.args.fp16 or any(p.dtype != torch.float32 for p in trainer.model.parameters())
    allowed = _HALF_AGREEMENT if half else _FLOAT32_AGREEMENT
    if not abs(ours - theirs) <= allowed * max(abs(theirs), _SMALLEST):
        return f"the loss is {ours:.6g} where the library's padded batch gives {theirs:.6g}"
    off, size = _distance(our_gradient, their_gradient), _distance(their_gradient, None)
    if not off <= allowed * max(size, _SMALLEST):
        return f"the gradient differs from the library's padded batch by {off / max(size, _SMALLEST):.2g} of its length"
    return None


def _loss_and_gradient(trainer: CellTrainer, batch: Mapping[str, Any]) -> tuple[float, list[Tensor | None]]:
    with trainer.on_copies():
        with trainer.compute_loss_context_manager():
            loss = trainer.compute_loss(trainer.model, trainer._prepare_inputs(copy.copy(dict(batch))))
        whole: Any = trainer.loss
        parameters = [p for p in whole.parameters() if p.requires_grad]
        value = float(loss.detach())
        if not loss.requires_grad:
            return value, [None] * len(parameters)
        return value, list(torch.autograd.grad(loss, parameters, allow_unused=True))


def _distance(one: list[Tensor | None], other: list[Tensor | None] | None) -> float:
    """Euclidean length of the difference; of `one` itself where there is no other."""
    total = 0.0
    for a, b in zip(one, other or [None] * len(one), strict=True):
        if a is None and b is None:
            continue
        difference = b if a is None else a if b is None else a - b
        assert difference is not None
        total += float(difference.double().square().sum())
    return float(total**0.5)
