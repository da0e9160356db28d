"""The cells of a study as people and machines read them: table, plain lines, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from analysis import schema
from sweep.record.ledger import CellStatus
from sweep.study import Study

if TYPE_CHECKING:
    from sweep.run.sequential import SequentialState

STATES = (
    schema.STATE_FINISHED, schema.STATE_RUNNING, schema.STATE_TO_RUN, schema.STATE_FAILED, schema.STATE_STALE,
)  # fmt: skip
_COLOURS = {
    schema.STATE_FINISHED: "green",
    schema.STATE_RUNNING: "cyan",
    schema.STATE_FAILED: "red",
    schema.STATE_STALE: "yellow",
}
_HEAD = ("#", "state", "variant", "seed", "setting", "key", "note")


def as_json(
    study: Study,
    statuses: Sequence[CellStatus],
    warnings: Sequence[str],
    sequential: SequentialState | None = None,
) -> str:
    """The machine-readable form; cells stand in the order in which they are scheduled."""
    cells: list[dict[str, Any]] = [
        {
            "key": status.cell.key,
            "variant": status.cell.variant,
            "seed": status.cell.seed,
            "setting": status.cell.setting,
            "state": status.state,
            "spec": status.cell.spec.flat(),
            "reason": status.reason or None,
            "attempt": status.attempt,
            "run_id": status.run_id,
            "unresolved": list(status.cell.unresolved),
            "changed_fields": list(status.changed_fields),
        }
        for status in statuses
    ]
    whole = {
        "study": study.name,
        "cells": cells,
        "warnings": list(warnings),
        "sequential": None if sequential is None else asdict(sequential),
    }
    return json.dumps(whole, ensure_ascii=False, indent=2)


def counts(statuses: Sequence[CellStatus]) -> str:
    """`10 cells: 4 finished, 6 to run`."""
    number = {state: sum(status.state == state for status in statuses) for state in STATES}
    parts = [f"{n} {state.replace('_', ' ')}" for state, n in number.items() if n]
    return f"{len(statuses)} cells: {', '.join(parts)}"


def print_table(study: Study, statuses: Sequence[CellStatus], out: TextIO | None = None) -> None:
    """A table on a terminal, plain aligned columns elsewhere."""
    out = out or sys.stdout
    rows = [
        (
            str(number),
            status.state.replace("_", " "),
            status.cell.variant + (" *" if status.cell.variant == study.baseline else ""),
            str(status.cell.seed),
            status.cell.setting,
            status.cell.key[:8] + ("?" if status.cell.unresolved else ""),
            status.reason,
        )
        for number, status in enumerate(statuses, start=1)
    ]
    if out.isatty():
        _print_rich(rows, out)
        return
    widths = [max(len(row[column]) for row in [_HEAD, *rows]) for column in range(len(_HEAD))]
    for row in [_HEAD, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(), file=out)


def _print_rich(rows: Sequence[tuple[str, ...]], out: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in _HEAD:
        table.add_column(name, overflow="fold")
    for row in rows:
        colour = _COLOURS.get(row[1].replace(" ", "_"), "")
        table.add_row(row[0], Text(row[1], style=colour), *(Text(cell) for cell in row[2:]))
    Console(file=out).print(table)
