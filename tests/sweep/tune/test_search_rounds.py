"""The rounds of a search, with a runner that is played by the test: budgets, failures, and resuming anywhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis import schema
from sweep.errors import StudyError
from sweep.record.ledger import RecordedRun
from sweep.run.preflight import planned_cells
from sweep.study import Study, load_study
from sweep.study.cells import Cell
from sweep.study.search_block import SearchBlock, SearchedBy
from sweep.tune.optuna import Tried, VariantSearch
from sweep.tune.rounds import SearchRounds
from sweep.tune.tune import search_name, search_record
from tests.sweep.runs import a_run

ENDPOINT = "validation/spearman_64"
OPTIMUM = {"a": 1e-5, "b": 5e-5}


def declared(folder: Path, **search: Any) -> Study:
    data = {
        "version": 1,
        "name": "searched",
        "trainable": "closed-form",
        "matryoshka_dims": [16, 64],
        "variants": {"a": {"options": {"effect": 0.0}}, "b": {"options": {"effect": 0.01}}},
        "seeds": 3,
        "search": {
            "space": {"learning_rate": {"low": 1e-6, "high": 1e-4, "log": True}, "batch_size": [16, 32]},
            "trials": 8,
            "seeds": [100, 101],
            **search,
        },
    }
    path = folder / "searched.yaml"
    path.write_text(yaml.safe_dump(data))
    return load_study(path)


def score(cell: Cell) -> float:
    miss = abs(math.log10(cell.spec.training["learning_rate"] / OPTIMUM[cell.variant]))
    return 0.7 - 0.05 * miss + 0.001 * (cell.seed - 100)


@dataclass
class Played:
    """The store and the runner of one search, surviving any number of commands."""

    study: Study
    storage: Any
    runs: list[RecordedRun] = field(default_factory=list)
    trained: list[Cell] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    fails: Callable[[Cell], str | None] = lambda cell: None
    """Kind of failure of a cell, or None."""

    @property
    def search(self) -> SearchBlock:
        assert self.study.search is not None
        return self.study.search

    def command(self) -> SearchRounds:
        """What `sweep tune` makes at its start."""
        base = {cell.variant: cell for cell in planned_cells(self.study.with_seeds(self.search.seeds[:1]))}
        states = {
            name: VariantSearch(self.storage, search_name(self.study.name, self.search, cell), self.search)
            for name, cell in base.items()
        }
        return SearchRounds(
            self.study, self.search, base=base, states=states, recorded=lambda: self.runs, say=self.said.append
        )

    def train(self, cell: Cell) -> None:
        self.trained.append(cell)
        kind = self.fails(cell)
        run_id = f"r{len(self.runs)}"
        if kind is not None:
            tags = {schema.TAG_FAILURE_KIND: kind, schema.TAG_FAILURE: "planted"}
            self.runs.append(a_run(cell, "FAILED", run_id=run_id, **tags))
            return
        done = a_run(cell, "FINISHED", run_id=run_id)
        metrics = {ENDPOINT: score(cell), "test/spearman_64": 0.0}
        self.runs.append(RecordedRun(run_id=run_id, status="FINISHED", tags=done.tags, metrics=metrics))

    def to_the_end(self, rounds: SearchRounds, *, most: int | None = None) -> SearchRounds:
        """Train what is asked for; killed once `most` cells are trained, in the middle of a round."""
        while cells := rounds.next_cells():
            for cell in cells:
                if most is not None and len(self.trained) >= most:
                    return rounds
                self.train(cell)
        return rounds


@pytest.fixture
def storage() -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.storages.InMemoryStorage()


def undisturbed(study: Study) -> Mapping[str, Sequence[Tried]]:
    import optuna

    played = Played(study, optuna.storages.InMemoryStorage())
    return played.to_the_end(played.command()).trials()


def test_every_variant_gets_the_same_budget_and_the_same_start(tmp_path: Path, storage: Any) -> None:
    played = Played(declared(tmp_path), storage)
    rounds = played.to_the_end(played.command())
    trials = rounds.trials()
    assert rounds.complete
    assert {variant: [one.state for one in tried] for variant, tried in trials.items()} == {
        "a": ["complete"] * 8,
        "b": ["complete"] * 8,
    }
    assert [one.point for one in trials["a"][:5]] == [one.point for one in trials["b"][:5]]
    assert len(played.trained) == 2 * 8 * 2
    assert {cell.kind for cell in played.trained} == {schema.KIND_SEARCH}
    assert [cell.run_name for cell in played.trained[:4]] == [
        "a-s100-trial-0", "a-s101-trial-0", "b-s100-trial-0", "b-s101-trial-0",
    ]  # fmt: skip


def test_a_trial_is_the_mean_over_the_tuning_seeds(tmp_path: Path, storage: Any) -> None:
    played = Played(declared(tmp_path), storage)
    first = played.to_the_end(played.command()).trials()["a"][0]
    values = [score(cell) for cell in played.trained if cell.variant == "a" and cell.setting == "trial-0"]
    assert first.value == pytest.approx(sum(values) / 2, abs=1e-15)


@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("killed_after", [0, 1, 6, 15, 31])
def test_killed_and_resumed_no_trial_is_lost_or_doubled(
    tmp_path: Path, storage: Any, parallel: int, killed_after: int
) -> None:
    study = declared(tmp_path, parallel=parallel)
    played = Played(study, storage)
    played.to_the_end(played.command(), most=killed_after)
    rounds = played.to_the_end(played.command())
    assert rounds.complete
    assert rounds.trials() == undisturbed(study)
    keys = [cell.key for cell in played.trained]
    assert len(keys) == len(set(keys)) == 2 * 8 * 2


def test_a_training_that_fails_by_itself_uses_up_its_trial_and_is_shown(tmp_path: Path, storage: Any) -> None:
    played = Played(declared(tmp_path), storage)
    played.fails = lambda cell: schema.FAILURE_CELL if cell.run_name == "b-s101-trial-2" else None
    rounds = played.to_the_end(played.command())
    assert rounds.complete
    states = [one.state for one in rounds.trials()["b"]]
    assert (len(states), states.count("fail"), states[2]) == (8, 1, "fail")
    assert any(line.startswith("b trial-2 (") and line.endswith("): FAILED, planted") for line in played.said)
    record = search_record(played.study, played.search, rounds.trials())
    assert isinstance(record, SearchedBy)
    assert (record.budget, record.failed) == ({"a": 8, "b": 8}, {"a": 0, "b": 1})


def test_a_training_that_was_lost_stops_the_search_and_is_asked_for_again(tmp_path: Path, storage: Any) -> None:
    study = declared(tmp_path)
    played = Played(study, storage)
    played.fails = lambda cell: schema.FAILURE_INFRASTRUCTURE if cell.run_name == "a-s100-trial-1" else None
    rounds = played.to_the_end(played.command())
    assert not rounds.complete
    assert len(rounds.trials()["b"]) == 2  # the other variant does not run ahead
    played.fails = lambda cell: None
    again = played.to_the_end(played.command())
    assert again.complete
    assert again.trials() == undisturbed(study)


def test_a_larger_budget_continues(tmp_path: Path, storage: Any) -> None:
    played = Played(declared(tmp_path, trials=4), storage)
    short = played.to_the_end(played.command()).trials()
    played.study = declared(tmp_path, trials=8)
    longer = played.to_the_end(played.command()).trials()
    assert {variant: tried[:4] for variant, tried in longer.items()} == short
    assert longer == undisturbed(played.study)


def test_another_space_is_another_search(tmp_path: Path, storage: Any) -> None:
    played = Played(declared(tmp_path, trials=2), storage)
    played.to_the_end(played.command())
    played.study = declared(tmp_path, trials=2, sampler_seed=7)
    assert len(played.command().next_cells()) == 4


def test_an_endpoint_that_is_not_recorded_is_named(tmp_path: Path, storage: Any) -> None:
    played = Played(declared(tmp_path, endpoint="validation/spearman_32"), storage)
    with pytest.raises(StudyError) as caught:
        played.to_the_end(played.command())
    assert "search.endpoint: 'validation/spearman_32' is not valid" in str(caught.value)
    assert "of validation, all that this search sees, the trainable records " in str(caught.value)


def test_nothing_is_frozen_when_all_trials_of_a_variant_failed(tmp_path: Path, storage: Any) -> None:
    played = Played(declared(tmp_path, trials=2), storage)
    played.fails = lambda cell: schema.FAILURE_CELL if cell.variant == "b" else None
    rounds = played.to_the_end(played.command())
    assert search_record(played.study, played.search, rounds.trials()) == (
        "nothing to freeze: all 2 trials of b failed"
    )


def test_a_lost_storage_costs_no_training(tmp_path: Path, storage: Any) -> None:
    """The same points are proposed again, and are found recorded."""
    import optuna

    played = Played(declared(tmp_path), storage)
    trials = played.to_the_end(played.command()).trials()
    trained = len(played.trained)
    played.storage = optuna.storages.InMemoryStorage()
    assert played.to_the_end(played.command()).trials() == trials
    assert len(played.trained) == trained
