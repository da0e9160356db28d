"""The built-in toy set: seeded sentence pairs with graded similarity, in a small closed vocabulary.

A sentence says who does what to which thing, where and in what way. Each concept has several words. A pair starts
from one meaning and changes part of it: other words for the same concepts (similarity stays), another concept in a
slot (similarity falls by the slot's weight, less for a related concept), negation (it falls by much), filler words
(it stays). Words shared are a poor guide to similarity, so an encoder has something to learn.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

ROWS: Final[Mapping[str, int]] = {"train": 1536, "validation": 300, "test": 600, "pretraining": 640}
"""Pairs per split; `pretraining` is what the toy encoder is trained on, and no study sees it."""
_SEEDS: Final[Mapping[str, int]] = {"train": 11, "validation": 12, "test": 13, "pretraining": 14}
SYNONYMS: Final = 4
"""Words per concept. The encoder's own training uses the first of them only."""
PRETRAINING_SYNONYMS: Final = 3

# Concepts that stand in one row are related: confusing them costs half.
_SLOTS: Final[Mapping[str, Sequence[str]]] = {
    "who": ("doctor nurse", "farmer gardener", "singer drummer", "child baby", "pilot sailor", "cook baker"),
    "does": ("buys sells", "cleans washes", "paints draws", "breaks cuts", "carries pushes", "hides finds"),
    "what": ("car truck", "apple pear", "chair table", "letter book", "hat coat", "box bag"),
    "where": ("garden park", "kitchen cellar", "harbour beach", "school library"),
    "how": ("slowly calmly", "loudly angrily", "gladly proudly"),
}
_WEIGHTS: Final[Mapping[str, float]] = {"who": 1.4, "does": 1.4, "what": 1.2, "where": 0.6, "how": 0.4}
_FILLERS: Final = ("today", "indeed", "again", "really", "perhaps", "then", "still", "now")
_NEGATIONS: Final = ("not", "never")
_FRAME: Final = ("the", "a", "in", "near")
NEGATED: Final = 0.35
"""What is left of the similarity when one of two sentences is negated."""
HIGHEST: Final = 5.0
"""Labels lie between 0 and this; LABEL_STEP apart, as averages of a few raters would."""
LABEL_STEP: Final = 0.2


def _concepts(slot: str) -> list[tuple[str, int]]:
    """(concept, group) of a slot."""
    return [(concept, group) for group, row in enumerate(_SLOTS[slot]) for concept in row.split()]


def _word(concept: str, synonym: int) -> str:
    return concept if synonym == 0 else f"{concept}{synonym}"


def vocabulary() -> tuple[str, ...]:
    """All words of the toy set, in a fixed order."""
    words = [*_FRAME, *_NEGATIONS, *_FILLERS]
    for slot in _SLOTS:
        words += [_word(concept, synonym) for concept, _ in _concepts(slot) for synonym in range(SYNONYMS)]
    return tuple(words)


@dataclass(frozen=True, kw_only=True)
class ToyPair:
    """Two sentences and their similarity, 0 to HIGHEST."""

    sentence1: str
    sentence2: str
    label: float


@dataclass(frozen=True, kw_only=True)
class _Meaning:
    concepts: Mapping[str, int]
    negated: bool


class _Source(random.Random):
    """Only draws built on random(), whose stream Python keeps the same from version to version."""

    def below(self, n: int) -> int:
        return int(self.random() * n)


def _any_meaning(source: _Source) -> _Meaning:
    return _Meaning(
        concepts={slot: source.below(len(_concepts(slot))) for slot in _SLOTS}, negated=source.random() < 0.15
    )


def _changed(meaning: _Meaning, source: _Source) -> _Meaning:
    concepts = dict(meaning.concepts)
    changes = source.below(len(_SLOTS) + 1)
    for slot in sorted(_SLOTS, key=lambda _: source.random())[:changes]:
        related = concepts[slot] ^ 1  # rows hold two concepts each
        concepts[slot] = related if source.random() < 0.4 else source.below(len(_concepts(slot)))
    changed = replace(meaning, concepts=concepts)
    return replace(changed, negated=not meaning.negated) if source.random() < 0.2 else changed


def _similarity(first: _Meaning, second: _Meaning) -> float:
    total = 0.0
    for slot, weight in _WEIGHTS.items():
        one, two = first.concepts[slot], second.concepts[slot]
        total += weight * (1.0 if one == two else 0.5 if one // 2 == two // 2 else 0.0)
    if first.negated != second.negated:
        total *= NEGATED
    return HIGHEST * total / sum(_WEIGHTS.values())


def _say(meaning: _Meaning, source: _Source, synonyms: int) -> str:
    word = {
        slot: _word(_concepts(slot)[concept][0], source.below(synonyms)) for slot, concept in meaning.concepts.items()
    }
    words = [_FRAME[source.below(2)], word["who"]]
    if meaning.negated:
        words.append(_NEGATIONS[source.below(2)])
    words += [word["does"], _FRAME[source.below(2)], word["what"], _FRAME[2 + source.below(2)], "the", word["where"]]
    words.insert(len(words) if source.random() < 0.5 else 0, word["how"])
    for _ in range(source.below(4)):
        words.insert(source.below(len(words) + 1), _FILLERS[source.below(len(_FILLERS))])
    return " ".join(words)


@lru_cache(maxsize=8)
def toy_pairs(split: str) -> tuple[ToyPair, ...]:
    """The pairs of a split; the same on every machine."""
    source = _Source(_SEEDS[split])
    synonyms = PRETRAINING_SYNONYMS if split == "pretraining" else SYNONYMS
    pairs = []
    for _ in range(ROWS[split]):
        first = _any_meaning(source)
        second = _changed(first, source) if source.random() < 0.85 else _any_meaning(source)
        rated = _similarity(first, second) + 0.5 * (source.random() - 0.5)
        label = min(max(round(rated / LABEL_STEP) * LABEL_STEP, 0.0), HIGHEST)
        pairs.append(
            ToyPair(
                sentence1=_say(first, source, synonyms), sentence2=_say(second, source, synonyms), label=round(label, 1)
            )
        )
    return tuple(pairs)
