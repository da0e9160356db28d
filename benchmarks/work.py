"""The work that is measured: which cells are trained on what. Every side reads it from the same JSON file."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Split = Literal["train", "validation", "test"]
Encoder = Literal["bert", "minilm"]
COLUMNS = ("sentence1", "sentence2", "score")
STSB_FILES: dict[Split, str] = {
    "train": "stsb-en-train.csv",
    "validation": "stsb-en-dev.csv",
    "test": "stsb-en-test.csv",
}


@dataclass(frozen=True, kw_only=True)
class Work:
    """A study as every side understands it: cells = variants x seeds."""

    folder: Path
    """Where the model and the data lie; absolute."""
    dims: tuple[int, ...]
    """Matryoshka dims, ascending."""
    variants: tuple[str, ...] = ("chunked", "interleaved")
    """AnglE layouts."""
    seeds: tuple[int, ...]
    batch_size: int = 32
    learning_rate: float = 2e-5
    epochs: float = 1.0
    evaluation_splits: tuple[Split, ...] = ("test",)
    device: str = "cpu"

    @property
    def cells(self) -> list[tuple[str, int]]:
        """(variant, seed), pairs adjacent."""
        return [(variant, seed) for seed in self.seeds for variant in self.variants]

    @property
    def model(self) -> Path:
        """A sentence-transformers folder."""
        return self.folder / "model"

    def data(self, split: Split) -> Path:
        """A CSV file with the columns sentence1, sentence2, score (0..1)."""
        return self.folder / f"{split}.csv"

    def rows(self, split: Split) -> dict[str, list[Any]]:
        """Column -> values."""
        with self.data(split).open(newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
        out: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in COLUMNS}
        out["score"] = [float(value) for value in out["score"]]
        return out

    def save(self) -> Path:
        """Write `work.json` into the folder, for the peers' processes."""
        path = self.folder / "work.json"
        path.write_text(json.dumps(dataclasses.asdict(self), default=str, indent=2), encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: Path) -> Work:
        """What `save` wrote."""
        read = json.loads(path.read_text(encoding="utf-8"))
        lists = {name: tuple(value) for name, value in read.items() if isinstance(value, list)}
        return cls(**{**read, **lists, "folder": Path(read["folder"])})


def data_folder() -> Path:
    """The folder that holds `stsb-en/`, from the environment variable PAIRSWEEP_DATA.

    Raises:
        SystemExit: it is not set or holds no STS-B.
    """
    given = os.environ.get("PAIRSWEEP_DATA")
    if not given or not (Path(given) / "stsb-en").is_dir():
        raise SystemExit(f"PAIRSWEEP_DATA={given!r} is not valid; set it to the folder that holds stsb-en/")
    return Path(given)


def read_stsb(split: Split) -> list[tuple[str, str, float]]:
    """(sentence1, sentence2, score in 0..1) of STS-B en."""
    with (data_folder() / "stsb-en" / STSB_FILES[split]).open(newline="", encoding="utf-8") as lines:
        return [(first, second, float(score) / 5.0) for first, second, score in csv.reader(lines)]


def write_data(folder: Path, limits: dict[Split, int]) -> None:
    """Write STS-B as `train.csv`, `validation.csv`, `test.csv` with a header; the first rows where limited."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in STSB_FILES:
        rows = read_stsb(split)[: limits.get(split)]
        with (folder / f"{split}.csv").open("w", newline="", encoding="utf-8") as out:
            writer = csv.writer(out)
            writer.writerow(COLUMNS)
            writer.writerows((first, second, repr(score)) for first, second, score in rows)


def prepare(
    folder: Path,
    *,
    model: Encoder,
    seeds: int,
    train_rows: int | None = None,
    test_rows: int | None = None,
    dropout: float = 0.0,
    device: str = "cpu",
) -> Work:
    """Make model and data in `folder` (absolute) and say what is to be trained on them.

    `bert`: 2 layers x 128 dims, random weights, dims 8..128. `minilm`: 6 layers x 384 dims, trained, dims 24..384.
    """
    from benchmarks.encoder import build_bert, copy_minilm

    limits: dict[Split, int] = {}
    if train_rows is not None:
        limits["train"] = train_rows
    if test_rows is not None:
        limits |= {"test": test_rows, "validation": test_rows}
    write_data(folder, limits)
    if model == "bert":
        sentences = [text for first, second, _ in read_stsb("train") for text in (first, second)]
        build_bert(folder / "model", sentences, layers=2, width=128, dropout=dropout)
        dims = (8, 16, 32, 64, 128)
    else:
        copy_minilm(folder / "model", dropout=dropout)
        dims = (24, 48, 96, 192, 384)
    work = Work(folder=folder, dims=dims, seeds=tuple(range(seeds)), device=device)
    work.save()
    return work
