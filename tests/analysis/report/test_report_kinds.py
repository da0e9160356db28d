"""Each kind of study through the command: several settings, several variants, sequential, and what cannot be used."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from analysis.cli import main
from analysis.plan import AnalysisPlan
from analysis.results.model import PredictionTable, Results
from analysis.results.parquet import export_results
from tests.analysis.studies import predicted_study, study

E64, E32 = "test/spearman_64", "test/spearman_32"
BASE = [0.80, 0.81, 0.79, 0.805, 0.80, 0.795, 0.81]


def scores(*gains: float) -> dict[str, dict[str, list[float]]]:
    names = "abc"[: len(gains)]
    return {v: {E64: [x + g * (1 + i / 10) for i, x in enumerate(BASE)]} for v, g in zip(names, gains, strict=True)}


def said(results: Results, folder: Path, *words: str) -> str:
    file = folder / "study.parquet"
    export_results(results, file)
    done = CliRunner().invoke(main, ["report", "--results", str(file), *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def told(results: Results, folder: Path, *words: str) -> Any:
    return json.loads(said(results, folder, *words, "--format", "json"))


def test_settings_are_a_matrix_with_one_verdict_over_them(tmp_path: Path) -> None:
    results = study({"lr=1": scores(0, 0.003), "lr=2": scores(0, 0.002), "lr=3": scores(0, -0.001)}, settings=True)
    text = said(results, tmp_path)
    opening = "Mixed: which of b and a scores higher on test/spearman_64, over 3 settings, depends on the setting: 2 of"
    assert " ".join(text.split()).startswith(opening)
    assert "2 of 3 settings favour b." in " ".join(text.split())
    matrix = text[text.index("Settings matrix") :]
    assert re.search(r"^lr=3 +7 +-0\.0013 0/7/0$", matrix, re.MULTILINE)
    assert "Do the settings differ? Welch F" in text
    found = told(results, tmp_path)
    assert found["across_settings"]["verdict"] == "mixed"
    assert [c["descriptive"] for c in found["comparisons"]] == [True] * 3


@pytest.mark.parametrize(
    ("first", "opening", "favoured"),
    [
        (scores(0, 0.003), "in the one setting that has pairs", "The one setting that has pairs favours b."),
        (scores(0), "b against a on test/spearman_64 cannot be decided: there are no pairs", "No setting has pairs."),
    ],
)
def test_settings_without_pairs_are_not_counted_as_some(
    first: dict[str, dict[str, list[float]]], opening: str, favoured: str, tmp_path: Path
) -> None:
    others = {"lr=2": scores(0), "lr=3": {"b": scores(0)["a"]}}
    text = " ".join(said(study({"lr=1": first, **others}, settings=True), tmp_path).split())
    assert opening in text
    assert favoured in text
    assert not re.search(r"\b[01] settings", text)


def test_all_pairs_are_shown_on_request_only(tmp_path: Path) -> None:
    results = study(scores(0, 0.003, 0.001))
    assert "Friedman test over 3 variants" in said(results, tmp_path)
    assert "All pairs" not in said(results, tmp_path)
    text = said(results, tmp_path, "--all-pairs")
    assert re.search(r"^c +b +-0\.0026 +0\.0156 +0\.0469$", text[text.index("All pairs") :], re.MULTILINE)


def test_a_sequential_study_shows_e_values_and_no_p(tmp_path: Path) -> None:
    results = study(scores(0, 0.003), declared_plan=AnalysisPlan(primary=(E64,), stopping="sequential"))
    text = said(results, tmp_path)
    assert "E = 26.8 of 20" in " ".join(text.split())
    assert not re.search(r"\bp = |sign p|floor", text)
    (endpoint,) = told(results, tmp_path)["comparisons"][0]["endpoints"]
    assert (endpoint["e_value"], endpoint["e_threshold"]) == (pytest.approx(26.8125), 20)
    assert [endpoint[name] for name in ("sign_test_p", "sign_flip_p", "adjusted_p", "t_p")] == [None] * 4


def test_missing_predictions_leave_the_interval_out_and_say_why(tmp_path: Path) -> None:
    whole = predicted_study(shifts=[0.3, 0.31, 0.29])

    def without_one(cell: str, split: str) -> PredictionTable | None:
        return None if cell == "new-s1-default" else whole.predictions(cell, split)

    results = Results(**{**whole.__dict__, "predictions": without_one})
    found = told(results, tmp_path)
    assert found["comparisons"][0]["endpoints"][0]["crossed_ci95"] is not None
    assert [p["reason"] for p in found["problems"]] == [
        "crossed intervals on test: left out for want of predictions: seed 1"
    ]
    none = Results(**{**whole.__dict__, "predictions": lambda cell, split: None})
    assert "No crossed interval: no per-example predictions can be read" in said(none, tmp_path).replace("\n", " ")


def test_no_finished_cell_is_cannot_decide_with_the_reasons(tmp_path: Path) -> None:
    failed = {(v, s): "out of memory" for v in "ab" for s in range(7)}
    text = said(study(scores(0, 0.003), failed=failed), tmp_path)
    assert "cannot be decided" in text.splitlines()[0]
    assert "seed 0: b failed by itself: out of memory; a failed by itself: out of memory" in text
    assert "and 1 more: --full" in text


def test_dropped_seeds_stand_in_the_brief_report_with_their_reason(tmp_path: Path) -> None:
    text = said(study(scores(0, 0.003), failed={("b", 3): "loss became NaN"}), tmp_path)
    assert text.startswith("b failed by itself on seed 3, which counts as a loss.")
    assert "seed 3: b failed by itself: loss became NaN" in text


def test_figures_are_named_by_their_setting(tmp_path: Path) -> None:
    results = study({"lr=1e-5, b/16": scores(0, 0.003), "lr=2": scores(0, 0.002)}, settings=True)
    said(results, tmp_path, "--output", str(tmp_path / "out"))
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"score-by-dim-1-lr=1e-5_b_16.png", "paired-differences-2-lr=2.svg"} <= names


def test_no_backticks_in_html(tmp_path: Path) -> None:
    page = said(study(scores(0, 0.003)), tmp_path, "--format", "html")
    assert "`" not in page
    assert "<code>" in page
