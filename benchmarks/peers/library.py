"""One cell with the library alone: its trainer, its losses, one EmbeddingSimilarityEvaluator per dim."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.util import pairwise_angle_sim

from benchmarks.work import Work

EVALUATION_BATCH = 32
"""The library's default; larger ones were no faster on a CPU, where they add padding."""


@functools.cache
def load_data(work_file: Path) -> tuple[Work, Dataset, dict[str, dict[str, list[Any]]]]:
    """Work, training set and evaluation columns; read once per process."""
    work = Work.load(work_file)
    return work, Dataset.from_dict(work.rows("train")), {split: work.rows(split) for split in work.evaluation_splits}


def interleaved_angle_sim(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The library's angle similarity with real parts at even and imaginary parts at odd indices; (batch,)."""
    return pairwise_angle_sim(
        torch.cat((left[:, 0::2], left[:, 1::2]), dim=1), torch.cat((right[:, 0::2], right[:, 1::2]), dim=1)
    )


def angle_loss(model: SentenceTransformer, layout: str) -> losses.AnglELoss:
    """AnglE with the library's halves (`chunked`) or with neighbours (`interleaved`) as complex numbers."""
    loss = losses.AnglELoss(model)
    if layout == "interleaved":
        loss.similarity_fct = interleaved_angle_sim
    return loss


def evaluate(model: SentenceTransformer, work: Work, columns: dict[str, dict[str, list[Any]]]) -> dict[str, float]:
    """`test/spearman_128` -> value, for every split, dim, and both correlations."""
    scores = {}
    for split, rows in columns.items():
        for dim in work.dims:
            evaluator = EmbeddingSimilarityEvaluator(
                rows["sentence1"], rows["sentence2"], rows["score"], truncate_dim=dim, batch_size=EVALUATION_BATCH
            )
            found = evaluator(model)
            for statistic in ("spearman", "pearson"):
                scores[f"{split}/{statistic}_{dim}"] = float(found[f"{statistic}_cosine"])
    return scores


def train_cell(work_file: Path, variant: str, seed: int) -> dict[str, float]:
    """Train one cell and evaluate it; the scores by name."""
    work, train, columns = load_data(work_file)
    model = SentenceTransformer(str(work.model), device=work.device)
    loss = losses.MatryoshkaLoss(model, angle_loss(model, variant), list(work.dims))
    with tempfile.TemporaryDirectory() as scratch:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=scratch,
            num_train_epochs=work.epochs,
            per_device_train_batch_size=work.batch_size,
            learning_rate=work.learning_rate,
            seed=seed,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=work.device == "cpu",
        )
        SentenceTransformerTrainer(model=model, args=arguments, train_dataset=train, loss=loss).train()
    return evaluate(model, work, columns)
