"""The library's trainer for one cell: no side work, batches from kept tokens, a record of what was consumed."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.data_collator import DEFAULT_LABEL_COLUMNS
from torch import Tensor
from transformers import PrinterCallback, TrainerCallback

from trainables.data.load import Pairs
from trainables.errors import NonFiniteLoss
from trainables.sentence_pair.losses import EMBEDDING, Embedded, embeddings_given
from trainables.sentence_pair.packing import PackedBatch, encode_packed, pack
from trainables.sentence_pair.slices import plan_slices
from trainables.sentence_pair.tokens import TokenCache
from trainables.spec import Progress, Report, TrainSpec
from trainables.training_fields import LIBRARY_NAMES

ROW: Final = "row"
_SLICES: Final = "slices"
_ORDER: Final = "order"
_PACKED: Final = "packed"
_CONSTANTS: Final = "constants"
_OWN_FIELDS: Final = ("warmup_ratio", "warmup_steps")
_REPORT_EVERY_S: Final = 0.5
_CHECK_EVERY_ON_GPU: Final = 10
"""Steps between looks at the loss on a GPU, where each look waits for the device."""


def training_arguments(spec: TrainSpec, output_dir: Path) -> SentenceTransformerTrainingArguments:
    """The spec's training fields as the library's arguments, with everything that saves or logs turned off."""
    fields = {
        LIBRARY_NAMES.get(name, name): value
        for name, value in spec.training.items()
        if value is not None and name not in _OWN_FIELDS
    }
    gpu = torch.cuda.is_available()
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(output_dir),
        seed=spec.seed,
        prompts=spec.model.prompt if spec.model is not None else None,
        # The library reads a number below 1 as a share of all steps.
        warmup_steps=spec.training["warmup_steps"] or spec.training["warmup_ratio"],
        use_cpu=not gpu,
        dataloader_pin_memory=gpu,
        save_strategy="no",
        eval_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        **fields,
    )
    # Where it sees several devices, the library would spread a batch over them, and so multiply it.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments


def training_rows(pairs: Pairs) -> Dataset:
    """The pairs as the library's dataset, each row with its number."""
    return Dataset.from_dict(
        {
            "sentence1": list(pairs.sentence1),
            "sentence2": list(pairs.sentence2),
            "label": pairs.labels.tolist(),
            ROW: list(range(len(pairs))),
        }
    )


@dataclass(kw_only=True)
class CachedCollator:
    """Batches from kept tokens: per column as the library makes them, in slices of similar length, or packed.

    `overhead` is the cost of one more call in tokens; None keeps the library's batches, bit for bit.
    """

    tokens: TokenCache
    overhead: float | None
    packs: bool = False
    valid_label_columns: list[str] = field(default_factory=lambda: list(DEFAULT_LABEL_COLUMNS))

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The batch of these rows."""
        batch: dict[str, Any] = {
            "label": torch.tensor([row["label"] for row in rows]),
            ROW: tuple(row[ROW] for row in rows),
        }
        first, second = [row["sentence1"] for row in rows], [row["sentence2"] for row in rows]
        if self.overhead is None:
            for column, sentences in (("sentence1", first), ("sentence2", second)):
                features = self.tokens.features(sentences)
                batch.update((f"{column}_{key}", value) for key, value in features.items())
            return batch
        sentences = first + second
        if self.packs:
            batch[_PACKED] = vars(pack([self.tokens.ids(one) for one in sentences], pad_id=self.tokens.pad_id))
            batch[_CONSTANTS] = self.tokens.constants
            return batch
        slices = plan_slices([self.tokens.length(sentence) for sentence in sentences], self.overhead)
        batch[_SLICES] = [self.tokens.features([sentences[index] for index in one]) for one in slices]
        batch[_ORDER] = torch.argsort(torch.tensor([index for one in slices for index in one]))
        return batch


@dataclass(kw_only=True)
class LibraryCollator:
    """The library's own collator, for models whose batches are more than padded token ids."""

    collate: Any
    valid_label_columns: list[str] = field(default_factory=lambda: list(DEFAULT_LABEL_COLUMNS))

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The batch of these rows."""
        texts = [{key: value for key, value in row.items() if key != ROW} for row in rows]
        return {**self.collate(texts), ROW: tuple(row[ROW] for row in rows)}


class _Watch(TrainerCallback):
    """Tells the cell's progress callback, now and then, and the trainer's record every step."""

    def __init__(self, trainer: CellTrainer, report: Report) -> None:
        self._trainer, self._report = trainer, report
        self._told = time.monotonic()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """With the gradients of a whole optimizer step."""
        self._trainer.look_at_gradient()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """After each optimizer step."""
        self._trainer.close_step(state.global_step)
        now = time.monotonic()
        if now - self._told >= _REPORT_EVERY_S or state.global_step == state.max_steps:
            self._told = now
            curve = self._trainer.loss_curve
            self._report(
                Progress(
                    phase="train",
                    step=state.global_step,
                    total_steps=state.max_steps,
                    loss=curve[-1][1] if curve else None,
                )
            )


class CellTrainer(SentenceTransformerTrainer):
    """Trains one cell; afterwards `consumed`, `loss_curve` and `steps_without_gradient` say what happened."""

    def __init__(self, *, report: Report, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.consumed: list[int] = []
        """Row numbers in the order in which they were trained on."""
        self.loss_curve: list[tuple[int, float]] = []
        self._taught: list[Tensor | bool] = []
        self._open: list[Tensor] = []
        self._unread: list[tuple[int, Tensor]] = []
        self._check_every = _CHECK_EVERY_ON_GPU if torch.cuda.is_available() else 1
        self.remove_callback(PrinterCallback)
        self.add_callback(_Watch(self, report))

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """None: nothing is published, and collecting its examples costs time."""

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """The loss of one batch; where it is not the library's, embeddings of both columns are computed together."""
        self.consumed.extend(inputs.pop(ROW))
        if _PACKED in inputs:
            joined = self._embed_packed(inputs)
        elif _SLICES in inputs:
            joined = torch.cat([model(features)[EMBEDDING] for features in inputs[_SLICES]])[inputs[_ORDER]]
        else:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        half = joined.shape[0] // 2
        encoder: SentenceTransformer = self.model
        loss: Any = self.loss
        with embeddings_given(encoder):
            return loss([Embedded(joined[:half]), Embedded(joined[half:])], inputs["label"])

    def _embed_packed(self, inputs: dict[str, Any]) -> Tensor:
        # The modules are called one by one, past the wrapper that accelerate puts around the model's forward.
        with self.accelerator.autocast():
            return encode_packed(self.model, PackedBatch(**inputs[_PACKED]), inputs[_CONSTANTS])

    @contextmanager
    def on_copies(self) -> Iterator[None]:
        """Inside, model and loss are copies in evaluation mode, and what is computed leaves no trace in the record."""
        kept = self.model, self.model_wrapped, self.loss, list(self.consumed)
        # One call: the copied loss then holds the copied model.
        copies: tuple[Any, Any] = copy.deepcopy((self.model, self.loss))
        model, loss = copies
        self.model, self.model_wrapped, self.loss = model, model, loss
        model.eval()
        loss.eval()
        try:
            yield
        finally:
            self.model, self.model_wrapped, self.loss, self.consumed = kept

    def look_at_gradient(self) -> None:
        """Note whether any gradient of this optimizer step is not zero."""
        loss: Any = self.loss
        gradients = [p.grad for p in loss.parameters() if p.grad is not None]
        if torch.cuda.is_available() and gradients:  # without waiting for the device
            self._taught.append(torch.stack(torch._foreach_norm(gradients)).sum() != 0)
        else:  # the small ones are at the end, and nearly always one look is enough
            self._taught.append(any(bool(gradient.any()) for gradient in reversed(gradients)))

    @property
    def steps_without_gradient(self) -> int:
        """Optimizer steps in which every gradient was exactly zero: they taught nothing."""
        return sum(not bool(one) for one in self._taught)

    def training_step(self, *arguments: Any, **named: Any) -> Tensor:
        """One micro step, its loss kept."""
        loss: Tensor = super().training_step(*arguments, **named)
        self._open.append(loss.detach())
        return loss

    def close_step(self, step: int) -> None:
        """Record an optimizer step's loss; fail early where it is not finite.

        Raises:
            NonFiniteLoss: the loss is NaN or infinite.
        """
        # training_step returns the loss divided by the number of accumulated micro batches.
        self._unread.append((step, torch.stack(self._open).sum()))
        self._open = []
        if step % self._check_every == 0 or step == self.state.max_steps:
            self.read_losses()

    def read_losses(self) -> None:
        """Bring the losses kept on the device into `loss_curve`.

        Raises:
            NonFiniteLoss: a loss is NaN or infinite.
        """
        for step, value in self._unread:
            number = float(value)
            if not math.isfinite(number):
                raise NonFiniteLoss(f"training loss is {number} at step {step} of {self.state.max_steps}")
            self.loss_curve.append((step, number))
        self._unread = []
