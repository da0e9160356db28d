"""Results to a file: Parquet with everything, or CSV with the scores."""

from __future__ import annotations

from pathlib import Path

from analysis import schema
from analysis.errors import ResultsError
from analysis.files import write_atomically
from analysis.results.mlflow_study import finished_splits
from analysis.results.model import Results
from analysis.results.tables import guarded

TEXT_COLUMNS = (schema.COLUMN_CELL, schema.COLUMN_VARIANT, schema.COLUMN_SETTING, schema.COLUMN_METRIC)
"""Of a results table; the others are numbers, and a negative number is no formula."""


def export_results(results: Results, path: Path) -> list[str]:
    """Write results and say what was written, one line each.

    Raises:
        ResultsError: the file's ending names no format.
        OSError: it cannot be written.
    """
    ending = path.suffix.lower()
    finished = sum(cell.state == schema.STATE_FINISHED for cell in results.cells)
    if ending == ".parquet":
        from analysis.results.parquet import write_archive

        write_archive(results, path, finished_splits(results))
        lines = [f"wrote {path}: {len(results.cells)} cells ({finished} finished), {len(results.table)} scores"]
        problems = getattr(results.predictions, "problems", [])
        return [*lines, *(f"{problem.where}: {problem.reason}" for problem in problems)]
    if ending == ".csv":
        table = results.table.copy()
        for name in table.columns.intersection([*TEXT_COLUMNS]):
            table[name] = table[name].map(guarded)
        write_atomically(path, table.to_csv(index=False, lineterminator="\n").encode())
        return [
            f"wrote {path}: {len(results.table)} scores of {finished} finished cells",
            "a CSV carries neither fingerprints nor predictions: a report on it is unverified and has no crossed"
            " intervals; --output FILE.parquet keeps all",
        ]
    raise ResultsError(f"{path}: {ending or 'no ending'} is not written; name the file .parquet or .csv")
