"""One training, as the process does it that it has for itself: the job that it gets, and what it answers.

The worker's end is `sweep.run.cell_process`.
"""

from __future__ import annotations

import errno
import faulthandler
import os
import random
import shutil
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Protocol

from analysis import schema
from sweep.console import one_line
from sweep.record.recording import NO_MODEL, NO_MODEL_GIVEN
from sweep.run.memory import limit_memory, shown_bytes
from trainables.kept import ENV_KEPT
from trainables.spec import DatasetRecord, Predictions, Progress, TrainResult, TrainSpec

_PASSING: Final = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.ENFILE)
_NO_MEMORY: Final = ("can't allocate memory", "not enough memory", "std::bad_alloc")
"""What torch's allocators say."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training, complete in itself."""

    spec: TrainSpec
    digests: Mapping[str, str]
    """Contents and commits that the cell's identity names (`sweep.study.cells`)."""
    threads: int
    hides_gpus: bool = False
    """The cell asked for no GPU: it sees none, whatever the machine has."""
    memory_bytes: int | None = None
    """Most that the process may allocate beyond its libraries; None: no limit."""
    memory_declared: bool = False
    """The study names that limit; else it is a share of the machine."""
    time_limit_s: float | None = None
    model_folder: Path | None = None
    """Empty folder for the final model; None: it is not kept."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a cell's process takes over from its worker."""

    job: Job
    environment: Mapping[str, str]
    folder: str
    path: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why there is no result."""

    reason: str
    """One line."""
    kind: str
    """`cell` or `infrastructure` (analysis.schema): whose fault it is."""
    detail: str = ""
    """The whole story: a traceback, or the last lines of the output."""
    every_cell: bool = False
    """The next cell would fail alike: there is no use in going on."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a training ended: with a result, with a failure, or stopped on request (neither)."""

    result: TrainResult | None = None
    failure: Failure | None = None
    output: bytes = b""
    """What the training wrote to its standard output and error; the middle is left out where it is long."""


class BrokenContract(Exception):
    """A trainable whose every result is unusable: the next cell would fail alike."""


class Trainer(Protocol):
    """Trains one job at a time, wherever it does."""

    def train(self, job: Job, report: Callable[[Progress], None], stop_requested: Callable[[], bool]) -> Ended:
        """Train; never raises for what the training does wrong.

        Args:
            job: What to train.
            report: Gets the training's progress.
            stop_requested: Asked often; True ends the training.
        """


def train_job(job: Job, report: Callable[[Progress], None]) -> TrainResult:
    """Train in this process, and leave in it what the trainable leaves.

    Raises:
        Exception: whatever the trainable raises.
    """
    if job.hides_gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    from trainables.encoder.fetch import fetch_model, pinned
    from trainables.registry import BUILTIN_TRAINABLES, load_trainable
    from trainables.runtime import configure
    from trainables.user_code import add_to_import_path

    configure(job.threads)
    if job.spec.trainable not in BUILTIN_TRAINABLES:
        # Its module is imported first and may change how data are read: its files must not become another cell's.
        os.environ.pop(ENV_KEPT, None)
    add_to_import_path(job.spec.root)
    spec = pinned(job.spec, job.digests)
    fetch_model(spec)
    trainable = load_trainable(spec.trainable, spec.root)
    configure(job.threads)  # again: loading it may have imported torch
    given = trainable(spec, report)
    result = plain_result(given)
    if job.model_folder is None:
        return result
    return replace(result, notes=(*result.notes, *_save_model(given, job.model_folder)))


def _save_model(given: TrainResult, folder: Path) -> tuple[str, ...]:
    """Have the trainable write its model.

    Returns:
        A note that says why there is none, which costs the cell nothing else; nothing where there is one.
    """
    if given.save is None:
        return (NO_MODEL_GIVEN,)
    try:
        given.save(folder)
    except Exception as error:
        shutil.rmtree(folder, ignore_errors=True)
        return (f"{NO_MODEL}: it cannot be saved ({one_line(error)})",)
    return () if any(folder.iterdir()) else (f"{NO_MODEL}: the trainable's save wrote nothing",)


def plain_result(given: Any) -> TrainResult:
    """A result of built-in and NumPy types only: another process can read it without the user's modules.

    Raises:
        BrokenContract: not a TrainResult, or a score without its size.
        TypeError: a value of it that is not of the type that it says.
    """
    if not isinstance(given, TrainResult):
        raise BrokenContract(
            f"the trainable returned a {type(given).__name__}; expected trainables.spec.TrainResult, such as "
            "TrainResult(scores={'test/accuracy_64': 0.9}, fingerprint={'data': '...'})"
        )
    for name in given.scores:
        try:
            schema.parse_endpoint(str(name))
        except ValueError:
            raise BrokenContract(
                f"the trainable returned a score named {str(name)[:60]!r}; expected split/metric_size, such as "
                "test/accuracy_64"
            ) from None
    try:
        return TrainResult(
            scores={str(name): float(value) for name, value in given.scores.items()},
            predictions={str(split): _plain_predictions(one) for split, one in given.predictions.items()},
            fingerprint={str(name): str(value) for name, value in given.fingerprint.items()},
            times={str(name): float(value) for name, value in given.times.items()},
            memory_peak_mb=None if given.memory_peak_mb is None else float(given.memory_peak_mb),
            loss_curve=tuple((int(step), float(loss)) for step, loss in given.loss_curve),
            datasets=tuple(
                DatasetRecord(split=str(one.split), source=str(one.source), digest=str(one.digest), rows=int(one.rows))
                for one in given.datasets
            ),
            notes=tuple(str(note) for note in given.notes),
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise TypeError(f"the trainable's result cannot be recorded: {error}") from error


def _plain_predictions(given: Predictions) -> Predictions:
    """Arrays and texts of plain types, all of one length.

    Raises:
        ValueError: a column of another length than the others, or an id given twice.
    """
    import numpy as np

    plain = Predictions(
        labels=None if given.labels is None else np.array(given.labels, dtype=np.float64),
        by_dim={int(dim): np.array(values, dtype=np.float64) for dim, values in given.by_dim.items()},
        values={
            (str(statistic), int(dim)): np.array(values, dtype=np.float64)
            for (statistic, dim), values in given.values.items()
        },
        ids=None if given.ids is None else tuple(map(str, given.ids)),
        clusters=None if given.clusters is None else tuple(map(str, given.clusters)),
    )
    columns = {f"dim {dim}": values for dim, values in plain.by_dim.items()}
    columns |= {f"{statistic}_{dim}": values for (statistic, dim), values in plain.values.items()}
    columns |= {n: c for n in ("labels", "ids", "clusters") if (c := getattr(plain, n)) is not None}
    if plain.by_dim and plain.labels is None:
        raise ValueError("predictions by dim need labels")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"predictions of different lengths: {lengths}")
    if plain.ids is not None and len(set(plain.ids)) < len(plain.ids):
        raise ValueError("predictions name an example twice in ids")
    return plain


def failure_of(error: BaseException, job: Job) -> Failure:
    """What an error that escaped a training says, and whose fault it is."""
    detail = "".join(traceback.format_exception(error))
    if isinstance(error, SystemExit):
        said = "" if error.code is None else f": {' '.join(str(error.code).split())[:200]}"
        return Failure(reason=f"the training called sys.exit{said}", kind=schema.FAILURE_CELL, detail=detail)
    reason = one_line(error)
    no_memory = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    if no_memory or any(sign in str(error) for sign in _NO_MEMORY):
        return out_of_memory(job, reason, detail)
    if isinstance(error, BrokenContract):
        return Failure(reason=str(error), kind=schema.FAILURE_CELL, detail=detail, every_cell=True)
    passing = isinstance(error, OSError) and error.errno in _PASSING
    return Failure(reason=reason, kind=schema.FAILURE_INFRASTRUCTURE if passing else schema.FAILURE_CELL, detail=detail)


def out_of_memory(job: Job, said: str, detail: str = "") -> Failure:
    """The cell's own fault where it may have no more anywhere; on a larger machine, its share would be larger."""
    limit = "" if job.memory_bytes is None else f", {shown_bytes(job.memory_bytes)}"
    if job.memory_declared:
        reason, kind = f"out of memory: more than resources.memory{limit} ({said})", schema.FAILURE_CELL
    elif limit:
        reason = f"out of memory: more than its share of this machine's{limit} ({said}); resources.memory sets another"
        kind = schema.FAILURE_INFRASTRUCTURE
    else:
        reason, kind = said, schema.FAILURE_INFRASTRUCTURE
    return Failure(reason=reason, kind=kind, detail=detail)


class _WorkerGone(BaseException):
    """Nobody waits for this training any more."""


def cell_main(channel: socket.socket, memory: int | None) -> None:
    """What a cell's process does: get its job, train, answer, and end without a further word.

    Args:
        channel: To the worker.
        memory: Most bytes that it may allocate.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    faulthandler.enable()
    worker: Connection[Any, Any] = Connection(channel.detach())
    surroundings: Surroundings = worker.recv()
    job = surroundings.job

    def report(progress: Progress) -> None:
        plain = Progress(
            phase=progress.phase,
            step=int(progress.step),
            total_steps=int(progress.total_steps),
            loss=None if progress.loss is None else float(progress.loss),
        )
        try:
            worker.send(plain)
        except OSError as error:
            raise _WorkerGone from error

    answer: TrainResult | Failure
    try:
        _settle_in(surroundings)
        if memory is not None and job.hides_gpus:  # a GPU's driver reserves far more addresses than it uses
            limit_memory(memory)
    except OSError as error:
        answer = Failure(reason=one_line(error), kind=schema.FAILURE_INFRASTRUCTURE)
    else:
        try:
            answer = train_job(job, report)
        except _WorkerGone:
            os._exit(0)
        except BaseException as error:
            answer = failure_of(error, job)
    with suppress(OSError):
        worker.send(answer)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(0)  # no exit handlers, no waiting for threads that were left running


def _settle_in(surroundings: Surroundings) -> None:
    kept = os.environ.get(ENV_KEPT)
    os.environ.clear()
    os.environ.update(surroundings.environment)
    if kept is not None:
        os.environ[ENV_KEPT] = kept
    os.chdir(surroundings.folder)
    sys.path[:] = surroundings.path
    # A fork has its server's random states, so that all cells would draw alike; as numbers of the seed they are known.
    seed = surroundings.job.spec.seed
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
