"""Runs a study, or whatever says which cells are needed next. The same call continues what was interrupted."""

from __future__ import annotations

from collections.abc import Sequence

from sweep.console import EXIT_INTERRUPTED, Interrupts, say
from sweep.files import lock_file
from sweep.record.retry import START_WAIT_S, tracking_wait_s
from sweep.record.study_lock import Owner, StudyLock
from sweep.record.tracking import Tracking
from sweep.record.tracking_uri import absolute_uri, database_file, default_uri
from sweep.run import preflight
from sweep.run.backend import Backend
from sweep.run.cell_source import CellSource, FixedCells, KeepsError
from sweep.run.launch import Launch, RunOptions
from sweep.run.sequential import SequentialStudy, state_lines
from sweep.study import Study
from sweep.study.cells import Cell


def run_study(study: Study, backend: Backend, options: RunOptions | None = None) -> int:
    """Train and record every cell of a study that is not finished yet.

    Args:
        study: A validated study; `study.with_seeds(7)` is the same one with other seeds.
        backend: Where its cells run.
        options: How to run; None: all defaults.

    Returns:
        Exit code: 0 all is finished; 1 some cells are not (named on stderr); 130 interrupted, resumable.

    Raises:
        SweepError: nothing could be started; its `exit_code` says how a command ends.

    Example:
        run_study(load_study("my-study.yaml"), RayBackend(), RunOptions(max_concurrent=2))
    """
    options = options or RunOptions()
    if study.analysis.stopping == "sequential":
        return _run_sequential(study, backend, options)
    return run_cells(FixedCells(study, preflight.resolved_cells(study)), backend, options)


def _run_sequential(study: Study, backend: Backend, options: RunOptions) -> int:
    """Run a sequential study from wherever it stands until it stops, and say why it stopped."""

    def slots() -> int:
        found = backend.slots(cpus=study.resources.cpus, gpus=study.resources.gpus)
        return max(1, found if options.max_concurrent is None else min(found, options.max_concurrent))

    tracking = Tracking(options.tracking_uri or default_uri(), wait_s=min(START_WAIT_S, tracking_wait_s()), on_wait=say)
    source = SequentialStudy(study, tracking, slots=slots, say=say)
    tracking.wait_s = tracking_wait_s()
    code = run_cells(source, backend, options)
    for line in state_lines(source.study, source.state):
        say(line)
    return code


def run_cells(source: CellSource, backend: Backend, options: RunOptions) -> int:
    """Train and record what a source asks for, until it asks for nothing more.

    Most often in one launch. A launch that finds all of its cells recorded never asks for more, and is followed by
    another.

    Args:
        source: Says which cells are needed next, all of one kind.
        backend: Where they run.
        options: How to run.

    Returns:
        Exit code of the last launch, as `run_study`; 0 when nothing was to be run.

    Raises:
        SweepError: nothing could be started, or what the source raised.
    """
    keeping = KeepsError(source)
    code = 0
    while cells := keeping.next_cells():
        code = _claim_and_launch(keeping, cells, backend, options)
        if code == EXIT_INTERRUPTED:
            break
    if keeping.error is not None:
        raise keeping.error
    return code


def _claim_and_launch(source: CellSource, cells: Sequence[Cell], backend: Backend, options: RunOptions) -> int:
    """One launch, holding the claim on the study."""
    name = source.study.name
    uri = absolute_uri(options.tracking_uri or default_uri())
    preflight.check_tracking(uri)
    interrupts = Interrupts(say)
    interrupts.install()
    owner = Owner.here()
    lock = StudyLock(lock_file(name, uri, database_file(uri)))
    try:
        lock.acquire(name, owner)
        return Launch(source, cells, backend, options, uri=uri, owner=owner, interrupts=interrupts).run()
    except KeyboardInterrupt:
        say("stopped; the same command continues where it stood")
        return EXIT_INTERRUPTED
    finally:
        lock.release()
        interrupts.restore()
