"""A named set of sentence pairs, scored as the data's own splits are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainables.data.load import Pairs, load_split
from trainables.evaluation import Array, Scored, Text
from trainables.sentence_pair.evaluation import correlations, cosines_by_dim
from trainables.sentence_pair.source import SentencePairSource
from trainables.spec import DatasetRecord, Predictions, TrainSpec


@dataclass(frozen=True, kw_only=True)
class PairSet:
    """Sentence pairs under a name."""

    name: str
    pairs: Pairs
    prompt: str | None
    """Text put before every sentence."""

    @property
    def kept(self) -> Sequence[Text]:
        """First sentences, then second ones."""
        return [Text(one, self.prompt) for one in (*self.pairs.sentence1, *self.pairs.sentence2)]

    @property
    def streamed(self) -> Sequence[Text]:
        """Nothing: a pair needs both of its embeddings."""
        return ()

    @property
    def record(self) -> DatasetRecord:
        """What was read."""
        one = self.pairs
        return DatasetRecord(split=self.name, source=one.source, digest=one.digest, rows=len(one))

    @property
    def notes(self) -> tuple[str, ...]:
        """What was read in a way that a reader should know."""
        return self.pairs.notes

    def scorer(self, kept: Array, dims: Sequence[int]) -> _Scorer:
        """Has all it needs."""
        return _Scorer(name=self.name, pairs=self.pairs, vectors=kept, dims=tuple(dims))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Scorer:
    name: str
    pairs: Pairs
    vectors: Array
    """First sentences, then second ones; shape (2 x pairs, size)."""
    dims: tuple[int, ...]

    def add(self, rows: Array, vectors: Array) -> None:
        """Never called: nothing is streamed."""
        raise AssertionError(f"{self.name}: sentence pairs stream nothing")

    def finish(self) -> Scored:
        count = len(self.pairs)
        by_dim = cosines_by_dim(self.vectors[:count], self.vectors[count:], self.dims)
        predictions = Predictions(labels=self.pairs.labels, by_dim=by_dim)
        return Scored(scores=correlations(self.name, predictions), predictions=predictions)


def open_test_set(name: str, source: SentencePairSource, spec: TrainSpec) -> PairSet:
    """Read and check the pairs of an `evaluate:` entry.

    Raises:
        InputError: a file, column, label or text is wrong.
    """
    own = spec.model_copy(update={"data": source.data()})
    prompt = None if spec.model is None else spec.model.prompt
    return PairSet(name=name, pairs=load_split(own, source.builtin_split), prompt=prompt)
