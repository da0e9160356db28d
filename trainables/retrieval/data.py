"""Queries, a corpus, and which documents are relevant to which query: what every format is read into, and its checks.

A reader hands every query, document and judgement to a Collection, with the place where it stands, and each is
checked at once; `finish` gives the set.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainables.errors import InputError

Kind = Literal["query", "document"]
_PLURAL: dict[Kind, str] = {"query": "queries", "document": "documents"}


@dataclass(frozen=True, kw_only=True, eq=False)
class RetrievalSet:
    """One retrieval test set; queries and documents in the order of their files."""

    query_ids: tuple[str, ...]
    """Unique; only queries that have a relevant document."""
    queries: tuple[str, ...]
    """Text of each query."""
    document_ids: tuple[str, ...]
    """Unique; ties of scores are ordered by them, as strings."""
    documents: tuple[str, ...]
    """Text of each document."""
    relevance: Mapping[str, Mapping[str, float]]
    """Query id -> id of each relevant document -> its grade, above 0. Every query has at least one."""
    clusters: tuple[str, ...] | None
    """Of each query, such as the article that it asks about; None: each query stands for itself."""
    digest: str
    """sha256 of all of the above but in no way of the files' format."""
    source: str
    """Where it came from, for the record."""
    notes: tuple[str, ...] = ()
    """What was read in a way that a reader should know."""

    def __len__(self) -> int:
        return len(self.query_ids)


class Collection:
    """Queries, documents and judgements as a reader meets them; each is checked when it is added.

    Judgements come last: they must name queries and documents that are there.
    """

    def __init__(self) -> None:
        self._texts: dict[Kind, dict[str, str]] = {"query": {}, "document": {}}
        self._clusters: dict[str, str] = {}
        self._grades: dict[str, dict[str, float]] = {}

    def add_query(
        self,
        identifier: object,
        text: object,
        *,
        where: str,
        fields: tuple[str, str] = ("_id", "text"),
        cluster: str | None = None,
    ) -> None:
        """One query.

        Args:
            identifier: Text, or a whole number.
            text: What is asked.
            where: File and line, or dataset and row.
            fields: What identifier and text are called there.
            cluster: What it belongs to; given for every query or for none.

        Raises:
            InputError: an id that is none or stands twice, or a text that is missing or empty.
        """
        name = self._add("query", identifier, text, where, fields)
        if cluster is not None:
            self._clusters[name] = cluster

    def add_document(
        self, identifier: object, text: object, *, where: str, fields: tuple[str, str] = ("_id", "text")
    ) -> None:
        """One document of the corpus; arguments and errors as those of a query."""
        self._add("document", identifier, text, where, fields)

    def _add(self, kind: Kind, identifier: object, text: object, where: str, fields: tuple[str, str]) -> str:
        name = identifier_of(identifier, where=where, field=fields[0])
        texts = self._texts[kind]
        if name in texts:
            raise InputError(where=where, field=fields[0], value=name, allowed=f"two {_PLURAL[kind]} have this id")
        if not isinstance(text, str):
            raise InputError(where=where, field=fields[1], value=text, allowed="expected text")
        text = text.strip()
        if not text:
            raise InputError(where=where, field=fields[1], value=text, allowed=f"a {kind} needs a text")
        texts[name] = text
        return name

    def judge(
        self,
        query: object,
        document: object,
        grade: object,
        *,
        where: str,
        fields: tuple[str, str, str] = ("query-id", "corpus-id", "score"),
    ) -> None:
        """How relevant a document is to a query.

        Args:
            query: Id of a query that is there.
            document: Id of a document that is there.
            grade: A number, or its text; 0 means not relevant.
            where: File and line, or dataset and row.
            fields: What the three are called there.

        Raises:
            InputError: an unknown id, a grade that is negative or no finite number, or two grades of one pair.
        """
        names: list[str] = []
        for kind, identifier, field in zip(_PLURAL, (query, document), fields[:2], strict=True):
            name = identifier_of(identifier, where=where, field=field)
            if name not in self._texts[kind]:
                raise InputError(where=where, field=field, value=name, allowed=f"no {kind} has this id")
            names.append(name)
        number = _grade(grade, where, fields[2])
        graded = self._grades.setdefault(names[0], {})
        before = graded.setdefault(names[1], number)
        if before != number:
            allowed = f"query {names[0]} and document {names[1]} are judged twice, the first time with {before:g}"
            raise InputError(where=where, field=fields[2], value=number, allowed=allowed)

    def finish(self, *, source: str, notes: Sequence[str] = ()) -> RetrievalSet:
        """The set of all that was added; queries without a relevant document are left out, and a note counts them.

        Args:
            source: Where it came from.
            notes: What else a reader should know.

        Raises:
            InputError: no documents, or no query that has a relevant one.
        """
        queries, documents = self._texts["query"], self._texts["document"]
        if not documents:
            raise InputError(where=source, field="documents", value=0, allowed="at least one document is needed")
        relevance: dict[str, dict[str, float]] = {}
        for name in queries:
            positive = {one: grade for one, grade in self._grades.get(name, {}).items() if grade > 0}
            if positive:
                relevance[name] = positive
        if not relevance:
            allowed = f"none of the {len(queries)} queries has a relevant document; at least one is needed"
            raise InputError(where=source, field="queries", value=0, allowed=allowed)
        if len(relevance) < len(queries):
            left_out = len(queries) - len(relevance)
            have = "has" if left_out == 1 else "have"
            notes = (*notes, f"{source}: {left_out} of {len(queries)} queries {have} no relevant document; left out")
        texts = tuple(queries[name] for name in relevance)
        clusters = tuple(self._clusters[name] for name in relevance) if self._clusters else None
        return RetrievalSet(
            query_ids=tuple(relevance),
            queries=texts,
            document_ids=tuple(documents),
            documents=tuple(documents.values()),
            relevance=relevance,
            clusters=clusters,
            digest=_digest(zip(relevance, texts, strict=True), documents.items(), relevance, clusters),
            source=source,
            notes=tuple(notes),
        )


def identifier_of(value: object, *, where: str, field: str) -> str:
    """The id that a text or a whole number stands for.

    Raises:
        InputError: it is something else, or empty.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise InputError(where=where, field=field, value=value, allowed="expected an id: text, or a whole number")
    return value


def _grade(value: object, where: str, field: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise InputError(where=where, field=field, value=value, allowed="expected a grade: a number, 0 or more")
    return number


def _digest(
    queries: Iterable[tuple[str, str]],
    documents: Iterable[tuple[str, str]],
    relevance: Mapping[str, Mapping[str, float]],
    clusters: Sequence[str] | None,
) -> str:
    digest = hashlib.sha256()

    def add(what: Any) -> None:
        digest.update(json.dumps(what, ensure_ascii=True).encode() + b"\n")

    for query in queries:
        add(query)
    add("documents")
    for document in documents:
        add(document)
    add("relevance")
    for name, graded in relevance.items():
        add([name, sorted(graded.items())])  # the order of judgements means nothing
    add(clusters)
    return digest.hexdigest()
