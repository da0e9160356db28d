"""What two cells of a pair must have in common: their fingerprints, besides what their variants declare to differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analysis import schema
from analysis.comparing.findings import DeclaredDifference
from analysis.results.model import CellRecord
from analysis.revisions import SEED_FIELD

# Which fingerprint keys a declared field may change. Everything else must agree inside a pair.
# Fields match themselves and what is below them.
AFFECTED_KEYS: Mapping[str, tuple[str, ...]] = {
    "model.name": (schema.FINGERPRINT_INITIAL_WEIGHTS,),
    "model.revision": (schema.FINGERPRINT_INITIAL_WEIGHTS,),
    "model.dtype": (schema.FINGERPRINT_INITIAL_WEIGHTS, schema.FINGERPRINT_DTYPE),
    "data": (schema.FINGERPRINT_DATA, schema.FINGERPRINT_EXAMPLE_ORDER),
    "trainable": (schema.FINGERPRINT_INITIAL_WEIGHTS, schema.FINGERPRINT_EXAMPLE_ORDER),
    "options": (schema.FINGERPRINT_INITIAL_WEIGHTS, schema.FINGERPRINT_EXAMPLE_ORDER),
    "options.deterministic": (schema.FINGERPRINT_DETERMINISTIC,),
    # How many examples are drawn depends on these; on the batch size only where `_sets_order` says so.
    "epochs": (schema.FINGERPRINT_EXAMPLE_ORDER,),
    "max_steps": (schema.FINGERPRINT_EXAMPLE_ORDER,),
    "batch_sampler": (schema.FINGERPRINT_EXAMPLE_ORDER,),
    "dataloader_drop_last": (schema.FINGERPRINT_EXAMPLE_ORDER,),
    "bf16": (schema.FINGERPRINT_DTYPE,),
    "fp16": (schema.FINGERPRINT_DTYPE,),
    "tf32": (schema.FINGERPRINT_DTYPE, schema.FINGERPRINT_TF32),
}


def is_below(field: str, declared: Iterable[str]) -> bool:
    """Is this field one of these, or a part of one?"""
    return any(field == d or field.startswith(d + ".") for d in declared)


def declared_roots(fields: Iterable[str]) -> set[str]:
    """Declared fields; `loss.layout` stands for the whole `loss`, since a loss is replaced as a whole."""
    return {("loss" if f.startswith("loss.") else f) for f in fields}


def declared_differences(treatment: CellRecord, baseline: CellRecord) -> tuple[DeclaredDifference, ...]:
    """Fields that a variant declares and that differ between two cells."""
    declared = declared_roots((*treatment.variant_fields, *baseline.variant_fields))
    names = dict.fromkeys((*baseline.fields, *treatment.fields))
    return tuple(
        DeclaredDifference(field=f, treatment=treatment.fields.get(f), baseline=baseline.fields.get(f))
        for f in names
        if f != SEED_FIELD and is_below(f, declared) and treatment.fields.get(f) != baseline.fields.get(f)
    )


def may_differ(key: str, fields: Iterable[str], resolved: Sequence[Mapping[str, Any]] = ()) -> bool:
    """May this fingerprint key differ inside a pair whose variants differ in these fields?

    Args:
        key: Fingerprint key.
        fields: Declared fields in which the two cells differ.
        resolved: All fields of each of the two cells, defaults left out.
    """
    for field in fields:
        if key == schema.FINGERPRINT_EXAMPLE_ORDER and any(_sets_order(field, own) for own in resolved):
            return True
        for owner, keys in AFFECTED_KEYS.items():
            if key in keys and is_below(field, (owner,)):
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
