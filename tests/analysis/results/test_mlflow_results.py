"""Reading a study from a real MLflow store, keeping what was found, noting reports, and the Parquet round trip."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from mlflow.tracking import MlflowClient

from analysis import schema
from analysis.cli import main
from analysis.errors import ResultsError
from analysis.results.load import load
from analysis.results.mlflow import ClientStore
from analysis.results.mlflow_sqlite import SqliteStore
from analysis.results.mlflow_study import MlflowStudy
from analysis.results.parquet import export_results
from analysis.showing import hide_credentials
from tests.analysis.recorded import EXAMPLES, record_cell, record_study

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    record_study(folder)
    return folder


@pytest.fixture
def folder(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the recorded store whose database may be written; artifacts stay where they are."""
    monkeypatch.setenv("PAIRSWEEP_CACHE", str(tmp_path / "cache"))
    shutil.copy(recorded / "mlflow.db", tmp_path / "mlflow.db")
    return tmp_path


@pytest.fixture
def whole(folder: Path, recorded: Path) -> str:
    """URI of a copy that has its own artifacts too."""
    shutil.copytree(recorded / "artifacts", folder / "artifacts")
    with closing(sqlite3.connect(folder / "mlflow.db")) as database, database:
        moved = (str(recorded), str(folder))
        database.execute("UPDATE runs SET artifact_uri = replace(artifact_uri, ?, ?)", moved)
    return f"sqlite:///{folder / 'mlflow.db'}"


@pytest.fixture
def uri(folder: Path) -> str:
    return f"sqlite:///{folder / 'mlflow.db'}"


@pytest.fixture
def run(uri: str) -> Run:
    return lambda *words: CliRunner().invoke(main, [*words, "--tracking-uri", uri])


def client_and_experiment(uri: str) -> tuple[MlflowClient, str]:
    client = MlflowClient(uri)
    found = client.get_experiment_by_name("small")
    assert found is not None
    return client, found.experiment_id


def test_direct_reading_equals_the_client(uri: str, folder: Path) -> None:
    direct = SqliteStore(uri, folder / "mlflow.db")
    assert direct.schema_is_known()
    assert direct.cell_runs("small") == ClientStore(uri).cell_runs("small")
    assert direct.study_runs("small") == ClientStore(uri).study_runs("small")


def test_everything_recorded_is_read(uri: str) -> None:
    results = load("small", tracking_uri=uri)
    assert len(results.cells) == 10
    assert len(results.table) == 10 * 4
    assert list(results.table.columns) == list(schema.RESULT_COLUMNS)
    assert results.declared_baseline == "chunked"
    assert results.declared_plan is not None
    assert results.declared_plan.primary == ("test/spearman_32",)
    assert results.variant_order == ("chunked", "interleaved")
    cell = results.cells[0]
    assert cell.fingerprint == {"weights": "w0", "data": "d"}
    assert cell.times == {"train_s": 12.0}
    found = results.predictions(cell.cell, "test")
    assert found is not None
    assert found.labels.shape == (EXAMPLES,)
    assert sorted(found.by_dim) == [16, 32]
    assert results.predictions(cell.cell, "validation") is None


def test_unfinished_cells_are_counted_not_used(uri: str) -> None:
    client, experiment = client_and_experiment(uri)
    record_cell(client, experiment, variant="chunked", number=0, seed=5, status="FAILED",
                sweep__failure="loss became NaN", sweep__failure_kind="cell")  # fmt: skip
    record_cell(client, experiment, variant="interleaved", number=1, seed=0, status="KILLED")
    results = load("small", tracking_uri=uri)
    (failed,) = [cell for cell in results.cells if cell.state == schema.STATE_FAILED]
    assert (failed.seed, failed.failure, failed.failure_kind) == (5, "loss became NaN", "cell")
    assert [problem.reason for problem in results.problems] == ["not used, a later attempt stands: 1 KILLED"]
    assert len(results.table) == 40


def test_flagged_nan_is_nan_not_zero(uri: str) -> None:
    client, _ = client_and_experiment(uri)
    run_id = SqliteStore(uri, Path(uri.removeprefix("sqlite:///"))).cell_runs("small")[0].run_id
    client.log_metric(run_id, "test/spearman_32", float("nan"))
    table = load("small", tracking_uri=uri).table
    assert table["value"].isna().sum() == 1


def test_report_names_a_corrupt_predictions_file_and_goes_on(whole: str, folder: Path) -> None:
    target = next((folder / "artifacts").rglob("predictions/test.parquet"))
    target.write_bytes(target.read_bytes()[:200])
    done = CliRunner().invoke(main, ["report", "small", "--tracking-uri", whole])
    assert done.exit_code == 0, done.output
    said = " ".join(done.stdout.split())
    assert "predictions/test.parquet: the predictions cannot be read" in said


@pytest.mark.parametrize("direct", [True, False])
def test_exchanged_names_are_another_state_and_the_declared_baseline_follows(
    uri: str, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def study() -> MlflowStudy:
        found = MlflowStudy("small", uri)
        if not direct:
            monkeypatch.setattr(found, "_store", ClientStore(uri))
        return found

    before = study().state()
    assert study().state() == before
    client, _ = client_and_experiment(uri)
    other = {"chunked": "interleaved", "interleaved": "chunked"}
    for run in ClientStore(uri).cell_runs("small"):
        called = run.tags[schema.TAG_VARIANT]
        client.set_tag(run.run_id, schema.TAG_FIRST_VARIANT, called)
        client.set_tag(run.run_id, schema.TAG_VARIANT, other[called])
    assert study().state() != before
    results = study().results()
    assert results.declared_baseline == "interleaved"
    assert results.variant_order == ("interleaved", "chunked")


def test_cached_report_is_the_same_and_imports_no_mlflow(uri: str, folder: Path) -> None:
    code = (
        "import sys\n"
        "from analysis.report.report import Question, report_on_study\n"
        f"made = report_on_study('small', Question(), {uri!r})\n"
        "text = made.render('json')\n"
        "print(text)\n"
        "print([n for n in ('mlflow', 'torch', 'ray', 'pandas', 'scipy') if n in sys.modules])\n"
    )
    cold, warm = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert cold.splitlines()[:-1] == warm.splitlines()[:-1]
    assert cold.splitlines()[-1] == "['pandas', 'scipy']"
    assert warm.splitlines()[-1] == "[]"


def test_cache_is_left_when_a_cell_is_added_and_ignored_when_corrupt(run: Run, uri: str, folder: Path) -> None:
    first = run("report", "small", "--format", "json")
    assert run("report", "small", "--format", "json").stdout == first.stdout
    for entry in (folder / "cache").rglob("findings-*.json"):
        entry.write_text(entry.read_text()[:100])
    assert run("report", "small", "--format", "json").stdout == first.stdout
    client, experiment = client_and_experiment(uri)
    for number, variant in enumerate(("chunked", "interleaved")):
        record_cell(client, experiment, variant=variant, number=number, seed=5)
    more = json.loads(run("report", "small", "--format", "json").stdout)
    assert more["comparisons"][0]["endpoints"][0]["n_pairs"] == 6


def test_a_report_is_noted_on_the_study_run_after_printing(run: Run, uri: str) -> None:
    assert run("report", "small").exit_code == 0
    (entry,) = load("small", tracking_uri=uri).history
    assert entry.kind == "report"
    assert entry.detail == {"pairs": 5, "could_reach_alpha": False}


def test_a_store_that_cannot_be_written_costs_a_notice_only(
    run: Run, uri: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(folder / "mlflow.db")) as database, database:
        database.execute("CREATE TRIGGER closed BEFORE INSERT ON tags BEGIN SELECT RAISE(ABORT, 'read only'); END")
    done = run("report", "small", "--format", "json")
    assert done.exit_code == 0
    json.loads(done.stdout)
    assert "could not be noted on the study run" in done.stderr
    assert "cannot be written: read only" in done.stderr


def change_metric(database: sqlite3.Connection) -> None:
    database.execute("UPDATE latest_metrics SET value = 0.99 WHERE rowid = (SELECT MIN(rowid) FROM latest_metrics"
                     " WHERE \"key\" LIKE 'test/%')")  # fmt: skip


def exchange_two(database: sqlite3.Connection) -> None:
    key = "test/spearman_16"
    (one, x), (two, y) = database.execute(
        'SELECT run_uuid, value FROM latest_metrics WHERE "key" = ? ORDER BY value LIMIT 2', (key,)
    ).fetchall()
    assert x != y
    for run_id, value in ((one, y), (two, x)):
        database.execute('UPDATE latest_metrics SET value = ? WHERE run_uuid = ? AND "key" = ?', (value, run_id, key))


def make_nan(database: sqlite3.Connection) -> None:
    database.execute("UPDATE latest_metrics SET is_nan = 1 WHERE \"key\" = 'test/pearson_16'")


def change_tag(database: sqlite3.Connection) -> None:
    database.execute("UPDATE tags SET value = 'other' WHERE \"key\" = 'fingerprint.data'")


@pytest.mark.parametrize("change", [change_metric, exchange_two, make_nan, change_tag])
def test_a_changed_record_is_another_state(
    uri: str, folder: Path, change: Callable[[sqlite3.Connection], None]
) -> None:
    before = MlflowStudy("small", uri).state()
    assert MlflowStudy("small", uri).state() == before
    with closing(sqlite3.connect(folder / "mlflow.db")) as database, database:
        rows = database.total_changes
        change(database)
        assert database.total_changes > rows
    assert MlflowStudy("small", uri).state() != before


def test_removed_predictions_are_another_state(whole: str, folder: Path) -> None:
    before = MlflowStudy("small", whole).state()
    finished = next(
        run for run in SqliteStore(whole, folder / "mlflow.db").cell_runs("small") if run.status == "FINISHED"
    )
    (Path(finished.artifact_uri.removeprefix("file://")) / "predictions" / "test.parquet").unlink()
    assert MlflowStudy("small", whole).state() != before


def test_a_report_made_again_is_answered_from_the_cache_and_noted_without_mlflow(uri: str, folder: Path) -> None:
    code = (
        "import sys\n"
        "from analysis.cli import main\n"
        f"try:\n    main(['report', 'small', '--tracking-uri', {uri!r}, '--format', 'json'])\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "print([n for n in ('mlflow', 'pandas', 'scipy') if n in sys.modules], file=sys.stderr)\n"
    )
    cold, warm = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)
    )
    assert cold.stdout == warm.stdout
    assert cold.stderr.splitlines()[-1] == "['pandas', 'scipy']"
    assert warm.stderr.splitlines()[-1] == "[]"
    assert [entry.kind for entry in load("small", tracking_uri=uri).history] == ["report", "report"]


def test_the_schema_of_the_installed_mlflow_is_known(tmp_path: Path) -> None:
    """Fails when MLflow's tables change: then read them anew, and only then add the version to KNOWN_SCHEMAS."""
    uri = f"sqlite:///{tmp_path / 'new.db'}"
    MlflowClient(uri).search_experiments()
    assert SqliteStore(uri, tmp_path / "new.db").schema_is_known()


def test_a_deleted_experiment_is_told_alike_by_both_ways(uri: str, folder: Path) -> None:
    client, experiment = client_and_experiment(uri)
    client.delete_experiment(experiment)
    for store in (SqliteStore(uri, folder / "mlflow.db"), ClientStore(uri)):
        with pytest.raises(ResultsError, match="no study named 'small'; nothing is recorded there"):
            store.cell_runs("small")


@pytest.mark.parametrize("value", [75.4, -1.01, 1e200])
def test_a_score_that_cannot_be_names_its_run(uri: str, folder: Path, value: float) -> None:
    with closing(sqlite3.connect(folder / "mlflow.db")) as database, database:
        database.execute("UPDATE latest_metrics SET value = ? WHERE \"key\" = 'test/spearman_16'", (value,))
    with pytest.raises(ResultsError, match=r"run \w+ \(variant \w+, seed 0, .*spearman_16: .* from -1 to 1"):
        load("small", tracking_uri=uri)


@pytest.mark.parametrize("value", [1.7976931348623157e308, -1.7976931348623157e308])
def test_a_stored_infinity_is_an_undefined_score(uri: str, folder: Path, value: float) -> None:
    with closing(sqlite3.connect(folder / "mlflow.db")) as database, database:
        database.execute("UPDATE latest_metrics SET value = ? WHERE \"key\" = 'test/spearman_16'", (value,))
    table = load("small", tracking_uri=uri).table
    assert table[(table["metric"] == "test/spearman") & (table["dim"] == 16)]["value"].isna().all()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://me:secret@host:5000/x", "http://host:5000/x"),
        ("postgresql://me:se/cr@et@db/runs: refused", "postgresql://db/runs: refused"),
        ("cannot open 'http://me:secret@host'; see http://other/", "cannot open 'http://host'; see http://other/"),
        ("sqlite:///a@b.db", "sqlite:///a@b.db"),
        ("http://host/plain", "http://host/plain"),
        ("http://me:se'c\"ret@host", "http://host"),
        ("postgresql://db/runs?user=me&password=secret&x=1", "postgresql://db/runs?user=me&password=***&x=1"),
    ],
)
def test_credentials_are_never_shown(text: str, shown: str) -> None:
    assert hide_credentials(text) == shown


def test_log_attaches_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIRSWEEP_CACHE", str(tmp_path / "cache"))
    uri = record_study(tmp_path, seeds=2)  # of its own: MLflow remembers where a run's artifacts lie
    done = CliRunner().invoke(main, ["report", "small", "--tracking-uri", uri, "--log"])
    assert done.exit_code == 0, done.output
    names = {path.name for path in (tmp_path / "artifacts").rglob("reports/*")}
    assert {"report.html", "report.md", "score-by-dim.png", "paired-differences.svg"} <= names


def test_log_puts_the_verdict_into_the_description(whole: str) -> None:
    client = MlflowClient(whole)
    (run,) = client.search_runs(["1"], filter_string="tags.`sweep.kind` = 'study'")
    client.set_tag(
        run.info.run_id,
        schema.TAG_DESCRIPTION,
        f"**Question.** Is it?\n\n{schema.VERDICT_HEADING} None yet.\n\nDesign.",
    )
    done = CliRunner().invoke(main, ["report", "small", "--tracking-uri", whole, "--log"])
    assert done.exit_code == 0, done.output
    told = client.get_run(run.info.run_id).data.tags[schema.TAG_DESCRIPTION]
    headline = " ".join(done.stdout.split("\n\n")[0].split())
    assert told == f"**Question.** Is it?\n\n{schema.VERDICT_HEADING} {headline}\n\nDesign."


def test_log_puts_numbers_and_verdict_on_the_study_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIRSWEEP_CACHE", str(tmp_path / "cache"))
    uri = record_study(tmp_path, seeds=3)
    words = ["report", "small", "--tracking-uri", uri, "--format", "json"]
    client = MlflowClient(uri)
    (experiment,) = [one.experiment_id for one in client.search_experiments() if one.name == "small"]

    def study_run() -> Any:
        return client.search_runs([experiment], filter_string="tags.`sweep.kind` = 'study'")[0].data

    assert CliRunner().invoke(main, words).exit_code == 0
    assert not study_run().metrics
    done = CliRunner().invoke(main, [*words, "--log"])
    (comparison,) = json.loads(done.stdout)["comparisons"]
    found = next(one for one in comparison["endpoints"] if one["primary"])
    name = f"{comparison['treatment']}.{found['endpoint'].replace('/', '.')}"
    metrics = study_run().metrics
    assert metrics[f"report/mean_difference.{name}"] == found["mean_difference"]
    assert metrics[f"report/p.{name}"] == found["adjusted_p"]
    assert metrics[f"report/mean.{name}"] == found["mean_treatment"]
    assert study_run().tags[f"sweep.verdict.{comparison['treatment']}"] == comparison["verdict"]

    # What the next report does not say does not stay beside what it says.
    done = CliRunner().invoke(main, [*words, "--baseline", comparison["treatment"], "--log"])
    (turned,) = json.loads(done.stdout)["comparisons"]
    metrics, tags = study_run().metrics, study_run().tags
    assert math.isnan(metrics[f"report/p.{name}"])
    other = f"{turned['treatment']}.{found['endpoint'].replace('/', '.')}"
    assert metrics[f"report/mean_difference.{other}"] == -found["mean_difference"]
    verdicts = {tag: verdict for tag, verdict in tags.items() if tag.startswith("sweep.verdict.")}
    assert verdicts == {f"sweep.verdict.{turned['treatment']}": f"{turned['verdict']}, exploratory"}


def test_any_label_gives_a_name_that_stores_take() -> None:
    name = schema.report_metric(schema.REPORT_P, "lr=1e-5+b@2", "test/spearman_64")
    assert name == "report/p.lr_1e-5_b_2.test.spearman_64"
    assert schema.name_problem(name) is None


def test_parquet_export_gives_the_same_report(run: Run, uri: str, folder: Path) -> None:
    file = folder / "small.parquet"
    assert run("export", "small", "--output", str(file)).exit_code == 0
    from_store = run("report", "small", "--format", "json")
    from_file = CliRunner().invoke(main, ["report", "--results", str(file), "--format", "json"])
    assert from_file.exit_code == 0, from_file.output
    assert json.loads(from_file.stdout) == json.loads(from_store.stdout)
    assert json.loads(from_file.stdout)["comparisons"][0]["endpoints"][0]["crossed_ci95"] is not None


def test_csv_export_keeps_the_scores(uri: str, folder: Path) -> None:
    results = load("small", tracking_uri=uri)
    said = export_results(results, folder / "small.csv")
    assert "neither fingerprints nor predictions" in said[1]
    again = load(results=folder / "small.csv")
    columns = list(schema.PLAIN_COLUMNS)
    assert again.table[columns].equals(results.table[columns])
    assert not again.fingerprinted


def test_a_parquet_file_of_another_kind_is_refused(folder: Path, recorded: Path) -> None:
    other = next((recorded / "artifacts").rglob("predictions/test.parquet"))
    with pytest.raises(ResultsError, match="was not made by `analysis export`"):
        load(results=other)
    cut = folder / "cut.parquet"
    cut.write_bytes(other.read_bytes()[:-20])
    with pytest.raises(ResultsError, match=r"cut\.parquet: cannot be read as Parquet"):
        load(results=cut)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "absent"], "no study named 'absent'; recorded there: small"),
        (["report", "small", "--primary", "test/spearman_999"], "test/spearman_999"),
        (["report", "small", "--primary", "spearman"], "is not an endpoint"),
        (["report", "small", "--baseline", "nobody"], "nobody"),
        (["report", "absent.yaml"], "there is no such study file"),
        (["export", "small", "--output", "x.xlsx"], "name the file .parquet or .csv"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(run: Run, words: list[str], said: str) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert done.stderr.startswith("analysis: ")
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_missing_database_is_not_made(folder: Path) -> None:
    done = CliRunner().invoke(main, ["report", "small", "--tracking-uri", f"sqlite:///{folder}/none.db"])
    assert done.exit_code == 2
    assert "no such MLflow database" in done.stderr
    assert not (folder / "none.db").exists()


def test_a_study_file_names_the_experiment(run: Run, folder: Path) -> None:
    file = folder / "study.yaml"
    file.write_text("name: small\nversion: 1\n")
    assert json.loads(run("report", str(file), "--format", "json").stdout)["study"] == "small"
