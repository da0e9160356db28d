"""Ray Tune around the cells: a trial is one attempt at a cell, in a process that works off many.

Tune places and watches; it keeps nothing: no checkpoints, no loggers, no state to resume from.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import ray
from ray import tune
from ray.experimental import internal_kv
from ray.tune.search import Searcher

from analysis import schema
from sweep.console import one_line
from sweep.on_ray.machines import Pin, live_nodes
from sweep.run.backend import Workload
from sweep.run.cell_process import CellProcesses
from sweep.run.cell_queue import CellQueue
from sweep.run.finisher import LOST, NODE_LOST
from sweep.run.memory import memory_share
from sweep.run.worker import Assignment, CellWorker, Outcome, Place, WorkerStatus

OUTCOME: Final = "outcome"
NODE: Final = "node"
WORK: Final = "work"
TELL_S: Final = 0.5
"""A worker tells and asks at most this often; a shorter cell does neither."""
LOOK_S: Final = 1.0
SLOTS_S: Final = 5.0
SPARE: Final = 1
"""Trials kept waiting beyond what fits, so that an autoscaler sees a demand."""
GRACE_S: Final = 10.0
"""A worker that does not end its training within this time is ended with it."""
RECORDING_GRACE_S: Final = 120.0
MACHINE_S: Final = 20.0
"""Ray notices that a machine is gone some 15 s after that machine's processes are."""
_NODE_DIED: Final = "its node has died"
"""In Ray's word about an actor."""

_TUNE: Final = {
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",
    "TUNE_MAX_PENDING_TRIALS_PG": "1000",
    "TUNE_FORCE_TRIAL_CLEANUP_S": "5",
    "TUNE_WARN_THRESHOLD_S": "60",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "1000000000",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
}


class StopSweep(Exception):
    """Leaves Tune's loop once a stop has been asked for and all workers have been dealt with."""


@dataclass(frozen=True)
class _Sealed:
    """An assignment on its way through Tune, which copies and prints what a trial's config holds."""

    work: Assignment

    def __deepcopy__(self, memo: dict[int, Any]) -> _Sealed:
        return self

    def __repr__(self) -> str:
        return self.work.cell.run_name

    __str__ = __repr__


class CellTrial(tune.Trainable):
    """One worker process; `reset_config` gives it the next cell, so that its start is paid once."""

    def setup(self, config: dict[str, Any], place: Place) -> None:  # type: ignore[override]
        """Called once a process."""
        logging.getLogger("mlflow").setLevel(logging.CRITICAL)
        self._node = ray.get_runtime_context().get_node_id()
        self._among_many = _is_cluster()
        if place.memory_bytes is None:
            cells = cell_slots(place.threads, place.gpus, lambda node: node["NodeID"] == self._node)
            place = replace(place, memory_bytes=memory_share(max(1, min(cells, place.max_concurrent or cells))))
        self._place = place
        self._trainer = CellProcesses(place.owner, modules=place.modules, threads=place.threads)
        self._worker = CellWorker(place, self._trainer)
        self._work: Assignment = config[WORK].work

    def cleanup(self) -> None:
        """Called at the end of the process."""
        self._trainer.close()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next cell."""
        self._work = new_config[WORK].work
        return True

    def step(self) -> dict[str, Any]:
        """Train and record one cell."""
        board = _Board(self._place.owner, self._work.launch, self._node, from_start=self._among_many)
        outcome = self._worker.run(self._work, board.tell, board.stop_requested)
        board.clear()
        return {"done": True, OUTCOME: outcome, NODE: self._node}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing is kept: a cell is trained whole or not at all."""


class _Board:
    """What a worker tells the driver and asks it while it works: Ray's key-value store."""

    def __init__(self, owner: str, launch: str, node: str, *, from_start: bool) -> None:
        """Begin; `from_start`: among machines that may vanish, it is told at once on which the cell is."""
        self._key = _status_key(owner, launch)
        self._node = node
        self._stop = _stop_key(owner)
        self._asked = time.monotonic()
        self._told = self._asked - (TELL_S if from_start else 0.0)
        self._written = False

    def tell(self, status: WorkerStatus) -> None:
        now = time.monotonic()
        told = self._written and status.phase == "record"
        if now - self._told < TELL_S and not told and not status.waiting:
            return
        text = json.dumps({**asdict(status), "node": self._node})
        internal_kv._internal_kv_put(self._key, text, overwrite=True)
        self._told, self._written = now, True

    def stop_requested(self) -> bool:
        now = time.monotonic()
        if now - self._asked < TELL_S:
            return False
        self._asked = now
        return internal_kv._internal_kv_get(self._stop) is not None

    def clear(self) -> None:
        if self._written:
            internal_kv._internal_kv_del(self._key)


def _status_key(owner: str, launch: str) -> str:
    return f"sweep/{owner}/status/{launch}"


def _stop_key(owner: str) -> str:
    return f"sweep/{owner}/stop"


def last_told(owner: str, launch: str) -> WorkerStatus | None:
    """What a worker last told."""
    text = internal_kv._internal_kv_get(_status_key(owner, launch))
    return None if text is None else WorkerStatus(**json.loads(text))


class _CellSearcher(Searcher):
    """Hands the queue's cells to Tune, which calls this a search."""

    def __init__(self, cells: CellQueue, taken: dict[str, Assignment], look: Callable[[], None]) -> None:
        super().__init__(metric="score", mode="max")
        self._cells, self._taken, self._look = cells, taken, look

    def __getstate__(self) -> dict[str, Any]:
        """Tune writes what would restore it; nothing ever is restored."""
        return {}

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        """Nothing to set."""
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # type: ignore[override]
        """The next cell; None for now; FINISHED for good."""
        if not self._taken:
            # With nothing running, Tune sleeps a second after a None; what the last cells need is over sooner.
            self._cells.wait_closed(LOOK_S)
            self._look()  # Tune asks on and on then, and begins no step: nobody else would see a store come back
        if self._cells.is_finished():
            return str(Searcher.FINISHED)
        work = self._cells.take()
        if work is None:
            return None
        self._taken[trial_id] = work
        return {WORK: _Sealed(work)}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """The callback learns it too, and more of it."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to restore."""

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Nothing to save."""


class _Conductor(tune.Callback):
    """Passes the ends of attempts on, shows progress, and carries out a stop."""

    def __init__(self, sweep: TrialSweep) -> None:
        self._sweep = sweep
        self._ended: dict[str, tuple[Outcome, str]] = {}
        """Trial id -> outcome, and the machine that it was on."""
        self._looked = self._counted = 0.0
        self._stopping_since: float | None = None
        self._losses: list[_Loss] = []

    def __getstate__(self) -> dict[str, Any]:
        """Tune writes what would restore it; nothing ever is restored."""
        return {}

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self.look(trials)

    def look(self, trials: list[Any]) -> None:
        """See what has changed: losses, machines, what workers tell, and whether to stop (raises StopSweep)."""
        now = time.monotonic()
        self._tell_losses(now)
        if now - self._counted > SLOTS_S:
            self._counted = now
            self._sweep.count_slots()
        if now - self._looked > LOOK_S or self._sweep.work.stop_asked():
            self._looked = now
            running = self._sweep.running()
            self._sweep.work.queue.hold(any(status is not None and status.waiting for _, status in running))
            if self._sweep.work.stop_asked():
                self._stop(now, running, trials)
            else:
                names = {work.cell.run_name: status for work, status in running}
                self._sweep.work.progress.running(names)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self._ended[trial.trial_id] = result.pop(OUTCOME), result.pop(NODE)  # so that Tune does not keep it

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        work = self._sweep.taken.pop(trial.trial_id, None)
        if work is not None:
            outcome, node = self._ended.pop(trial.trial_id, (None, ""))
            if outcome is None:
                self._sweep.work.finisher.lost(work, None, LOST)
            elif outcome.kind == "failed" and outcome.failure_kind == schema.FAILURE_INFRASTRUCTURE:
                self._lose(work, outcome, node)
            else:
                self._sweep.work.finisher.ended(work, outcome)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        work = self._sweep.taken.pop(trial.trial_id, None)
        if work is not None:
            status = last_told(self._sweep.work.place.owner, work.launch) or WorkerStatus(phase="begin")
            kind = schema.FAILURE_INFRASTRUCTURE
            lost = Outcome(kind="failed", run_id=status.run_id, reason=_why_lost(trial), failure_kind=kind)
            self._lose(work, lost, status.node)

    def _lose(self, work: Assignment, outcome: Outcome, node: str) -> None:
        """Infrastructure took an attempt: its process alone, or its machine, which takes a while to show."""
        now = time.monotonic()
        self._losses.append(_Loss(work, outcome, node, now + (MACHINE_S if _is_cluster() else 0.0)))
        self._tell_losses(now)

    def _tell_losses(self, now: float) -> None:
        """Pass losses on as soon as it is known whether a machine was lost, which uses up no retry."""
        for loss in list(self._losses):
            machine_lost = loss.outcome.reason == NODE_LOST or _is_gone(loss.node)
            if machine_lost or now >= loss.sure_at or self._sweep.work.stop_asked():
                self._losses.remove(loss)
                outcome = replace(loss.outcome, reason=NODE_LOST) if machine_lost else loss.outcome
                self._sweep.work.finisher.ended(loss.work, outcome)

    def _stop(self, now: float, running: list[tuple[Assignment, WorkerStatus | None]], trials: list[Any]) -> None:
        sweep = self._sweep
        if self._stopping_since is None:
            self._stopping_since = now
            sweep.work.queue.stop()
            internal_kv._internal_kv_put(_stop_key(sweep.work.place.owner), "1", overwrite=True)
        recording = any(status is not None and status.phase == "record" for _, status in running)
        if now - self._stopping_since < (RECORDING_GRACE_S if recording else GRACE_S) and running:
            return
        by_launch = {work.launch: status for work, status in running}
        for trial in trials:
            work = sweep.taken.pop(trial.trial_id, None)
            if work is None:
                continue
            actor = trial.temporary_state.ray_actor
            if actor is not None:
                ray.kill(actor)
            told = by_launch.get(work.launch)
            sweep.work.finisher.lost(work, told.run_id if told else None, "stopped while training", stopped=True)
        raise StopSweep


@dataclass(frozen=True)
class _Loss:
    """An attempt that infrastructure took."""

    work: Assignment
    outcome: Outcome
    node: str
    """The machine that it was on; empty where that is not known."""
    sure_at: float
    """When a machine that still counts as alive is taken for alive."""


def _why_lost(trial: Any) -> str:
    """That the process died, that its machine did, or what escaped from it."""
    error = trial.get_error()
    if isinstance(error, ray.exceptions.RayTaskError):
        return one_line(error.cause)
    return NODE_LOST if _NODE_DIED in str(error) else LOST


def _is_gone(node: str) -> bool:
    """Whether a machine is no longer alive, as far as Ray knows by now."""
    return bool(node) and node not in {one["NodeID"] for one in live_nodes()}


def _is_cluster() -> bool:
    """Whether there are, or were, several machines."""
    return len(ray.nodes()) > 1  # type: ignore[no-untyped-call]


@dataclass(kw_only=True)
class TrialSweep:
    """One launch: cells from a queue through Ray Tune to the finisher."""

    work: Workload
    cpus: int
    gpus: float
    scratch: Path
    """Tune writes here what would restore it; nobody reads it."""
    pin: Pin = field(default_factory=Pin)
    """Keeps the cells on machines of one kind."""

    def __post_init__(self) -> None:
        self.taken: dict[str, Assignment] = {}
        """Trial id -> assignment, until its end."""

    def run(self) -> None:
        """Train until the queue is finished or a stop was asked for."""
        os.environ.update(_TUNE)
        for name in ("ray.tune", "ray.train", "ray.air"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self.count_slots()
        conductor = _Conductor(self)
        trainable = tune.with_resources(tune.with_parameters(CellTrial, place=self.work.place), self._resources())
        tuner = tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                search_alg=_CellSearcher(self.work.queue, self.taken, lambda: conductor.look([])),
                num_samples=-1,
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name="cells",
                storage_path=str(self.scratch),
                callbacks=[conductor],
                failure_config=tune.FailureConfig(max_failures=0),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                verbose=0,
            ),
        )
        with suppress(StopSweep):
            tuner.fit()

    def count_slots(self) -> None:
        """How many cells the live nodes can run at once."""
        slots = cell_slots(self.cpus, self.gpus, self.pin.allows)
        self.work.queue.set_slots(slots + SPARE)
        self.work.progress.slots = min(slots, self.work.queue.max_concurrent or slots)

    def _resources(self) -> tune.PlacementGroupFactory:
        """What one cell takes, and on which machines it may."""
        bundle = {"CPU": self.cpus, "GPU": self.gpus, **self.pin.resources}
        bundle = {name: amount for name, amount in bundle.items() if amount}
        if not self.pin.node_ids:
            return tune.PlacementGroupFactory([bundle])
        machines = {"ray.io/node-id": f"in({','.join(self.pin.node_ids)})"}
        return tune.PlacementGroupFactory([bundle], bundle_label_selector=[machines])

    def running(self) -> list[tuple[Assignment, WorkerStatus | None]]:
        """What runs now, and what each worker last told."""
        return [(work, last_told(self.work.place.owner, work.launch)) for work in self.work.queue.out()]


def cell_slots(cpus: int, gpus: float, allows: Callable[[Mapping[str, Any]], bool] = lambda node: True) -> int:
    """How many cells of that size the live nodes of the connected cluster, as far as allowed, can run at once."""
    slots = 0
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        if node["Alive"] and allows(node):
            has = node["Resources"]
            fits = int(has.get("CPU", 0) / cpus)
            if gpus:
                devices = has.get("GPU", 0)
                fits = min(fits, int(devices) * int(1 / gpus) if gpus < 1 else int(devices / gpus))
            slots += fits
    return slots


def slots_now(cpus: int, gpus: float) -> int:
    """`cell_slots` of the connected Ray; before there is one, how many cells this machine's cores have room for."""
    return cell_slots(cpus, gpus) if ray.is_initialized() else (os.cpu_count() or 1) // cpus
