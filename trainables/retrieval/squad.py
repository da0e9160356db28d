"""Questions about paragraphs (SQuAD JSON) as retrieval: find the paragraph that a question was asked about.

https://rajpurkar.github.io/SQuAD-explorer/: articles hold paragraphs, paragraphs hold questions. A query is a
question, the corpus is every distinct paragraph, and what is relevant to a question is the paragraph that it was
asked about and no other, also where the same words are asked about another paragraph: nobody has judged whether each
answers both. Questions of one article are a cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainables.downloads import PINNED_RETRIEVAL, local_copy
from trainables.errors import InputError
from trainables.retrieval.data import Collection, RetrievalSet


def read_squad(path: Path, *, source: str | None = None) -> RetrievalSet:
    """A file of SQuAD's format, version 1 or 2; questions without an answer (`is_impossible`) are left out.

    Documents are named `p` and their number in the file, from 1, with as many leading zeros as make the order of the
    names that of the file.

    Args:
        path: The JSON file.
        source: What to call it in the record. Default: its path.

    Raises:
        InputError: it is no such file, or an entry is wrong: file, place in it, value, what is allowed.
    """
    where = str(path)
    content = _content(path)
    collection = Collection()
    paragraphs: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for number, article in enumerate(_list(content, "data", "", where)):
        place = f"data[{number}]"
        title = _text(article, "title", place, where)
        for at, paragraph in _entries(article, "paragraphs", place, where):
            text = _text(paragraph, "context", at, where).strip()
            asked = paragraphs.setdefault(text, [])
            asked += [(title, question_at, one) for question_at, one in _entries(paragraph, "qas", at, where)]
    width = len(str(len(paragraphs)))
    left_out = repeated = 0
    texts: set[str] = set()
    judgements = []
    for number, (text, asked) in enumerate(paragraphs.items(), start=1):
        document = f"p{number:0{width}}"
        collection.add_document(document, text, where=where)
        for title, at, one in asked:
            if one.get("is_impossible"):
                left_out += 1
                continue
            names = (f"{at}.id", f"{at}.question")
            question = one.get("question")
            collection.add_query(one.get("id"), question, where=where, fields=names, cluster=title)
            repeated += question in texts
            texts.add(str(question))
            judgements.append((one.get("id"), document))
    for question_id, document in judgements:
        collection.judge(question_id, document, 1, where=where)
    notes = []
    if left_out:
        notes.append(f"{path.name}: {left_out} of {left_out + len(judgements)} questions have no answer; left out")
    if repeated:
        notes.append(
            f"{path.name}: {len(judgements)} questions in {len(texts)} different wordings; relevant to each is only the"
            " paragraph that it was asked about"
        )
    return collection.finish(source=source or where, notes=notes)


def read_jsquad(split: str, *, field: str, name: str = "jsquad") -> RetrievalSet:
    """JSQuAD of JGLUE v1.3 (Kurihara et al. 2022), Japanese: the built-in set, its file pinned by checksum.

    Its paragraphs begin with the article's title and ` [SEP] `; they are taken as they are.

    Args:
        split: `validation` (4,442 questions, 1,145 paragraphs) or `test` (4,420, 1,159); 59 articles each, none
            of them in both.
        field: The study's field that names the set, for messages.
        name: What stands in that field.

    Raises:
        InputError: no such split, or the file is not to be had.
    """
    files = PINNED_RETRIEVAL["jsquad"]
    if split not in files:
        allowed = f"{name} has no such split; expected one of {', '.join(files)}"
        raise InputError(where="study", field=field, value=split, allowed=allowed)
    return read_squad(local_copy(files[split], field=field, name=name), source=files[split].url)


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        value = error.object[error.start : error.start + 4]
        raise InputError(where=str(path), field="encoding", value=value, allowed="expected UTF-8") from None
    except json.JSONDecodeError as error:
        raise InputError(
            where=f"{path}:{error.lineno}", field="JSON", value=error.msg, allowed="expected one JSON object"
        ) from None
    if not isinstance(content, dict):
        allowed = "expected SQuAD: one JSON object with a list `data` of articles"
        raise InputError(where=str(path), field="JSON", value=type(content).__name__, allowed=allowed)
    return content


def _list(item: dict[str, Any], name: str, place: str, where: str) -> list[dict[str, Any]]:
    value = item.get(name)
    at = f"{place}.{name}" if place else name
    if not isinstance(value, list):
        shown = "absent" if name not in item else value
        raise InputError(where=where, field=at, value=shown, allowed="expected SQuAD: a list of objects")
    for number, one in enumerate(value):
        if not isinstance(one, dict):
            raise InputError(where=where, field=f"{at}[{number}]", value=one, allowed="expected SQuAD: an object")
    return value


def _entries(item: dict[str, Any], name: str, place: str, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, one in enumerate(_list(item, name, place, where)):
        yield f"{place}.{name}[{number}]", one


def _text(item: dict[str, Any], name: str, place: str, where: str) -> str:
    value = item.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InputError(where=where, field=f"{place}.{name}", value=value, allowed="expected text")
    return value
