"""Where results come from: an MLflow study, our own Parquet export, or a table that anybody made."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from analysis.errors import ResultsError
from analysis.results.model import Results
from analysis.revisions import Meant

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


def load_file(path: Path, study: str | None = None) -> Results:
    """Results from a file: Parquet made by `analysis export`, or CSV/TSV.

    Raises:
        ResultsError: the file is missing, empty, or not what it must be.
    """
    if path.is_dir():
        raise ResultsError(f"{path}: is a folder; give a .parquet, .csv or .tsv file")
    if not path.is_file():
        raise ResultsError(f"{path}: there is no such file")
    if path.suffix.lower() in (".parquet", ".pq"):
        from analysis.results.parquet import read_archive

        return read_archive(path, study)
    if path.suffix.lower() in (".csv", ".tsv", ".txt"):
        return _read_table(path, study)
    raise ResultsError(f"{path}: {path.suffix or 'no ending'} is not read; give a .parquet, .csv or .tsv file")


def _read_table(path: Path, study: str | None) -> Results:
    """A CSV or TSV: another tool's export where it looks like one, else a table with our own columns."""
    from analysis.results import foreign, tables
    from analysis.results.tables import plain_rows, read_raw, results_of_rows

    raw = read_raw(path)
    if foreign.looks_like_mlflow(raw):
        rows, failed, problems = foreign.mlflow_rows(raw)
    elif foreign.looks_like_optuna(raw):
        rows, failed, problems = foreign.optuna_rows(raw)
    else:
        rows, failed, problems = plain_rows(raw)
    if not rows:
        raise ResultsError(f"{path}: there is no finished row with a score")
    warnings = tables.settings_by_variant(raw, *tables.setting_columns(raw))
    return results_of_rows(
        rows, study=study or path.stem, problems=(*raw.problems, *problems), failed=failed, warnings=warnings
    )


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
