"""The built-in trainable `sentence-pair`: train one encoder on sentence pairs, evaluate it at every size."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import set_seed

from analysis.schema import (
    FINGERPRINT_DATA,
    FINGERPRINT_EXAMPLE_ORDER,
    FINGERPRINT_INITIAL_WEIGHTS,
)
from trainables import runtime
from trainables.data.load import Pairs, load_split, splits_of
from trainables.encoder.models import LoadedModel, layer_count, load_model, parameters_per_token, save_model
from trainables.errors import OutOfGpuMemory
from trainables.evaluation import evaluate_sets, open_test_sets
from trainables.sentence_pair import fingerprint
from trainables.sentence_pair.agreement import disagreement
from trainables.sentence_pair.evaluation import correlations, evaluate, library_encoder
from trainables.sentence_pair.losses import build_loss, uses_embeddings_only
from trainables.sentence_pair.options import SentencePairOptions, sentence_pair_options
from trainables.sentence_pair.slices import overhead_tokens
from trainables.sentence_pair.tokens import TokenCache, token_cache
from trainables.sentence_pair.trainer import (
    CachedCollator,
    CellTrainer,
    LibraryCollator,
    training_arguments,
    training_rows,
)
from trainables.spec import EVALUATION_SPLITS, DatasetRecord, Progress, Report, TrainResult, TrainSpec

CURVE_POINTS = 200
"""A longer loss curve is thinned to about this many points, each the mean of the steps it stands for."""


def train(spec: TrainSpec, report: Report) -> TrainResult:
    """Train on the train split, evaluate the final state on validation, test and every named test set.

    Equal specs give bit-equal scores on the same kind of device, in a fresh process or a reused one.

    Args:
        spec: What to train.
        report: Called now and then with the progress.

    Raises:
        InputError: data, model or loss do not fit.
        CellFailed: the loss became NaN, the model collapsed, a score is not finite, or the GPU's memory is too small.
    """
    options = sentence_pair_options(spec)
    with runtime.isolated():
        try:
            return _train(spec, options, report)
        except torch.OutOfMemoryError as error:
            message = f"out of GPU memory at a peak of {runtime.peak_memory_mb():.0f} MiB; use a smaller batch_size"
            raise OutOfGpuMemory(message) from error
        finally:
            runtime.release_memory()


def _train(spec: TrainSpec, options: SentencePairOptions, report: Report) -> TrainResult:
    assert spec.model is not None
    started = time.perf_counter()
    report(Progress(phase="load"))
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    if options.deterministic:
        torch.use_deterministic_algorithms(True)
    pairs: dict[str, Pairs] = {split: load_split(spec, split) for split in splits_of(spec)}
    sets = open_test_sets(spec)
    set_seed(spec.seed)
    loaded = load_model(spec)
    initial_weights = fingerprint.weights_digest(loaded.model)
    tokens = token_cache(loaded, spec.model.prompt, _sentences(pairs.values()))
    packed = options.length_aware and tokens is not None and tokens.can_pack(loaded.model)
    trained = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="cell-") as folder:
        trainer = make_trainer(spec, options, loaded, pairs["train"], tokens, Path(folder), report, packed=packed)
        fallback = pad_where_it_differs(trainer, spec.training["batch_size"])
        trainer.train()
        trainer.read_losses()
    consumed, curve = trainer.consumed, trainer.loss_curve
    silent = _silent_steps(trainer.steps_without_gradient, trainer.state.max_steps)
    trainer.accelerator.free_memory()
    del trainer
    evaluated = time.perf_counter()
    held_out: dict[str, Pairs] = {split: pairs[split] for split in EVALUATION_SPLITS if split in pairs}
    report(Progress(phase="evaluate"))
    embeddings = library_encoder(loaded.model)
    predictions = evaluate(
        loaded.model,
        held_out,
        spec.matryoshka_dims,
        tokens=tokens,
        prompt=spec.model.prompt,
        length_aware=options.length_aware,
        into=embeddings,
    )
    scores: dict[str, float] = {}
    for split, one in predictions.items():
        scores.update(correlations(split, one))

    def tell(done: int, total: int) -> None:
        report(Progress(phase="evaluate", step=done, total_steps=total))

    for name, scored in evaluate_sets(sets, spec, embeddings, on_progress=tell).items():
        scores.update(scored.scores)
        predictions[name] = scored.predictions
    ended = time.perf_counter()
    named = {name: one.record.digest for name, one in sets.items()}
    report(Progress(phase="evaluate", step=1, total_steps=1))
    return TrainResult(
        scores=scores,
        predictions=predictions,
        fingerprint={
            FINGERPRINT_INITIAL_WEIGHTS: initial_weights,
            FINGERPRINT_EXAMPLE_ORDER: fingerprint.order_digest(pairs["train"].ids[row] for row in consumed),
            FINGERPRINT_DATA: fingerprint.data_digest({split: one.digest for split, one in pairs.items()} | named),
            **fingerprint.environment(_number_type(spec), deterministic=options.deterministic),
        },
        times={"load_s": trained - started, "train_s": evaluated - trained, "eval_s": ended - evaluated},
        memory_peak_mb=runtime.peak_memory_mb(),
        loss_curve=_thinned(curve),
        datasets=(
            *(
                DatasetRecord(split=split, source=one.source, digest=one.digest, rows=len(one))
                for split, one in pairs.items()
            ),
            *(one.record for one in sets.values()),
        ),
        notes=(
            *_unknown_tokens(tokens, pairs),
            *(note for split in pairs.values() for note in split.notes),
            *(note for test_set in sets.values() for note in test_set.notes),
            *loaded.notes,
            *fallback,
            *silent,
        ),
        save=partial(save_model, loaded.model, prompt=spec.model.prompt),
    )


def _sentences(pairs: Iterable[Pairs]) -> Iterable[str]:
    for one in pairs:
        yield from one.sentence1
        yield from one.sentence2


def make_trainer(
    spec: TrainSpec,
    options: SentencePairOptions,
    loaded: LoadedModel,
    pairs: Pairs,
    tokens: TokenCache | None,
    folder: Path,
    report: Report,
    *,
    packed: bool,
) -> CellTrainer:
    """The trainer of one cell, before its training.

    Args:
        spec: What to train.
        options: How it is computed.
        loaded: The encoder with its initial weights.
        pairs: Of the train split.
        tokens: Their tokens; None where batches are made by the library.
        folder: For what the library insists on writing.
        report: Gets the progress.
        packed: Whether batches may be packed.
    """
    model = loaded.model
    loss = build_loss(model, spec)
    collator: Any = None
    if tokens is not None:
        overhead = None
        # NEFTune's noise shrinks with the padded length, so it would change with the layout of a batch.
        free = uses_embeddings_only(loss) and spec.training["neftune_noise_alpha"] is None
        if options.length_aware and free:
            overhead = overhead_tokens(
                parameters=parameters_per_token(model),
                layers=layer_count(model),
                threads=torch.get_num_threads(),
                gpu=model.device.type == "cuda",
            )
        collator = CachedCollator(tokens=tokens, overhead=overhead, packs=packed and overhead is not None)
    trainer = CellTrainer(
        report=report,
        model=model,
        args=training_arguments(spec, folder),
        train_dataset=training_rows(pairs),
        loss=loss,
        data_collator=collator,
    )
    if collator is None:
        library: Any = trainer.data_collator
        trainer.__dict__["data_collator"] = LibraryCollator(collate=library)
    return trainer


def pad_where_it_differs(trainer: CellTrainer, batch_size: int) -> tuple[str, ...]:
    """Compare one batch of rows spread over the data with the library's way, and take that where they differ.

    Returns:
        A note that says so; nothing where they agree.
    """
    collator: Any = trainer.data_collator
    if not isinstance(collator, CachedCollator) or collator.overhead is None:
        return ()
    rows: Any = trainer.train_dataset
    count = min(batch_size, len(rows))
    batch = [rows[index * len(rows) // count] for index in range(count)]
    padded = replace(collator, overhead=None, packs=False)
    why = disagreement(trainer, collator(batch), padded(batch))
    if why is None:
        return ()
    trainer.__dict__["data_collator"] = padded
    return (f"length_aware: not used: {why}",)


def _silent_steps(silent: int, steps: int) -> tuple[str, ...]:
    return (f"no gradient in {silent} of {steps} steps",) if silent else ()


def _number_type(spec: TrainSpec) -> str:
    assert spec.model is not None
    mixed = next((f"+{name}" for name in ("bf16", "fp16") if spec.training.get(name)), "")
    return f"{spec.model.dtype}{mixed}"


def _thinned(curve: list[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    width = -(-len(curve) // CURVE_POINTS)
    if width <= 1:
        return tuple(curve)
    windows = [curve[start : start + width] for start in range(0, len(curve), width)]
    return tuple((window[-1][0], sum(loss for _, loss in window) / len(window)) for window in windows)


def _unknown_tokens(tokens: TokenCache | None, pairs: dict[str, Pairs]) -> tuple[str, ...]:
    if tokens is None:
        return ()
    shares = [
        (split, tokens.unknown_share(_sentences([pairs[split]]))) for split in ("train", "test") if split in pairs
    ]
    shown = ", ".join(f"{split} {share:.1%}" for split, share in shares if share is not None)
    return (f"unknown tokens: {shown}",) if shown else ()
