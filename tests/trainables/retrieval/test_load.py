"""What a name stands for, and the identity of what it names."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.trainables.retrieval.conftest import squad_of, write_beir
from trainables.downloads import PINNED_RETRIEVAL
from trainables.errors import InputError
from trainables.retrieval.load import digest_of, locate, read_retrieval


def test_what_a_name_stands_for(tmp_path: Path) -> None:
    write_beir(tmp_path)
    (tmp_path / "own.json").write_text(json.dumps(squad_of({"t": {"c": ["?"]}})))
    assert locate("jsquad", root=tmp_path).kind == "builtin"
    assert locate(".", root=tmp_path) == ("beir", tmp_path)
    assert locate("own.json", root=tmp_path) == ("squad", tmp_path / "own.json")
    assert locate("mteb/scifact", root=tmp_path) == ("hub", None)
    assert read_retrieval("own.json", root=tmp_path).source == "own.json"
    assert read_retrieval(".", root=tmp_path).source == "./test"


@pytest.mark.parametrize("name", ["./no", "no", "/no/such", "a/b/c", "~/no-such-file", "sets/own.json", "a/b.jsonl"])
def test_names_of_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError) as caught:
        read_retrieval(name, root=tmp_path, field="evaluate.own.name")
    assert f": evaluate.own.name: {name!r} is not valid; no such file or folder; expected jsquad, a folder with" in str(
        caught.value
    )


def test_files_and_folders_of_other_kinds(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("a,b\n")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"pairs\.csv: name: 'pairs\.csv' is not valid; expected jsquad, a folder"):
        locate("pairs.csv", root=tmp_path)
    with pytest.raises(InputError, match=r"empty: name: 'empty' is not valid; the folder has no corpus\.jsonl"):
        locate("empty", root=tmp_path)


def test_what_is_grouped_already(tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(json.dumps(squad_of({"t": {"c": ["?"]}})))
    with pytest.raises(InputError, match=r"study: group: 'x' is not valid; own\.json is grouped by article already"):
        read_retrieval("own.json", root=tmp_path, group="x")


def test_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_beir(tmp_path)
    (tmp_path / "own.json").write_text(json.dumps(squad_of({"t": {"c": ["?"]}})))
    folder, file = digest_of(".", root=tmp_path), digest_of("own.json", root=tmp_path)
    assert folder is not None
    assert file is not None
    assert digest_of("jsquad") == PINNED_RETRIEVAL["jsquad"]["test"].sha256
    assert digest_of("jsquad", split="validation") == PINNED_RETRIEVAL["jsquad"]["validation"].sha256
    assert digest_of("jsquad", split="train") is None
    assert digest_of("no", root=tmp_path) is None
    assert digest_of(".", root=tmp_path, split="dev") is None
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert digest_of("mteb/scifact") is None
    assert digest_of("mteb/scifact", revision="0" * 40) == "0" * 40
    with (tmp_path / "qrels" / "test.tsv").open("a") as more:
        more.write("q3\td2\t1\n")
    assert digest_of(".", root=tmp_path) != folder


def test_a_kept_set_is_read_anew_where_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    monkeypatch.setenv("PAIRSWEEP_KEPT", str(kept))
    write_beir(tmp_path)
    before = read_retrieval(".", root=tmp_path)
    again = read_retrieval(".", root=tmp_path)
    assert (again.digest, again.relevance) == (before.digest, before.relevance)
    assert len(os.listdir(kept)) == 1  # noqa: PTH208
    write_beir(tmp_path, judgements="q1 0 d1 2\n")
    assert len(read_retrieval(".", root=tmp_path)) == 1
