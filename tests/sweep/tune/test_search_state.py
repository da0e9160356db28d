"""Trials in an Optuna storage: what a killed search leaves is finished under the same number."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.errors import TrackingError
from sweep.study.search_block import SearchBlock
from sweep.tune.optuna import Tried, VariantSearch, best_of, default_storage, open_storage, storage_url

SEARCH = SearchBlock.model_validate({"space": {"batch_size": [8, 16, 32]}, "trials": 3, "seeds": [9]})


def test_trials_survive_and_keep_their_numbers(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'optuna.db'}"
    first = VariantSearch(open_storage(url), "study/a", SEARCH)
    first.begin(0, {"batch_size": 16})
    first.finish(0, 0.7)
    first.begin(1, {"batch_size": 8})
    first.begin(2, {"batch_size": 32})
    first.finish(2, None)
    again = VariantSearch(open_storage(url), "study/a", SEARCH)
    assert again.trials() == [
        Tried(number=0, point={"batch_size": 16}, state="complete", value=0.7),
        Tried(number=1, point={"batch_size": 8}, state="running"),
        Tried(number=2, point={"batch_size": 32}, state="fail"),
    ]
    again.finish(1, 0.9)
    assert best_of(again.trials()) == Tried(number=1, point={"batch_size": 8}, state="complete", value=0.9)


def test_two_writers_are_noticed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'optuna.db'}"
    one, other = (VariantSearch(open_storage(url), "study/a", SEARCH) for _ in range(2))
    one.begin(0, {"batch_size": 16})
    with pytest.raises(TrackingError, match="another process is writing"):
        other.begin(0, {"batch_size": 16})


def test_the_earliest_of_equal_trials_is_chosen() -> None:
    trials = [Tried(number=n, point={"batch_size": b}, state="complete", value=0.5) for n, b in enumerate((8, 16))]
    assert best_of(trials) == trials[0]
    assert best_of([Tried(number=0, point={}, state="fail")]) is None


def test_a_wrong_url_is_one_line_without_the_password() -> None:
    with pytest.raises(TrackingError) as caught:
        open_storage("nodatabase://me:secret@host/x")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "nodatabase://host/x" in str(caught.value)


def test_the_default_lies_beside_the_tracking_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_storage(tmp_path / "mlflow.db") == f"sqlite:///{tmp_path}/optuna.db"
    monkeypatch.chdir(tmp_path)
    assert default_storage(None) == f"sqlite:///{tmp_path}/optuna.db"


def test_a_relative_file_lies_beside_the_study(tmp_path: Path) -> None:
    assert storage_url("sqlite:///search/optuna.db", tmp_path) == f"sqlite:///{tmp_path}/search/optuna.db"
    for url in ("sqlite:////data/optuna.db", "postgresql://host/name", "sqlite://"):
        assert storage_url(url, tmp_path) == url


def test_a_database_that_breaks_is_one_line(tmp_path: Path) -> None:
    search = VariantSearch(open_storage(f"sqlite:///{tmp_path / 'optuna.db'}"), "study/a", SEARCH)
    (tmp_path / "optuna.db").write_bytes(b"no database" * 1000)
    with pytest.raises(TrackingError) as caught:
        search.begin(0, {"batch_size": 16})
    assert str(caught.value).startswith("search storage: ")
    assert "\n" not in str(caught.value)
