"""Small sets on disk, in each format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CORPUS = [
    {"_id": "d1", "title": "Rivers", "text": "The Danube flows east."},
    {"_id": "d2", "title": "", "text": "The Rhine flows north."},
    {"_id": 10, "text": "Lakes do not flow."},
]
QUERIES = [
    {"_id": "q1", "text": "Which river flows east?", "article": "rivers"},
    {"_id": "q2", "text": "Which river flows north?", "article": "rivers"},
    {"_id": "q3", "text": "What does not flow?", "article": "lakes"},
]
JUDGEMENTS = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t1\nq1\t10\t0\nq2\td2\t1\n"


def write_beir(
    folder: Path,
    *,
    corpus: Sequence[Mapping[str, Any]] | str = CORPUS,
    queries: Sequence[Mapping[str, Any]] | str = QUERIES,
    judgements: str = JUDGEMENTS,
) -> Path:
    """The files of BEIR; a text is written as it is."""
    for name, rows in (("corpus", corpus), ("queries", queries)):
        text = rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "qrels" / "test.tsv").write_text(judgements, encoding="utf-8")
    return folder


def squad_of(articles: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, Any]:
    """Title -> paragraph -> questions, as SQuAD nests them; question ids count up from 0."""
    number = iter(range(10**6))
    return {
        "data": [
            {
                "title": title,
                "paragraphs": [
                    {"context": text, "qas": [{"id": f"q{next(number)}", "question": one} for one in asked]}
                    for text, asked in paragraphs.items()
                ],
            }
            for title, paragraphs in articles.items()
        ]
    }
