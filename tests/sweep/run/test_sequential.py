"""Which seeds a sequential study adds, with a runner and a store that are played by the test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from analysis import schema
from analysis.results.model import CellRecord, Results
from analysis.statistics.sequential import Stream, decide_sequential
from sweep.record.ledger import RecordedRun
from sweep.run import sequential as module
from sweep.run.sequential import (
    SequentialStudy,
    seeds_after,
    seeds_so_far,
    seeds_to_add,
    state_lines,
)
from sweep.study import Study, load_study
from sweep.study.cells import Cell
from tests.sweep.runs import a_run

ENDPOINT = "test/spearman_64"


def declared(folder: Path, *, seeds: Any = 5, searched: bool = False, **analysis: Any) -> Study:
    data = {
        "version": 1,
        "name": "sequential",
        "trainable": "closed-form",
        "matryoshka_dims": [16, 64],
        "variants": {"base": {"options": {"effect": 0.0}}, "new": {"options": {"effect": 0.01}}},
        "seeds": seeds,
        "analysis": {"primary": [ENDPOINT], "stopping": "sequential", "max_seeds": 30, **analysis},
    }
    if searched:
        data["searched_by"] = {
            "study": "before", "split": "validation", "endpoint": "validation/spearman_64", "seeds": [6, 8],
            "budget": {"base": 4, "new": 4}, "failed": {"base": 0, "new": 0}, "sampler_seed": 0, "startup": 5,
            "parallel": 1, "space": {"batch_size": [16, 32, 64, 128]}, "chosen": {"base": {}, "new": {}},
            "chosen_trial": {"base": 0, "new": 0}, "best": {"base": 0.5, "new": 0.5},
        }  # fmt: skip
    path = folder / "sequential.yaml"
    path.write_text(yaml.safe_dump(data))
    return load_study(path)


@dataclass
class Played:
    """What is recorded of one study, and how its seeds turn out."""

    study: Study
    sign: Callable[[int], float] = lambda seed: 1.0
    """Difference on a seed, in hundredths."""
    ended: dict[str, Cell] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    uri: str = "played"

    def recorded_runs(self, name: str) -> list[RecordedRun]:
        return [a_run(cell, "FINISHED", run_id=key) for key, cell in self.ended.items()]

    def study_run(self, name: str) -> None:
        return None

    def results(self) -> Results:
        rows = [
            (key, cell.variant, cell.seed, cell.setting, "test/spearman", 64, self._score(cell))
            for key, cell in self.ended.items()
        ]
        records = tuple(
            CellRecord(
                cell=key, variant=cell.variant, seed=cell.seed, setting=cell.setting, state=schema.STATE_FINISHED,
                fields=cell.spec.flat(), variant_fields=cell.variant_fields, fingerprint={"data": "d"},
            )
            for key, cell in self.ended.items()
        )  # fmt: skip
        table = pd.DataFrame(rows, columns=list(schema.RESULT_COLUMNS))
        return Results(study=self.study.name, table=table, cells=records)

    def _score(self, cell: Cell) -> float:
        return 0.6 + 0.001 * cell.seed + (0.01 * self.sign(cell.seed) if cell.variant == "new" else 0.0)

    def command(self, *, slots: int = 2) -> SequentialStudy:
        """What `sweep run` makes at its start."""
        return SequentialStudy(self.study, self, slots=lambda: slots, say=self.said.append)  # type: ignore[arg-type]

    def to_the_end(self, command: SequentialStudy, *, most: int | None = None) -> SequentialStudy:
        """Train what is asked for; killed once `most` cells are recorded."""
        while cells := [cell for cell in command.next_cells() if cell.key not in self.ended]:
            for cell in cells:
                if most is not None and len(self.ended) >= most:
                    return command
                self.ended[cell.key] = cell
        return command

    @property
    def seeds(self) -> list[int]:
        return sorted({cell.seed for cell in self.ended.values()})


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Played]:
    def make(*arguments: Any, **named: Any) -> Played:
        played = Played(*arguments, **named)
        monkeypatch.setattr(module, "recorded_results", lambda name, tracking: tracking.results())
        return played

    return make


def test_a_planted_effect_stops_at_seven_seeds(tmp_path: Path, play: Callable[..., Played]) -> None:
    played = play(declared(tmp_path))
    command = played.to_the_end(played.command())
    assert played.seeds == list(range(7))
    assert command.state.decision.decided
    assert played.said == ["after 5 seeds new undecided: E has not reached 20; adding seed 5, 6"]
    assert state_lines(command.study, command.state)[-1].startswith("stopped: decided after 7 seeds")


@pytest.mark.parametrize("killed_after", [0, 1, 9, 10, 11, 13, 14, 17])
def test_resumed_anywhere_the_decision_is_the_same(
    tmp_path: Path, play: Callable[..., Played], killed_after: int
) -> None:
    """One loss at the start, so that seeds are added several times."""

    def sign(seed: int) -> float:
        return -1.0 if seed == 1 else 1.0

    whole = play(declared(tmp_path), sign)
    decision = whole.to_the_end(whole.command()).state
    assert decision.decision.decided
    played = play(declared(tmp_path), sign)
    played.to_the_end(played.command(), most=killed_after)
    again = played.to_the_end(played.command()).state
    assert again.decision == decision.decision
    assert again.seeds == decision.seeds


def test_a_renamed_variant_does_not_change_the_decision(tmp_path: Path, play: Callable[..., Played]) -> None:
    """Not even before its runs have the new name."""
    played = play(declared(tmp_path))
    before = played.to_the_end(played.command()).state
    path = played.study.path
    path.write_text(path.read_text().replace("base:", "plain:"))
    played.study = load_study(path)
    assert played.study.baseline == "plain"
    after = played.command().state
    assert after.decision == before.decision
    assert after.seeds == before.seeds


@pytest.mark.parametrize("slots", [1, 4, 10, 16])
def test_more_slots_train_more_but_decide_the_same(tmp_path: Path, play: Callable[..., Played], slots: int) -> None:
    def sign(seed: int) -> float:
        return -1.0 if seed in (1, 12) else 1.0

    few = play(declared(tmp_path), sign)
    expected = few.to_the_end(few.command(slots=1)).state
    many = play(declared(tmp_path), sign)
    got = many.to_the_end(many.command(slots=slots)).state
    assert (got.decision, got.seeds) == (expected.decision, expected.seeds)
    assert many.seeds == [*got.seeds, *got.beyond]


def test_the_limit_is_never_passed(tmp_path: Path, play: Callable[..., Played]) -> None:
    played = play(declared(tmp_path, max_seeds=9), lambda seed: (-1.0) ** seed)
    command = played.to_the_end(played.command(slots=8))
    assert played.seeds == list(range(9))
    assert (command.state.decision.stop, command.state.decision.decided) == (True, False)
    assert "the limit of 9 seeds is reached" in state_lines(command.study, command.state)[-1]


def test_a_seed_that_could_not_be_trained_ends_the_adding(tmp_path: Path, play: Callable[..., Played]) -> None:
    played = play(declared(tmp_path))
    command = played.command()
    for cell in command.next_cells():
        if cell.run_name != "new-s3-default":
            played.ended[cell.key] = cell
    assert command.next_cells() == []
    lines = state_lines(command.study, command.state)
    assert any(line.endswith("seed 3 not finished") for line in lines)


def test_a_later_command_knows_the_seeds_added_before(tmp_path: Path, play: Callable[..., Played]) -> None:
    played = play(declared(tmp_path))
    played.to_the_end(played.command())
    again = played.command()
    assert again.study.seeds == tuple(range(7))
    assert again.state.decision.stop
    assert {cell.seed for cell in again.next_cells()} == set(range(7))  # to be counted, not to be trained
    assert again.next_cells() == []


def test_added_seeds_leave_out_those_that_a_search_has_used(tmp_path: Path, play: Callable[..., Played]) -> None:
    study = declared(tmp_path, searched=True)
    assert seeds_after(study, study.seeds, 4) == [5, 7, 9, 10]
    assert seeds_so_far(study, {0, 1, 2, 3, 4, 5, 9}) == (0, 1, 2, 3, 4, 5, 7, 9)
    played = play(study)
    played.to_the_end(played.command())
    assert played.seeds == [0, 1, 2, 3, 4, 5, 7]


def decided_on(wins: int, losses: int, *, margin: float | None = None) -> Any:
    stream = Stream(treatment="new", endpoint=ENDPOINT, differences=(0.01,) * wins + (-0.01,) * losses)
    return decide_sequential([stream], alpha=0.05, margin=margin, seeds=wins + losses, max_seeds=None)


@pytest.mark.parametrize(
    ("slots", "limit", "size"), [(1, None, 2), (4, None, 2), (6, None, 3), (7, None, 3), (16, 7, 2), (16, 5, 0)]
)
def test_added_seeds_fill_the_slots_with_whole_seeds(slots: int, limit: int | None, size: int) -> None:
    assert seeds_to_add(decided_on(5, 0), run=5, slots=slots, cells_per_seed=2, limit=limit) == size
