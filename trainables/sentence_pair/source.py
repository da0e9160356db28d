"""How an entry of `evaluate:` names a set of sentence pairs: as `data` does, with one split instead of three."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from analysis.schema import CORRELATIONS
from trainables.digests import toy_data_digest
from trainables.downloads import PINNED, pinned_digest
from trainables.locations import file_digest, hub_commit
from trainables.spec import BUILTIN_DATA, DataSpec, Number, PositiveInt
from trainables.tasks import EvaluationSource


class SentencePairSource(EvaluationSource):
    """Sentence pairs with a graded similarity: a built-in set, a local file, or a hub dataset."""

    task: Literal["sentence-pair"] = "sentence-pair"
    """Cosines against labels."""
    name: str | None = Field(default=None, min_length=1)
    """`jsts`, `stsb-en`, `toy`, or a hub dataset's id; absent for a local file."""
    file: str | None = Field(default=None, min_length=1)
    """Local file (CSV, TSV, JSON lines, Parquet)."""
    split: str | None = Field(default=None, min_length=1)
    """Of a built-in set or a hub dataset. Default: test."""
    revision: str | None = None
    """Branch, tag or commit of a hub dataset."""
    columns: Mapping[Literal["sentence1", "sentence2", "label"], str] | None = None
    """Our column -> the file's column. Default: the same names."""
    label_range: tuple[Number, Number] | None = None
    """Lowest and highest label; labels are scaled from it to 0..1."""
    bad_rows: Literal["drop"] | None = None
    """`drop` leaves out rows with an empty text or a wrong label, and counts them. Default: refused."""
    limit: PositiveInt | None = None
    """Rows to use, evenly spread over the set."""

    @model_validator(mode="after")
    def _one_place(self) -> SentencePairSource:
        if (self.name is None) == (self.file is None):
            raise ValueError("give either name: (jsts, stsb-en, toy or a hub dataset) or file:")
        if self.file is not None and self.split is not None:
            raise ValueError("split: does not go with a local file")
        if self.name in BUILTIN_DATA and self.split not in (None, "train", "validation", "test"):
            raise ValueError("split: expected one of train, validation, test")
        self.data()  # its rules are the same
        return self

    @property
    def builtin_split(self) -> Literal["train", "validation", "test"]:
        """Under which split `data()` holds the set."""
        if self.name in BUILTIN_DATA and self.split == "train":
            return "train"
        return "validation" if self.name in BUILTIN_DATA and self.split == "validation" else "test"

    @property
    def statistics(self) -> tuple[str, ...]:
        """Both correlations."""
        return CORRELATIONS

    def data(self) -> DataSpec:
        """The same as data of a training."""
        own = {
            "revision": self.revision,
            "columns": self.columns,
            "label_range": self.label_range,
            "bad_rows": self.bad_rows,
            "limit": None if self.limit is None else {self.builtin_split: self.limit},
        }
        if self.name in BUILTIN_DATA:
            return DataSpec.model_validate({"name": self.name, **own})
        if self.file is not None:
            return DataSpec.model_validate({"train": self.file, "test": self.file, **own})
        return DataSpec.model_validate({"name": self.name, "test": self.split, **own})

    def digest(self, root: Path | None) -> str | None:
        """The pinned checksum, the file's, or the hub's commit."""
        if self.file is not None:
            path = Path(self.file) if root is None else root / self.file
            return file_digest(path) if path.is_file() else None
        assert self.name is not None
        if self.name in PINNED:
            return pinned_digest(self.name)
        if self.name == "toy":
            return toy_data_digest()
        return hub_commit(self.name, self.revision, kind="datasets")

    def files(self) -> Mapping[str, str]:
        """The local file, where there is one."""
        return {} if self.file is None else {"file": self.file}

    def at_commit(self, commit: str) -> SentencePairSource:
        """A hub dataset at a commit."""
        hub = self.name is not None and self.name not in BUILTIN_DATA
        return self.model_copy(update={"revision": commit}) if hub else self
