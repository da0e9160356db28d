"""Sentence pairs of a split: built-in sets, local files, hub datasets."""

from __future__ import annotations

import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from trainables.data.rows import Columns, Row, RowChecks, check_row, make_row
from trainables.downloads import DATA_FOLDER_VARIABLE, LABEL_RANGE, PINNED, cache_folder, pinned_file
from trainables.errors import InputError
from trainables.kept import kept
from trainables.spec import SPLITS, DataSpec, TrainSpec

Split = Literal["train", "validation", "test"]
_KEPT_SPLITS: Final = 12


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """The sentence pairs of one split, in file order."""

    sentence1: tuple[str, ...]
    sentence2: tuple[str, ...]
    labels: np.ndarray[Any, np.dtype[np.float64]]
    """Similarity scaled to 0..1, shape (rows,)."""
    ids: tuple[str, ...]
    """One per row, unique in the split: its line or row number."""
    digest: str
    """sha256 of sentences and labels, in order."""
    source: str
    """Where it came from, for the record."""
    notes: tuple[str, ...] = ()
    """What was read in a way that a reader should know."""

    def __len__(self) -> int:
        return len(self.ids)


_loaded: OrderedDict[tuple[str, ...], Pairs] = OrderedDict()


def splits_of(spec: TrainSpec) -> tuple[Split, ...]:
    """The splits that the spec's data have, of those it uses."""
    data = _data(spec)
    return tuple(split for split in _present(data) if split == "train" or split in data.scored)


def _present(data: DataSpec) -> tuple[Split, ...]:
    if data.name in PINNED or data.name == "toy":
        return ("train", "validation", "test")
    if data.name is None:
        return tuple(split for split in SPLITS if getattr(data, split) is not None)  # type: ignore[misc]
    return tuple(split for split in SPLITS if split != "validation" or data.validation is not None)  # type: ignore[misc]


def _data(spec: TrainSpec) -> DataSpec:
    if spec.data is None:
        raise InputError(where="study", field="data", value=None, allowed="name a dataset or files")
    return spec.data


def load_split(spec: TrainSpec, split: Split) -> Pairs:
    """The pairs of one split; kept, so that a second cell parses no file.

    Raises:
        InputError: a file, column, label or text is wrong: file and line, field, value, what is allowed.
    """
    data = _data(spec)
    key = (data.model_dump_json(), split, *_stamp(spec, data, split))
    if key in _loaded:
        _loaded.move_to_end(key)
        return _loaded[key]
    pairs = kept(("pairs", *key), lambda: _load(spec, data, split))
    _loaded[key] = pairs
    while len(_loaded) > _KEPT_SPLITS:
        _loaded.popitem(last=False)
    return pairs


def _stamp(spec: TrainSpec, data: DataSpec, split: Split) -> tuple[str, ...]:
    """What makes a file another file than the one read before."""
    if data.name is not None:
        return (os.environ.get(DATA_FOLDER_VARIABLE, ""), str(cache_folder()))
    path = spec.resolve_path(getattr(data, split))
    if not path.is_file():
        return (str(path),)
    stat = path.stat()
    return (str(path), str(stat.st_size), str(stat.st_mtime_ns))


def _load(spec: TrainSpec, data: DataSpec, split: Split) -> Pairs:
    limit = (data.limit or {}).get(split)
    if data.name == "toy":
        from trainables.toy_pairs import HIGHEST, toy_pairs

        rows = [
            Row(line=number, sentence1=pair.sentence1, sentence2=pair.sentence2, label=pair.label)
            for number, pair in enumerate(toy_pairs(split), start=1)
        ]
        return _pairs(_spread(rows, limit), (0.0, HIGHEST), source=f"toy/{split}")
    if data.name in PINNED:
        from trainables.data.local_files import read_file

        path = pinned_file(data.name, split)
        header = None if data.name == "jsts" else ("sentence1", "sentence2", "label")
        rows, notes = read_file(path, Columns(), LABEL_RANGE, header=header)
        return _pairs(_spread(rows, limit), LABEL_RANGE, source=PINNED[data.name][split].url, notes=notes)
    assert data.label_range is not None  # DataSpec requires it
    columns = Columns(**{str(ours): theirs for ours, theirs in (data.columns or {}).items()})
    if data.name is None:
        from trainables.data.local_files import read_file

        name = getattr(data, split)
        path = spec.resolve_path(name)
        if not path.is_file():
            raise InputError(where=str(path), field=f"data.{split}", value=name, allowed="no such file")
        rows, notes = read_file(path, columns, data.label_range, drop_bad=data.bad_rows == "drop")
        return _pairs(_spread(rows, limit), data.label_range, source=name, notes=notes)
    rows, notes = _read_hub(data, split, columns, data.label_range)
    source = f"{data.name}@{data.revision or 'main'}"
    return _pairs(_spread(rows, limit), data.label_range, source=source, notes=notes)


def _read_hub(
    data: DataSpec, split: str, columns: Columns, label_range: tuple[float, float]
) -> tuple[list[Row], tuple[str, ...]]:
    """All rows of one split of a dataset on the hub, each checked, and notes.

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
    rows = []
    checks = RowChecks(drop=data.bad_rows == "drop")
    for number, (first, second, label) in enumerate(zip(*parts, strict=True), start=1):
        with checks.row(number):
            rows.append(
                make_row((first, second, label), where=where, line=number, columns=columns, label_range=label_range)
            )
    note = checks.finish(where, kept=len(rows))
    return rows, () if note is None else (note,)


def _spread(rows: list[Row], limit: int | None) -> list[Row]:
    """`limit` rows, evenly spread and in order; all where there are no more."""
    if limit is None or limit >= len(rows):
        return rows
    return [rows[index * len(rows) // limit] for index in range(limit)]


def _pairs(rows: Iterable[Row], label_range: tuple[float, float], *, source: str, notes: tuple[str, ...] = ()) -> Pairs:
    low, high = label_range
    rows = list(rows)
    if len(rows) < 2:
        raise InputError(where=source, field="rows", value=len(rows), allowed="at least 2 sentence pairs are needed")
    digest = hashlib.sha256()
    for row in rows:
        check_row(row, where=source, label_range=label_range)
        digest.update(json.dumps([row.sentence1, row.sentence2, row.label], ensure_ascii=True).encode())
    digest.update(json.dumps([low, high]).encode())
    return Pairs(
        sentence1=tuple(row.sentence1 for row in rows),
        sentence2=tuple(row.sentence2 for row in rows),
        labels=(np.array([row.label for row in rows], dtype=np.float64) - low) / (high - low),
        ids=tuple(str(row.line) for row in rows),
        digest=digest.hexdigest(),
        source=source,
        notes=notes,
    )
