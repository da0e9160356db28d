"""Two studies of the same variants on two datasets: one report, each dataset a setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from analysis.cli import main
from analysis.comparing.pairing import settings_of
from analysis.errors import ResultsError
from analysis.results.merging import together
from analysis.results.model import Results
from analysis.results.parquet import export_results
from tests.analysis.studies import study

E64 = "test/spearman_64"


def on(data: str, gain: float, **changes: Any) -> Results:
    scores = {"a": {E64: [0.8, 0.81, 0.79]}, "b": {E64: [0.8 + gain, 0.81 + gain, 0.79 + gain]}}
    made = study(
        scores,
        fields=lambda v, s, _: {"seed": s, "loss.layout": v, "data.name": data, "data.digest": data, "epochs": 3},
        **changes,
    )
    cells = tuple(_renamed(cell, data) for cell in made.cells)
    table = made.table.assign(cell=[f"{data}/{cell}" for cell in made.table["cell"]])
    return Results(**{**made.__dict__, "study": f"on-{data}", "cells": cells, "table": table})


def _renamed(cell: Any, data: str) -> Any:
    return type(cell)(**{**cell.__dict__, "cell": f"{data}/{cell.cell}"})


def test_two_datasets_become_two_settings_with_telling_labels(tmp_path: Path) -> None:
    files = [tmp_path / "jsts.parquet", tmp_path / "stsb.parquet"]
    for file, results in zip(files, (on("jsts", 0.01), on("stsb", 0.02)), strict=True):
        export_results(results, file)
    both = tmp_path / "both.parquet"
    words = [word for file in files for word in ("--results", str(file))]
    done = CliRunner().invoke(main, ["export", *words, "--output", str(both)])
    assert done.exit_code == 0, done.output
    made = CliRunner().invoke(main, ["report", "--results", str(both), "--format", "json"])
    found = json.loads(made.stdout)
    assert found["settings"] == ["data.name=jsts", "data.name=stsb"]
    (endpoint,) = found["across_settings"]["endpoints"]
    assert endpoint["mean_difference"] == pytest.approx(0.015)
    assert (endpoint["n_distinct_seeds"], endpoint["p_floor"]) == (3, 0.25)
    assert found["study"] == "on-jsts + on-stsb"


def test_other_variants_are_refused() -> None:
    other = study({"a": {E64: [0.8]}, "c": {E64: [0.8]}})
    with pytest.raises(ResultsError, match=r"on-jsts compares a, b and a-study a, c: .* need the same variants"):
        together([on("jsts", 0.01), other])
    with pytest.raises(ResultsError, match="a-study carries no fingerprints"):
        together([on("jsts", 0.01), study({"a": {E64: [0.8]}, "b": {E64: [0.8]}}, fingerprinted=False)])


def test_a_cell_of_both_studies_counts_once() -> None:
    one = on("jsts", 0.01)
    both = together([one, Results(**{**one.__dict__, "study": "again"})])
    assert (len(both.cells), len(both.table)) == (6, 6)
    assert "6 cells are recorded in an earlier study too" in both.problems[0].reason


def test_a_cell_with_another_score_in_the_second_file_decides_nothing(tmp_path: Path) -> None:
    files = [tmp_path / "one.csv", tmp_path / "two.csv"]
    for file, last in zip(files, ("0.66", "0.9"), strict=True):
        scores = {(v, s): f"0.{5 + (v == 'b')}{s}" for v in "ab" for s in range(7)} | {("b", 6): last}
        lines = [f"{v},{s},test/spearman,64,{x}" for (v, s), x in scores.items()]
        file.write_text("\n".join(["variant,seed,metric,dim,value", *lines]) + "\n")
    both = tmp_path / "both.parquet"
    words = [word for file in files for word in ("--results", str(file))]
    done = CliRunner().invoke(main, ["export", *words, "--output", str(both)])
    assert done.exit_code == 0, done.output
    found = json.loads(CliRunner().invoke(main, ["report", "--results", str(both), "--format", "json"]).stdout)
    assert found["comparisons"][0]["verdict"] == "cannot_decide"
    assert "b, seed 6, setting default: two different scores for test/spearman_64" in str(found)
    assert "other scores than an earlier study records of the same cells: 1, neither is used" in str(found["problems"])
    assert "the first: b, seed 6, setting default, test/spearman_64" in str(found["problems"])


def test_labels_fall_back_to_all_fields_that_differ() -> None:
    cells = [*on("x", 0.01).cells, *on("y", 0.01).cells]
    settings = [{"epochs": 1, "rate": 1}, {"epochs": 1, "rate": 2}, {"epochs": 2, "rate": 1}]
    shaped = [type(cell)(**{**cell.__dict__, "fields": fields}) for cell, fields in zip(cells, settings, strict=False)]
    assert list(settings_of(shaped).values()) == ["epochs=1,rate=1", "epochs=1,rate=2", "epochs=2,rate=1"]
