"""A retrieval set on the hub, in the layout in which BEIR and MTEB lie there.

The dataset has the configurations `corpus`, `queries`, and `qrels` or `default`, with the fields of BEIR's files;
an id may be called `id` instead of `_id`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from trainables.errors import InputError
from trainables.retrieval.beir import cluster_of, document_text
from trainables.retrieval.data import Collection, RetrievalSet

_JUDGEMENTS: Final = ("qrels", "default")
_JUDGEMENT_FIELDS: Final = ("query-id", "corpus-id", "score")
_ROWS_AT_ONCE: Final = 1000


def read_hub(
    name: str, split: str = "test", *, revision: str | None = None, group: str | None = None, field: str
) -> RetrievalSet:
    """A dataset on the hub, or a local folder that `datasets` reads in the same way.

    Args:
        name: Its id, or a folder.
        split: Whose judgements are read. Corpus and queries may have splits of their own names instead.
        revision: Branch, tag or commit.
        group: Column of the queries that says which of them belong together.
        field: The study's field that names the dataset, for messages.

    Raises:
        InputError: there is no such dataset, configuration, split or column, no network, or a row is wrong.
    """
    source = _Dataset(name, revision, field)
    collection = Collection()
    for where, row in source.rows("corpus", ("corpus", split)):
        identifier = _id_field(row)
        fields = (identifier, "text")
        collection.add_document(row.get(identifier), document_text(row, where), where=where, fields=fields)
    for where, row in source.rows("queries", ("queries", split)):
        cluster = None if group is None else cluster_of(row, group, where)
        identifier = _id_field(row)
        fields = (identifier, "text")
        collection.add_query(row.get(identifier), row.get("text"), where=where, fields=fields, cluster=cluster)
    for where, row in source.rows(source.judgements(), (split,)):
        absent = [one for one in _JUDGEMENT_FIELDS if one not in row]
        if absent:
            allowed = f"no such column; the dataset has {', '.join(row)}"
            raise InputError(where=where, field="columns", value=absent[0], allowed=allowed)
        collection.judge(*(row[one] for one in _JUDGEMENT_FIELDS), where=where)
    return collection.finish(source=f"{name}@{revision or 'main'}/{split}")


def _id_field(row: dict[str, Any]) -> str:
    return "id" if "id" in row and "_id" not in row else "_id"


class _Dataset:
    """One dataset, its configurations known."""

    def __init__(self, name: str, revision: str | None, field: str) -> None:
        from datasets import get_dataset_config_names

        self._name, self._revision, self._field = name, revision, field
        try:
            self._configurations: list[str] = get_dataset_config_names(name, revision=revision)
        except Exception as error:  # each way of not being there has an error of its own
            raise self._unreachable(error) from None

    def judgements(self) -> str:
        """The configuration that holds the judgements."""
        found = next((one for one in _JUDGEMENTS if one in self._configurations), None)
        if found is None:
            raise self._no_configuration(" or ".join(_JUDGEMENTS))
        return found

    def rows(self, configuration: str, splits: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """(place, column -> value) of every row of the first of `splits` that the configuration has."""
        from datasets import get_dataset_split_names, load_dataset

        if configuration not in self._configurations:
            raise self._no_configuration(configuration)
        try:
            present = get_dataset_split_names(self._name, configuration, revision=self._revision)
            split = next((one for one in splits if one in present), None)
            if split is not None:
                table = load_dataset(self._name, configuration, split=split, revision=self._revision)
        except Exception as error:
            raise self._unreachable(error) from None
        place = f"dataset {self._name}/{configuration}"
        if split is None:
            allowed = f"no such split; the dataset has {', '.join(present)}"
            raise InputError(where=place, field="split", value=splits[-1], allowed=allowed)
        number = 0
        for batch in table.iter(batch_size=_ROWS_AT_ONCE):
            columns = list(batch)
            for values in zip(*batch.values(), strict=True):
                number += 1
                yield f"{place}/{split}:{number}", dict(zip(columns, values, strict=True))

    def _no_configuration(self, wanted: str) -> InputError:
        allowed = f"a retrieval set needs the configuration {wanted}; it has {', '.join(self._configurations)}"
        return InputError(where=f"dataset {self._name}", field=self._field, value=self._name, allowed=allowed)

    def _unreachable(self, error: Exception) -> InputError:
        why = type(error).__name__
        allowed = f"cannot be loaded from the hub ({why}) and is not cached here; name a local folder instead"
        return InputError(where=f"dataset {self._name}", field=self._field, value=self._name, allowed=allowed)
