"""The files of BEIR: what is read, and what every wrong line says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.trainables.retrieval.conftest import CORPUS, JUDGEMENTS, QUERIES, write_beir
from trainables.errors import InputError
from trainables.retrieval.beir import read_beir


def test_read_right(tmp_path: Path) -> None:
    found = read_beir(write_beir(tmp_path), group="article", source="rivers")
    assert found.query_ids == ("q1", "q2")
    assert found.queries == ("Which river flows east?", "Which river flows north?")
    assert found.document_ids == ("d1", "d2", "10")
    assert found.documents == ("Rivers The Danube flows east.", "The Rhine flows north.", "Lakes do not flow.")
    assert found.relevance == {"q1": {"d1": 2.0, "d2": 1.0}, "q2": {"d2": 1.0}}
    assert found.clusters == ("rivers", "rivers")
    assert found.notes == ("rivers/test: 1 of 3 queries has no relevant document; left out",)
    assert read_beir(tmp_path).clusters is None


TREC = "q1 0 d1 2\nq1 0 d2 1\nq1 0 10 0\nq2 0 d2 1\n"


@pytest.mark.parametrize(
    "judgements",
    [
        TREC,
        TREC.replace(" ", "\t"),
        "\n\n" + TREC.replace("\n", "\r\n"),
        "\ufeff" + JUDGEMENTS,
        "corpus-id\tscore\tquery-id\nd1\t2\tq1\nd2\t1\tq1\nd2\t1.0\tq2\n",
        JUDGEMENTS.replace("q2\td2\t1\n", "") + "q2\td2\t1e0\nq2\td2\t1",
    ],
)
def test_judgements_in_other_forms_are_the_same_set(tmp_path: Path, judgements: str) -> None:
    usual = read_beir(write_beir(tmp_path), source="s")
    other = read_beir(write_beir(tmp_path, judgements=judgements), source="s")
    assert other.relevance == usual.relevance
    assert other.digest == usual.digest


def test_the_digest_is_of_the_contents(tmp_path: Path) -> None:
    usual = read_beir(write_beir(tmp_path), group="article").digest
    joined = [{**CORPUS[0], "title": None, "text": "Rivers The Danube flows east. "}, *CORPUS[1:]]
    assert read_beir(write_beir(tmp_path, corpus=joined), group="article").digest == usual
    others = [
        read_beir(write_beir(tmp_path)),
        read_beir(write_beir(tmp_path, corpus=CORPUS[::-1]), group="article"),
        read_beir(write_beir(tmp_path, queries=QUERIES[::-1]), group="article"),
        read_beir(write_beir(tmp_path, judgements=JUDGEMENTS.replace("q1\td1\t2", "q1\td1\t3")), group="article"),
    ]
    assert len({usual, *(one.digest for one in others)}) == 5


def wrong(folder: Path, **files: Any) -> str:
    with pytest.raises(InputError) as caught:
        read_beir(write_beir(folder, **files))
    return str(caught.value).replace(f"{folder}/", "")


NO_ID = "is not valid; expected an id: text, or a whole number"


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([*CORPUS, CORPUS[1]], "corpus.jsonl:4: _id: 'd2' is not valid; two documents have this id"),
        ([*CORPUS, {"_id": "10", "text": "a"}], "corpus.jsonl:4: _id: '10' is not valid; two documents have this id"),
        ([{"_id": "d1", "text": " "}], "corpus.jsonl:1: text: '' is not valid; a document needs a text"),
        ([{"_id": "d1", "title": "a"}], "corpus.jsonl:1: text: None is not valid; expected text"),
        ([{"_id": "d1", "title": 3, "text": "a"}], "corpus.jsonl:1: title: 3 is not valid; expected text"),
        ([{"_id": "d1", "text": ["a"]}], "corpus.jsonl:1: text: ['a'] is not valid; expected text"),
        ([{"id": "d1", "text": "a"}], f"corpus.jsonl:1: _id: None {NO_ID}"),
        ([{"_id": True, "text": "a"}], f"corpus.jsonl:1: _id: True {NO_ID}"),
        ([{"_id": "", "text": "a"}], f"corpus.jsonl:1: _id: '' {NO_ID}"),
        ([{"_id": 1.5, "text": "a"}], f"corpus.jsonl:1: _id: 1.5 {NO_ID}"),
        ("\n[1]\n", "corpus.jsonl:2: JSON: [1] is not valid; expected one JSON object per line"),
        ("{'_id'}\n", "corpus.jsonl:1: JSON: \"{'_id'}\" is not valid; expected one JSON object per line"
         " (Expecting property name enclosed in double quotes)"),
        ("", "test: documents: 0 is not valid; at least one document is needed"),
    ],
)  # fmt: skip
def test_wrong_corpus(tmp_path: Path, rows: Any, says: str) -> None:
    if not rows:  # judgements of documents that are not there would be told first
        (tmp_path / "empty").mkdir()
        with pytest.raises(InputError) as caught:
            read_beir(write_beir(tmp_path / "empty", corpus="", queries="", judgements="query-id\tcorpus-id\tscore\n"))
        assert str(caught.value).endswith(says)
        return
    assert wrong(tmp_path, corpus=rows) == says


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([*QUERIES, QUERIES[0]], "queries.jsonl:4: _id: 'q1' is not valid; two queries have this id"),
        ([{"_id": "q1", "text": "\t"}], "queries.jsonl:1: text: '' is not valid; a query needs a text"),
        ([{"_id": "q1"}], "queries.jsonl:1: text: None is not valid; expected text"),
    ],
)
def test_wrong_queries(tmp_path: Path, rows: Any, says: str) -> None:
    assert wrong(tmp_path, queries=rows) == says


HEADER = "query-id\tcorpus-id\tscore\n"
GRADE = "is not valid; expected a grade: a number, 0 or more"


@pytest.mark.parametrize(
    ("judgements", "says"),
    [
        (HEADER + "q9\td1\t1\n", "qrels/test.tsv:2: query-id: 'q9' is not valid; no query has this id"),
        (HEADER + "q1\td9\t1\n", "qrels/test.tsv:2: corpus-id: 'd9' is not valid; no document has this id"),
        (HEADER + "q1\t\t1\n", f"qrels/test.tsv:2: corpus-id: '' {NO_ID}"),
        (HEADER + "q1\td1\t-1\n", f"qrels/test.tsv:2: score: '-1' {GRADE}"),
        (HEADER + "q1\td1\tnan\n", f"qrels/test.tsv:2: score: 'nan' {GRADE}"),
        (HEADER + "q1\td1\tinf\n", f"qrels/test.tsv:2: score: 'inf' {GRADE}"),
        (HEADER + "q1\td1\thigh\n", f"qrels/test.tsv:2: score: 'high' {GRADE}"),
        ("q1 0 d1 -1\n", f"qrels/test.tsv:1: grade: '-1' {GRADE}"),
        ("q1 0 d1 1\nq1 d1 1\n", "qrels/test.tsv:2: columns: 'q1 d1 1' is not valid; expected the four columns of TREC"
         " (query, iteration, document, grade), found 3"),
        (HEADER + "q1\td1\t1\nq1\td1\t2\n", "qrels/test.tsv:3: score: 2.0 is not valid; query q1 and document d1 are"
         " judged twice, the first time with 1"),
        (HEADER + "q1\td1\n", "qrels/test.tsv:2: columns: 'q1\\td1' is not valid; expected 3 fields between tabs"
         " (query-id, corpus-id, score), found 2"),
        ("qid\tdocid\trel\nq1\td1\t1\n", "qrels/test.tsv:1: header: 'qid\\tdocid\\trel' is not valid; expected the"
         " header query-id, corpus-id, score between tabs, or the four columns of TREC"),
        ("\n", "qrels/test.tsv: rows: 0 is not valid; at least one judgement is needed"),
        (HEADER + "q1\td1\t0\n", "test: queries: 0 is not valid; none of the 3 queries has a relevant document; at"
         " least one is needed"),
    ],
)  # fmt: skip
def test_wrong_judgements(tmp_path: Path, judgements: str, says: str) -> None:
    assert wrong(tmp_path, judgements=judgements) == says


def test_wrong_encoding(tmp_path: Path) -> None:
    write_beir(tmp_path)
    (tmp_path / "corpus.jsonl").write_bytes(b'{"_id": "a", "text": "b"}\n{"_id": "\xe9"}\n')
    with pytest.raises(InputError, match=r"corpus\.jsonl:2: encoding: b'\\xe9\"\}\\n' is not valid; expected UTF-8"):
        read_beir(tmp_path)


def test_no_such_group(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_beir(write_beir(tmp_path), group="topic")
    assert str(caught.value) == (
        f"{tmp_path}/queries.jsonl:1: topic: None is not valid; expected what the query belongs to; the row has _id,"
        " text, article"
    )


def test_missing_files(tmp_path: Path) -> None:
    write_beir(tmp_path)
    with pytest.raises(InputError) as caught:
        read_beir(tmp_path, "dev")
    assert str(caught.value) == (
        f"{tmp_path}/qrels/dev.tsv: split: 'dev' is not valid; no such file; BEIR has corpus.jsonl, queries.jsonl and"
        " qrels/<split>.tsv; the folder has judgements of test"
    )
    (tmp_path / "queries.jsonl").unlink()
    with pytest.raises(InputError, match=r"queries\.jsonl: folder: .* is not valid; no such file; BEIR has"):
        read_beir(tmp_path)
