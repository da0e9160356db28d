"""Tables of other tools: what is told about them before the numbers, and sizes that must not stall."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from analysis.comparing.findings import StudyFindings
from analysis.errors import PlanError, ResultsError
from analysis.report.report import Question, report_on_results
from analysis.results.load import load_file
from analysis.statistics import paired


def findings(path: Path, lines: list[str], header: str, question: Question | None = None) -> StudyFindings:
    path.write_text("\n".join([header, *lines]) + "\n")
    return report_on_results(load_file(path), question or Question()).findings


def rows(metric: str = "test/spearman", scale: float = 1.0, extra: tuple[str, str] = ("", "")) -> list[str]:
    out = []
    for variant, shift, more in (("a", 0.0, extra[0]), ("b", 0.01, extra[1])):
        out += [f"{variant},{s},{metric},64,{scale * (0.5 + s / 100 + shift * (1 + s / 9))}{more}" for s in range(7)]
    return out


PLAIN = "variant,seed,metric,dim,value"


def test_rounding_at_a_large_scale_is_a_tie(tmp_path: Path) -> None:
    lines = [f"a,{s},test/score,1,{123456.7 + s}" for s in range(7)]
    lines += [
        f"b,{s},test/score,1,{np.nextafter(123456.7 + s, 1e9)!r}".replace("np.float64(", "").replace(")", "")
        for s in range(7)
    ]
    found = findings(tmp_path / "x.csv", lines, PLAIN)
    assert found.comparisons[0].endpoints[0].ties == 7
    assert found.comparisons[0].verdict == "cannot_decide"


def test_a_learning_rate_that_differs_between_variants_is_told(tmp_path: Path) -> None:
    told = findings(tmp_path / "x.csv", rows(extra=(",2e-5", ",3e-5")), f"{PLAIN},lr").notices
    assert any(n.text.startswith("lr differs between variants (a: 2e-5; b: 3e-5)") for n in told)
    same = findings(tmp_path / "y.csv", rows(extra=(",2e-5", ",0.00002")), f"{PLAIN},lr").notices
    assert not any("differs between" in n.text for n in same)
    lines = [
        f"r{v}{s},FINISHED,{v},{s},{lr},{0.8 + s / 100}" for v, lr in (("a", "1e-5"), ("b", "2e-5")) for s in range(3)
    ]
    header = "run_id,status,params.variant,params.seed,params.learning_rate,metrics.test/spearman_64"
    told = findings(tmp_path / "runs.csv", lines, header).notices
    assert any(n.text.startswith("params.learning_rate differs between variants") for n in told)


@pytest.mark.parametrize("metric", ["test/loss", "test/perplexity", "test/masked_lm_loss"])
def test_a_metric_of_which_less_is_better_asks_for_its_direction(tmp_path: Path, metric: str) -> None:
    with pytest.raises(PlanError, match=f"--lower-is-better {metric}"):
        findings(tmp_path / "x.csv", rows(metric), PLAIN)
    found = findings(tmp_path / "x.csv", rows(metric), PLAIN, Question(lower_is_better=(metric,)))
    assert found.comparisons[0].verdict == "worse_on_this_test_set"
    assert any("shown with the other sign" in n.text for n in found.notices)
    with pytest.raises(PlanError, match="was not recorded"):
        findings(tmp_path / "x.csv", rows(metric), PLAIN, Question(lower_is_better=("test/other",)))


def test_a_primary_chosen_for_the_report_is_exploratory(tmp_path: Path) -> None:
    asked = Question(primary=("test/spearman_64",))
    found = findings(tmp_path / "x.csv", rows(), PLAIN, asked)
    assert any(n.kind == "exploratory" and "was chosen for this report" in n.text for n in found.notices)
    assert not findings(tmp_path / "x.csv", rows(), PLAIN).plan.exploratory


def test_a_dim_without_pairs_says_so(tmp_path: Path) -> None:
    lines = [*rows(), *(line.replace(",64,", ",32,") for line in rows() if line.startswith("a"))]
    found = findings(tmp_path / "x.csv", lines, PLAIN)
    assert "no seed has a pair" in found.headline
    assert "all 0 seeds" not in found.headline


def test_three_thousand_seeds_take_seconds(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(0.8, 0.01, 3000)
    lines = [f"a,{s},test/spearman,64,{x}" for s, x in enumerate(base)]
    lines += [f"b,{s},test/spearman,64,{x}" for s, x in enumerate(base + rng.normal(0.001, 0.01, 3000))]
    started = time.process_time()
    findings(tmp_path / "x.csv", lines, PLAIN)
    assert time.process_time() - started < 30  # 77 before; some 7 now


@pytest.mark.parametrize("side", ["two-sided", "greater", "less"])
def test_wilcoxon_beyond_a_thousand_seeds_continues_the_exact_one(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    d = np.random.default_rng(2).normal(0.05, 1, 400)
    exact = paired.wilcoxon_signed_rank(d, alternative=side)  # type: ignore[arg-type]
    monkeypatch.setattr(paired, "WILCOXON_EXACT_UP_TO", 100)
    near = paired.wilcoxon_signed_rank(d, alternative=side)  # type: ignore[arg-type]
    assert near.w_plus == exact.w_plus
    assert near.p_value == pytest.approx(exact.p_value, rel=1e-4)
    assert near.p_value != exact.p_value
    assert near.p_value == pytest.approx(stats.wilcoxon(d, alternative=side).pvalue, rel=2e-3)


def test_sorted_pairs_count_as_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    a, b = rng.integers(0, 9, 60) / 8, rng.integers(0, 9, 40) / 8
    slow = paired.probability_of_improvement(a, b)
    monkeypatch.setattr(paired, "_MANY_PAIRS", 1)
    assert paired.probability_of_improvement(a, b).unpaired == pytest.approx(slow.unpaired)


def test_signs_drawn_in_parts_are_those_drawn_at_once() -> None:
    whole = 2.0 * np.random.default_rng(9).integers(0, 2, size=(paired.RESAMPLES, 19)).astype(np.float64) - 1.0
    assert np.array_equal(paired.draw_signs(19, np.random.default_rng(9)), whole)


MLFLOW = "run_id,status,params.variant,params.seed,metrics.test/spearman_64"
OPTUNA = "number,state,value,user_attrs_variant,user_attrs_seed,user_attrs_test/spearman_64"


@pytest.mark.parametrize(
    ("header", "form", "apart"),
    [
        (PLAIN, "{v},{s},test/spearman,64,{x}", ""),
        (f"{PLAIN},state,run", "{v},{s},test/spearman,64,{x},finished,r{v}{s}", ""),
        (f"{PLAIN},_step", "{v},{s},test/spearman,64,{x},100", ""),
        (f"{PLAIN},_step", "{v},{s},test/spearman,64,{x},{n}", "they differ in _step, which is not read"),
        (MLFLOW, "r{v}{s},FINISHED,{v},{s},{x}", ""),
        (MLFLOW, "r{n},FINISHED,{v},{s},{x}", ""),
        (OPTUNA, "{n},COMPLETE,{x},{v},{s},{x}", ""),
    ],
    ids=["plain", "one-run", "one-step", "two-steps", "mlflow-one-run", "mlflow-two-runs", "optuna"],
)
@pytest.mark.parametrize(("second", "shown"), [("0.9", "0.9"), ("", "none")])
def test_a_second_value_of_a_score_names_its_row_and_decides_nothing(
    tmp_path: Path, header: str, form: str, apart: str, second: str, shown: str
) -> None:
    table = [(v, s, x + 0.5 + s / 100) for v, x in (("a", 0.0), ("b", 0.01)) for s in range(7)]
    lines = [form.format(v=v, s=s, x=x, n=n) for n, (v, s, x) in enumerate(table)]
    alike = findings(tmp_path / "x.csv", [*lines, form.format(v="a", s=3, x=0.53, n=99)], header)
    assert alike.comparisons[0].verdict != "cannot_decide"
    assert not any("a second, different score" in p.reason for p in alike.problems)

    found = findings(tmp_path / "x.csv", [*lines, form.format(v="a", s=3, x=second, n=99)], header)
    assert found.comparisons[0].verdict == "cannot_decide"
    assert "a, seed 3, setting default: two different scores for test/spearman_64" in found.headline
    (told,) = [p for p in found.problems if "a second, different score" in p.reason]
    assert told.where == "x.csv, line 16"
    assert told.reason.startswith(
        "a second, different score test/spearman_64 of a, seed 3, setting default:"
        f" {shown} here and 0.53 in line 5, neither is used"
    )
    after = told.reason.partition("neither is used")[2]
    assert after.startswith(f"; {apart}") if apart else after == ""


def test_a_table_of_curves_names_its_first_rows_and_how_many_more(tmp_path: Path) -> None:
    lines = [f"{line},{step}" for line in rows() for step in (50, 100)]
    lines = [line.replace(",64,0.", ",64,0.0") if line.endswith(",50") else line for line in lines]
    problems = findings(tmp_path / "x.csv", lines, f"{PLAIN},step").problems
    assert sum("in step, which is not read: leave one row of each cell" in p.reason for p in problems) == 5
    assert any(p.reason == "9 more rows give a second, different score" for p in problems)


def test_a_run_that_stands_for_two_cells_is_refused(tmp_path: Path) -> None:
    lines = [f"r{v}{s},FINISHED,{v},{s},0.5{s}" for v in "ab" for s in range(3)]
    findings(tmp_path / "x.csv", [*lines, lines[0]], MLFLOW)
    with pytest.raises(ResultsError) as caught:
        findings(tmp_path / "x.csv", [*lines, "rb2,FINISHED,b,3,0.52"], MLFLOW)
    assert "line 8: run_id: 'rb2' is not valid; expected another run than line 7, which says b-s2-default" in str(
        caught.value
    )
