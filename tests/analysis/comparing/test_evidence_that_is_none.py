"""Seeds that repeat, scores that are not numbers or contradict their predictions, trainings without a gradient."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.comparing.findings import StudyFindings
from analysis.comparing.study import compare
from analysis.plan import AnalysisPlan
from analysis.report.report import Question, report_on_results
from analysis.results.load import load_file
from analysis.results.model import Results
from tests.analysis.studies import predicted_study, study

E64 = "test/spearman_64"
NAN = float("nan")


def findings(results: Results, **changes: Any) -> StudyFindings:
    options: dict[str, Any] = {"plan": None, "baseline": None, "allow_unverified": False}
    return compare(results, **(options | changes), rng=np.random.default_rng(0))


def kinds(found: StudyFindings) -> list[str]:
    return [n.kind for n in found.notices]


def test_identical_seeds_are_the_evidence_of_one() -> None:
    one = predicted_study(shifts=[1.5] * 6, examples=400)
    first = {name: one.predictions(f"{name}-s0-default", "test") for name in ("base", "new")}
    score = {
        n: float(one.table.query(f"cell == '{n}-s0-default' and metric == 'test/spearman'").value.iloc[0])
        for n in first
    }
    same = study(
        {n: {E64: [x] * 6} for n, x in score.items()}, predictions=lambda cell, split: first[cell.split("-")[0]]
    )
    found = findings(same)
    assert found.comparisons[0].endpoints[0].crossed is not None
    assert found.comparisons[0].endpoints[0].crossed.ci95_joint[0] > 0  # type: ignore[index]
    assert found.comparisons[0].verdict == "better_on_this_test_set"
    assert kinds(found)[0] == "identical_seeds"
    assert "evidence of one" in found.headline
    close = study({"a": {E64: [0.8] * 6}, "b": {E64: [0.8001] * 6}})
    assert findings(close, plan=AnalysisPlan(margin=0.01)).comparisons[0].verdict == (
        "different_but_negligible_on_this_test_set"
    )


def test_one_constant_side_is_no_repetition() -> None:
    assert "identical_seeds" not in kinds(
        findings(study({"a": {E64: [0.8] * 6}, "b": {E64: [0.81, 0.82, 0.83, 0.84, 0.85, 0.86]}}))
    )


def csv(path: Path, lines: list[str], header: str = "variant,seed,metric,dim,value") -> Results:
    path.write_text("\n".join([header, *lines]) + "\n")
    return load_file(path)


def test_collapse_on_fourteen_of_twenty_seeds_is_no_win(tmp_path: Path) -> None:
    lines = [f"a,{s},test/spearman,64,{0.8 + s / 1000}" for s in range(20)]
    lines += [f"b,{s},test/spearman,64,{0.82 + s / 900 if s < 6 else 'nan'}" for s in range(20)]
    found = report_on_results(csv(tmp_path / "x.csv", lines), Question()).findings
    e = found.comparisons[0].endpoints[0]
    assert (e.wins, e.losses, e.n_pairs) == (6, 14, 6)
    assert found.comparisons[0].verdict == "undecided"
    assert found.headline.startswith("b has no defined score (test/spearman_64) on seeds 6 to 19 (14 of them), which")
    assert kinds(found)[0] == "failed_by_itself"


def test_undefined_on_both_sides_or_never_taken_is_dropped() -> None:
    both = study({"a": {E64: [0.8, NAN, 0.7, 0.75]}, "b": {E64: [0.81, NAN, 0.72, 0.76]}})
    e = findings(both).comparisons[0].endpoints[0]
    assert (e.wins, e.losses) == (3, 0)
    part = study({"a": {E64: [0.8, 0.81, 0.82]}, "b": {E64: [0.81, 0.83, 0.84]}})
    table = part.table[~((part.table.variant == "b") & (part.table.seed == 2))]
    extra = [("b-s2-default", "b", 2, "default", "test/pearson", 64, 0.9)]
    found = findings(
        dataclasses.replace(part, table=type(table)([*table.itertuples(index=False), *extra], columns=table.columns))
    )
    e = next(x for x in found.comparisons[0].endpoints if x.endpoint == E64)
    assert (e.wins, e.losses) == (2, 0)
    assert "missing or NaN" in found.comparisons[0].dropped[-1].reason


@pytest.mark.parametrize("state", ["FAILED", "crashed", "Error"])
def test_failed_rows_of_a_foreign_table_count_as_losses(tmp_path: Path, state: str) -> None:
    lines = [f"a,{s},test/spearman,64,{0.8 + s / 1000},finished" for s in range(8)]
    lines += [f"b,{s},test/spearman,64,{0.82 + s / 900},finished" for s in range(6)]
    lines += [f"b,{s},test/spearman,64,,{state}" for s in (6, 7)]
    header = "variant,seed,metric,dim,value,state"
    found = report_on_results(csv(tmp_path / "x.csv", lines, header), Question()).findings
    e = found.comparisons[0].endpoints[0]
    assert (e.wins, e.losses) == (6, 2)
    assert found.headline.startswith("b failed by itself on seeds 6, 7, which counts as a loss.")
    again = [*lines, "b,6,test/spearman,64,0.9,finished", "b,7,test/spearman,64,0.9,finished"]
    found = report_on_results(csv(tmp_path / "y.csv", again, header), Question()).findings
    assert found.comparisons[0].endpoints[0].losses == 0
    killed = [line.replace(state, "killed") for line in lines]
    found = report_on_results(csv(tmp_path / "z.csv", killed, header), Question()).findings
    assert found.comparisons[0].endpoints[0].losses == 0


def test_an_empty_field_of_a_finished_run_is_a_logged_nan(tmp_path: Path) -> None:
    lines = [
        f"r{v}{s},FINISHED,{v},{s},{'' if (v, s) == ('b', 3) else 0.8 + s / 1000}," for v in "ab" for s in range(5)
    ]
    header = "run_id,status,params.variant,params.seed,metrics.test/spearman_64,metrics.test/spearman_32"
    lines = [line[:-1] + (",0.7" if line[1] == "a" else ",") for line in lines]
    found = report_on_results(csv(tmp_path / "runs.csv", lines, header), Question()).findings
    by_name = {e.endpoint: e for e in found.comparisons[0].endpoints}
    assert by_name[E64].losses == 1
    assert by_name["test/spearman_32"].losses == 0  # b never has it


def test_a_score_against_its_predictions_is_not_used() -> None:
    results = predicted_study(shifts=[1.0, 1.2, 0.9, 1.1, 1.3, 0.8])
    table = results.table.copy()
    wrong = (table.cell == "new-s3-default") & (table.metric == "test/spearman")
    table.loc[wrong, "value"] = 0.99
    found = findings(dataclasses.replace(results, table=table))
    by_name = {e.endpoint: e for e in found.comparisons[0].endpoints}
    assert by_name[E64].seeds == (0, 1, 2, 4, 5)
    assert max(by_name[E64].scores_treatment) < 0.99
    assert by_name["test/pearson_64"].n_pairs == 6
    assert found.headline.startswith("1 seed is not used: a recorded score contradicts its stored predictions (test/sp")
    assert "contradiction" in kinds(found)
    assert [d.seed for d in found.comparisons[0].dropped] == [3]
    assert any("recorded as 0.9900" in p.reason for p in found.problems)


@pytest.mark.parametrize(("note", "verdict"), [
    ("no gradient in 40 of 40 steps", "undecided"),
    ("no gradient in 3 of 40 steps", "equivalent_on_this_test_set"),
])  # fmt: skip
def test_what_did_not_train_is_not_equivalent(note: str, verdict: str) -> None:
    a = [0.80, 0.81, 0.79, 0.805, 0.80, 0.795, 0.8, 0.81]
    results = study(
        {"a": {E64: a}, "b": {E64: [x + y for x, y in zip(a, [1e-5, -2e-5, 3e-5, -1e-5] * 2, strict=True)]}}
    )
    cells = tuple(dataclasses.replace(c, notes=(note,)) for c in results.cells)
    found = findings(dataclasses.replace(results, cells=cells), plan=AnalysisPlan(margin=0.01))
    assert found.comparisons[0].verdict == verdict
    assert ("untrained" in kinds(found)) == (verdict == "undecided")
    assert ("did not train" in found.headline) == (verdict == "undecided")
