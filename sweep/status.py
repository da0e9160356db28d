"""Where a study stands: its cells held against what is recorded, what they cost and will cost, and how that is shown.

The cost has one rule: a cell to run is expected to take the median of the finished cells of its variant and setting;
failing these, of its variant, of its setting, of all. The total is the sum of the variants.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, TextIO

from analysis import schema
from analysis.showing import counted
from sweep.files import lock_file
from sweep.record.ledger import (
    CellStatus,
    RecordedRun,
    changed_variants,
    numbered,
    reconcile,
    recorded_revisions,
    to_run,
)
from sweep.record.study_lock import is_live
from sweep.record.tracking import Tracking
from sweep.record.tracking_uri import database_file
from sweep.run.kept_models import disk_use, without_model
from sweep.run.preflight import planned_cells, unresolved_notices
from sweep.run.progress import duration
from sweep.run.sequential import SequentialState, state_lines, state_now
from sweep.study import Study
from sweep.study.cells import Cell
from sweep.study.warnings import study_warnings

SHOW_WAIT_S = 10.0
"""Longest wait for a tracking store that is away, where nothing is to be written."""
STATES = (
    schema.STATE_FINISHED, schema.STATE_RUNNING, schema.STATE_TO_RUN, schema.STATE_FAILED, schema.STATE_STALE,
)  # fmt: skip
_COLOURS = {
    schema.STATE_FINISHED: "green",
    schema.STATE_RUNNING: "cyan",
    schema.STATE_FAILED: "red",
    schema.STATE_STALE: "yellow",
}
_ATTENTION = (schema.STATE_FAILED, schema.STATE_STALE)
WATCH_S = 2.0
FEW_CELLS = 40
"""Up to so many, all of them are shown below the matrix without being asked for."""
_HEAD = ("#", "state", "variant", "seed", "setting", "key", "note")
_ENDED = ("FINISHED", "FAILED", "KILLED")


@dataclass(frozen=True, kw_only=True)
class StudyStatus:
    """A study's cells, their states, and what to know about them."""

    study: Study
    """With the seeds added so far, in a sequential study."""
    statuses: tuple[CellStatus, ...]
    warnings: tuple[str, ...]
    cost: StudyCost
    """Spent and expected."""
    disk_use: str | None = None
    """Of the models that are to be kept, in a line."""
    sequential: SequentialState | None = None
    """Of a sequential study: its e-values against their thresholds."""
    running: Mapping[str, RecordedRun] = field(default_factory=dict)
    """Cell key -> its run, of cells that run now."""
    search: tuple[str, ...] = ()
    """How far the search of each variant is, a line each; empty without a search."""


def study_status(study: Study, tracking_uri: str) -> StudyStatus:
    """Ask the store what it knows of a study. Reads no data and no weights; writes nothing.

    Raises:
        TrackingError: not a usable store.
        TrackingUnavailable: the store did not answer in time.
    """

    tracking = Tracking(tracking_uri, wait_s=SHOW_WAIT_S)
    recorded = tracking.recorded_runs(study.name)
    sequential = None
    if study.analysis.stopping == "sequential":
        study, cells, sequential = state_now(study, tracking, recorded, planned_cells)
    else:
        cells = planned_cells(study)
    cells = numbered(cells, recorded)
    lock = lock_file(study.name, tracking.uri, database_file(tracking.uri))
    alive = any(run.status == "RUNNING" for run in recorded) and is_live(study.name, tracking, lock)
    statuses = reconcile(cells, recorded, owner_alive=alive, match_spec=True)
    warnings = [
        *study_warnings(study),
        *unresolved_notices(cells),
        *_changes(statuses),
        *_revisions(cells, recorded),
        *_others(cells, recorded),
        *without_model(study, statuses, recorded),
    ]
    return StudyStatus(
        study=study,
        statuses=tuple(statuses),
        warnings=tuple(warnings),
        cost=study_cost(statuses, recorded, gpus=study.resources.gpus),
        disk_use=disk_use(study, [status.cell for status in to_run(statuses, retry_failed=False)]),
        sequential=sequential,
        running=_running(statuses, recorded),
        search=_search(study, tracking),
    )


def _running(statuses: Sequence[CellStatus], recorded: Sequence[RecordedRun]) -> dict[str, RecordedRun]:
    by_id = {run.run_id: run for run in recorded}
    running = [status for status in statuses if status.state == schema.STATE_RUNNING]
    return {status.cell.key: by_id[status.run_id] for status in running if status.run_id in by_id}


def _search(study: Study, tracking: Tracking) -> tuple[str, ...]:
    """Trials that are over, by variant: all of their seeds are finished, or one has failed by itself."""
    if study.search is None:
        return ()
    recorded = tracking.recorded_runs(study.name, schema.KIND_SEARCH)
    budget, seeds = study.search.trials, {str(seed) for seed in study.search.seeds}
    lines = []
    for variant in study.variants:
        own = [run for run in recorded if run.label[0] == variant]
        finished: dict[str, set[str]] = {}
        for run in own:
            if run.status == "FINISHED":
                finished.setdefault(run.label[2], set()).add(run.label[1])
        failed = {run.label[2] for run in own if run.tags.get(schema.TAG_FAILURE_KIND) == schema.FAILURE_CELL}
        over = failed | {trial for trial, done in finished.items() if done >= seeds}
        line = f"search of {variant}: {min(len(over), budget)} of {counted(budget, 'trial')} over"
        lines.append(line + (f", {len(failed)} failed" if failed else ""))
    return tuple(lines)


def _changes(statuses: Sequence[CellStatus]) -> list[str]:
    return [f"{line}; `sweep run` does so with --accept-changes" for line in changed_variants(statuses)]


def _revisions(cells: Sequence[Cell], recorded: Sequence[RecordedRun]) -> list[str]:
    """Earlier revisions of the study's variants, and which one counts."""
    current: dict[str, set[int]] = {}
    for cell in cells:
        current.setdefault(cell.variant, set()).add(cell.revision)
    return [
        f"{one.name}: {counted(one.finished, 'finished cell')} of another revision"
        f" (trained {one.when}); the study file means {variant}@{max(current[variant])}"
        for variant, known in recorded_revisions(recorded).items()
        for one in known
        if variant in current and one.number not in current[variant] and one.finished
    ]


def _others(cells: Sequence[Cell], recorded: Sequence[RecordedRun]) -> list[str]:
    """Finished cells of the same experiment whose variant, setting or seed the study file does not have."""
    labels = {(cell.variant, str(cell.seed), cell.setting) for cell in cells}
    keys = {cell.key for cell in cells} | {cell.spec_key for cell in cells}
    other = {
        run.key
        for run in recorded
        if run.finished
        and run.label not in labels
        and run.key not in keys
        and run.tags.get(schema.TAG_SPEC, "") not in keys
    }
    if not other:
        return []
    count = "1 finished cell is" if len(other) == 1 else f"{len(other)} finished cells are"
    return [f"{count} recorded under this name but not described by the study file"]


# -- cost ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class VariantCost:
    """One variant's share. Times are seconds of cells as if run one after another."""

    variant: str
    spent_s: float
    """Of every attempt that has ended, lost and failed ones too: they were paid for."""
    left: int
    """Cells that a plain `sweep run` schedules."""
    expected_s: float | None
    """Of those; None while no cell has finished."""
    gpus: float
    """GPUs of one cell."""
    peak_mb: float | None = None
    """Highest recorded peak of memory, MiB."""

    def __str__(self) -> str:
        """`cost of chunked: spent 1.20 GPU-hours, about 0.40 GPU-hours more for 2 cells`."""
        line = f"cost of {self.variant}: spent {self._text(self.spent_s)}"
        if self.left:
            cells = counted(self.left, "cell")
            if self.expected_s is None:
                line += f", unknown for {cells} until one has finished"
            else:
                line += f", about {self._text(self.expected_s)} more for {cells}"
        return line if self.peak_mb is None else f"{line}; peak memory {self.peak_mb:.0f} MiB"

    def _text(self, seconds: float) -> str:
        return f"{seconds * self.gpus / 3600:.2f} GPU-hours" if self.gpus else duration(seconds)


@dataclass(frozen=True, kw_only=True)
class StudyCost:
    """What a study has cost and will cost."""

    variants: tuple[VariantCost, ...]
    """In the order of the cells."""
    basis: int
    """Finished cells that the expectation rests on; 0: nothing is known yet."""
    gpus: float
    """GPUs of one cell."""

    @property
    def left(self) -> int:
        """Cells that a plain `sweep run` schedules."""
        return sum(one.left for one in self.variants)

    @property
    def expected_s(self) -> float | None:
        """The sum of the variants; None while no cell has finished."""
        expected = [one.expected_s for one in self.variants if one.expected_s is not None]
        return sum(expected) if len(expected) == len(self.variants) else None

    def lines(self) -> list[str]:
        """A line a variant, once anything was spent."""
        return [str(one) for one in self.variants] if any(one.spent_s for one in self.variants) else []

    def __str__(self) -> str:
        """`2 cells to run: about 40 min of cell time, 0.7 GPU-hours (from 8 finished cells)`."""
        if not self.left:
            return "nothing to run"
        count = f"{counted(self.left, 'cell')} to run"
        if self.expected_s is None:
            return f"{count}; their cost is unknown until one has finished"
        cost = f"about {duration(self.expected_s)} of cell time"
        if self.gpus:
            cost += f", {self.expected_s * self.gpus / 3600:.1f} GPU-hours"
        return f"{count}: {cost} (from {counted(self.basis, 'finished cell')})"


def study_cost(statuses: Sequence[CellStatus], recorded: Sequence[RecordedRun], *, gpus: float) -> StudyCost:
    """What was spent and what is expected, per variant, by the rule of this module.

    Args:
        statuses: The study's cells.
        recorded: Recorded runs of the study.
        gpus: GPUs of one cell.
    """
    pace = _Pace(run for run in recorded if run.status == "FINISHED")
    left = to_run(statuses, retry_failed=False)
    variants = []
    for variant in dict.fromkeys(status.cell.variant for status in statuses):
        own = [run for run in recorded if run.label[0] == variant]
        cells = [status.cell for status in left if status.cell.variant == variant]
        expected = [pace.expected_s(cell.variant, cell.setting) for cell in cells]
        peaks = [run.metrics[schema.METRIC_MEMORY_PEAK] for run in own if schema.METRIC_MEMORY_PEAK in run.metrics]
        variants.append(
            VariantCost(
                variant=variant,
                spent_s=sum(_seconds(run) for run in own),
                left=len(cells),
                expected_s=sum(expected) if pace.basis or not cells else None,
                gpus=gpus,
                peak_mb=max(peaks, default=None),
            )
        )
    return StudyCost(variants=tuple(variants), basis=pace.basis, gpus=gpus)


class _Pace:
    """How long cells take, from those that have finished."""

    def __init__(self, finished: Iterable[RecordedRun]) -> None:
        self.basis = 0
        self._seconds: dict[tuple[str | None, str | None], list[float]] = {}
        for run in finished:
            seconds = _seconds(run)
            if seconds > 0:
                self.basis += 1
                variant, _, setting = run.label
                for key in ((variant, setting), (variant, None), (None, setting), (None, None)):
                    self._seconds.setdefault(key, []).append(seconds)

    def expected_s(self, variant: str, setting: str) -> float:
        """Of one cell; 0 where none has finished."""
        keys = ((variant, setting), (variant, None), (None, setting), (None, None))
        return next((median(self._seconds[key]) for key in keys if key in self._seconds), 0.0)


def _seconds(run: RecordedRun) -> float:
    """How long an attempt took; 0 while it is open, whatever end an earlier closing may have left."""
    return max(0, run.end_ms - run.start_ms) / 1000 if run.status in _ENDED and run.end_ms is not None else 0.0


# -- how it is shown -----------------------------------------------------------------------------------------------
def status_json(found: StudyStatus) -> str:
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
        for status in found.statuses
    ]
    whole = {
        "study": found.study.name,
        "cells": cells,
        "warnings": list(found.warnings),
        "sequential": None if found.sequential is None else asdict(found.sequential),
    }
    return json.dumps(whole, ensure_ascii=False, indent=2)


def counts(statuses: Sequence[CellStatus]) -> str:
    """`10 cells: 4 finished, 6 to run`."""
    number = {state: sum(status.state == state for status in statuses) for state in STATES}
    parts = [f"{n} {state.replace('_', ' ')}" for state, n in number.items() if n]
    return f"{counted(len(statuses), 'cell')}: {', '.join(parts)}"


def show(found: StudyStatus, out: TextIO | None = None, *, every_cell: bool = False, cost: bool = False) -> None:
    """What a person wants to see: a matrix of seeds finished, what runs, what needs attention, and the cost.

    Args:
        found: The study's state.
        out: Where; None: stdout.
        every_cell: Show the table of every cell, too.
        cost: Say what is to be run and what it will cost.
    """
    out = out or sys.stdout
    for line in matrix(found.study, found.statuses):
        print(line, file=out)
    attention = [status for status in found.statuses if status.state in _ATTENTION or status.changed_fields]
    if every_cell:
        print(file=out)
        print_table(found.study, found.statuses, out)
    elif attention:
        print("\nneed attention:", file=out)
        print_table(found.study, attention, out)
    lines = [*running_lines(found), f"{found.study.name}: {counts(found.statuses)} (* baseline)", *found.search]
    if found.sequential is not None:
        lines += state_lines(found.study, found.sequential)
    lines += found.cost.lines()
    if cost:
        lines.append(str(found.cost))
        if found.disk_use is not None:
            lines.append(found.disk_use)
    for line in lines:
        print(line, file=out)


def matrix(study: Study, statuses: Sequence[CellStatus]) -> list[str]:
    """A line a setting, a column a variant: seeds finished of wanted, such as `4/6, 1 failed`."""
    by_place: dict[tuple[str, str], list[str]] = {}
    for status in statuses:
        by_place.setdefault((status.cell.setting, status.cell.variant), []).append(status.state)
    variants = list(dict.fromkeys(variant for _, variant in by_place))
    settings = list(dict.fromkeys(setting for setting, _ in by_place))
    rows = [("setting", *(variant + (" *" if variant == study.baseline else "") for variant in variants))]
    rows += [
        (setting, *(_seeds_of(by_place.get((setting, variant), [])) for variant in variants)) for setting in settings
    ]
    widths = [max(_columns(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(text + " " * (width - _columns(text)) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _seeds_of(states: Sequence[str]) -> str:
    if not states:
        return "-"
    parts = [f"{states.count(schema.STATE_FINISHED)}/{len(states)}"]
    parts += [f"{n} {state}" for state in (schema.STATE_RUNNING, *_ATTENTION) if (n := states.count(state))]
    return ", ".join(parts)


def running_lines(found: StudyStatus, now: float | None = None) -> list[str]:
    """What runs where and since when: `running b-s1-default on gpu-1 since 11:32:05 (12 min)`.

    Args:
        found: The study's state.
        now: Seconds since 1970; None: the clock.
    """
    now = time.time() if now is None else now
    lines = []
    for status in found.statuses:
        run = found.running.get(status.cell.key)
        if run is None:
            continue
        began = run.start_ms / 1000
        since = time.strftime("%H:%M:%S" if now - began < 12 * 3600 else "%Y-%m-%d %H:%M", time.localtime(began))
        # A cell records its machine only when it is over; its driver's is known from the start.
        driver = run.tags.get(schema.TAG_OWNER, "").split(":")[0]
        by = f", by the driver on {driver}" if driver else ""
        lines.append(f"running {status.cell.run_name} since {since} ({duration(max(0.0, now - began))}){by}")
    return lines


def watch(look: Callable[[], StudyStatus], *, every_cell: bool = False, out: TextIO | None = None) -> None:
    """Show the state every two seconds, one screen at most, until it is interrupted."""
    out = out or sys.stdout
    try:
        while True:
            text = io.StringIO()
            show(look(), text, every_cell=every_cell, cost=True)
            columns, height = shutil.get_terminal_size()
            lines = [line[:columns] for line in text.getvalue().splitlines()]
            if len(lines) > height - 2:
                lines = [*lines[: height - 3], f"and {len(lines) - height + 3} more lines"]
            if out.isatty():
                print("\x1b[H\x1b[2J", end="", file=out)
            print(
                "\n".join([*lines, f"{time.strftime('%H:%M:%S')}, every {WATCH_S:.0f} s; Ctrl-C ends"]),
                file=out,
                flush=True,
            )
            time.sleep(WATCH_S)
    except KeyboardInterrupt:
        print(file=out)


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
