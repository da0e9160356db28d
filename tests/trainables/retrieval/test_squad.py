"""SQuAD's files as retrieval, and the built-in JSQuAD."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainables.retrieval.conftest import squad_of
from trainables.errors import InputError
from trainables.retrieval.load import read_retrieval
from trainables.retrieval.squad import read_squad

RIVERS = {"The Danube flows east.": ["Which flows east?", "What flows?"], "The Rhine flows north.": ["What flows?"]}
LAKES = {"Lakes do not flow.": ["What does not?"], " The Danube flows east.\n": ["Where to?"]}


def written(folder: Path, content: Any) -> Path:
    path = folder / "own.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_read_right(tmp_path: Path) -> None:
    found = read_squad(written(tmp_path, squad_of({"Rivers": RIVERS, "Lakes": LAKES})))
    assert found.documents == ("The Danube flows east.", "The Rhine flows north.", "Lakes do not flow.")
    assert found.document_ids == ("p1", "p2", "p3")
    assert dict(zip(found.query_ids, found.queries, strict=True)) == {
        "q0": "Which flows east?", "q1": "What flows?", "q4": "Where to?", "q2": "What flows?", "q3": "What does not?",
    }  # fmt: skip
    assert found.relevance == {"q0": {"p1": 1}, "q1": {"p1": 1}, "q4": {"p1": 1}, "q2": {"p2": 1}, "q3": {"p3": 1}}
    assert found.clusters is not None
    assert dict(zip(found.query_ids, found.clusters, strict=True)) == {
        "q0": "Rivers", "q1": "Rivers", "q2": "Rivers", "q3": "Lakes", "q4": "Lakes",
    }  # fmt: skip
    assert found.notes == (
        "own.json: 5 questions in 4 different wordings; relevant to each is only the paragraph that it was asked about",
    )


def test_questions_without_an_answer_are_left_out_and_their_paragraph_stays(tmp_path: Path) -> None:
    content = squad_of({"Rivers": RIVERS})
    content["data"][0]["paragraphs"][1]["qas"][0] |= {"is_impossible": True, "answers": []}
    found = read_squad(written(tmp_path, content))
    assert found.query_ids == ("q0", "q1")
    assert len(found.documents) == 2
    assert found.notes == ("own.json: 1 of 3 questions have no answer; left out",)


def test_names_of_documents_are_in_the_order_of_the_file(tmp_path: Path) -> None:
    content = squad_of({"All": {f"paragraph {number}": ["?"] for number in range(120)}})
    found = read_squad(written(tmp_path, content))
    assert (found.document_ids[0], found.document_ids[-1]) == ("p001", "p120")
    assert sorted(found.document_ids) == list(found.document_ids)


QUESTION = {"id": "q", "question": "?"}


def paragraph(**changes: Any) -> dict[str, Any]:
    return {"data": [{"title": "t", "paragraphs": [{"context": "c", "qas": [QUESTION], **changes}]}]}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"data":\n[}', ":2: JSON: 'Expecting value' is not valid; expected one JSON object"),
        ([], ": JSON: 'list' is not valid; expected SQuAD: one JSON object with a list `data` of articles"),
        ({"version": 1}, ": data: 'absent' is not valid; expected SQuAD: a list of objects"),
        ({"data": [3]}, ": data[0]: 3 is not valid; expected SQuAD: an object"),
        ({"data": [{"paragraphs": []}]}, ": data[0].title: None is not valid; expected text"),
        ({"data": [{"title": "t", "paragraphs": {}}]}, ": data[0].paragraphs: {} is not valid; expected SQuAD: a list"
         " of objects"),
        (paragraph(context=" "), ": data[0].paragraphs[0].context: ' ' is not valid; expected text"),
        (paragraph(qas=None), ": data[0].paragraphs[0].qas: None is not valid; expected SQuAD: a list of objects"),
        (paragraph(qas=[{"id": "q"}]), ": data[0].paragraphs[0].qas[0].question: None is not valid; expected text"),
        (paragraph(qas=[{"id": "q", "question": ""}]), ": data[0].paragraphs[0].qas[0].question: '' is not valid;"
         " a query needs a text"),
        (paragraph(qas=[{"question": "?"}]), ": data[0].paragraphs[0].qas[0].id: None is not valid; expected an id:"
         " text, or a whole number"),
        (paragraph(qas=[QUESTION, QUESTION]), ": data[0].paragraphs[0].qas[1].id: 'q' is not valid; two queries have"
         " this id"),
        ({"data": []}, ": documents: 0 is not valid; at least one document is needed"),
        (paragraph(qas=[{**QUESTION, "is_impossible": True}]), ": queries: 0 is not valid; none of the 0 queries has a"
         " relevant document; at least one is needed"),
    ],
)  # fmt: skip
def test_wrong_files(tmp_path: Path, content: Any, says: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(InputError) as caught:
        read_squad(path)
    assert str(caught.value) == f"{path}{says}"


def test_wrong_encoding(tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    path.write_bytes(b'{"data": "\xe9"}')
    with pytest.raises(InputError, match=r"own\.json: encoding: b'\\xe9\"}' is not valid; expected UTF-8"):
        read_squad(path)


# -- JSQuAD ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("split", "questions", "wordings", "paragraphs"), [("test", 4420, 4408, 1159), ("validation", 4442, 4429, 1145)]
)
def test_jsquad_is_whole(
    data_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    split: str,
    questions: int,
    wordings: int,
    paragraphs: int,
) -> None:
    monkeypatch.setenv("PAIRSWEEP_DATA", str(data_folder))
    found = read_retrieval("jsquad", split=split)
    assert found.clusters is not None
    counts = (len(found), len(set(found.queries)), len(set(found.documents)), len(set(found.clusters)))
    assert counts == (questions, wordings, paragraphs, 59)
    assert len(found.document_ids) == paragraphs
    assert all(list(graded.values()) == [1.0] for graded in found.relevance.values())


def test_the_splits_of_jsquad_share_no_article_and_no_paragraph(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIRSWEEP_DATA", str(data_folder))
    test, validation = read_retrieval("jsquad"), read_retrieval("jsquad", split="validation")
    assert set(test.clusters or ()).isdisjoint(validation.clusters or ())
    assert set(test.documents).isdisjoint(validation.documents)
    assert set(test.query_ids).isdisjoint(validation.query_ids)


def test_jsquad_has_no_other_split() -> None:
    with pytest.raises(InputError) as caught:
        read_retrieval("jsquad", split="train", field="evaluate.jsquad.name")
    assert str(caught.value) == (
        "study: evaluate.jsquad.name: 'train' is not valid; jsquad has no such split; expected one of validation, test"
    )


def test_a_changed_jsquad_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jsquad-v1.3").mkdir()
    (tmp_path / "jsquad-v1.3" / "test-v1.3.json").write_text('{"data": []}')
    monkeypatch.setenv("PAIRSWEEP_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"test-v1.3.json: sha256: .* is not valid; expected 0078f3f2"):
        read_retrieval("jsquad")
    with pytest.raises(InputError, match=r"must hold jsquad-v1\.3/valid-v1\.3\.json"):
        read_retrieval("jsquad", split="validation")
