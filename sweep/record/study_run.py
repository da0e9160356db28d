"""The study run, and what is done before anything is scheduled.

Runs that were left open are ended, waiting results are recorded, renamed cells get their new names, and the study run
says what the study asks.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from analysis import schema
from analysis.revisions import current_numbers
from analysis.showing import counted, hide_credentials, visible
from sweep.errors import RefusedRecord
from sweep.record.ledger import RecordedRun, runs_to_rename
from sweep.record.mlflow_ui import experiment_tags
from sweep.record.spool import Spool, Spooled
from sweep.record.study_lock import Beat
from sweep.record.tracking import CellRun, StudyRun, Tracking
from sweep.study import Study
from sweep.study.cells import Cell

Say = Callable[[str], None]
ABANDONED: Final = "its driver ended before it did"
RUN_NAME_TAG: Final = "mlflow.runName"
NO_VERDICT_YET: Final = "None yet; `analysis report {file} --log` puts it here."
MOST_FIELDS: Final = 8
"""Fields shown of one variant."""


@dataclass(frozen=True, kw_only=True)
class Settled:
    """What was left open and how it was ended."""

    runs: tuple[RecordedRun, ...]
    """All cell runs, none of them RUNNING."""
    adopted: int = 0
    """Complete runs of a dead driver, now FINISHED."""
    killed: int = 0
    """Incomplete ones, now KILLED."""


def settle(tracking: Tracking, runs: Iterable[RecordedRun], *, by: str, last_beat: str | None = None) -> Settled:
    """End every run that is still open; only the holder of the claim may call this.

    Args:
        tracking: The store.
        runs: All cell runs of the study.
        by: The driver that does it, for the record.
        last_beat: Heartbeat of the driver before: the runs ended with it, not now. None: not known.
    """
    beat = Beat.parse(last_beat)
    seen_ms = None if beat is None else min(int(beat.time * 1000), int(time.time() * 1000))
    runs = list(runs)
    finished = {run.key for run in runs if run.status == "FINISHED"}
    out, adopted, killed = [], 0, 0
    for run in runs:
        ended_ms = None if seen_ms is None else max(run.start_ms, seen_ms)
        if run.status not in ("RUNNING", "SCHEDULED"):
            out.append(run)
        elif run.complete and run.key not in finished:
            # A rerun on request may have died before it told the run that it replaces; that one is KILLED first.
            tracking.close(run.run_id, "FINISHED", ended_ms=ended_ms)
            finished.add(run.key)
            adopted += 1
            out.append(replace(run, status="FINISHED"))
        else:
            tags = {
                schema.TAG_SUPERSEDED_BY: by,
                schema.TAG_FAILURE: ABANDONED,
                schema.TAG_FAILURE_KIND: schema.FAILURE_INFRASTRUCTURE,
            }
            tracking.close(run.run_id, "KILLED", tags, ended_ms=ended_ms)
            killed += 1
            out.append(replace(run, status="KILLED", tags={**run.tags, **tags}))
    return Settled(runs=tuple(out), adopted=adopted, killed=killed)


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """What became of the results that were waiting."""

    recorded: int
    unusable: tuple[str, ...] = ()
    """Files that could not be used, each with where it is kept and why."""


def record_spooled(
    tracking: Tracking,
    spool: Spool,
    *,
    experiment_id: str,
    parent_run_id: str,
    wanted: Collection[str],
    finished: Collection[str],
    say: Say,
) -> Recovered:
    """Record the waiting results of cells that are wanted and not finished yet.

    A file that cannot be used is set aside and named; it keeps nothing else from being recorded.

    Args:
        tracking: The store.
        spool: The study's waiting results.
        experiment_id: The study's experiment.
        parent_run_id: The study run.
        wanted: Keys of the study's cells.
        finished: Keys that have a finished run.
        say: Gets one line for each file that cannot be used.

    Raises:
        SweepError: the store is away, or refuses this user.
    """
    recorded = 0
    unusable = []
    for path, found in spool.waiting():
        if isinstance(found, ValueError):
            unusable.append(f"{spool.set_aside(path)}: {found}")
            say(f"{unusable[-1]}; its cell is trained again")
            continue
        if found.cell in finished:
            spool.remove(path)
            continue
        if found.cell not in wanted:
            continue  # of another version of the study, which may come back
        run = None
        begun = tracking.launched(experiment_id, found.tags.get(schema.TAG_LAUNCH, ""))
        try:
            run = _run_for(tracking, found, begun, experiment_id, parent_run_id)
            tracking.record(run, found.recording, complete=True)
        except RefusedRecord as error:
            unusable.append(f"{spool.set_aside(path)}: {error}")
            say(f"{unusable[-1]}; its cell is trained again")
            if run is not None:
                tags = {schema.TAG_FAILURE: str(error), schema.TAG_FAILURE_KIND: schema.FAILURE_INFRASTRUCTURE}
                tracking.close(run.run_id, "FAILED", tags)
            continue
        ended_ms = max((metric.time_ms for metric in found.recording.metrics), default=0)
        # A run that is made only now has no length; one begun in time ended when its scores were taken.
        tracking.close(run.run_id, "FINISHED", ended_ms=None if begun is None else max(begun.start_ms, ended_ms))
        spool.remove(path)
        recorded += 1
    return Recovered(recorded=recorded, unusable=tuple(unusable))


def _run_for(
    tracking: Tracking, found: Spooled, begun: RecordedRun | None, experiment_id: str, parent_run_id: str
) -> CellRun:
    """The run that was begun for the result, if this store has it; else a new one."""
    if begun is not None:
        return CellRun(run_id=begun.run_id, artifact_uri=tracking.artifact_uri(begun.run_id))
    launch = found.tags.get(schema.TAG_LAUNCH, uuid.uuid4().hex)
    return tracking.create_cell_run(experiment_id, parent_run_id, found.run_name, found.tags, launch)


def follow_names(
    tracking: Tracking, study: Study, cells: Sequence[Cell], runs: Iterable[RecordedRun], *, say: Say
) -> int:
    """Give runs the names that their cells have now, and keep what a variant was called first.

    Args:
        tracking: The store.
        study: As its file has it now.
        cells: Its cells.
        runs: Their runs.
        say: Gets one line for each new name.

    Returns:
        How many runs were renamed.
    """
    names: Counter[tuple[str, str]] = Counter()
    for run, cell in runs_to_rename(study, cells, runs):
        variant, seed, setting = run.label
        tracking.set_tags(
            run.run_id,
            {
                schema.TAG_VARIANT: cell.variant,
                schema.TAG_SETTING: cell.setting,
                schema.TAG_VARIANT_FIELDS: json.dumps(list(cell.variant_fields)),
                schema.TAG_FIRST_VARIANT: run.tags.get(schema.TAG_FIRST_VARIANT, variant),
                RUN_NAME_TAG: f"{cell.variant}-s{seed}-{cell.setting}",
            },
        )
        same_setting = setting == cell.setting
        before = variant if same_setting else f"{variant} in setting {setting}"
        now = cell.variant if same_setting else f"{cell.variant} in setting {cell.setting}"
        names[before, now] += 1
    for (before, now), count in names.items():
        renamed = counted(count, "recorded cell")
        say(f"note: {visible(before)} is now called {now}: {renamed} renamed, none trained again")
    return names.total()


def open_study_run(tracking: Tracking, study: Study) -> StudyRun:
    """The study's parent run, set RUNNING: created with the declared plan at the first run, never rewritten.

    A later version of the study file is kept beside the first one; a changed seed list is appended to the history.
    """
    experiment_id = tracking.open_experiment(study.name)
    tags = experiment_tags(study, experiment_id, tracking.experiment_tags(experiment_id))
    with suppress(RefusedRecord):  # a store that takes no such tags shows a plainer page, and runs the study
        tracking.set_experiment_tags(experiment_id, tags)
    run = tracking.study_run(study.name)
    if run is None:
        tags = {schema.TAG_STUDY_FILE: study.path.name, **_plan_tag(declared_plan(study))}
        run = tracking.create_study_run(experiment_id, study.name, tags)
    elif run.status != "RUNNING":
        tracking.reopen(run.run_id)
    place = CellRun(run_id=run.run_id, artifact_uri=tracking.artifact_uri(run.run_id))
    if not tracking.has_artifact(run.run_id, schema.PLAN_ARTIFACT):
        if not tracking.has_artifact(run.run_id, schema.STUDY_ARTIFACT):
            tracking.put_artifact(place, schema.STUDY_ARTIFACT, hide_credentials(study.text).encode())
        tracking.put_artifact(place, schema.PLAN_ARTIFACT, _json(_plan_of(run) or declared_plan(study)))
    elif study.overridden:
        digest = hashlib.sha256(study.text.encode()).hexdigest()[:8]
        name = schema.STUDY_ARTIFACT.replace(".yaml", f"-{digest}.yaml")
        if not tracking.has_artifact(run.run_id, name):
            tracking.put_artifact(place, name, hide_credentials(study.text).encode())
    described = describe(study, run.tags.get(schema.TAG_DESCRIPTION))
    if described != run.tags.get(schema.TAG_DESCRIPTION):
        tracking.set_tags(run.run_id, {schema.TAG_DESCRIPTION: described})
    if note_seeds(tracking, run, study.seeds) > 1:
        name = schema.STUDY_ARTIFACT.replace(".yaml", f"-{int(time.time())}.yaml")
        tracking.put_artifact(place, name, hide_credentials(study.text).encode())
    return run


def note_seeds(tracking: Tracking, run: StudyRun, seeds: Sequence[int]) -> int:
    """Append a changed seed list to the history; the number of the new entry, 0 where nothing has changed."""
    if knows_seeds(run, seeds):
        return 0
    history = history_of(run.tags, schema.HISTORY_TAG_SEEDS)
    entry = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "seeds": list(seeds)}
    tracking.set_tags(run.run_id, {f"{schema.HISTORY_TAG_SEEDS}{len(history):04d}": json.dumps(entry)})
    return len(history) + 1


def note_revisions(tracking: Tracking, run: StudyRun, current: Mapping[str, int]) -> None:
    """Append what the study file means now to the history, where that has changed."""
    if current_numbers(run.tags) == current:
        return
    count = len(history_of(run.tags, schema.HISTORY_TAG_REVISIONS))
    entry = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "current": dict(current)}
    tracking.set_tags(run.run_id, {f"{schema.HISTORY_TAG_REVISIONS}{count:04d}": json.dumps(entry)})


def knows_seeds(run: StudyRun | None, seeds: Sequence[int]) -> bool:
    """Whether there is a study run and this list of seeds is the one last noted."""
    history = [] if run is None else history_of(run.tags, schema.HISTORY_TAG_SEEDS)
    return bool(history) and history[-1].get("seeds") == list(seeds)


def declared_plan(study: Study) -> dict[str, Any]:
    """What the study declares before data exist, as recorded."""
    return {
        "plan": study.analysis.model_dump(mode="json"),
        "default_primary": list(study.default_primary),
        "baseline": study.baseline,
        "variants": list(study.variants),
        "search": None if study.searched_by is None else study.searched_by.model_dump(mode="json"),
    }


def history_of(tags: Mapping[str, str], prefix: str) -> list[dict[str, Any]]:
    """The entries of a history kept in tags, oldest first."""
    found = []
    for name in sorted(tags):
        if name.startswith(prefix):
            try:
                entry = json.loads(tags[name])
            except ValueError:
                continue
            if isinstance(entry, dict):
                found.append(entry)
    return found


def _plan_tag(plan: Mapping[str, Any]) -> dict[str, str]:
    text = json.dumps(plan, sort_keys=True)
    return {schema.TAG_PLAN: text} if len(text) <= schema.LONGEST_PLAN else {}


def _plan_of(run: StudyRun) -> dict[str, Any] | None:
    """The plan declared at the first run, where its artifact is gone: it is never declared anew."""
    try:
        plan = json.loads(run.tags.get(schema.TAG_PLAN, ""))
    except ValueError:
        return None
    return plan if isinstance(plan, dict) else None


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()


def chosen_for_rerun(cells: Sequence[Cell], asked: Iterable[str]) -> list[Cell]:
    """The cells that a rerun names: by run name, `variant:seed` or `variant:seed:setting`, or start of the key.

    Raises:
        ValueError: a name fits no cell.
    """
    chosen: dict[str, Cell] = {}
    for name in asked:
        fits = [
            cell
            for cell in cells
            if name in (cell.run_name, f"{cell.variant}:{cell.seed}", f"{cell.variant}:{cell.seed}:{cell.setting}")
            or (len(name) >= 8 and cell.key.startswith(name))
        ]
        if not fits:
            raise ValueError(f"{name!r} fits no cell; expected VARIANT:SEED, VARIANT:SEED:SETTING or a cell key")
        chosen.update((cell.key, cell) for cell in fits)
    return list(chosen.values())


def describe(study: Study, before: str | None = None) -> str:
    """Markdown for the study run.

    Args:
        study: As it stands.
        before: The description that the run has; a verdict in it is kept.
    """
    none = f"{schema.VERDICT_HEADING} {NO_VERDICT_YET.format(file=study.path.name)}"
    paragraphs = (before or "").split("\n\n")
    verdict = next((one for one in paragraphs if one.startswith(schema.VERDICT_HEADING)), none)
    # The UI folds a long description: what is wanted most comes first.
    return "\n\n".join((_question(study), verdict, _design(study), _variants(study)))


def _question(study: Study) -> str:
    others = [f"`{variant}`" for variant in study.variants if variant != study.baseline]
    if not others:
        return f"**Question.** None: `{study.baseline}` is the only variant."
    are = "Is" if len(others) == 1 else "Are"
    where = " and ".join(f"`{endpoint}`" for endpoint in study.primary) or "the primary endpoint"
    return f"**Question.** {are} {' and '.join(others)} better than `{study.baseline}` on {where}?"


def _design(study: Study) -> str:
    plan = study.analysis
    cells = len(study.specs) * len(study.seeds)
    margin = "no margin declared" if plan.margin is None else f"differences below {plan.margin:g} do not matter"
    names = ", ".join(f"`{setting}`" for setting in study.settings)
    settings = f" x {len(study.settings)} settings ({names})" if len(study.settings) > 1 else ""
    return (
        f"**Design.** {counted(len(study.variants), 'variant')} x {counted(len(study.seeds), 'seed')}{settings}:"
        f" {counted(cells, 'cell')}; alpha"
        f" {plan.alpha:g}, {margin}, stopping {plan.stopping}. Should the file have changed since: the plan that counts"
        f" is the one recorded at the first run, `{schema.PLAN_ARTIFACT}`."
    )


def _variants(study: Study) -> str:
    rows = ["| variant | differs in |", "|---|---|"]
    flat = {variant: _varying(study, variant) for variant in study.variants}
    for variant, fields in flat.items():
        shown = [f"`{name}` = {_value(value)}" for name, value in list(fields.items())[:MOST_FIELDS]]
        more = len(fields) - MOST_FIELDS
        mark = " (baseline)" if variant == study.baseline else ""
        rows.append(f"| `{variant}`{mark} | {', '.join(shown)}{f' and {more} more' if more > 0 else ''} |")
    return "\n".join(rows)


def _varying(study: Study, variant: str) -> Mapping[str, Any]:
    fields = study.specs[variant, next(iter(study.settings))].flat()
    return {name: fields[name] for name in study.variant_fields if name in fields}


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("|", "\\|").replace("\n", " ")
