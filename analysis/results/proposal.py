"""Which columns of an unknown table may be variant, seed, setting and scores: a command to paste, to be read first."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable

from analysis import schema
from analysis.results.column_map import is_long, named_like_scores
from analysis.results.delimited import RawTable
from analysis.results.fields import number, same_number, whole_number
from analysis.results.layouts import Layout, values_of
from analysis.results.repeats import REPEAT_NAMES, SEED_NAMES

LONGEST_LIST = 20
"""Values of a column that may name variants or settings."""
SHOWN_METRICS = 4
SHOWN_SETTINGS = 3
_VARIANT_NAMES = (
    "variant", "method", "loss", "loss_type", "loss_name", "model", "model_name", "model_type", "algorithm", "algo",
    "approach", "arm", "condition", "treatment", "optimizer", "architecture", "arch", "system", "config",
)  # fmt: skip
_SCORE_WORDS = frozenset(
    {"acc", "accuracy", "f1", "auc", "auroc", "spearman", "pearson", "ndcg", "map", "mrr", "recall", "precision",
     "bleu", "rouge", "score", "reward", "return", "loss", "error", "rmse", "mse", "mae", "wer", "cer", "perplexity",
     "ppl",
     "r2", "iou", "dice", "kendall", "em", "test", "eval", "val", "validation", "value", "objective"}
)  # fmt: skip
_LESS_IS_BETTER = frozenset({"loss", "error", "rmse", "mse", "mae", "wer", "cer", "perplexity", "ppl", "nll"})
_DIM = re.compile(r"[_@-](\d+)$")


def proposal(raw: RawTable, layout: Layout) -> str:
    """`say what the columns are, for example: analysis report --results FILE --variant ... --seed ...`.

    What no column fits stays a placeholder in capitals.
    """
    seed = _seed(raw, layout)
    scores = [] if is_long(raw) else _scores(raw, layout, seed)
    variant = _variant(raw, layout, taken={seed, *scores})
    settings = [] if variant is None else _settings(raw, layout, variant=variant, taken={seed, variant, *scores})
    repeats = [n for n in raw.header if layout.bare(n).lower() in REPEAT_NAMES and n not in (seed, variant)]
    words = ["analysis", "report", "--results", str(raw.path)]
    words += ["--variant", _written(raw, variant) or "COLUMN", "--seed", _written(raw, seed) or "COLUMN"]
    for name in settings[:SHOWN_SETTINGS]:
        words += ["--setting", str(_written(raw, name))]
    for name in scores[:SHOWN_METRICS]:
        words += ["--metric", str(_written(raw, name))]
    if not scores and not is_long(raw):
        words += ["--metric", "COLUMN"]
    if len({_DIM.sub("", name) for name in scores}) < len(scores):
        words += ["--dim", r"_(\d+)$"]
    for name in repeats[:1]:
        words += ["--average-over", str(_written(raw, name))]
    for name in scores[:1]:
        bare = layout.bare(str(_written(raw, name)))
        if _words(bare) & _LESS_IS_BETTER:
            words += ["--lower-is-better", bare]
    return f"say what its columns are, for example: {shlex.join(words)}"


def _written(raw: RawTable, name: str | None) -> str | None:
    return None if name is None else raw.original[raw.header.index(name)]


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", name.lower()))


def _seed(raw: RawTable, layout: Layout) -> str | None:
    named = [n for n in raw.header if layout.bare(n).lower() in SEED_NAMES]
    named += [n for n in raw.header if layout.may_say_how(n) and "seed" in _words(layout.bare(n)) and n not in named]
    return next((name for name in named if _all(map(whole_number, values_of(raw, name)))), None)


def _all(values: Iterable[object]) -> bool:
    found = list(values)
    return bool(found) and all(value is not None for value in found)


def _numeric(raw: RawTable, name: str) -> bool:
    return _all(map(number, values_of(raw, name)))


def _scores(raw: RawTable, layout: Layout, seed: str | None) -> list[str]:
    """Columns of numbers whose names sound like scores; those of the test split first."""
    surely = named_like_scores(raw, layout)
    found = surely or [
        name
        for name in raw.header
        if layout.may_be_score(name)
        and name != seed
        and _words(layout.bare(name)) & _SCORE_WORDS
        and not (layout.params and name.startswith(layout.params) and name not in surely and layout.metrics == ())
        and _numeric(raw, name)
        and any(not math.isnan(number(text) or 0.0) for text in values_of(raw, name))
    ]
    found = [name for name in found if values_of(raw, name)]
    return sorted(found, key=lambda name: "test" not in _words(name))


def _labels(raw: RawTable, name: str) -> list[str]:
    """Distinct values, numbers compared as numbers."""
    return list(dict.fromkeys(same_number(text) for text in values_of(raw, name)))


def _may_label(raw: RawTable, layout: Layout, name: str, taken: set[str | None]) -> bool:
    if name in taken or not layout.may_say_how(name) or name.startswith("tags.mlflow."):
        return False
    return 2 <= len(_labels(raw, name)) <= LONGEST_LIST


def _variant(raw: RawTable, layout: Layout, taken: set[str | None]) -> str | None:
    """A column that is called like one, else the one with fewest labels that are no numbers."""
    possible = [name for name in raw.header if _may_label(raw, layout, name, taken)]
    called = sorted(
        (name for name in possible if layout.bare(name).lower() in _VARIANT_NAMES),
        key=lambda name: _VARIANT_NAMES.index(layout.bare(name).lower()),
    )
    words = [n for n in possible if not _numeric(raw, n) and n not in (schema.COLUMN_METRIC, schema.COLUMN_SETTING)]
    words.sort(key=lambda name: len(_labels(raw, name)))
    numbers = [name for name in possible if _numeric(raw, name) and layout.params]
    return next(iter((*called, *words, *numbers)), None)


def _settings(raw: RawTable, layout: Layout, *, variant: str, taken: set[str | None]) -> list[str]:
    """Columns each of whose values several variants have: what differs with the variant alone is what is compared."""
    found = []
    for name in raw.header:
        skipped = {*taken, schema.COLUMN_METRIC, schema.COLUMN_VALUE, schema.COLUMN_DIM}
        if not _may_label(raw, layout, name, skipped) or layout.bare(name).lower() in REPEAT_NAMES:
            continue
        variants: dict[str, set[str]] = {}
        for _, row in raw.rows:
            if row[name] and row[variant]:
                variants.setdefault(same_number(row[name]), set()).add(row[variant])
        if all(len(shared) > 1 for shared in variants.values()):
            found.append(name)
    return found
