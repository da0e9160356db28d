"""Runs a study: what is missing is scheduled, trained, recorded and closed. The same command continues it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from analysis import schema
from sweep.console import EXIT_INTERRUPTED, Interrupts, say
from sweep.errors import ChangedStudyError, ClaimedError, StudyError, SweepError, TrackingUnavailable
from sweep.files import lock_file, scratch_folder, spool_folder
from sweep.record.ledger import (
    CellStatus,
    RecordedRun,
    changed_cells,
    changed_versions,
    reconcile,
    runs_to_rename,
    to_run,
)
from sweep.record.retry import START_WAIT_S, tracking_wait_s
from sweep.record.spool import Spool
from sweep.record.study_lock import Heartbeat, Owner, StudyLock, other_driver_alive
from sweep.record.study_run import chosen_for_rerun, follow_names, knows_seeds, open_study_run, record_spooled, settle
from sweep.record.tracking import StudyRun, Tracking
from sweep.record.tracking_uri import absolute_uri, database_file, default_uri, where_to_look
from sweep.run import preflight
from sweep.run.cell_queue import CellQueue
from sweep.run.progress import Count, Progress
from sweep.run.run_options import DEFAULT_RETRIES, RunOptions
from sweep.run.tally import tally_of
from sweep.study import Study
from sweep.study.cells import Cell

if TYPE_CHECKING:
    from sweep.on_ray.machines import Pin
    from sweep.on_ray.session import Session


def run_study(
    study: Study,
    *,
    tracking_uri: str | None = None,
    seeds: int | Sequence[int] | None = None,
    max_concurrent: int | None = None,
    retries: int = DEFAULT_RETRIES,
    retry_failed: bool = False,
    accept_changes: bool = False,
    rerun: Sequence[str] = (),
    address: str | None = None,
) -> int:
    """Train and record every cell of a study that is not finished yet.

    Returns:
        Exit code: 0 all is finished; 1 some cells are not (named on stderr); 130 interrupted, resumable.

    Raises:
        SweepError: nothing could be started; its `exit_code` says how a command ends.
    """
    if seeds is not None:
        try:
            study = study.with_seeds(seeds)
        except ValueError as error:
            raise StudyError(file="--seeds", field="seeds", value=seeds, allowed=str(error)) from None
    options = RunOptions(
        tracking_uri=tracking_uri,
        max_concurrent=max_concurrent,
        retries=retries,
        retry_failed=retry_failed,
        accept_changes=accept_changes,
        rerun=tuple(rerun),
        address=address,
    )
    if study.analysis.stopping == "sequential":
        from sweep.run.sequential import run_sequential

        return run_sequential(study, options)
    return run_cells(study, preflight.resolved_cells(study), options)


def run_cells(
    study: Study,
    cells: Sequence[Cell],
    options: RunOptions,
    *,
    more: Callable[[], Sequence[Cell]] = lambda: (),
) -> int:
    """Train and record those of the cells that are not finished yet, all of one kind.

    Args:
        study: Whose cells they are; its resources, name and file.
        cells: In the order in which they are scheduled.
        options: How to run.
        more: Asked whenever all cells are done: which are needed next; none ends the launch.

    Returns:
        Exit code, as `run_study`.

    Raises:
        SweepError: nothing could be started.
    """
    uri = absolute_uri(options.tracking_uri or default_uri())
    preflight.check_tracking(uri)
    interrupts = Interrupts(say)
    interrupts.install()
    owner = Owner.here()
    lock = StudyLock(lock_file(study.name, uri, database_file(uri)))
    try:
        lock.acquire(study.name, owner)
        return _Launch(study, cells, options, uri=uri, owner=owner, interrupts=interrupts, more=more).run()
    except KeyboardInterrupt:
        say("stopped; the same command continues where it stood")
        return EXIT_INTERRUPTED
    finally:
        lock.release()
        interrupts.restore()


class _Launch:
    """One `sweep run`, from the claim to the exit code."""

    def __init__(
        self,
        study: Study,
        cells: Sequence[Cell],
        options: RunOptions,
        *,
        uri: str,
        owner: Owner,
        interrupts: Interrupts,
        more: Callable[[], Sequence[Cell]],
    ) -> None:
        self._study, self._cells, self._options = study, list(cells), options
        self._owner, self._interrupts, self._more = owner, interrupts, more
        self._kind = cells[0].kind if cells else schema.KIND_CELL
        self._tracking = Tracking(uri, wait_s=min(START_WAIT_S, tracking_wait_s()), on_wait=say)
        self._spool = Spool(spool_folder(study.name))
        self._scratch = scratch_folder(study.name, uri)
        self._runs: list[RecordedRun] = []
        self._began = time.monotonic()

    def run(self) -> int:
        preflight.check_resolved(self._study, self._cells)
        self._check_other_drivers()
        statuses = self._statuses_now()
        self._check_changes(statuses)
        replaces = self._replaces(statuses)
        todo = self._todo(statuses, replaces)
        if todo:
            for line in [*preflight.check_study(self._study), *changed_versions(self._runs)]:
                say(f"warning: {line}")
        if not todo and not self._left_open() and self._is_as_recorded():
            return self._report(statuses, 0)
        return self._with_ray(todo, replaces)

    # -- before anything is written ----------------------------------------------------------------------------

    def _check_other_drivers(self) -> None:
        def heartbeat() -> str | None:
            run = self._tracking.study_run(self._study.name)
            return None if run is None else run.tags.get(schema.TAG_HEARTBEAT)

        alive = other_driver_alive(heartbeat, self._owner)
        if alive is not None:
            raise ClaimedError(
                f"study {self._study.name!r} is being run by process {alive.pid} on {alive.host}; wait for it or stop "
                "it there (a driver that has died is given up after a minute)"
            )

    def _check_changes(self, statuses: Sequence[CellStatus]) -> None:
        changed = changed_cells(statuses)
        if not changed:
            return
        fields = ", ".join(f"{name} ({count} cells)" for name, count in sorted(changed.items()))
        line = f"study {self._study.name!r} has finished cells that its file no longer describes; changed: {fields}"
        if not self._options.accept_changes:
            raise ChangedStudyError(
                f"{line}; give the study another name, or --accept-changes to keep both in one experiment"
            )
        say(f"note: {line}")

    def _replaces(self, statuses: Sequence[CellStatus]) -> dict[str, str]:
        """Cell key -> finished run that a rerun on request supersedes."""
        try:
            chosen = {cell.key for cell in chosen_for_rerun(self._cells, self._options.rerun)}
        except ValueError as error:
            raise SweepError(f"--rerun: {error}") from None
        return {
            status.cell.key: status.run_id
            for status in statuses
            if status.cell.key in chosen and status.state == schema.STATE_FINISHED and status.run_id is not None
        }

    def _todo(self, statuses: Sequence[CellStatus], replaces: dict[str, str]) -> list[CellStatus]:
        missing = {status.cell.key for status in to_run(statuses, retry_failed=self._options.retry_failed)}
        return [status for status in statuses if status.cell.key in missing or status.cell.key in replaces]

    def _left_open(self) -> bool:
        return any(run.status in ("RUNNING", "SCHEDULED") for run in self._runs)

    def _is_as_recorded(self) -> bool:
        """Whether the study run exists and knows this list of seeds, and every run has its cell's names."""
        run = self._tracking.study_run(self._study.name)
        return knows_seeds(run, self._study.seeds) and not runs_to_rename(self._study, self._cells, self._runs)

    # -- the launch proper -------------------------------------------------------------------------------------

    def _with_ray(self, todo: Sequence[CellStatus], replaces: dict[str, str]) -> int:
        """Have a Ray that can run the cells, if there are any, before the store is told anything."""
        if not todo:
            return self._with_study_run(replaces, None)
        from sweep.on_ray.warmup import warm_session

        shutil.rmtree(self._scratch, ignore_errors=True)  # of a launch that was killed
        address, scratch = self._options.address, self._scratch / "ray"
        cells = min(len(todo), self._options.max_concurrent or len(todo))
        say(f"{len(todo)} cells to train; starting Ray")
        try:
            with warm_session(self._study, self._tracking, address=address, cells=cells, scratch=scratch) as session:
                self._interrupts.install()  # Ray has taken SIGTERM for itself
                preflight.check_tracking(self._tracking.uri, nodes=len(session.nodes))
                pin = self._checked(session)
                self._check_other_drivers()  # again: starting Ray takes seconds
                return self._with_study_run(replaces, pin)
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _with_study_run(self, replaces: dict[str, str], pin: Pin | None) -> int:
        """Open the study run, beat on it, run what is missing, and end it as what it came to."""
        self._tracking.wait_s = tracking_wait_s()
        study_run = open_study_run(self._tracking, self._study)
        heartbeat = Heartbeat(self._tracking, study_run.run_id, self._owner, self._interrupts.ask)
        heartbeat.start()
        say(f"compare runs: {where_to_look(self._tracking.uri, study_run.experiment_id)}")
        code = 1
        try:
            todo = self._todo(self._settle(study_run), replaces)
            code = 0
            if todo and pin is not None:
                code = self._train(todo, replaces, study_run, heartbeat, pin)
                self._interrupts.deferred = False
            return self._report_now(code)
        except BaseException as error:
            code = EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
            raise
        finally:
            heartbeat.stop()
            with suppress(SweepError), self._tracking.waiting_at_most(START_WAIT_S) as tracking:
                status = {0: "FINISHED", EXIT_INTERRUPTED: "KILLED"}.get(code, "FAILED")
                tracking.close(study_run.run_id, status)

    def _settle(self, study_run: StudyRun) -> list[CellStatus]:
        settled = settle(self._tracking, self._runs, by=self._owner.owner)
        if settled.adopted:
            say(f"{settled.adopted} recorded but not closed: closed without training")
        if settled.killed:
            say(f"{settled.killed} left running by a driver that is gone: ended as KILLED")
        recorded = record_spooled(
            self._tracking,
            self._spool,
            experiment_id=study_run.experiment_id,
            parent_run_id=study_run.run_id,
            wanted={cell.key for cell in self._cells},
            finished={run.key for run in settled.runs if run.status == "FINISHED"},
            say=say,
        )
        self._runs, statuses = list(settled.runs), reconcile(self._cells, settled.runs)
        if recorded:
            say(f"{recorded} kept from before: recorded without training")
            statuses = self._statuses_now()
        if follow_names(self._tracking, self._study, self._cells, self._runs, say=say):
            statuses = self._statuses_now()
        return statuses

    def _checked(self, session: Session) -> Pin:
        """Check every machine before the first cell; on this machine alone only whether it can hold one."""
        from sweep.on_ray.machines import Pin, check_nodes

        resources = self._study.resources
        if not session.shared:
            preflight.check_resources(self._study, session.nodes)
            return Pin()
        device = schema.TAG_FINGERPRINT_PREFIX + "device"
        recorded = [run.tags[device] for run in self._runs if run.status == "FINISHED" and device in run.tags]
        return check_nodes(self._tracking.uri, cpus=resources.cpus, gpus=resources.gpus, recorded=recorded, say=say)

    def _train(
        self,
        todo: Sequence[CellStatus],
        replaces: dict[str, str],
        study_run: StudyRun,
        heartbeat: Heartbeat,
        pin: Pin,
    ) -> int:
        from sweep.on_ray.trials import TrialSweep
        from sweep.run.finisher import Closer
        from sweep.run.worker import Place

        if not heartbeat.still_mine():
            raise ClaimedError(f"study {self._study.name!r} was taken by another machine at the same moment")
        resources = self._study.resources
        count = Count(total=len(self._cells), before=len(self._cells) - len(todo))
        tally = tally_of(self._study, self._kind, self._cells, self._runs)
        progress = Progress(count, tally, gpus=resources.gpus, began=self._began)
        place = Place(
            study=self._study.name,
            tracking=self._tracking,
            experiment_id=study_run.experiment_id,
            parent_run_id=study_run.run_id,
            owner=self._owner.owner,
            threads=resources.cpus,
            primary=self._study.primary,
        )
        queue = CellQueue(
            retries=self._options.retries,
            max_concurrent=self._options.max_concurrent,
            more=lambda: self._needed_next(count),
        )
        queue.add((status.cell, status.attempt) for status in todo)
        closer = Closer(place, queue, self._spool, progress, replaces=replaces)
        sweep = TrialSweep(
            place=place,
            cells=queue,
            closer=closer,
            progress=progress,
            cpus=resources.cpus,
            gpus=resources.gpus,
            spare=0 if pin is None else 1,
            stop_asked=lambda: self._interrupts.asked,
            scratch=self._scratch / "tune",
            pin=pin,
        )
        progress.start()
        self._interrupts.deferred = True
        try:
            sweep.run()
        finally:
            results = closer.drain()
            progress.stop()
        if self._interrupts.asked:
            return EXIT_INTERRUPTED
        return 1 if results.failed or results.spooled or results.unclosed or results.troubles else 0

    def _needed_next(self, count: Count) -> list[tuple[Cell, int]]:
        cells = list(self._more())
        self._cells += cells
        count.total += len(cells)
        return [(cell, 0) for cell in cells]

    def _statuses_now(self) -> list[CellStatus]:
        self._runs = self._tracking.recorded_runs(self._study.name, self._kind)
        return reconcile(self._cells, self._runs)

    def _report_now(self, code: int) -> int:
        with self._tracking.waiting_at_most(START_WAIT_S):
            try:
                return self._report(self._statuses_now(), code)
            except TrackingUnavailable as error:
                say(f"how far the study is cannot be asked: {error}")
                return code or 1

    def _report(self, statuses: Sequence[CellStatus], code: int) -> int:
        """Say how it ended, name what failed, and give the exit code."""
        finished = sum(status.state == schema.STATE_FINISHED for status in statuses)
        failed = [status for status in statuses if status.state == schema.STATE_FAILED]
        for status in failed:
            say(f"failed: {status.cell.run_name}: {status.reason}")
        say(f"{finished} of {len(statuses)} cells finished" + (f", {len(failed)} failed" if failed else ""))
        if code == EXIT_INTERRUPTED:
            say("stopped; the same command continues where it stood")
            return code
        if finished < len(statuses):
            by_itself = sum(status.failure_kind == schema.FAILURE_CELL for status in failed)
            if by_itself < len(statuses) - finished:
                say("the same command continues with what is missing")
            if by_itself:
                say(f"{by_itself} failed by themselves; --retry-failed trains them again")
            return 1
        return code
