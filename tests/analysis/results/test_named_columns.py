"""Tables whose columns somebody names: wide and long ones, of any tool, give what the six-column file gives."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from analysis.cli import main
from analysis.errors import PlanError, ResultsError
from analysis.report.report import Question, report_on_results
from analysis.results.column_map import ColumnMap
from analysis.results.load import load_file

SEEDS = range(7)
RATES = ("1e-05", "0.00003")
SCORES = {
    (variant, seed, rate): round(0.7 + 0.01 * seed + gain + 0.001 * ((seed * 3 + number) % 4) + 0.02 * number, 6)
    for number, rate in enumerate(RATES)
    for variant, gain in (("cosent", 0.0), ("angle", 0.006))
    for seed in SEEDS
}
"""(variant, seed, learning rate) -> score."""


def six_columns(folder: Path) -> Path:
    path = folder / "six.csv"
    lines = [f"{v},{s},lr={r},acc,{x}" for (v, s, r), x in SCORES.items()]
    path.write_text("\n".join(["variant,seed,setting,metric,value", *lines]) + "\n")
    return path


def said(path: Path, **asked: Any) -> dict[str, Any]:
    """Verdict and numbers, without names of settings."""
    columns = ColumnMap(variant="variant", seed="seed", settings=("setting",)) if path.name == "six.csv" else None
    found = report_on_results(load_file(path, columns=columns or ColumnMap(**asked)), Question()).findings
    across = found.across_settings[0] if found.across_settings else None
    return {
        "baseline": found.baseline,
        "across": None if across is None else (across.verdict, across.endpoints[0].adjusted_p),
        "verdicts": [c.verdict for c in found.comparisons],
        "differences": [c.endpoints[0].differences for c in found.comparisons],
        "primary": [name.rpartition("/")[2] for name in found.plan.primary],
    }


def mlflow_frame() -> pd.DataFrame:
    rows = [
        {"run_id": f"r{i}", "experiment_id": "1", "status": "FINISHED", "start_time": f"2026-01-01 00:00:{i:02}",
         "metrics.acc": x, "metrics.system/cpu": 3.0, "params.loss": v, "params.seed": str(s), "params.lr": r,
         "params.epochs": "3", "tags.mlflow.user": "me"}
        for i, ((v, s, r), x) in enumerate(SCORES.items())
    ]  # fmt: skip
    rows.append(rows[0] | {"run_id": "r99", "status": "RUNNING", "metrics.acc": 0.1})
    rows.append({"run_id": "parent", "status": "FINISHED"})
    return pd.DataFrame(rows)


def wandb_frame() -> pd.DataFrame:
    rows = [
        {"Name": f"sweep-{i}", "State": "finished", "Notes": "-", "User": "me", "Tags": "", "Created": "2026-01-01",
         "Runtime": 12 + i, "Sweep": "", "loss": v, "seed": s, "lr": r, "epochs": 3, "acc": x, "_step": 30}
        for i, ((v, s, r), x) in enumerate(SCORES.items())
    ]  # fmt: skip
    return pd.DataFrame([*rows, rows[0] | {"Name": "x", "State": "crashed", "acc": ""}])


def long_frame() -> pd.DataFrame:
    rows = [
        {"method": v, "seed": s, "lr": r, "metric": name, "value": x * factor}
        for (v, s, r), x in SCORES.items()
        for name, factor in (("acc", 1.0), ("f1", 0.5))
    ]
    return pd.DataFrame(rows)


NAMED = [
    (mlflow_frame, {"variant": "params.loss", "seed": "params.seed", "settings": ("params.lr",), "metrics": ("acc",)}),
    (mlflow_frame, {"variant": "loss", "seed": "seed", "settings": ("lr", "epochs"), "metrics": ("metrics.acc",)}),
    (mlflow_frame, {"variant": "loss", "seed": "seed", "settings": ("lr",)}),
    (wandb_frame, {"variant": "loss", "seed": "seed", "settings": ("LR",), "metrics": ("acc",)}),
    (long_frame, {"variant": "method", "seed": "seed", "settings": ("lr",), "metrics": ("acc",)}),
]


@pytest.mark.parametrize(("frame", "asked"), NAMED, ids=["mlflow", "bare-names", "no-metric", "wandb", "long"])
def test_named_columns_say_what_the_six_columns_say(
    tmp_path: Path, frame: Callable[[], pd.DataFrame], asked: dict[str, Any]
) -> None:
    frame().to_csv(tmp_path / "table.csv", index=False)
    assert said(tmp_path / "table.csv", **asked) == said(six_columns(tmp_path))


def test_only_finished_runs_count_and_the_rest_is_counted(tmp_path: Path) -> None:
    mlflow_frame().to_csv(tmp_path / "runs.csv", index=False)
    asked = ColumnMap(variant="params.loss", seed="params.seed", settings=("params.lr",), metrics=("acc",))
    results = load_file(tmp_path / "runs.csv", columns=asked)
    assert [p.reason for p in results.problems] == [
        "runs left out because only FINISHED ones count: 1 RUNNING",
        "runs left out because they name neither variant nor seed: 1",
    ]
    assert set(results.table["setting"]) == {"lr=1e-05", "lr=0.00003"}
    wandb_frame().to_csv(tmp_path / "wandb.csv", index=False)
    results = load_file(
        tmp_path / "wandb.csv", columns=ColumnMap(variant="loss", seed="seed", settings=("lr",), metrics=("acc",))
    )
    assert [p.reason for p in results.problems] == ["runs left out because only finished ones count: 1 CRASHED"]


def test_settings_are_compared_as_numbers(tmp_path: Path) -> None:
    frame = mlflow_frame()
    odd = frame["params.seed"].isin(["1", "3", "5"])
    frame.loc[odd, "params.lr"] = frame.loc[odd, "params.lr"].map({"1e-05": "0.00001", "0.00003": "3E-5"})
    frame.to_csv(tmp_path / "table.csv", index=False)
    asked = {"variant": "loss", "seed": "seed", "settings": ("lr",), "metrics": ("acc",)}
    assert said(tmp_path / "table.csv", **asked) == said(six_columns(tmp_path))


@pytest.mark.parametrize("frame", [mlflow_frame, wandb_frame, long_frame])
def test_the_proposed_command_runs_as_it_stands(
    tmp_path: Path, frame: Callable[[], pd.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frame().to_csv("table.csv", index=False)
    refused = CliRunner().invoke(main, ["report", "--results", "table.csv"])
    assert refused.exit_code == 2
    command = shlex.split(refused.output.partition("for example: ")[2])
    assert command[:4] == ["analysis", "report", "--results", "table.csv"]
    done = CliRunner().invoke(main, [*command[1:], "--format", "json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert {c["treatment"] for c in found["comparisons"]} == {"angle"}
    assert {c["setting"] for c in found["comparisons"]} == {"lr=1e-05", "lr=0.00003"}


def test_dims_are_taken_out_of_names_by_a_pattern_or_from_a_column(tmp_path: Path) -> None:
    rows = [
        {"loss": v, "seed": s, "spearman@64": x, "spearman@256": x + 0.01}
        for (v, s, r), x in SCORES.items()
        if r == RATES[0]
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "wide.csv", index=False)
    asked = ColumnMap(variant="loss", seed="seed", metrics=("spearman@64", "spearman@256"), dim=r"@(\d+)$")
    found = report_on_results(load_file(tmp_path / "wide.csv", columns=asked), Question()).findings
    assert found.plan.primary == ("spearman_64", "spearman_256")
    long = pd.DataFrame(rows).melt(id_vars=["loss", "seed"], var_name="metric")
    long["size"] = long["metric"].str.partition("@")[2]
    long["metric"] = "spearman"
    long.to_csv(tmp_path / "long.csv", index=False)
    asked = ColumnMap(variant="loss", seed="seed", dim="size")
    other = report_on_results(load_file(tmp_path / "long.csv", columns=asked), Question()).findings
    assert other.headline == found.headline


def test_a_metric_without_dims_is_called_by_its_name(tmp_path: Path) -> None:
    mlflow_frame().to_csv(tmp_path / "table.csv", index=False)
    asked = ColumnMap(variant="loss", seed="seed", settings=("lr",), metrics=("acc",))
    report = report_on_results(load_file(tmp_path / "table.csv", columns=asked), Question(primary=("acc",)))
    assert "angle is better than cosent on acc, over 2 settings" in report.findings.headline
    for kind in ("text", "markdown", "html", "json", "latex"):
        assert "acc_0" not in report.render(kind)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="'acd' is not an endpoint"):
        report_on_results(load_file(tmp_path / "table.csv", columns=asked), Question(primary=("acd",)))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"variant": "params.los", "seed": "seed"}, "--variant params.los: there is no such column; found run_id"),
        ({"variant": "loss"}, "--variant COLUMN and --seed COLUMN are needed, both"),
        ({"variant": "loss", "seed": "loss"}, "column 'params.loss' is named twice"),
        ({"variant": "loss", "seed": "seed", "metrics": ("params.loss",)}, "cannot be a metric and also variant"),
        ({"variant": "loss", "seed": "seed", "metrics": ("accc",)}, "--metric accc: there is no such column"),
        ({"variant": "loss", "seed": "seed", "metrics": ("acc",), "dim": "(["}, "neither a column nor a pattern"),
        ({"variant": "loss", "seed": "seed", "metrics": ("acc",), "dim": "x"}, "a pattern needs one group"),
        ({"variant": "loss", "seed": "seed", "metrics": ("acc",)}, "name a setting with --setting params.lr"),
        ({"variant": "loss", "seed": "params.lr", "metrics": ("acc",)}, "'1e-05' is not valid; expected a whole"),
    ],
)
def test_what_is_named_wrongly_is_told(tmp_path: Path, asked: dict[str, Any], told: str) -> None:
    mlflow_frame().to_csv(tmp_path / "table.csv", index=False)
    with pytest.raises(ResultsError) as caught:
        load_file(tmp_path / "table.csv", columns=ColumnMap(**asked))
    assert told in str(caught.value)


def test_an_empty_metric_is_an_error(tmp_path: Path) -> None:
    frame = mlflow_frame()
    frame["metrics.f1"] = np.nan
    frame.to_csv(tmp_path / "table.csv", index=False)
    asked = ColumnMap(variant="loss", seed="seed", settings=("lr",), metrics=("acc", "f1"))
    with pytest.raises(ResultsError, match=r"column 'metrics.f1' is empty in all finished runs"):
        load_file(tmp_path / "table.csv", columns=asked)


EPISODES = [
    (v, s, e, 10.0 + s + gain + e % 3) for v, gain in (("ppo", 0.0), ("sac", 1.0)) for s in range(5) for e in range(20)
]


def episodes(path: Path, *, name: str = "episode", seed: str = "seed") -> Path:
    lines = [f"{v},{s},{e + 20 * s},{x}" for v, s, e, x in EPISODES]
    path.write_text("\n".join([f"algo,{seed},{name},return", *lines]) + "\n")
    return path


def test_repeats_inside_a_seed_are_refused_with_their_column(tmp_path: Path) -> None:
    path = episodes(tmp_path / "x.csv")
    asked = {"variant": "algo", "seed": "seed", "metrics": ("return",)}
    with pytest.raises(ResultsError, match=r"differ in column 'episode': rows inside a seed are no seeds"):
        load_file(path, columns=ColumnMap(**asked))  # type: ignore[arg-type]
    with pytest.raises(ResultsError, match=r"its 100 values come from 5 seeds \(column 'seed'\)"):
        load_file(path, columns=ColumnMap(variant="algo", seed="episode", metrics=("return",)))


def test_repeats_are_averaged_where_that_is_asked_and_said(tmp_path: Path) -> None:
    asked = ColumnMap(variant="algo", seed="seed", metrics=("return",), average_over=("episode",))
    found = report_on_results(load_file(episodes(tmp_path / "x.csv"), columns=asked), Question()).findings
    endpoint = found.comparisons[0].endpoints[0]
    assert endpoint.n_pairs == 5
    assert endpoint.mean_baseline == pytest.approx(np.mean([x for v, *_, x in EPISODES if v == "ppo"]))
    assert any(
        n.text.startswith("Each score is the mean over episode inside its seed (20 rows)") for n in found.notices
    )
    with pytest.raises(ResultsError, match="must name all that tells them apart"):
        load_file(_twice(tmp_path / "y.csv"), columns=asked)


def _twice(path: Path) -> Path:
    episodes(path).write_text(path.read_text() + "ppo,0,0,77\n")
    return path


def test_six_columns_with_a_fold_are_refused_too(tmp_path: Path) -> None:
    lines = [f"{v},{s},test/acc,1,{x / 100},{e}" for v, s, e, x in EPISODES]
    (tmp_path / "x.csv").write_text("\n".join(["variant,seed,metric,dim,value,fold", *lines]) + "\n")
    with pytest.raises(ResultsError, match="average them with --average-over fold"):
        load_file(tmp_path / "x.csv")


@pytest.mark.parametrize("text", ["1.7976931348623157e+308", "inf", "-Infinity", "1e200", "NaN"])
def test_marks_of_no_number_are_undefined_scores(tmp_path: Path, text: str) -> None:
    frame = mlflow_frame()
    frame["metrics.acc"] = frame["metrics.acc"].astype(object)
    frame.loc[(frame["params.loss"] == "angle") & (frame["params.seed"] == "2"), "metrics.acc"] = text
    frame.to_csv(tmp_path / "table.csv", index=False)
    asked = ColumnMap(variant="loss", seed="seed", settings=("lr",), metrics=("acc",))
    report = report_on_results(load_file(tmp_path / "table.csv", columns=asked), Question())
    assert "angle has no defined score (acc) on seed 2" in report.findings.headline
    assert "0000000" not in report.render("text")
    named = [p.reason for p in report.findings.problems if "larger than any metric" in p.reason]
    assert len(named) == (text == "1e200")


def test_charts_of_wandb_are_refused_with_the_reason(tmp_path: Path) -> None:
    header = '"Step","Group: a - acc","Group: a - acc__MIN","Group: a - acc__MAX"'
    (tmp_path / "chart.csv").write_text(f"{header}\n1,0.5,0.4,0.6\n")
    with pytest.raises(ResultsError, match="the mean of several runs with their lowest and highest value"):
        load_file(tmp_path / "chart.csv")
