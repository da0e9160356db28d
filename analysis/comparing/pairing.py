"""Recorded cells -> verified pairs: which seeds two variants share in a setting, and what was dropped and why."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis import schema
from analysis.comparing.findings import DeclaredDifference, DroppedSeed
from analysis.results.model import CellRecord, Results
from analysis.showing import visible
from analysis.statistics.paired import TIE_TOLERANCE

SEED_FIELD = "seed"

# Which fingerprint keys a declared field may change. Everything else must agree inside a pair.
# Keys match whole names, or a prefix that ends in a colon (`module:`); fields match themselves and what is below them.
AFFECTED_KEYS: Mapping[str, tuple[str, ...]] = {
    "model.name": ("initial_weights", "model", "model_digest"),
    "model.revision": ("initial_weights", "model", "model_digest"),
    "model.dtype": ("initial_weights", "dtype"),
    "data": ("data", "example_order"),
    "loss": ("module:", "source", "loss_weights"),
    "trainable": ("initial_weights", "example_order", "module:", "source"),
    "options": ("initial_weights", "example_order", "module:", "source"),
    "options.deterministic": ("deterministic",),
    # How many examples are drawn depends on these; on the batch size only where `_sets_order` says so.
    "epochs": ("example_order",),
    "max_steps": ("example_order",),
    "batch_sampler": ("example_order",),
    "dataloader_drop_last": ("example_order",),
    "bf16": ("dtype",),
    "fp16": ("dtype",),
    "tf32": ("dtype", "tf32"),
}


@dataclass(frozen=True, kw_only=True)
class PairedScores:
    """Two variants in one setting, seed by seed."""

    seeds: tuple[int, ...]
    """Seeds used, ascending."""
    treatment: Mapping[str, tuple[float, ...]]
    """Endpoint -> score per seed; NaN where that endpoint has none."""
    baseline: Mapping[str, tuple[float, ...]]
    treatment_cells: tuple[str, ...]
    """Cell keys, in the order of `seeds`."""
    baseline_cells: tuple[str, ...]
    dropped: tuple[DroppedSeed, ...]
    conflict: str | None
    declared: tuple[DeclaredDifference, ...]
    unverified: int


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Seeds that two lists of scores share."""

    used: tuple[int | str, ...]
    baseline: tuple[float, ...]
    treatment: tuple[float, ...]
    dropped: tuple[tuple[int | str, str], ...]
    """(seed, reason)."""
    conflict: str | None


def merge_repeats(records: Iterable[tuple[Any, float | None]]) -> tuple[dict[Any, float], list[Any]]:
    """Records (key, score) -> one score per key, and the keys with two different scores.

    A score that is None or not finite becomes NaN; an identical repeated record counts once.
    """
    merged: dict[Any, float] = {}
    conflicts: list[Any] = []
    for key, score in records:
        value = math.nan if score is None or not math.isfinite(score) else float(score)
        if key not in merged:
            merged[key] = value
            continue
        same = (math.isnan(value) and math.isnan(merged[key])) or abs(value - merged[key]) <= TIE_TOLERANCE
        if not same and key not in conflicts:
            conflicts.append(key)
    return merged, conflicts


def pair_scores(
    baseline: Iterable[tuple[int | str, float | None]], treatment: Iterable[tuple[int | str, float | None]]
) -> Pairs:
    """Pair on exact seeds; never impute, never unpair.

    Args:
        baseline: (seed, score), possibly repeated.
        treatment: The same.
    """
    a, conflicts_a = merge_repeats(baseline)
    b, conflicts_b = merge_repeats(treatment)
    used: list[int | str] = []
    dropped: list[tuple[int | str, str]] = []
    for seed in sorted({*a, *b}, key=lambda s: (isinstance(s, str), s)):
        reasons = [
            f"no score of {side}" if seed not in scores else f"the score of {side} is NaN"
            for side, scores in (("the baseline", a), ("the treatment", b))
            if math.isnan(scores.get(seed, math.nan))
        ]
        if reasons:
            dropped.append((seed, "; ".join(reasons)))
        else:
            used.append(seed)
    conflict = None
    if conflicts_a or conflicts_b:
        side, seed = ("the baseline", conflicts_a[0]) if conflicts_a else ("the treatment", conflicts_b[0])
        conflict = f"seed {seed} has two different scores of {side}"
        used = []
    return Pairs(
        used=tuple(used),
        baseline=tuple(a[s] for s in used),
        treatment=tuple(b[s] for s in used),
        dropped=tuple(dropped),
        conflict=conflict,
    )


# -- settings ------------------------------------------------------------------------------------------------------
def _below(field: str, declared: Iterable[str]) -> bool:
    return any(field == d or field.startswith(d + ".") for d in declared)


def _roots(fields: Iterable[str]) -> set[str]:
    """Declared fields; `loss.layout` also frees `loss`'s other parts, since a loss is replaced as a whole."""
    return {("loss" if f.startswith("loss.") else f) for f in fields}


def settings_of(cells: Sequence[CellRecord]) -> dict[int, str]:
    """Position of a cell -> label of its setting.

    The setting is what the resolved fields say besides the seed and whatever any variant declares, so a label that
    changed (a grid added later) does not split one setting in two. Cells without fields go by their label.
    """
    declared = _roots(f for cell in cells for f in cell.variant_fields)
    by_identity: dict[str, list[int]] = defaultdict(list)
    own_fields: dict[str, Mapping[str, Any]] = {}
    for position, cell in enumerate(cells):
        if cell.fields:
            own = {k: v for k, v in cell.fields.items() if k != SEED_FIELD and not _below(k, declared)}
            identity = json.dumps(own, sort_keys=True, default=str)
        else:
            own, identity = {}, f"label:{cell.setting}"
        by_identity[identity].append(position)
        own_fields[identity] = own
    by_label: dict[str, list[str]] = defaultdict(list)
    for identity, positions in by_identity.items():
        names = list(dict.fromkeys(cells[p].setting for p in positions))
        by_label[next((n for n in names if n != schema.DEFAULT_SETTING), names[0])].append(identity)
    labels: dict[int, str] = {}
    taken: set[str] = set()
    for label, identities in by_label.items():
        told_apart = _told_apart([own_fields[identity] for identity in identities])
        for identity, told in zip(identities, told_apart, strict=True):
            name = ",".join(filter(None, ("" if told and label == schema.DEFAULT_SETTING else label, told)))
            unique, number = name, 2
            while unique in taken:
                unique, number = f"{name} ({number})", number + 1
            taken.add(unique)
            labels.update(dict.fromkeys(by_identity[identity], unique))
    return {position: labels[position] for position in range(len(cells))}


def _told_apart(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """What tells settings of one label apart, `data.name=jsts`: one field that is enough, names first, else all."""
    if len(settings) < 2:
        return [""] * len(settings)
    fields = [f for f in dict.fromkeys(f for s in settings for f in s) if len({str(s.get(f)) for s in settings}) > 1]
    fields.sort(key=lambda f: not f.endswith("name"))
    enough = next(([f] for f in fields if len({str(s.get(f)) for s in settings}) == len(settings)), fields)
    return [visible(",".join(f"{f}={s.get(f)}" for f in enough)) for s in settings]


# -- fingerprints --------------------------------------------------------------------------------------------------
def declared_differences(treatment: CellRecord, baseline: CellRecord) -> tuple[DeclaredDifference, ...]:
    """Fields that a variant declares and that differ between two cells."""
    declared = _roots((*treatment.variant_fields, *baseline.variant_fields))
    names = dict.fromkeys((*baseline.fields, *treatment.fields))
    return tuple(
        DeclaredDifference(field=f, treatment=treatment.fields.get(f), baseline=baseline.fields.get(f))
        for f in names
        if f != SEED_FIELD and _below(f, declared) and treatment.fields.get(f) != baseline.fields.get(f)
    )


def may_differ(key: str, fields: Iterable[str], resolved: Sequence[Mapping[str, Any]] = ()) -> bool:
    """May this fingerprint key differ inside a pair whose variants differ in these fields?

    Args:
        key: Fingerprint key.
        fields: Declared fields in which the two cells differ.
        resolved: All fields of each of the two cells, defaults left out.
    """
    for field in fields:
        if key == "example_order" and any(_sets_order(field, own) for own in resolved):
            return True
        for owner, keys in AFFECTED_KEYS.items():
            if _below(field, (owner,)) and any(key == k or (k.endswith(":") and key.startswith(k)) for k in keys):
                return True
    return False


def _sets_order(field: str, own: Mapping[str, Any]) -> bool:
    """Whether the order of examples depends on this size in a training with these fields; in most it does not."""
    if field not in ("batch_size", "gradient_accumulation_steps"):
        return False
    if (own.get("max_steps") or 0) > 0:  # so many steps draw more examples when each is larger
        return True
    by_batch = own.get("batch_sampler") in ("no_duplicates", "group_by_label") or own.get("dataloader_drop_last")
    return field == "batch_size" and bool(by_batch)


def fingerprint_problem(treatment: CellRecord, baseline: CellRecord) -> str | None:
    """Why two cells are not verified to be a pair, in words; None when they are."""
    if not treatment.fingerprint or not baseline.fingerprint:
        which = [c.variant for c in (treatment, baseline) if not c.fingerprint]
        return f"no fingerprint recorded for {' and '.join(which)}"
    fields = [d.field for d in declared_differences(treatment, baseline)]
    resolved = (treatment.fields, baseline.fields)
    keys = sorted({*treatment.fingerprint, *baseline.fingerprint})
    differing = [
        k
        for k in keys
        if treatment.fingerprint.get(k) != baseline.fingerprint.get(k) and not may_differ(k, fields, resolved)
    ]
    if not differing:
        return None
    parts = [
        f"{k} ({_short(baseline.fingerprint.get(k))} in {baseline.variant}, "
        f"{_short(treatment.fingerprint.get(k))} in {treatment.variant})"
        for k in differing
    ]
    return "fingerprints differ in " + ", ".join(parts)


def _short(value: str | None) -> str:
    if value is None:
        return "not recorded"
    return value if len(value) <= 24 else value[:12] + "..."


# -- from recorded results -----------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Indexed:
    """Results by (variant, setting, seed), with settings resolved."""

    variants: tuple[str, ...]
    settings: tuple[str, ...]
    endpoints: tuple[str, ...]
    """All endpoints that have a score, by metric and dim."""
    cells: Mapping[tuple[str, str, int], tuple[CellRecord, ...]]
    scores: Mapping[str, Mapping[str, float]]
    """Cell key -> endpoint -> score (NaN where not finite)."""
    conflicts: Mapping[str, tuple[str, ...]]
    """Cell key -> endpoints with two different scores."""


def index(results: Results) -> Indexed:
    """Bring a table and its cells into the shape that pairing needs."""
    labels = settings_of(results.cells)
    cells: dict[tuple[str, str, int], list[CellRecord]] = defaultdict(list)
    for position, cell in enumerate(results.cells):
        cells[cell.variant, labels[position], cell.seed].append(cell)
    scores: dict[str, dict[str, float]] = defaultdict(dict)
    conflicts: dict[str, list[str]] = defaultdict(list)
    found: dict[schema.Endpoint, None] = {}
    names: dict[schema.Endpoint, str] = {}
    table = results.table
    columns = (schema.COLUMN_CELL, schema.COLUMN_METRIC, schema.COLUMN_DIM, schema.COLUMN_VALUE)
    for key, metric, dim, value in zip(*(table[c].tolist() for c in columns), strict=True):
        endpoint = schema.Endpoint(metric, int(dim))
        if endpoint not in names:
            names[endpoint] = str(endpoint)
            found[endpoint] = None
        merged, clash = merge_repeats(
            [(0, scores[key][names[endpoint]]), (0, value)] if names[endpoint] in scores[key] else [(0, value)]
        )
        scores[key][names[endpoint]] = merged[0]
        if clash:
            conflicts[key].append(names[endpoint])
    seen = dict.fromkeys(c.variant for c in results.cells)
    ordered = [v for v in results.variant_order if v in seen]
    return Indexed(
        variants=tuple(dict.fromkeys((*ordered, *seen))),
        settings=tuple(dict.fromkeys(labels[p] for p in range(len(results.cells)))),
        endpoints=tuple(names[e] for e in sorted(found)),
        cells={k: tuple(v) for k, v in cells.items()},
        scores=scores,
        conflicts={k: tuple(v) for k, v in conflicts.items()},
    )


def pair(
    indexed: Indexed, *, treatment: str, baseline: str, setting: str, fingerprinted: bool, allow_unverified: bool
) -> PairedScores:
    """Verified pairs of two variants in one setting.

    Without recorded fingerprints (`fingerprinted` False: a plain table) pairs go by seed number.
    """
    variants = (treatment, baseline)
    all_seeds = sorted({s for v, where, s in indexed.cells if where == setting and v in variants})
    used: list[tuple[int, CellRecord, CellRecord]] = []
    dropped: list[DroppedSeed] = []
    conflict: str | None = None
    unverified = 0
    for seed in all_seeds:
        found = {v: _finished(indexed, v, setting, seed) for v in variants}
        clash = next((text for _, text in found.values() if text), None)
        conflict = conflict or clash
        chosen = {v: cell for v, (cell, _) in found.items()}
        missing = [v for v in variants if chosen[v] is None]
        if clash or missing:
            reason = clash or "; ".join(_absence(indexed, v, setting, seed) for v in missing)
            alone = missing[0] if len(missing) == 1 and not clash else None
            itself = alone is not None and _failed_by_itself(indexed, alone, setting, seed)
            dropped.append(DroppedSeed(seed=seed, reason=reason, loss_for=alone if itself else None))
            continue
        t, b = chosen[treatment], chosen[baseline]
        if t is None or b is None:
            continue
        problem = fingerprint_problem(t, b) if fingerprinted else None
        if problem is not None and not allow_unverified:
            dropped.append(DroppedSeed(seed=seed, reason=problem))
            continue
        unverified += problem is not None or not fingerprinted
        used.append((seed, t, b))
    per_side: dict[str, dict[str, tuple[float, ...]]] = {}
    for side, cells in ((treatment, [t for _, t, _ in used]), (baseline, [b for _, _, b in used])):
        rows = [indexed.scores.get(cell.cell, {}) for cell in cells]
        per_side[side] = {e: tuple(row.get(e, math.nan) for row in rows) for e in indexed.endpoints}
    for i, (seed, t, b) in enumerate(used):
        for endpoint in indexed.endpoints:
            lacking = [v for v in variants if math.isnan(per_side[v][endpoint][i])]
            elsewhere = any(not math.isnan(x) for v in variants for x in per_side[v][endpoint])
            asked = any(endpoint in indexed.scores.get(cell.cell, {}) for cell in (t, b))  # a NaN was recorded
            if lacking and (elsewhere or asked):
                text = f"the score {endpoint} of {' and '.join(lacking)} is missing or NaN"
                dropped.append(DroppedSeed(seed=seed, reason=text))
    first = used[0] if used else None
    return PairedScores(
        seeds=tuple(seed for seed, _, _ in used),
        treatment=per_side[treatment],
        baseline=per_side[baseline],
        treatment_cells=tuple(t.cell for _, t, _ in used),
        baseline_cells=tuple(b.cell for _, _, b in used),
        dropped=tuple(sorted(dropped, key=lambda d: d.seed)),
        conflict=conflict,
        declared=declared_differences(first[1], first[2]) if first else (),
        unverified=unverified,
    )


def finished_scores(indexed: Indexed, variant: str, setting: str, endpoint: str) -> tuple[float, ...]:
    """Scores of all finished cells of a variant in a setting, by seed, whether or not they have a partner."""
    seeds = sorted(seed for v, where, seed in indexed.cells if (v, where) == (variant, setting))
    cells = [_finished(indexed, variant, setting, seed)[0] for seed in seeds]
    return tuple(indexed.scores.get(c.cell, {}).get(endpoint, math.nan) for c in cells if c is not None)


def _finished(indexed: Indexed, variant: str, setting: str, seed: int) -> tuple[CellRecord | None, str | None]:
    """The finished cell of a key, and the conflict if two finished cells disagree."""
    cells = [c for c in indexed.cells.get((variant, setting, seed), ()) if c.state == schema.STATE_FINISHED]
    if len(cells) == 1 and cells[0].cell not in indexed.conflicts:
        return cells[0], None
    for endpoint in indexed.endpoints:
        values = [(0, indexed.scores[c.cell][endpoint]) for c in cells if endpoint in indexed.scores.get(c.cell, {})]
        twice = any(endpoint in indexed.conflicts.get(c.cell, ()) for c in cells)
        if twice or merge_repeats(values)[1]:
            return None, f"{variant}, seed {seed}, setting {setting}: two different scores for {endpoint}"
    return (cells[-1] if cells else None), None


def _absence(indexed: Indexed, variant: str, setting: str, seed: int) -> str:
    cells = indexed.cells.get((variant, setting, seed), ())
    if not cells:
        return f"{variant} has no cell for this seed"
    last = cells[-1]
    if last.state == schema.STATE_FAILED:
        kind = "failed by itself" if last.failure_kind == schema.FAILURE_CELL else "failed"
        return f"{variant} {kind}: {last.failure or 'no reason recorded'}"
    return f"{variant} is not finished ({last.state.replace('_', ' ')})"


def _failed_by_itself(indexed: Indexed, variant: str, setting: str, seed: int) -> bool:
    cells = indexed.cells.get((variant, setting, seed), ())
    return bool(cells) and cells[-1].state == schema.STATE_FAILED and cells[-1].failure_kind == schema.FAILURE_CELL
