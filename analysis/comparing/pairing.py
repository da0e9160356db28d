"""From recorded cells to verified pairs: which seeds two variants share in a setting, what was dropped and why."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis import schema
from analysis.comparing.findings import DeclaredDifference, DroppedSeed
from analysis.comparing.fingerprints import (
    declared_differences,
    declared_roots,
    fingerprint_problem,
    is_below,
)
from analysis.results.model import CellRecord, Results
from analysis.results.repeats import same_score
from analysis.revisions import SEED_FIELD
from analysis.showing import visible

_SILENT = re.compile(r"no gradient in (\d+) of (\d+) steps")


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
    untrained: Mapping[str, tuple[int, ...]]
    """Variant -> seeds on which its training had no gradient in any step."""

    def lost_by(self, variant: str, endpoint: str) -> int:
        """Seeds that count as this variant's loss in the sign test of an endpoint."""
        return sum(d.loss_for == variant and d.endpoint in (None, endpoint) for d in self.dropped)


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
        if not same_score(value, merged[key]) and key not in conflicts:
            conflicts.append(key)
    return merged, conflicts


def settings_of(cells: Sequence[CellRecord]) -> dict[int, str]:
    """Position of a cell -> label of its setting.

    The setting is what the resolved fields say besides the seed and whatever any variant declares, so a label that
    changed (a grid added later) does not split one setting in two. Cells without fields go by their label.
    """
    declared = declared_roots(f for cell in cells for f in cell.variant_fields)
    by_identity: dict[str, list[int]] = defaultdict(list)
    own_fields: dict[str, Mapping[str, Any]] = {}
    for position, cell in enumerate(cells):
        if cell.fields:
            own = {k: v for k, v in cell.fields.items() if k != SEED_FIELD and not is_below(k, declared)}
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
        name, known = names[endpoint], scores[key]
        merged, clash = merge_repeats([(0, known[name]), (0, value)] if name in known else [(0, value)])
        known[name] = merged[0]
        if clash:
            conflicts[key].append(name)
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
    some_side = {e: any(not math.isnan(x) for v in variants for x in per_side[v][e]) for e in indexed.endpoints}
    for i, (seed, t, b) in enumerate(used):
        for endpoint, elsewhere in some_side.items():
            lacking = [v for v in variants if math.isnan(per_side[v][endpoint][i])]
            asked = any(endpoint in indexed.scores.get(cell.cell, {}) for cell in (t, b))  # a NaN was recorded
            if lacking and (elsewhere or asked):
                # A score that was taken and is not a number is this side's failure; one never taken is just missing.
                own = t if lacking[0] == treatment else b
                undefined = len(lacking) == 1 and endpoint in indexed.scores.get(own.cell, {})
                state = "undefined (NaN or infinite)" if undefined else "missing or NaN"
                text = f"the score {endpoint} of {' and '.join(lacking)} is {state}"
                loser = lacking[0] if undefined else None
                dropped.append(DroppedSeed(seed=seed, reason=text, loss_for=loser, endpoint=endpoint))
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
        untrained={
            variant: silent
            for variant, cells in ((treatment, [t for _, t, _ in used]), (baseline, [b for _, _, b in used]))
            if (silent := tuple(cell.seed for cell in cells if _did_not_train(cell)))
        },
    )


def _did_not_train(cell: CellRecord) -> bool:
    """A note of the cell says that no step had a gradient."""
    return any((m := _SILENT.match(note)) is not None and m[1] == m[2] for note in cell.notes)


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
