"""What is finished, what is to run, and why: a study's cells held against what MLflow knows. Pure."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

from analysis import schema
from analysis.revisions import Content, Place, Revision, TrainedRun, content_of, numbers_for, revisions
from analysis.showing import counted
from sweep.study.cells import Cell, cell_key

if TYPE_CHECKING:
    from sweep.study import Study

SOFTWARE = schema.TAG_FINGERPRINT_PREFIX + schema.FINGERPRINT_SOFTWARE


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """One MLflow run of a cell, as the store gives it."""

    run_id: str
    status: str
    """RUNNING, FINISHED, FAILED or KILLED."""
    tags: Mapping[str, str] = field(default_factory=dict)
    start_ms: int = 0
    end_ms: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The cell key."""
        return self.tags.get(schema.TAG_CELL, "")

    @property
    def attempt(self) -> int:
        """1 for the first attempt at its cell."""
        text = self.tags.get(schema.TAG_ATTEMPT, "1")
        return int(text) if text.isdigit() else 1

    @property
    def finished(self) -> bool:
        """It has its scores."""
        return self.status == "FINISHED"

    @property
    def complete(self) -> bool:
        """All is stored; only the status was not set."""
        return self.tags.get(schema.TAG_COMPLETE) == "true"

    @property
    def label(self) -> tuple[str, str, str]:
        """Variant, seed and setting as they were called when the cell ran."""
        return (
            self.tags.get(schema.TAG_VARIANT, ""),
            self.tags.get(schema.TAG_SEED, ""),
            self.tags.get(schema.TAG_SETTING, schema.DEFAULT_SETTING),
        )

    @property
    def fields(self) -> dict[str, Any]:
        """The flat resolved spec; empty where the tag cannot be read."""
        try:
            found = json.loads(self.tags.get(schema.TAG_FIELDS, "{}"))
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, kw_only=True)
class CellStatus:
    """Where one cell stands."""

    cell: Cell
    state: str
    """A state of analysis.schema."""
    reason: str = ""
    run_id: str | None = None
    """The run that decides the state."""
    attempt: int = 0
    """Attempts so far."""
    changed_fields: tuple[str, ...] = ()
    """What differs from a finished cell of the same variant, seed and setting, where this revision is a new one."""
    failure_kind: str | None = None


def reconcile(
    cells: Sequence[Cell],
    recorded: Iterable[RecordedRun],
    *,
    owner_alive: bool = False,
    match_spec: bool = False,
) -> list[CellStatus]:
    """The state of every cell, in the order given.

    Args:
        cells: The study's cells.
        recorded: All cell runs of the study's experiment, in any order.
        owner_alive: A driver holds the study now, so what is RUNNING runs.
        match_spec: Match a cell whose digests could not be read here on its spec alone (for showing, not for running).
    """
    by_key: dict[str, list[RecordedRun]] = {}
    by_spec: dict[str, list[RecordedRun]] = {}
    by_label: dict[tuple[str, str, str], list[RecordedRun]] = {}
    for run in sorted(recorded, key=lambda one: (one.start_ms, one.run_id)):
        by_key.setdefault(run.key, []).append(run)
        by_spec.setdefault(run.tags.get(schema.TAG_SPEC, ""), []).append(run)
        by_label.setdefault(run.label, []).append(run)
    current = {cell.key for cell in cells}
    known = _Contents(by_label)
    statuses = []
    for cell in cells:
        runs = by_key.get(cell.key, [])
        note = ""
        if not runs and match_spec and cell.unresolved:
            runs = by_spec.get(cell.spec_key, [])
            note = f"matched by spec, digest of {', '.join(cell.unresolved)} unresolved" if runs else ""
        status = _status(cell, runs, owner_alive=owner_alive)
        before = [run for run in by_label.get((cell.variant, str(cell.seed), cell.setting), []) if run.finished]
        before = [run for run in before if run.key not in current]
        if not runs and before and not known.has(cell):
            status = _with_changes(status, before[-1])
        if note:
            reason = f"{status.reason}; {note}" if status.reason else note
            status = CellStatus(**{**vars(status), "reason": reason})
        statuses.append(status)
    return statuses


def _status(cell: Cell, runs: Sequence[RecordedRun], *, owner_alive: bool) -> CellStatus:
    def status(state: str, run: RecordedRun, reason: str = "") -> CellStatus:
        return CellStatus(
            cell=cell,
            state=state,
            reason=reason,
            run_id=run.run_id,
            attempt=max(one.attempt for one in runs),
            failure_kind=run.tags.get(schema.TAG_FAILURE_KIND) if state == schema.STATE_FAILED else None,
        )

    if not runs:
        return CellStatus(cell=cell, state=schema.STATE_TO_RUN)
    for run in runs:
        if run.status == "FINISHED":
            return status(schema.STATE_FINISHED, run)
    open_runs = [run for run in runs if run.status in ("RUNNING", "SCHEDULED")]
    if open_runs:
        run = next((one for one in open_runs if one.complete), open_runs[-1])
        if owner_alive:
            return status(schema.STATE_RUNNING, run, f"attempt {run.attempt}")
        if run.complete:
            return status(schema.STATE_STALE, run, "all is recorded; `sweep run` closes it without training")
        return status(schema.STATE_STALE, run, "its driver is gone; `sweep run` trains it again")
    last = runs[-1]
    if last.status == "FAILED":
        return status(schema.STATE_FAILED, last, last.tags.get(schema.TAG_FAILURE, "no reason was recorded"))
    why = last.tags.get(schema.TAG_FAILURE) or "stopped before its end"
    return status(schema.STATE_TO_RUN, last, f"attempt {last.attempt}: {why}")


class _Contents:
    """What was trained of each variant in each setting, read once and only where it is asked for."""

    def __init__(self, by_label: Mapping[tuple[str, str, str], Sequence[RecordedRun]]) -> None:
        self._by_label = by_label
        self._known: dict[Place, list[Content]] = {}

    def has(self, cell: Cell) -> bool:
        """Whether this revision of the cell's variant was trained before, with whatever seed."""
        place = (cell.variant, cell.setting)
        if place not in self._known:
            runs = [run for (v, _, s), found in self._by_label.items() if (v, s) == place for run in found]
            self._known[place] = [content_of(run.tags) for run in runs]
        own = cell.content
        return any(own.fits(content) for content in self._known[place])


def _with_changes(status: CellStatus, run: RecordedRun) -> CellStatus:
    """Say what differs from a finished cell of the same name that the study no longer describes."""
    cell = status.cell
    old, new = run.fields, cell.spec.flat()
    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    changed += sorted(
        f"digest of {name}"
        for name, digest in cell.digests.items()
        if run.tags.get(schema.TAG_DIGEST_PREFIX + name) not in (None, digest)
    )
    if not changed:
        return status
    reason = f"differs in {', '.join(changed)} from the finished run {run.run_id}"
    return CellStatus(**{**vars(status), "reason": reason, "changed_fields": tuple(changed)})


def recorded_revisions(runs: Iterable[RecordedRun]) -> dict[str, list[Revision]]:
    """Variant -> its recorded revisions, by number."""
    return revisions(
        TrainedRun(run_id=run.run_id, tags=run.tags, start_ms=run.start_ms, finished=run.finished) for run in runs
    )


def numbered(cells: Sequence[Cell], runs: Iterable[RecordedRun]) -> list[Cell]:
    """The cells, each with the revision of its variant that it is of, given what is recorded."""
    wanted = {(cell.variant, cell.setting): cell.content for cell in cells}
    numbers = numbers_for(wanted, recorded_revisions(runs))
    return [replace(cell, revision=numbers[cell.variant, cell.setting]) for cell in cells]


def changed_variants(statuses: Iterable[CellStatus]) -> list[str]:
    """A line for each variant that is no longer what its finished cells are: in what, and how much is to be trained."""
    statuses = list(statuses)
    found: dict[str, dict[str, None]] = {}
    for status in statuses:
        if status.changed_fields:
            found.setdefault(status.cell.variant, {}).update(dict.fromkeys(status.changed_fields))
    lines = []
    for variant, fields in found.items():
        own = [one for one in statuses if one.cell.variant == variant and one.state != schema.STATE_FINISHED]
        name = f"{variant}@{max(one.cell.revision for one in own)}"
        lines.append(f"{variant} has changed ({', '.join(fields)}): {counted(len(own), 'cell')} to train as {name}")
    return lines


def to_run(statuses: Iterable[CellStatus], *, retry_failed: bool) -> list[CellStatus]:
    """Which cells a launch schedules: all but the finished, and those that failed by themselves only if asked."""
    return [
        status
        for status in statuses
        if status.state != schema.STATE_FINISHED
        and (
            status.state != schema.STATE_FAILED or retry_failed or status.failure_kind == schema.FAILURE_INFRASTRUCTURE
        )
    ]


def runs_to_rename(study: Study, cells: Sequence[Cell], runs: Iterable[RecordedRun]) -> list[tuple[RecordedRun, Cell]]:
    """Runs recorded under another variant or setting than their cell has now, each with a cell of these names.

    Args:
        study: As its file has it now.
        cells: Its cells.
        runs: Their runs; those of seeds that the study no longer lists are renamed alike.
    """
    runs = list(runs)
    cell_of = {cell.key: cell for cell in cells}
    unlisted = {int(run.label[1]) for run in runs if run.key not in cell_of and run.label[1].isdecimal()}
    for cell in {(cell.variant, cell.setting): cell for cell in cells if cell.kind == schema.KIND_CELL}.values():
        for seed in unlisted:
            cell_of.setdefault(cell_key(study.spec(cell.variant, cell.setting, seed), cell.digests), cell)
    found = [(run, cell_of[run.key]) for run in runs if run.key in cell_of]
    # A search's trials are numbered anew with every search: their names say nothing that lasts.
    return [
        (run, cell)
        for run, cell in found
        if cell.kind == schema.KIND_CELL and (run.label[0], run.label[2]) != (cell.variant, cell.setting)
    ]


def changed_versions(runs: Iterable[RecordedRun]) -> list[str]:
    """One line for each library that finished cells were trained with in another version than the one here."""
    seen: dict[tuple[str, str], int] = {}
    for run in runs:
        if run.status == "FINISHED":
            for part in run.tags.get(SOFTWARE, "").split():
                name, _, version = part.partition("=")
                if version:
                    seen[name, version] = seen.get((name, version), 0) + 1
    lines = []
    for (name, version), count in sorted(seen.items()):
        here = _installed(name)
        if here != version:
            lines.append(
                f"{name}: {count} finished {'cell was' if count == 1 else 'cells were'} trained with {version}, "
                f"here is {here or 'none'}; a pair across versions is not a pair"
            )
    return lines


def _installed(name: str) -> str | None:
    if name == "python":
        return platform.python_version()
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
