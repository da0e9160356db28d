"""The files of BEIR: corpus.jsonl, queries.jsonl and qrels/<split>.tsv in one folder.

https://github.com/beir-cellar/beir/wiki/Load-your-custom-dataset: a document is its title and its text, with a blank
between. Judgements stand under the header `query-id<TAB>corpus-id<TAB>score`; without a header, in the four columns
of TREC (query, iteration, document, grade; the iteration is not read).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from trainables.errors import InputError
from trainables.retrieval.data import Collection, RetrievalSet

CORPUS: Final = "corpus.jsonl"
QUERIES: Final = "queries.jsonl"
_HEADER: Final = ("query-id", "corpus-id", "score")
_TREC_FIELDS: Final = ("query", "document", "grade")


def beir_files(folder: Path, split: str) -> tuple[Path, Path, Path]:
    """Where corpus, queries and judgements of a split stand."""
    return folder / CORPUS, folder / QUERIES, folder / "qrels" / f"{split}.tsv"


def read_beir(
    folder: Path, split: str = "test", *, group: str | None = None, source: str | None = None
) -> RetrievalSet:
    """A set in the files of BEIR.

    Args:
        folder: Holds the files.
        split: Whose judgements are read.
        group: Field of queries.jsonl that says which queries belong together.
        source: What to call it in the record. Default: its path.

    Raises:
        InputError: a file is missing, or a line is wrong: file and line, field, value, what is allowed.
    """
    corpus, queries, judgements = beir_files(folder, split)
    for path in (corpus, queries, judgements):
        if not path.is_file():
            raise _missing(path, split if path == judgements else str(folder))
    collection = Collection()
    for where, row in _objects(corpus):
        collection.add_document(row.get("_id"), document_text(row, where), where=where)
    for where, row in _objects(queries):
        cluster = None if group is None else cluster_of(row, group, where)
        collection.add_query(row.get("_id"), row.get("text"), where=where, cluster=cluster)
    _read_judgements(judgements, collection)
    return collection.finish(source=f"{source or folder}/{split}")


def _missing(path: Path, value: str) -> InputError:
    allowed = "no such file; BEIR has corpus.jsonl, queries.jsonl and qrels/<split>.tsv"
    others = ", ".join(sorted(one.stem for one in path.parent.glob("*.tsv")))
    return InputError(
        where=str(path),
        field="split" if path.suffix == ".tsv" else "folder",
        value=value,
        allowed=f"{allowed}; the folder has judgements of {others}" if others else allowed,
    )


def document_text(row: Mapping[str, Any], where: str) -> object:
    """Title and text of a document, with a blank between.

    Raises:
        InputError: the title is neither absent nor text.
    """
    title, text = row.get("title"), row.get("text")
    if title is None or not isinstance(text, str):  # what is no text is told by the collection
        return text
    if not isinstance(title, str):
        raise InputError(where=where, field="title", value=title, allowed="expected text")
    return f"{title} {text}".strip()


def cluster_of(row: Mapping[str, Any], group: str, where: str) -> str:
    """What a query belongs to.

    Raises:
        InputError: the row does not say so.
    """
    value = row.get(group)
    if value is None or isinstance(value, (list, dict)) or not str(value).strip():
        allowed = f"expected what the query belongs to; the row has {', '.join(map(str, row))}"
        raise InputError(where=where, field=group, value=value, allowed=allowed)
    return str(value)


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """(file and line, text) of each line that is not blank; one at a time, as a corpus can be large."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{path}:{number}"
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                wrong = line[error.start : error.start + 4]
                raise InputError(where=where, field="encoding", value=wrong, allowed="expected UTF-8") from None
            if text.strip():
                yield where, text.rstrip("\r\n")


def _objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for where, line in _lines(path):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            allowed = f"expected one JSON object per line ({error.msg})"
            raise InputError(where=where, field="JSON", value=line.strip(), allowed=allowed) from None
        if not isinstance(row, dict):
            raise InputError(where=where, field="JSON", value=row, allowed="expected one JSON object per line")
        yield where, row


def _read_judgements(path: Path, collection: Collection) -> None:
    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        raise InputError(where=str(path), field="rows", value=0, allowed="at least one judgement is needed")
    where, line = first
    header = tuple(name.strip() for name in line.split("\t"))
    if set(_HEADER) <= set(header):
        places = [header.index(name) for name in _HEADER]
        for where, line in lines:
            fields = [field.strip() for field in line.split("\t")]
            if len(fields) != len(header):
                allowed = f"expected {len(header)} fields between tabs ({', '.join(header)}), found {len(fields)}"
                raise InputError(where=where, field="columns", value=line, allowed=allowed)
            collection.judge(*(fields[place] for place in places), where=where)
        return
    if len(line.split()) != 4:
        allowed = "expected the header query-id, corpus-id, score between tabs, or the four columns of TREC"
        raise InputError(where=where, field="header", value=line, allowed=allowed)
    for where, line in (first, *lines):
        fields = line.split()
        if len(fields) != 4:
            allowed = f"expected the four columns of TREC (query, iteration, document, grade), found {len(fields)}"
            raise InputError(where=where, field="columns", value=line, allowed=allowed)
        collection.judge(fields[0], fields[2], fields[3], where=where, fields=_TREC_FIELDS)
