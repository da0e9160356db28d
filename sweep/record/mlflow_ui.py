"""What MLflow's UI is told about an experiment, so that it opens as training runs with charts by variant. Pure.

The UI takes two things from the experiment's tags: its kind, and views that somebody shared. A view is JSON of the
page's state under `mlflow.sharedViewState.KEY`, opened by `?viewStateShareKey=KEY`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from analysis import schema
from sweep.study import Study

KIND_TAG: Final = "mlflow.experimentKind"
MACHINE_LEARNING: Final = "custom_model_development"
"""MLflow's word for experiments of training runs."""
VIEW_KEY: Final = "pairsweep"
VIEW_TAG: Final = f"mlflow.sharedViewState.{VIEW_KEY}"
MOST_CHARTED: Final = 8
"""Primary scores that the view charts: a page of more is not read, and its tag would be long."""
OPENING: Final = "**Study.**"
"""How a description begins that is ours to change."""


def runs_page(experiment_id: str) -> str:
    """The address of an experiment's cells, grouped and charted, below the server's own."""
    query = f"viewStateShareKey={VIEW_KEY}&compareRunsMode=CHART&workflowType=machine_learning"
    return f"/#/experiments/{experiment_id}/runs?{query}"


def experiment_tags(study: Study, experiment_id: str, present: Mapping[str, str]) -> dict[str, str]:
    """Tags to set on the experiment: only what differs, and nothing over what a user has chosen.

    Args:
        study: As it stands.
        experiment_id: Of its experiment.
        present: The tags that the experiment has.
    """
    wanted = {KIND_TAG: present.get(KIND_TAG, MACHINE_LEARNING), VIEW_TAG: json.dumps(view(study))}
    before = present.get(schema.TAG_DESCRIPTION, "")
    if not before or before.startswith(OPENING):
        wanted[schema.TAG_DESCRIPTION] = _description(study, experiment_id)
    return {name: value for name, value in wanted.items() if present.get(name) != value}


def view(study: Study) -> dict[str, Any]:
    """The state of the runs page: cells alone, one group per variant (and setting), the primary scores as charts."""
    by = [schema.TAG_SETTING, schema.TAG_VARIANT] if len(study.settings) > 1 else [schema.TAG_VARIANT]
    metrics = list(study.primary)[:MOST_CHARTED]
    curves = dict.fromkeys(schema.by_dim_metric(schema.parse_endpoint(name).metric) for name in metrics)
    charts = [_chart(f"score-{name}", "BAR", name) for name in metrics]
    charts += [{**_chart(f"curve-{name}", "LINE", name), **_LINE} for name in curves]
    charts.append({**_chart("loss", "LINE", schema.METRIC_LOSS), **_LINE})
    columns = [f"params.`{name}`" for name in ("variant", "seed", "setting")]
    return {
        "searchFilter": f"tags.`{schema.TAG_KIND}` = '{schema.KIND_CELL}'",
        "selectedColumns": [*columns, *(f"metrics.`{name}`" for name in metrics)],
        "groupBy": {
            "aggregateFunction": "average",
            "groupByKeys": [{"mode": "tag", "groupByData": name} for name in by],
        },
        "useGroupedValuesInCharts": True,
        "runsHiddenMode": "SHOW_ALL",
        "isAccordionReordered": True,  # sections that the UI adds for other metrics go below this one
        "compareRunSections": [
            {"uuid": VIEW_KEY, "name": "Study", "display": True, "isReordered": False, "deleted": False,
             "isGenerated": False}
        ],
        "compareRunCharts": charts,
    }  # fmt: skip


_LINE: Final[Mapping[str, Any]] = {
    "lineSmoothness": 0,
    "xAxisScaleType": "linear",
    "scaleType": "linear",
    "range": {},
    "xAxisKey": "step",
    "selectedXAxisMetricKey": "",
    "yAxisKey": "metric",
    "yAxisExpressions": [],
    "ignoreOutliers": False,
    "useGlobalXaxisKey": True,
    "useGlobalLineSmoothing": True,
}


def _chart(uuid: str, kind: str, metric: str) -> dict[str, Any]:
    return {
        "uuid": f"{VIEW_KEY}-{uuid}", "type": kind, "metricKey": metric, "metricSectionId": VIEW_KEY,
        "runsCountToCompare": 100, "deleted": False, "isGenerated": False,
    }  # fmt: skip


def _description(study: Study, experiment_id: str) -> str:
    others = ", ".join(f"`{variant}`" for variant in study.variants if variant != study.baseline)
    against = f"{others} against `{study.baseline}`" if others else f"`{study.baseline}` alone"
    return (
        f"{OPENING} {against}. The run `{study.name}` holds question and verdict; its children are the cells, one "
        f"training each. [Charts by variant]({runs_page(experiment_id)[1:]})"
    )
