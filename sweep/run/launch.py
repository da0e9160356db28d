"""One launch: which cells are missing, then schedule, train, record and close them, and say how it ended."""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from analysis import schema
from analysis.revisions import current_numbers
from analysis.showing import counted
from sweep.console import EXIT_INTERRUPTED, Interrupts, doing, say
from sweep.errors import ChangedStudyError, ClaimedError, SweepError, TrackingError, TrackingUnavailable
from sweep.files import scratch_folder, spool_folder
from sweep.record.ledger import (
    CellStatus,
    RecordedRun,
    changed_variants,
    changed_versions,
    numbered,
    reconcile,
    runs_to_rename,
    to_run,
)
from sweep.record.relocate import mend_if_moved
from sweep.record.retry import START_WAIT_S, tracking_wait_s
from sweep.record.spool import Spool
from sweep.record.study_lock import Heartbeat, Owner, other_driver_alive
from sweep.record.study_run import (
    chosen_for_rerun,
    follow_names,
    knows_seeds,
    note_revisions,
    open_study_run,
    record_spooled,
    settle,
)
from sweep.record.tracking import StudyRun, Tracking
from sweep.record.tracking_uri import default_uri, where_to_look
from sweep.run import preflight
from sweep.run.backend import Backend, Session, SessionRequest, Workload
from sweep.run.cell_queue import CellQueue
from sweep.run.cell_source import CellSource
from sweep.run.finisher import Finisher
from sweep.run.kept_models import without_model
from sweep.run.progress import Count, Progress, tally_of
from sweep.run.worker import Place, no_fingerprint
from sweep.study import Study
from sweep.study.cells import Cell
from sweep.study.search_block import search_endpoint
from trainables.registry import BUILTIN_TRAINABLES

DEFAULT_RETRIES: Final = 2


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a study is run; none of it changes what a cell is."""

    tracking_uri: str | None = None
    """None: MLFLOW_TRACKING_URI, else `mlflow.db` in the current folder."""
    max_concurrent: int | None = None
    """Most cells at once; None: as many as fit."""
    retries: int = DEFAULT_RETRIES
    """How often an attempt lost to infrastructure is repeated, per cell and launch."""
    retry_failed: bool = False
    """Train cells again that failed by themselves."""
    accept_changes: bool = False
    """Extend an experiment whose recorded cells the study file no longer describes."""
    allow_unverified: bool = False
    """Go on with a trainable of one's own that gives no fingerprint."""
    rerun: tuple[str, ...] = ()
    """Cells to train again although they are finished; the old run is superseded."""


def cells_to_rerun(cells: Sequence[Cell], asked: Sequence[str]) -> list[Cell]:
    """The cells that --rerun names.

    Raises:
        SweepError: a name fits no cell.
    """
    try:
        return chosen_for_rerun(cells, asked)
    except ValueError as error:
        raise SweepError(f"--rerun: {error}") from None


def how_to_see_failures(study: Study, statuses: Sequence[CellStatus], tracking_uri: str | None) -> list[str]:
    """The command that shows the traceback of the first failed cell; nothing where none failed."""
    failed = [one.cell for one in statuses if one.state == schema.STATE_FAILED and one.run_id is not None]
    if not failed:
        return []
    cell = failed[0]
    name = f"{cell.variant}:{cell.seed}" + ("" if cell.setting == schema.DEFAULT_SETTING else f":{cell.setting}")
    words = ["sweep", "status", str(study.path), *study.overridden, "--failure", name]
    if tracking_uri not in (None, default_uri()):
        words += ["--tracking-uri", str(tracking_uri)]
    return [f"its traceback: {shlex.join(words)}"]


class Launch:
    """One launch of a study that has been claimed, up to the exit code. Gives its queue the cells that follow."""

    def __init__(
        self,
        source: CellSource,
        cells: Sequence[Cell],
        backend: Backend,
        options: RunOptions,
        *,
        uri: str,
        owner: Owner,
        interrupts: Interrupts,
    ) -> None:
        """Prepare.

        Args:
            source: Whose study it is, and what is needed after these cells.
            cells: In the order in which they are scheduled, all of one kind.
            backend: Where they run.
            options: How to run.
            uri: Of the tracking store, absolute.
            owner: Who holds the claim.
            interrupts: Asked whether to stop.
        """
        self.study, self._cells, self._options = source.study, list(cells), options
        self._source, self._backend = source, backend
        self._owner, self._interrupts = owner, interrupts
        self._kind = cells[0].kind if cells else schema.KIND_CELL
        self._tracking = Tracking(uri, wait_s=min(START_WAIT_S, tracking_wait_s()), on_wait=say)
        self._spool = Spool(spool_folder(self.study.name))
        self._scratch = scratch_folder(self.study.name, uri)
        self._runs: list[RecordedRun] = []
        self._count = Count(total=0, before=0)
        self._all_known = False
        """Whether the count knows the cells that are still to be asked for."""
        self._began = time.monotonic()
        self._unusable: tuple[str, ...] = ()
        """Spool files that could not be used."""

    def run(self) -> int:
        """Run it.

        Returns:
            Exit code, as `run_study`.

        Raises:
            SweepError: nothing could be started.
        """
        preflight.check_resolved(self.study, self._cells)
        doing("asking the tracking store what is recorded")
        self._check_other_drivers()
        if mended := mend_if_moved(self._tracking, self.study.name):
            say(f"note: {mended}")
        self._runs = self._tracking.recorded_runs(self.study.name, self._kind)
        self._cells = self._numbered(self._cells)
        statuses = reconcile(self._cells, self._runs)
        self._check_changes(statuses)
        replaces = self._replaces(statuses)
        todo = self._todo(statuses, replaces)
        if todo:
            self._check_fingerprints(statuses)
            doing("checking data, model and losses")
            for line in [*preflight.check_study(self.study), *changed_versions(self._runs)]:
                say(f"warning: {line}")
        for line in without_model(self.study, statuses, self._runs):
            say(f"warning: {line}")
        if not todo and not self._left_open() and self._is_as_recorded():
            return self._report(statuses, 0)
        return self._with_session(todo, replaces)

    # -- before anything is written ----------------------------------------------------------------------------

    def _check_other_drivers(self) -> None:
        def heartbeat() -> str | None:
            run = self._tracking.study_run(self.study.name)
            return None if run is None else run.tags.get(schema.TAG_HEARTBEAT)

        alive = other_driver_alive(heartbeat, self._owner)
        if alive is not None:
            raise ClaimedError(
                f"study {self.study.name!r} is being run by process {alive.pid} on {alive.host}; wait for it or stop "
                "it there (a driver that has died is given up after a minute)"
            )

    def _check_changes(self, statuses: Sequence[CellStatus]) -> None:
        changes = changed_variants(statuses)
        if changes and not self._options.accept_changes:
            raise ChangedStudyError(
                f"study {self.study.name!r}: {'; '.join(changes)}. --accept-changes trains them; what is recorded"
                " stays, as an earlier revision"
            )
        for line in changes:
            say(f"note: {line}")

    def _numbered(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells with the revision that each is of. A search's trials have none: each is another training."""
        return list(cells) if self._kind == schema.KIND_SEARCH else numbered(cells, self._runs)

    @property
    def _current(self) -> dict[str, int]:
        """Variant -> its newest revision among the cells."""
        current: dict[str, int] = {}
        for cell in self._cells:
            current[cell.variant] = max(cell.revision, current.get(cell.variant, 0))
        return current

    def _check_fingerprints(self, statuses: Sequence[CellStatus]) -> None:
        """Do not go on with a trainable whose finished cells have shown that it gives no fingerprint."""
        tags = {run.run_id: run.tags for run in self._runs}
        for status in statuses:
            known = tags.get(status.run_id or "", {})
            own = status.cell.spec.trainable not in BUILTIN_TRAINABLES
            given = any(name.startswith(schema.TAG_FINGERPRINT_PREFIX) for name in known)
            if own and status.state == schema.STATE_FINISHED and not (given or self._options.allow_unverified):
                raise SweepError(no_fingerprint(status.cell.spec.trainable))

    def _replaces(self, statuses: Sequence[CellStatus]) -> dict[str, str]:
        """Cell key -> finished run that a rerun on request supersedes."""
        chosen = {cell.key for cell in cells_to_rerun(self._cells, self._options.rerun)}
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
        run = self._tracking.study_run(self.study.name)
        if run is None or runs_to_rename(self.study, self._cells, self._runs):
            return False
        meant = self._kind == schema.KIND_SEARCH or current_numbers(run.tags) == self._current
        return knows_seeds(run, self.study.seeds) and meant

    # -- the launch proper -------------------------------------------------------------------------------------

    def _with_session(self, todo: Sequence[CellStatus], replaces: dict[str, str]) -> int:
        """Have machines that can run the cells, if there are any cells, before the store is told anything."""
        if not todo:
            return self._with_study_run(replaces, None)
        shutil.rmtree(self._scratch, ignore_errors=True)  # of a launch that was killed
        request = SessionRequest(
            study=self.study,
            tracking=self._tracking,
            cells=min(len(todo), self._options.max_concurrent or len(todo)),
            scratch=self._scratch,
            owner=self._owner.owner,
        )
        say(f"{counted(len(todo), 'cell')} to train; starting {self._backend.name}")
        try:
            with self._backend.session(request) as session:
                self._interrupts.install()  # the backend may have taken SIGTERM for itself
                preflight.check_tracking(self._tracking.uri, nodes=session.machines)
                device = schema.TAG_FINGERPRINT_PREFIX + schema.FINGERPRINT_DEVICE
                finished = [run for run in self._runs if run.status == "FINISHED"]
                session.check_machines([run.tags[device] for run in finished if device in run.tags], say)
                self._check_other_drivers()  # again: starting takes seconds
                return self._with_study_run(replaces, session)
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _with_study_run(self, replaces: dict[str, str], session: Session | None) -> int:
        """Open the study run, beat on it, run what is missing, and end it as what it came to."""
        self._tracking.wait_s = tracking_wait_s()
        study_run = open_study_run(self._tracking, self.study)
        if self._kind != schema.KIND_SEARCH:
            note_revisions(self._tracking, study_run, self._current)
        heartbeat = Heartbeat(self._tracking, study_run.run_id, self._owner, self._interrupts.ask)
        heartbeat.start()
        say(f"compare runs: {where_to_look(self._tracking.uri, study_run.experiment_id)}")
        code = 1
        try:
            todo = self._todo(self._settle(study_run), replaces)
            code = 0
            if todo and session is not None:
                code = self._train(todo, replaces, study_run, heartbeat, session)
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
        settled = settle(
            self._tracking,
            self._runs,
            by=self._owner.owner,
            last_beat=study_run.tags.get(schema.TAG_HEARTBEAT),
        )
        if settled.adopted:
            say(f"{settled.adopted} recorded but not closed: closed without training")
        if settled.killed:
            say(f"{settled.killed} left running by a driver that is gone: ended as KILLED")
        recovered = record_spooled(
            self._tracking,
            self._spool,
            experiment_id=study_run.experiment_id,
            parent_run_id=study_run.run_id,
            wanted={cell.key for cell in self._cells},
            finished={run.key for run in settled.runs if run.status == "FINISHED"},
            say=say,
        )
        self._runs, statuses = list(settled.runs), reconcile(self._cells, settled.runs)
        self._unusable = recovered.unusable
        if recovered.recorded:
            say(f"{recovered.recorded} kept from before: recorded without training")
            statuses = self._statuses_now()
        if follow_names(self._tracking, self.study, self._cells, self._runs, say=say):
            statuses = self._statuses_now()
        return statuses

    def _train(
        self,
        todo: Sequence[CellStatus],
        replaces: dict[str, str],
        study_run: StudyRun,
        heartbeat: Heartbeat,
        session: Session,
    ) -> int:
        if not heartbeat.still_mine():
            raise ClaimedError(f"study {self.study.name!r} was taken by another machine at the same moment")
        resources = self.study.resources
        to_come = self._source.to_come()
        self._all_known = to_come is not None
        total, further = to_come or (len(self._cells), 0)
        self._count = Count(total=total, before=max(0, total - further - len(todo)))
        tally = tally_of(self.study, self._kind, self._cells, self._runs)
        progress = Progress(self._count, tally, gpus=resources.gpus, began=self._began)
        place = Place(
            study=self.study.name,
            tracking=self._tracking,
            experiment_id=study_run.experiment_id,
            parent_run_id=study_run.run_id,
            owner=self._owner.owner,
            threads=resources.cpus,
            gpus=resources.gpus,
            memory_bytes=resources.memory,
            memory_declared=resources.memory is not None,
            max_concurrent=self._options.max_concurrent,
            time_limit_s=resources.time_limit,
            modules=preflight.modules_ahead(self.study),
            keeps_models=self.study.keep.model is not None and self._kind != schema.KIND_SEARCH,
            only_split=self._searched_split(),
            primary=self.study.primary,
            allow_unverified=self._options.allow_unverified,
        )
        queue = CellQueue(retries=self._options.retries, max_concurrent=self._options.max_concurrent, source=self)
        queue.add((status.cell, status.attempt) for status in todo)
        finisher = Finisher(place, queue, self._spool, progress, replaces=replaces)
        progress.start()
        self._interrupts.deferred = True
        try:
            session.train(
                Workload(
                    place=place,
                    queue=queue,
                    finisher=finisher,
                    progress=progress,
                    stop_asked=lambda: self._interrupts.asked,
                )
            )
        finally:
            results = finisher.drain()
            progress.stop()
        if self._interrupts.asked:
            return EXIT_INTERRUPTED
        return 1 if results.failed or results.spooled or results.unclosed or results.troubles else 0

    def _searched_split(self) -> str | None:
        if self._kind != schema.KIND_SEARCH or self.study.search is None:
            return None
        return search_endpoint(self.study.search, self.study.common_dims).partition("/")[0]

    def next_cells(self) -> list[Cell]:
        """What its source needs next, counted as cells of this launch (see `CellSource`)."""
        cells = self._numbered(self._source.next_cells())
        self._cells += cells
        if not self._all_known:
            self._count.total += len(cells)
        return cells

    def to_come(self) -> tuple[int, int] | None:
        """As its source."""
        return self._source.to_come()

    def _statuses_now(self) -> list[CellStatus]:
        self._runs = self._tracking.recorded_runs(self.study.name, self._kind)
        return reconcile(self._cells, self._runs)

    def _report_now(self, code: int) -> int:
        with self._tracking.waiting_at_most(START_WAIT_S):
            try:
                return self._report(self._statuses_now(), code)
            except (TrackingError, TrackingUnavailable) as error:
                say(f"how far the study is cannot be asked: {error}")
                return code or 1

    def _report(self, statuses: Sequence[CellStatus], code: int) -> int:
        """Say how it ended, name what failed, and give the exit code."""
        finished = sum(status.state == schema.STATE_FINISHED for status in statuses)
        failed = [status for status in statuses if status.state == schema.STATE_FAILED]
        for status in failed:
            say(f"failed: {status.cell.run_name}: {status.reason}")
        for line in how_to_see_failures(self.study, failed, self._options.tracking_uri):
            say(line)
        for line in self._unusable:
            say(f"kept, but not usable: {line}")
        say(f"{finished} of {counted(len(statuses), 'cell')} finished" + (f", {len(failed)} failed" if failed else ""))
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
