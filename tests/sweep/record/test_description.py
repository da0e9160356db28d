"""What the study run says about itself in the MLflow UI."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.schema import CORRELATIONS, TAG_DESCRIPTION, TAG_VARIANT, VERDICT_HEADING
from analysis.showing import hide_credentials
from sweep.errors import RefusedRecord
from sweep.record.mlflow_ui import view
from sweep.record.study_run import describe, open_study_run
from sweep.record.tracking import Tracking
from sweep.record.tracking_uri import where_to_look
from sweep.study import load_study
from tests.sweep import studies


def test_question_design_and_variants(tmp_path: Path) -> None:
    study = load_study(studies.write(tmp_path, studies.ARTICLE))
    assert describe(study) == (
        "**Question.** Is `interleaved` better than `chunked` on `test/spearman_512`?\n\n"
        "**Verdict.** None yet; `analysis report study.yaml --log` puts it here.\n\n"
        "**Design.** 2 variants x 5 seeds: 10 cells; alpha 0.05, differences below 0.002 do not matter, stopping fixed."
        " Should the file have changed since: the plan that counts is the one recorded at the first run,"
        " `study/analysis_plan.json`.\n\n"
        "| variant | differs in |\n|---|---|\n"
        "| `chunked` (baseline) | `loss` = angle, `loss.layout` = chunked |\n"
        "| `interleaved` | `loss` = angle, `loss.layout` = interleaved |"
    )


def test_a_verdict_is_kept(tmp_path: Path) -> None:
    study = load_study(studies.write(tmp_path, studies.toy()))
    first = describe(study)
    told = first.replace("None yet; `analysis report study.yaml --log` puts it here.", "b is better than a.")
    more = describe(study.with_seeds(9), told)
    assert f"\n\n{VERDICT_HEADING} b is better than a.\n\n" in more
    assert "9 seeds" in more
    assert more.count(VERDICT_HEADING) == 1


def test_one_variant_asks_nothing(tmp_path: Path) -> None:
    study = load_study(studies.write(tmp_path, studies.toy(variants={"a": {"loss": "cosent"}})))
    assert "None: `a` is the only variant" in describe(study)


def test_it_stands_on_the_study_run(tmp_path: Path) -> None:
    study = load_study(studies.write(tmp_path, studies.noop()))
    tracking = Tracking(f"sqlite:///{tmp_path / 'mlflow.db'}")
    open_study_run(tracking, study)
    run = tracking.study_run(study.name)
    assert run is not None
    assert run.tags[TAG_DESCRIPTION] == describe(study)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        (
            "http://head:5000",
            "http://head:5000/#/experiments/3/runs?viewStateShareKey=pairsweep&compareRunsMode=CHART&workflowType=machine_learning",
        ),
        (
            "sqlite:///{cwd}/mlflow.db",
            "mlflow ui, then http://127.0.0.1:5000/#/experiments/3/runs?viewStateShareKey=pairsweep&compareRunsMode=CHART&workflowType=machine_learning",
        ),
        (
            "sqlite:////data/x.db",
            "mlflow ui --backend-store-uri sqlite:////data/x.db, then http://127.0.0.1:5000/#/experiments/3/runs?viewStateShareKey=pairsweep&compareRunsMode=CHART&workflowType=machine_learning",
        ),
        ("postgresql://host/name", "mlflow ui --backend-store-uri postgresql://host/name"),
    ],
)
def test_where_to_look(uri: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = where_to_look(uri.format(cwd=tmp_path), "3")
    assert found == shown
    assert hide_credentials(found) == shown  # as it is printed


def test_the_view_stays_small_and_a_store_without_such_tags_runs_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary = [f"{split}/{name}_{dim}" for split in ("test", "validation") for name in CORRELATIONS for dim in (16, 64)]
    study = load_study(studies.write(tmp_path, studies.toy(analysis={"primary": primary})))
    assert len(json.dumps(view(study))) < 5000

    def refuse(*_: object) -> None:
        raise RefusedRecord("tag too long")

    monkeypatch.setattr(Tracking, "set_experiment_tags", refuse)
    assert open_study_run(Tracking(f"sqlite:///{tmp_path / 'mlflow.db'}"), study).run_id


def test_the_experiment_is_training_runs_with_a_view_by_variant(tmp_path: Path) -> None:
    study = load_study(studies.write(tmp_path, studies.noop()))
    tracking = Tracking(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = open_study_run(tracking, study).experiment_id
    tags = tracking.experiment_tags(experiment)
    assert tags["mlflow.experimentKind"] == "custom_model_development"
    assert "[Charts by variant](#/experiments/" in tags[TAG_DESCRIPTION]
    groups = json.loads(tags["mlflow.sharedViewState.pairsweep"])["groupBy"]["groupByKeys"]
    assert groups[-1]["groupByData"] == TAG_VARIANT
    tracking.set_experiment_tags(experiment, {TAG_DESCRIPTION: "mine", "mlflow.experimentKind": "finetuning"})
    open_study_run(tracking, study)
    kept = tracking.experiment_tags(experiment)
    assert (kept[TAG_DESCRIPTION], kept["mlflow.experimentKind"]) == ("mine", "finetuning")


def test_one_is_one(tmp_path: Path) -> None:
    study = load_study(studies.write(tmp_path, studies.toy(variants={"a": {"loss": "cosent"}}, seeds=1)))
    assert "**Design.** 1 variant x 1 seed: 1 cell; alpha" in describe(study)
