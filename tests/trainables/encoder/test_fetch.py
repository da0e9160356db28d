"""A hub model is downloaded once, at the commit that the cell names."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from trainables.encoder.fetch import fetch_model, fetched_folder, pinned
from trainables.errors import InputError
from trainables.locations import locate_model
from trainables.spec import TrainSpec

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def spec(**model: Any) -> TrainSpec:
    return TrainSpec.model_validate(
        {"model": {"name": "org/model", **model}, "data": {"name": "toy"}, "loss": [{"name": "cosent"}],
         "matryoshka_dims": [8], "seed": 0}
    )  # fmt: skip


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A hub in memory; gives the downloads that were asked of it."""
    monkeypatch.setenv("PAIRSWEEP_CACHE", str(tmp_path / "cache"))
    asked: list[str] = []

    def download(repository: str, *, revision: str, **options: Any) -> str:
        asked.append(f"{repository}@{revision}")
        folder = tmp_path / "hub" / revision
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return asked


def test_a_branch_is_replaced_by_the_commit_of_the_cell() -> None:
    model = pinned(spec(revision="main"), {"model": COMMIT}).model
    assert model is not None
    assert model.revision == COMMIT


def test_digests_that_are_no_commit_change_nothing() -> None:
    given = spec()
    assert pinned(given, {"model": "toy-abc", "data": "f" * 64}) == given


def test_one_download_however_many_ask(hub: list[str]) -> None:
    asking = spec(revision=COMMIT)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fetch_model, [asking] * 8))
    assert hub == [f"org/model@{COMMIT}"]
    folder = fetched_folder(locate_model(asking), COMMIT)
    assert folder is not None
    assert folder.is_dir()


def test_a_download_that_was_cut_short_is_not_taken_for_a_model(
    hub: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*args: Any, **options: Any) -> str:
        raise ConnectionError("connection reset")

    with monkeypatch.context() as patch:
        patch.setattr(huggingface_hub, "snapshot_download", cut)
        with pytest.raises(InputError, match=r"cannot be downloaded to this machine .*connection reset"):
            fetch_model(spec(revision=COMMIT))
    assert fetched_folder(locate_model(spec()), COMMIT) is None
    fetch_model(spec(revision=COMMIT))
    assert hub == [f"org/model@{COMMIT}"]


def test_toys_folders_and_branches_are_not_fetched(hub: list[str], tmp_path: Path) -> None:
    for given in (spec(name="toy"), spec(name=str(tmp_path)), spec(revision="main"), spec()):
        fetch_model(given)
    assert hub == []
