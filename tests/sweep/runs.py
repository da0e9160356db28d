"""Cells and recorded runs made by hand, for tests of what is pure."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from analysis import schema
from sweep.record.ledger import RecordedRun
from sweep.study.cells import Cell
from trainables.spec import TrainSpec


def a_cell(variant: str = "a", seed: int = 0, setting: str = "default", **more: Any) -> Cell:
    options = {"sleep_s": 0.0 if variant == "a" else 0.001, **more.pop("options", {})}
    spec = TrainSpec(trainable="noop", options=options, seed=seed)
    digests = more.pop("digests", {})
    text = spec.canonical_json() + json.dumps(digests, sort_keys=True) + variant + setting
    key = hashlib.sha256(text.encode()).hexdigest()
    return Cell(
        key=key,
        spec_key=hashlib.sha256(spec.canonical_json().encode()).hexdigest(),
        spec=spec,
        variant=variant,
        seed=seed,
        setting=setting,
        digests=digests,
        **more,
    )


def a_run(
    cell: Cell, status: str, *, run_id: str = "r1", start_ms: int = 1, attempt: int = 1, **tags: str
) -> RecordedRun:
    return RecordedRun(
        run_id=run_id,
        status=status,
        start_ms=start_ms,
        tags={
            schema.TAG_CELL: cell.key,
            schema.TAG_SPEC: cell.spec_key,
            schema.TAG_VARIANT: cell.variant,
            schema.TAG_SEED: str(cell.seed),
            schema.TAG_SETTING: cell.setting,
            schema.TAG_FIELDS: json.dumps(cell.spec.flat()),
            schema.TAG_ATTEMPT: str(attempt),
            **{schema.TAG_DIGEST_PREFIX + name: digest for name, digest in cell.digests.items()},
            **tags,
        },
    )
