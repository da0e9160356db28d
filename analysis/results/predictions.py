"""Per-example predictions: Parquet artifacts of cells, read when asked for, many at once.

A file that cannot be read becomes a Problem that names cell and file; the report is made without it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from analysis import schema
from analysis.errors import AnalysisError
from analysis.files import write_atomically
from analysis.places import local_folder
from analysis.results.model import PredictionTable, Problem

if TYPE_CHECKING:
    import pyarrow as pa

THREADS = 8
KEEP_BYTES = 512 * 2**20
"""Predictions held in memory: a method that asks per endpoint reads each file once."""


def read_table(source: Path | BinaryIO) -> PredictionTable:
    """One predictions file.

    Raises:
        ValueError: no Parquet file, or one without per-example results.
        OSError: it cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    # One small file: read at once it costs half of what reading it in pieces does.
    content = source.read_bytes() if isinstance(source, Path) else source.read()
    with pq.ParquetFile(pa.BufferReader(content), pre_buffer=False) as file:
        return table_from_arrow(file.read(use_threads=False))


def table_from_arrow(table: pa.Table) -> PredictionTable:
    """Columns `label` and `cosine_<dim>`, or `value.<statistic>_<dim>`, as arrays of float64; `id` and `cluster`.

    Raises:
        ValueError: a column is missing or not numeric, or an id is there twice.
    """
    import numpy as np

    def numbers(name: str) -> Any:
        return table.column(name).to_numpy().astype(np.float64, copy=False)

    def texts(name: str) -> tuple[str, ...] | None:
        return tuple(map(str, table.column(name).to_pylist())) if name in table.column_names else None

    prefix = schema.prediction_column(0).removesuffix("0")
    by_dim = {
        int(name.removeprefix(prefix)): numbers(name)
        for name in table.column_names
        if name.removeprefix(prefix).isdecimal()
    }
    values = {key: numbers(name) for name in table.column_names if (key := schema.parse_value_column(name))}
    label = schema.PREDICTION_LABEL_COLUMN
    if by_dim and label not in table.column_names:
        raise ValueError(f"it has no column {label!r}")
    if not by_dim and not values:
        raise ValueError(f"it has no column like {prefix}256 or {schema.value_column('ndcg_at_10', 256)}")
    ids = texts(schema.PREDICTION_ID_COLUMN)
    if ids is not None and len(set(ids)) < len(ids):
        raise ValueError(f"column {schema.PREDICTION_ID_COLUMN!r} names an example twice")
    return PredictionTable(
        labels=numbers(label) if by_dim else None,
        by_dim=by_dim,
        values=values,
        ids=ids,
        clusters=texts(schema.PREDICTION_CLUSTER_COLUMN),
    )


Fetch = Callable[[str, str], "bytes | Path | None"]
"""(artifact URI, path) -> content or file; None where there is none."""


@dataclass
class StoredPredictions:
    """Predictions of the cells of one study; called with (cell key, split)."""

    artifact_uris: Mapping[str, str]
    """Cell key -> artifact URI of its run."""
    fetch: Fetch
    """How a remote artifact is got."""
    keep: Path | None = None
    """Folder that remote files are kept in: a finished cell's never change."""
    unreachable: str | None = None
    """Where the files of the whole study were looked for in vain; None where they are there."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Cell key -> how to call the cell in a problem."""
    problems: list[Problem] = field(default_factory=list)
    """What could not be read so far."""
    _recent: dict[tuple[str, str], PredictionTable | None] = field(default_factory=dict)
    _recent_bytes: int = 0

    def __call__(self, cell: str, split: str) -> PredictionTable | None:
        """Predictions of one cell on one split; None where none can be read."""
        key = (cell, split)
        if key in self._recent:
            return self._recent[key]
        table = self._read(cell, split)
        self._recent[key] = table
        self._recent_bytes += _size(table)
        while self._recent_bytes > KEEP_BYTES and len(self._recent) > 1:
            self._recent_bytes -= _size(self._recent.pop(next(iter(self._recent))))
        return table

    def prefetch(self, cells: Iterable[str], split: str) -> None:
        """Bring remote files here, several at once; local ones are read faster one by one."""
        if self.keep is None:
            return
        uris = [self.artifact_uris[cell] for cell in cells if cell in self.artifact_uris]
        remote = [uri for uri in uris if local_folder(uri) is None]

        def bring(uri: str) -> None:
            with suppress(OSError, ValueError, AnalysisError):  # told when the file is asked for
                self._source(uri, schema.predictions_artifact(split))

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(bring, remote))

    def _read(self, cell: str, split: str) -> PredictionTable | None:
        uri = self.artifact_uris.get(cell)
        if uri is None:
            return None
        path = schema.predictions_artifact(split)
        try:
            source = self._source(uri, path)
            return None if source is None else read_table(source)
        except (OSError, ValueError) as error:  # pyarrow's own errors are subclasses of these two
            reason = " ".join(str(error).split())[:200]
            problem = Problem(
                where=f"cell {self.names.get(cell, cell)}, {path}",
                reason=f"the predictions cannot be read, so its pair has no crossed interval: {reason}",
            )
            if problem not in self.problems:
                self.problems.append(problem)
            return None

    def _source(self, uri: str, path: str) -> Path | BinaryIO | None:
        folder = local_folder(uri)
        if folder is not None:
            file = folder / path
            return file if file.is_file() else None
        kept = None if self.keep is None else self.keep / uri.rstrip("/").split("/")[-2] / path
        if kept is not None and kept.is_file():
            return kept
        fetched = self.fetch(uri, path)
        if fetched is None or isinstance(fetched, Path):
            return fetched
        if kept is not None:
            write_atomically(kept, fetched)
        return io.BytesIO(fetched)


def _size(table: PredictionTable | None) -> int:
    return 0 if table is None else table.nbytes
