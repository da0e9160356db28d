"""Datasets in BEIR's layout, read by the datasets library from folders that lie as they do on the hub."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.trainables.retrieval.conftest import CORPUS, QUERIES, write_beir
from trainables.errors import InputError
from trainables.retrieval.beir import read_beir
from trainables.retrieval.hub import read_hub

JUDGED = [
    {"query-id": "q1", "corpus-id": "d1", "score": 2},
    {"query-id": "q1", "corpus-id": "d2", "score": 1},
    {"query-id": "q2", "corpus-id": "d2", "score": 1},
]
TEXTS = [{**row, "_id": str(row["_id"]), "title": row.get("title", "")} for row in CORPUS]
Files = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]


@pytest.fixture(autouse=True)
def _own_cache_of_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


def dataset(folder: Path, configurations: Files) -> str:
    """Configuration -> split -> rows, with the card that names the files; the folder's name."""
    folder.mkdir()
    card = ["---", "configs:"]
    for name, splits in configurations.items():
        card += [f"- config_name: {name}", "  data_files:"]
        for split, rows in splits.items():
            path = folder / f"{name}-{split}.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            card += [f"  - split: {split}", f"    path: {path.name}"]
    (folder / "README.md").write_text("\n".join([*card, "---"]))
    return str(folder)


def usual(**changes: Any) -> dict[str, Any]:
    return {
        "corpus": {"corpus": TEXTS}, "queries": {"queries": QUERIES}, "default": {"train": JUDGED[:1], "test": JUDGED},
    } | changes  # fmt: skip


def test_the_same_set_as_from_files(tmp_path: Path) -> None:
    name = dataset(tmp_path / "set", usual())
    found = read_hub(name, group="article", field="name")
    assert found.digest == read_beir(write_beir(tmp_path), group="article").digest
    assert found.source == f"{name}@main/test"
    assert found.clusters == ("rivers", "rivers")
    assert read_hub(name, "train", field="name").query_ids == ("q1",)


def test_other_names_of_ids_splits_and_judgements(tmp_path: Path) -> None:
    texts = [{"id": row["_id"], "title": row["title"], "text": row["text"]} for row in TEXTS]
    asked = [{"id": row["_id"], "text": row["text"]} for row in QUERIES]
    name = dataset(tmp_path / "set", {"corpus": {"test": texts}, "queries": {"test": asked}, "qrels": {"test": JUDGED}})
    assert read_hub(name, field="name").digest == read_beir(write_beir(tmp_path)).digest


def wrong(folder: Path, configurations: Files, split: str = "test") -> str:
    name = dataset(folder / "set", configurations)
    with pytest.raises(InputError) as caught:
        read_hub(name, split, field="evaluate.own.name")
    return str(caught.value).replace(name, "set")


@pytest.mark.parametrize(
    ("configurations", "says"),
    [
        ({"corpus": {"corpus": TEXTS}}, "dataset set: evaluate.own.name: 'set' is not valid; a retrieval set needs the"
         " configuration queries; it has corpus"),
        ({"corpus": {"corpus": TEXTS}, "queries": {"queries": QUERIES}}, "dataset set: evaluate.own.name: 'set' is not"
         " valid; a retrieval set needs the configuration qrels or default; it has corpus, queries"),
        (usual(default={"train": JUDGED}), "dataset set/default: split: 'test' is not valid; no such split; the dataset"
         " has train"),
        (usual(default={"test": [{"query": "q1"}]}), "dataset set/default/test:1: columns: 'query-id' is not valid; no"
         " such column; the dataset has query"),
        (usual(default={"test": [*JUDGED, {**JUDGED[0], "corpus-id": "d9"}]}), "dataset set/default/test:4: corpus-id:"
         " 'd9' is not valid; no document has this id"),
        (usual(queries={"queries": [{"_id": "q1", "text": ""}]}), "dataset set/queries/queries:1: text: '' is not"
         " valid; a query needs a text"),
        (usual(corpus={"corpus": [{"doc": "d1", "text": "a"}]}), "dataset set/corpus/corpus:1: _id: None is not valid;"
         " expected an id: text, or a whole number"),
    ],
)  # fmt: skip
def test_wrong_datasets(tmp_path: Path, configurations: Files, says: str) -> None:
    assert wrong(tmp_path, configurations) == says


def test_no_network() -> None:
    with pytest.raises(InputError) as caught:
        read_hub("no-such/set", field="evaluate.own.name")
    told = str(caught.value)
    assert told.startswith("dataset no-such/set: evaluate.own.name: 'no-such/set' is not valid; cannot be loaded from")
    assert told.endswith("and is not cached here; name a local folder instead")
    assert "\n" not in told
