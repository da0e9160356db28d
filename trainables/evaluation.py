"""Scoring one encoder on any number of test sets: every distinct text is encoded once, for all sets and sizes.

A set says which texts it needs at hand together (`kept`: both sides of sentence pairs, the queries of a search) and
which may pass by in blocks and be forgotten (`streamed`: a corpus), so that memory is bounded by the former.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Protocol

import numpy as np

from trainables.spec import DatasetRecord, Predictions, TrainSpec
from trainables.tasks import opener

Array = np.ndarray[Any, np.dtype[Any]]
Encode = Callable[[Sequence[str], str | None], Array]
"""(texts, prompt) -> embeddings at full size, shape (texts, size), float32; in the order of the texts."""
BLOCK: Final = 4096
"""Streamed texts that are encoded, and handed to the scorers, at once."""
_DRAWN_FROM: Final = 20_261
"""Seed of the columns of `take: random`; fixed, so that every cell of every study takes the same ones."""


class Text(NamedTuple):
    """A text as the encoder sees it."""

    text: str
    prompt: str | None = None
    """Put before it."""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """What a test set says of an encoder."""

    scores: Mapping[str, float]
    """`set/metric_dim` -> value; finite."""
    predictions: Predictions


class Scorer(Protocol):
    """Takes the embeddings of a set as they come, in any order and in blocks of any size."""

    def add(self, rows: Array, vectors: Array) -> None:
        """Some of the streamed texts.

        Args:
            rows: Their places in `streamed`, shape (texts,).
            vectors: Embeddings at full size, shape (texts, size).
        """

    def finish(self) -> Scored:
        """The scores, once every streamed text was added.

        Raises:
            CellFailed: no score exists.
        """


class EvaluationSet(Protocol):
    """One opened test set."""

    @property
    def kept(self) -> Sequence[Text]:
        """Texts whose embeddings the scorer is made with; at least one."""

    @property
    def streamed(self) -> Sequence[Text]:
        """Texts whose embeddings it is given later."""

    @property
    def record(self) -> DatasetRecord:
        """What was read."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of how it was read."""

    def scorer(self, kept: Array, dims: Sequence[int]) -> Scorer:
        """A scorer at these sizes.

        Args:
            kept: Embeddings of the kept texts at full size, shape (texts, size).
            dims: Sizes, none above the full one.
        """


class Embeddings:
    """Embeddings of the texts seen so far; each text is encoded once."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._place: dict[Text, tuple[int, int]] = {}
        self._parts: list[Array] = []

    def put(self, texts: Iterable[Text], vectors: Array) -> None:
        """Embeddings that are known already, shape (texts, size)."""
        part = len(self._parts)
        self._parts.append(vectors)
        for row, text in enumerate(texts):
            self._place.setdefault(text, (part, row))

    def knows(self, text: Text) -> bool:
        """Whether it is here."""
        return text in self._place

    def of(self, texts: Sequence[Text]) -> Array:
        """Embeddings of these texts, shape (texts, size); those that are not here yet are encoded and kept."""
        missing = list(dict.fromkeys(text for text in texts if text not in self._place))
        for vectors, some in self.encoded(missing):
            self.put(some, vectors)
        return np.stack([self._parts[part][row] for part, row in (self._place[text] for text in texts)])

    def encoded(self, texts: Sequence[Text]) -> Iterable[tuple[Array, list[Text]]]:
        """Encode texts without keeping them: (embeddings, texts) for each prompt among them."""
        by_prompt: dict[str | None, list[Text]] = {}
        for text in texts:
            by_prompt.setdefault(text.prompt, []).append(text)
        for prompt, some in by_prompt.items():
            yield self._encode([text.text for text in some], prompt), some


def columns_taken(take: Literal["first", "last", "random"], size: int) -> Array | None:
    """Order of an embedding's columns under which the first k are those that a size of k takes; None: as they are.

    Args:
        take: The first k, the last k, or k drawn at random.
        size: Of the embedding.
    """
    if take == "first":
        return None
    if take == "last":
        return np.arange(size)[::-1].copy()
    return np.random.default_rng(_DRAWN_FROM).permutation(size)


def open_test_sets(spec: TrainSpec) -> dict[str, EvaluationSet]:
    """The named test sets of a spec, read and checked.

    Raises:
        InputError: a file, a row or a dataset is wrong.
    """
    return {name: opener(source.task)(name, source, spec) for name, source in spec.evaluate.items()}


def evaluate_sets(
    sets: Mapping[str, EvaluationSet],
    spec: TrainSpec,
    embeddings: Embeddings,
    *,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    block: int = BLOCK,
) -> dict[str, Scored]:
    """Score an encoder on every set, at every size of the spec.

    Args:
        sets: Name -> test set, of this spec.
        spec: Its sizes, and which columns each set takes.
        embeddings: Encodes, and may know some texts already.
        on_progress: Called with (texts encoded, texts in all).
        block: Streamed texts at once; it bounds the memory and changes no score.
    """
    kept = {name: one.kept for name, one in sets.items()}
    streamed: dict[Text, list[tuple[str, int]]] = {}
    for name, one in sets.items():
        for row, text in enumerate(one.streamed):
            streamed.setdefault(text, []).append((name, row))
    total = len({text for texts in kept.values() for text in texts} | streamed.keys())
    if not sets:
        return {}
    # All at once: texts of like length then share a batch, whichever set they belong to.
    embeddings.of(list(dict.fromkeys(text for texts in kept.values() for text in texts)))
    order: dict[str, Array | None] = {}
    scorers: dict[str, Scorer] = {}
    for name, texts in kept.items():
        vectors = embeddings.of(texts)
        order[name] = columns_taken(spec.evaluate[name].take, vectors.shape[1])
        scorers[name] = sets[name].scorer(_taken(vectors, order[name]), spec.matryoshka_dims)
    on_progress(total - len(streamed), total)
    waiting = list(streamed)
    for start in range(0, len(waiting), block):
        some = waiting[start : start + block]
        for vectors, texts in _blocks(some, embeddings):
            _hand_over(vectors, texts, streamed, scorers, order)
        on_progress(total - len(waiting) + start + len(some), total)
    return {name: scorer.finish() for name, scorer in scorers.items()}


def _blocks(texts: Sequence[Text], embeddings: Embeddings) -> Iterable[tuple[Array, Sequence[Text]]]:
    known = [text for text in texts if embeddings.knows(text)]
    if known:
        yield embeddings.of(known), known
    yield from embeddings.encoded([text for text in texts if not embeddings.knows(text)])


def _hand_over(
    vectors: Array,
    texts: Sequence[Text],
    streamed: Mapping[Text, Sequence[tuple[str, int]]],
    scorers: Mapping[str, Scorer],
    order: Mapping[str, Array | None],
) -> None:
    """Give each set the embeddings of those texts that are its own."""
    wanted: dict[str, tuple[list[int], list[int]]] = {}
    for at, text in enumerate(texts):
        for name, row in streamed[text]:
            rows, places = wanted.setdefault(name, ([], []))
            rows.append(row)
            places.append(at)
    for name, (rows, places) in wanted.items():
        scorers[name].add(np.array(rows), _taken(vectors[places], order[name]))


def _taken(vectors: Array, order: Array | None) -> Array:
    return vectors if order is None else np.ascontiguousarray(vectors[:, order])
