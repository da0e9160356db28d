"""Sequential studies: seeds are added in waves until every comparison is decided or the limit is reached."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from analysis import schema
from sweep.errors import TrackingError
from sweep.run.stopping import (
    SequentialStanding,
    fewest_more,
    seeds_after,
    seeds_so_far,
    sequential_standing,
    wave_size,
)
from sweep.study import Study
from sweep.study.cells import Cell

if TYPE_CHECKING:
    from analysis.results.model import Results
    from analysis.statistics.sequential import StreamState
    from sweep.record.ledger import RecordedRun
    from sweep.record.tracking import Tracking
    from sweep.run.run_options import RunOptions


def run_sequential(study: Study, options: RunOptions) -> int:
    """Run a sequential study from wherever it stands until it stops, and say why it stopped.

    Returns:
        Exit code, as `run_study`.

    Raises:
        SweepError: nothing could be started.
    """
    from sweep.console import say
    from sweep.record.retry import START_WAIT_S, tracking_wait_s
    from sweep.record.tracking import Tracking
    from sweep.record.tracking_uri import default_uri
    from sweep.run.feed import Feed

    tracking = Tracking(options.tracking_uri or default_uri(), wait_s=min(START_WAIT_S, tracking_wait_s()), on_wait=say)
    waves = SequentialWaves(study, tracking, options, say=say)
    tracking.wait_s = tracking_wait_s()
    code = Feed(waves.needed_next).run(lambda: waves.study, options)
    for line in standing_lines(waves.study, waves.standing):
        say(line)
    return code


class SequentialWaves:
    """The seeds of one sequential study: which cells are needed next, until it stops."""

    def __init__(self, study: Study, tracking: Tracking, options: RunOptions, *, say: Callable[[str], None]) -> None:
        from sweep.run.preflight import resolved_cells

        self._tracking, self._options, self._say = tracking, options, say
        self._resolve = resolved_cells
        recorded = tracking.recorded_runs(study.name)
        self.study, self._cells, self.standing = stand(study, tracking, recorded, resolved_cells)
        self._began = False

    def needed_next(self) -> list[Cell]:
        """The cells that are needed next: first those of all seeds so far, then those of each further wave."""
        self.standing = sequential_standing(self.study, self._cells, recorded_results(self.study.name, self._tracking))
        first, self._began = not self._began, True
        if not self.standing.decision.states:
            return list(self._cells) if first else []  # one variant: nothing to decide
        if self.standing.decision.stop:
            decided = set(self.standing.seeds)
            return [cell for cell in self._cells if cell.seed in decided] if first else []
        if self.standing.missing:
            return list(self._cells) if first else []  # what comes back unfinished was given up by the runner
        added = self._add_wave()
        return list(self._cells) if first else [cell for cell in self._cells if cell.seed in added]

    def _add_wave(self) -> set[int]:
        decision, seeds = self.standing.decision, self.study.seeds
        size = wave_size(
            decision,
            run=len(seeds),
            slots=self._slots(),
            cells_per_seed=len(self.study.specs),
            limit=self.study.analysis.max_seeds,
        )
        added = seeds_after(self.study, seeds, size)
        self._say(f"{decision.why}; adding seed {', '.join(map(str, added))}")
        self.study = self.study.with_seeds((*seeds, *added))
        run = self._tracking.study_run(self.study.name)
        if run is not None:
            from sweep.record.study_run import note_seeds

            note_seeds(self._tracking, run, self.study.seeds)
        self._cells = self._resolve(self.study)
        return set(added)

    def _slots(self) -> int:
        """How many cells can run at once; before Ray is up, as many as this machine has room for."""
        import ray

        resources = self.study.resources
        if ray.is_initialized():
            from sweep.on_ray.trials import cell_slots

            slots = cell_slots(resources.cpus, resources.gpus)
        else:
            slots = (os.cpu_count() or 1) // resources.cpus
        most = self._options.max_concurrent
        return max(1, slots if most is None else min(slots, most))


def stand(
    study: Study, tracking: Tracking, recorded: Iterable[RecordedRun], resolve: Callable[[Study], list[Cell]]
) -> tuple[Study, list[Cell], SequentialStanding]:
    """The study with the seeds that waves have added, its cells, and where it stands.

    Args:
        study: As its file has it.
        tracking: The store.
        recorded: The runs of its cells.
        resolve: Makes its cells.
    """
    seeds = {int(run.label[1]) for run in recorded if run.label[1].isdigit()}
    study = study.with_seeds(seeds_so_far(study, seeds))
    cells = resolve(study)
    return study, cells, sequential_standing(study, cells, recorded_results(study.name, tracking))


def recorded_results(name: str, tracking: Tracking) -> Results:
    """What is recorded of a study; nothing where it has not run.

    Raises:
        TrackingError: the store cannot be read.
    """
    from analysis.errors import ResultsError
    from analysis.results.load import load
    from analysis.results.model import Results

    if tracking.study_run(name) is None:
        import pandas as pd

        return Results(study=name, table=pd.DataFrame(columns=list(schema.RESULT_COLUMNS)), cells=())
    try:
        return load(name, tracking_uri=tracking.uri)
    except ResultsError as error:
        raise TrackingError(str(error)) from error


def standing_lines(study: Study, stands: SequentialStanding) -> list[str]:
    """Where a sequential study stands, for people: E against its threshold, and what it would still take."""
    decision = stands.decision
    lines = [_state_line(state) for state in decision.states]
    if decision.stop:
        lines.append(f"stopped: {decision.why}")
    elif stands.missing:
        lines.append(f"{decision.why}; seed {', '.join(map(str, stands.missing))} not finished")
    else:
        lines.append(decision.why)
    if not decision.stop:
        lines.append(_outlook(study, stands))
    if stands.beyond:
        beyond = ", ".join(map(str, stands.beyond))
        lines.append(f"seed {beyond} was trained in the same wave and is not needed for the decision")
    return lines


def _state_line(state: StreamState) -> str:
    line = (
        f"{state.treatment}, {state.endpoint}: {state.wins} wins, {state.losses} losses"
        + (f", {state.ties} ties" if state.ties else "")
        + f"; E = {state.e_value:.3g} of {state.e_threshold:g}"
    )
    if state.e_lower is not None and state.e_upper is not None:
        line += f"; equivalence E = {min(state.e_lower, state.e_upper):.3g} of {state.equivalence_threshold:g}"
    return line + (f" ({state.decided})" if state.decided else "")


def _outlook(study: Study, stands: SequentialStanding) -> str:
    to_go, limit = stands.decision.seeds_to_go, study.analysis.max_seeds
    least = fewest_more(stands.decision)
    if not any(state.wins or state.losses for state in stands.decision.states):
        text = f"at least {_seeds(least)} are needed"
    elif to_go is None:
        text = f"at the win rate so far it would never be decided; at least {_seeds(least)} more are needed"
    else:
        text = f"{_seeds(to_go)} more would decide it if the win rate so far went on"
    return text if limit is None else f"{text}; the limit is {limit} seeds"


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"
