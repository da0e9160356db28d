"""Where results come from: an MLflow study, our own Parquet export, or a table that anybody made."""

from __future__ import annotations

from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.errors import ResultsError
from analysis.results.column_map import ColumnMap
from analysis.results.model import Results
from analysis.revisions import Meant

if TYPE_CHECKING:
    from analysis.results.delimited import RawTable

STUDY_SUFFIXES = (".yaml", ".yml")
STUDY_FILE_READERS = "pairsweep.study_file"
"""Entry points that say what a study file means; `sweep` has one, and without it a file is no more than its name."""


def load(
    study: str | Path | None = None,
    *,
    tracking_uri: str | None = None,
    results: str | Path | None = None,
) -> Results:
    """What is recorded about a study: of each variant the revision that its file means now, else the last one.

    Args:
        study: A study file or an experiment's name; with `results` it only names the report.
        tracking_uri: The MLflow store; None: MLFLOW_TRACKING_URI, else `sqlite:///mlflow.db`.
        results: A `.parquet` file (made by `analysis export`) or a CSV file, instead of MLflow.

    Raises:
        ResultsError: nothing can be read; says what, where and what is allowed.
    """
    name = None if study is None else study_name(study)
    if results is not None:
        return load_file(Path(results), name)
    if name is None:
        raise ResultsError("give a study (its file or its experiment's name), or results=FILE")
    from analysis.results.mlflow_study import MlflowStudy

    return MlflowStudy(name, tracking_uri, meant=meant_by(str(study))).results()


def load_file(path: Path, study: str | None = None, columns: ColumnMap | None = None) -> Results:
    """Results from a file: Parquet made by `analysis export`, or CSV/TSV.

    Args:
        path: The file.
        study: What the report calls it; None: the file's name.
        columns: What the columns of a CSV are, where they are not called as they should be.

    Raises:
        ResultsError: the file is missing, empty, or not what it must be.
    """
    if path.is_dir():
        raise ResultsError(f"{path}: is a folder; give a .parquet, .csv or .tsv file")
    if not path.is_file():
        raise ResultsError(f"{path}: there is no such file")
    if path.suffix.lower() in (".parquet", ".pq"):
        from analysis.results.parquet import read_archive

        if columns:
            raise ResultsError(f"{path}: its columns are known; --variant, --seed and the like are for tables")
        return read_archive(path, study)
    if path.suffix.lower() in (".csv", ".tsv", ".txt"):
        return _read_table(path, study, columns or ColumnMap())
    raise ResultsError(f"{path}: {path.suffix or 'no ending'} is not read; give a .parquet, .csv or .tsv file")


def _read_table(path: Path, study: str | None, asked: ColumnMap) -> Results:
    """A CSV or TSV: as somebody says its columns are, else another tool's, else a table with our own columns."""
    from analysis.results.delimited import read_raw

    return results_of_raw(read_raw(path), study, asked)


def results_of_raw(raw: RawTable, study: str | None, asked: ColumnMap) -> Results:
    """Results of a table that has been read.

    Raises:
        ResultsError: what it must say is not there, or a field cannot be read.
    """
    from analysis.results import foreign
    from analysis.results.column_map import find_columns
    from analysis.results.layouts import PLAIN, layout_of
    from analysis.results.mapped import mapped_rows
    from analysis.results.tables import plain_rows, results_of_rows

    layout = layout_of(raw)
    metric_order: tuple[str, ...] = ()
    variant: str | None = None
    if asked:
        columns = find_columns(raw, layout, asked)
        variant, metric_order = columns.variant, columns.metric_order
        found = foreign.with_search(raw, layout, mapped_rows(raw, layout, columns))
    elif layout is PLAIN:
        found = plain_rows(raw)
    else:
        found = foreign.rows_of_tool(raw, layout)
    if not found.rows:
        raise ResultsError(f"{raw.path}: there is no finished row with a score")
    differing = foreign.settings_by_variant(raw, layout, variant)
    results = results_of_rows(
        found.rows,
        study=study or raw.path.stem,
        problems=(*raw.problems, *found.problems),
        failed=found.failed,
        warnings=(*found.warnings, *differing),
    )
    return replace(results, metric_order=metric_order)


def meant_by(study: str) -> Meant | None:
    """What a study file means now; None for an experiment's name, and where nothing here can read study files."""
    if Path(study).suffix.lower() not in STUDY_SUFFIXES:
        return None
    for reader in metadata.entry_points(group=STUDY_FILE_READERS):
        meant: Meant = reader.load()(Path(study))
        return meant
    return None


def study_name(study: str | Path) -> str:
    """The experiment's name: what a study file says under `name:`, or the text itself.

    Raises:
        ResultsError: a study file that is missing or has no name.
    """
    text = str(study)
    path = Path(text)
    looks_like_file = path.suffix.lower() in STUDY_SUFFIXES
    if not looks_like_file:
        return text
    if not path.is_file():
        raise ResultsError(f"{text}: there is no such study file")
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ResultsError(f"{text}: is not YAML: {' '.join(str(error).split())[:160]}") from None
    name = content.get("name") if isinstance(content, dict) else None
    if not isinstance(name, str) or not name:
        raise ResultsError(f"{text}: name: {name!r} is not valid; expected the study's name")
    return name
