"""Tables that people have: dialects of CSV, wrong lines, averaged tables, exports of MLflow and Optuna."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from analysis import schema
from analysis.cli import main
from analysis.errors import ResultsError
from analysis.results.fields import guarded, without_guard
from analysis.results.load import load
from analysis.results.parquet import export_results
from analysis.results.tables import results_of_rows

PLAIN = [("a", 0, 0.5), ("b", 0, 0.6), ("a", 1, 0.51), ("b", 1, 0.58)]


def plain_text(separator: str = ",", comma: bool = False, newline: str = "\n") -> str:
    lines = [separator.join(("variant", "seed", "metric", "dim", "value"))]
    for variant, seed, value in PLAIN:
        number = str(value).replace(".", ",") if comma else str(value)
        lines.append(separator.join((variant, str(seed), "test/spearman", "64", number)))
    return newline.join(lines) + newline


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "scores.csv"


@pytest.mark.parametrize(
    "content",
    [
        plain_text().encode(),
        plain_text().encode("utf-8-sig"),
        plain_text().encode("utf-16"),
        plain_text(newline="\r\n").encode(),
        plain_text("\t").encode(),
        plain_text(";", comma=True).encode(),
        plain_text().replace("seed", "Seed").replace(",64,", ", 64.0 ,").encode(),
        plain_text().replace("\nb,1", "\n\n,,,,\nb,1").encode(),
        plain_text().replace("0.51", '"0,51"').encode(),
    ],
    ids=["plain", "bom", "utf16", "crlf", "tabs", "semicolons", "spaces", "blank-lines", "quoted-comma"],
)
def test_dialects_read_alike(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    results = load(results=file)
    rows = results.table[["variant", "seed", "value"]].itertuples(index=False, name=None)
    assert list(rows) == PLAIN
    assert set(results.table["dim"]) == {64}
    assert set(results.table["setting"]) == {schema.DEFAULT_SETTING}
    assert not results.fingerprinted
    assert results.variant_order == ("a", "b")


def test_a_repeated_header_is_skipped_and_told(file: Path) -> None:
    lines = plain_text().splitlines()
    file.write_text("\n".join([*lines[:3], lines[0], *lines[3:]]))
    results = load(results=file)
    assert len(results.table) == 4
    assert [problem.where for problem in results.problems] == ["scores.csv, line 4"]


@pytest.mark.parametrize("text", ["", "NaN", "null", "NA", "inf"])
def test_an_undefined_score_is_kept_as_undefined(file: Path, text: str) -> None:
    file.write_text(plain_text().replace("0.51", text))
    assert load(results=file).table["value"].isna().sum() == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("0.51", "abc", "line 4: value: 'abc' is not valid; expected a number"),
        ("a,1", "a,one", "line 4: seed: 'one' is not valid; expected a whole number"),
        ("a,1", ",1", "line 4: variant: '' is not valid; expected a name"),
        ("64,0.51", "0,0.51", "line 4: dim: '0' is not valid; expected a whole number from 1"),
        ("0.51", "0,51", r"line 4: 6 values for 5 columns \(a decimal comma needs quotes"),
        ("test/spearman,64,0.51", "spearman,64,0.51", "line 4: metric: 'spearman' is not valid"),
        ("metric", "score", "column 'metric' is missing"),
        ("seed", "run", "already averaged over seeds"),
        ("value", "mean", "already averaged over seeds"),
        ("dim", "seed", "the column 'seed' occurs twice"),
    ],
)
def test_what_is_wrong_is_named(file: Path, old: str, new: str, said: str) -> None:
    file.write_text(plain_text().replace(old, new, 1))
    with pytest.raises(ResultsError, match=said):
        load(results=file)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"variant,seed,metric,dim,value\n", "no finished row with a score"),
        (b"variant,seed\n\xff\xff,1\n", "line 2 is not UTF-8"),
        (b"PK\x03\x04\x00\x00", "not a text file"),
    ],
)
def test_files_that_are_no_table(file: Path, content: bytes, said: str) -> None:
    file.write_bytes(content)
    with pytest.raises(ResultsError, match=said):
        load(results=file)


def mlflow_table() -> pd.DataFrame:
    rows = [
        {"run_id": f"r{i}", "experiment_id": "1", "status": "FINISHED", "metrics.test/spearman_64": value,
         "metrics.train/loss_1": 0.1, "params.variant": variant, "params.seed": str(seed), "tags.mlflow.user": "x"}
        for i, (variant, seed, value) in enumerate(PLAIN)
    ]  # fmt: skip
    return pd.DataFrame([*rows, rows[0] | {"run_id": "r9", "status": "FAILED", "metrics.test/spearman_64": 0.1}])


def test_mlflows_own_table_is_converted_finished_runs_only(file: Path) -> None:
    mlflow_table().to_csv(file, index=False)
    results = load(results=file)
    rows = results.table[["variant", "seed", "value"]].itertuples(index=False, name=None)
    assert list(rows) == PLAIN
    assert [problem.reason for problem in results.problems] == [
        "runs left out because only FINISHED ones count: 1 FAILED"
    ]


@pytest.mark.parametrize(
    ("dropped", "said"),
    [
        ("params.seed", "no column is called seed; say what its columns are, for example: analysis report --results"),
        ("metrics.test/spearman_64", "no score is named like test/spearman_256"),
        ("status", "column 'status' is missing"),
    ],
)
def test_mlflows_table_is_refused_with_what_to_change(file: Path, dropped: str, said: str) -> None:
    mlflow_table().drop(columns=dropped).to_csv(file, index=False)
    with pytest.raises(ResultsError, match=said):
        load(results=file)


def optuna_table() -> pd.DataFrame:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize")
    for variant, seed, value in PLAIN:
        trial = study.ask()
        trial.set_user_attr("variant", variant)
        trial.set_user_attr("seed", seed)
        trial.set_user_attr("test/spearman_64", value)
        study.tell(trial, value)
    study.tell(study.ask(), state=optuna.trial.TrialState.FAIL)
    return study.trials_dataframe()


def test_optunas_own_table_is_converted_complete_trials_only(file: Path) -> None:
    optuna_table().to_csv(file, index=False)
    results = load(results=file)
    rows = results.table[["variant", "seed", "value"]].itertuples(index=False, name=None)
    assert list(rows) == PLAIN
    assert results.problems[0].reason == "trials left out because only COMPLETE ones count: 1 FAIL"
    assert "exploratory" in results.problems[1].reason


def test_optunas_table_without_metric_and_dim_is_refused(file: Path) -> None:
    optuna_table().drop(columns="user_attrs_test/spearman_64").to_csv(file, index=False)
    with pytest.raises(ResultsError, match="no score is named like test/spearman_256; say what its columns are"):
        load(results=file)


def table_of(rows: str, head: str = "variant,seed,setting,metric,dim,value") -> str:
    return f"{head}\n{rows}\n"


@pytest.mark.parametrize(
    ("value", "metric", "said"),
    [
        ("75.4", "test/spearman", "line 3: value: '75.4' is not valid; expected a number from -1 to 1 for spearman"),
        ("1e200", "test/pearson", "expected a number from -1 to 1 for pearson"),
        ("1.2", "test/ndcg@10", "expected a number from 0 to 1 for ndcg@10"),
        ("-0.1", "test/accuracy", "expected a number from 0 to 1 for accuracy"),
        ('"1,200"', "test/own", "line 3: value: '1,200' is not valid; expected a number (1,200 could be 1.2 or 1200"),
    ],
)
def test_a_value_that_cannot_be_names_its_line(file: Path, value: str, metric: str, said: str) -> None:
    file.write_text(table_of(f"a,0,,{metric},64,0.5\nb,0,,{metric},64,{value}"))
    with pytest.raises(ResultsError) as caught:
        load(results=file)
    assert said in str(caught.value)


@pytest.mark.parametrize("value", ["1.7976931348623157e308", "-1.7976931348623157e+308"])
def test_the_largest_double_is_an_undefined_score(file: Path, value: str) -> None:
    file.write_text(table_of(f"a,0,,test/own,64,0.5\nb,0,,test/own,64,{value}"))
    assert load(results=file).table["value"].isna().tolist() == [False, True]


def test_large_seeds_stay_apart(file: Path) -> None:
    file.write_text(table_of("a,9007199254740992,,test/own,64,0.5\na,9007199254740993,,test/own,64,0.6"))
    assert load(results=file).table["seed"].tolist() == [9007199254740992, 9007199254740993]


def test_settings_are_compared_as_numbers(file: Path) -> None:
    texts = ("2e-5", "0.00002", "2E-05", '"lr=2e-5,batch=16"', '"lr=0.00002,batch=16.0"', "other")
    file.write_text(table_of("\n".join(f"a,{i},{text},test/own,64,0.5" for i, text in enumerate(texts))))
    found = load(results=file).table["setting"].tolist()
    assert found == ["2e-5"] * 3 + ["lr=2e-5,batch=16"] * 2 + ["other"]


def test_rows_that_did_not_finish_are_counted_not_used(file: Path) -> None:
    head = "variant,seed,metric,dim,value,state"
    rows = [f"{v},{s},test/own,64,0.{s}5,{'crashed' if v + s == 'b1' else 'finished'}" for v in "ab" for s in "12"]
    file.write_text(table_of("\n".join(rows), head))
    results = load(results=file)
    assert len(results.table) == 3
    assert [p.reason for p in results.problems] == [
        "rows left out because column 'state' does not say that they finished: 1 crashed"
    ]


def test_a_metric_without_a_number_is_an_error(file: Path) -> None:
    file.write_text(table_of("a,0,,test/own,64,0.5\nb,0,,test/own,64,0.6\na,0,,test/x,64,\nb,0,,test/x,64,"))
    with pytest.raises(ResultsError, match="metric 'test/x' has no number in any of its 2 rows"):
        load(results=file)


def test_a_folder_is_called_one(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="is a folder; give a"):
        load(results=tmp_path)


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "'=quoted", "''-twice", "'plain", '=HYPERLINK("http://x","a,b")', "a=b"]


def test_an_exported_csv_holds_no_formula_and_comes_back_as_it_was(file: Path) -> None:
    rows = [
        (f"{variant}-s{seed}-{setting}", variant, seed, setting, "=x/spearman", 64, value)
        for variant in FORMULAS
        for setting in ("-s", "default")
        for seed, value in ((0, -0.25), (1, 0.5))
    ]
    before = results_of_rows(rows, study="s", problems=())
    export_results(before, file)
    with file.open(newline="", encoding="utf-8") as opened:
        cells = [(column, cell) for row in csv.DictReader(opened) for column, cell in row.items()]
    for column, cell in cells:
        if column in ("seed", "dim", "value"):
            float(cell)
        else:
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r")), cell
    assert "-0.25" in [cell for column, cell in cells if column == "value"]
    after = load(results=file)
    assert after.variant_order == tuple(FORMULAS)
    columns = ["variant", "seed", "setting", "metric", "dim", "value"]
    pd.testing.assert_frame_equal(
        after.table[columns].reset_index(drop=True), before.table[columns].reset_index(drop=True)
    )


@pytest.mark.parametrize("text", [*FORMULAS, "\tx", "\rx", "'\tx", "", "'"])
def test_the_guard_against_formulas_is_taken_off_exactly(text: str) -> None:
    assert without_guard(guarded(text)) == text


def test_labels_from_anywhere_are_shown_with_what_moves_text_written_out(file: Path) -> None:
    labels = ("a\u202eb", "red\x1b[31m", "two\nlines", "日本　語")
    with file.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.writer(opened)
        writer.writerow(["variant", "seed", "setting", "metric", "dim", "value"])
        for label in labels:
            writer.writerows([label, seed, f"on {label}", "test/spearman", 64, 0.5] for seed in (0, 1))
    results = load(results=file)
    shown = (r"a\u202eb", r"red\x1b[31m", r"two\nlines", "日本　語")
    assert results.variant_order == shown
    assert {cell.variant for cell in results.cells} == set(results.table["variant"]) == set(shown)
    assert set(results.table["setting"]) == {f"on {label}" for label in shown}
    done = CliRunner().invoke(main, ["report", "--results", str(file)])
    assert done.exit_code == 0, done.output
    assert r"a\u202eb" in done.output
    assert not any(char in done.output for char in "\u202e\x1b")


def test_sentences_end_once_and_a_table_without_pairs_says_so(file: Path) -> None:
    head = "variant,seed,metric,dim,value\n"
    file.write_text(head + "".join(f"{v},{s},test/spearman,64,0.5\n" for v in "ab" for s in range(6)))
    done = CliRunner().invoke(main, ["report", "--results", str(file)])
    said = " ".join(done.output.split())
    assert "was one checkpoint evaluated twice?" in said
    assert "?." not in said
    file.write_text(head + "".join(f"{v},{s + 10 * (v == 'b')},test/spearman,64,0.5\n" for v in "ab" for s in range(6)))
    done = CliRunner().invoke(main, ["report", "--results", str(file)])
    said = " ".join(done.output.split())
    assert "no per-example predictions" not in said
    assert "there are no pairs" in said
