"""Sentence pairs of a dataset on the model hub."""

from __future__ import annotations

from trainables.data.rows import Columns, Row, make_row
from trainables.errors import InputError
from trainables.spec import DataSpec


def read_hub(data: DataSpec, split: str, columns: Columns, label_range: tuple[float, float]) -> list[Row]:
    """All rows of one split, each checked.

    Raises:
        InputError: no such dataset, split or column, no network, or a wrong text or label.
    """
    from datasets import load_dataset

    assert data.name is not None
    name = getattr(data, split) or split
    where = f"dataset {data.name}/{name}"
    try:
        table = load_dataset(data.name, split=name, revision=data.revision)
    except ValueError as error:
        why = str(error).splitlines()[0]
        raise InputError(where=where, field=f"data.{split}", value=name, allowed=f"cannot be read ({why})") from None
    except Exception as error:
        why = type(error).__name__
        raise InputError(
            where=where,
            field="data.name",
            value=data.name,
            allowed=f"cannot be loaded from the hub ({why}) and is not cached here; name local files instead",
        ) from None
    for ours, theirs in zip(("sentence1", "sentence2", "label"), columns.names, strict=True):
        if theirs not in table.column_names:
            raise InputError(
                where=where,
                field=f"data.columns.{ours}",
                value=theirs,
                allowed=f"no such column; the dataset has {', '.join(table.column_names)}",
            )
    parts = [table[name] for name in columns.names]
    return [
        make_row((first, second, label), where=where, line=number, columns=columns, label_range=label_range)
        for number, (first, second, label) in enumerate(zip(*parts, strict=True), start=1)
    ]
