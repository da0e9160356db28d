"""What one trained cell becomes in the record: metrics, params, tags, inputs and artifacts. Knows no store.

A Recording is complete in itself, so that it can be written now, or spooled and written by the next command.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from analysis import schema
from analysis.showing import hide_credentials
from sweep.study.cells import Cell
from trainables.spec import Predictions, TrainResult

FAILURE_ARTIFACT: Final = "failure.txt"
OUTPUT_ARTIFACT: Final = "output.txt"
"""What a cell's process wrote to its standard output and error."""
NO_MODEL: Final = "no model kept"
NO_MODEL_GIVEN: Final = f"{NO_MODEL}: the trainable gives none"
NO_MODEL_STORED: Final = f"{NO_MODEL}: the tracking store could not be reached when it was there"
"""How notes about `keep: {model: last}` begin, and two of them."""
MAX_PARAM: Final = 6000
"""Longest value of an MLflow param; the full value stands in the tag of typed fields."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One point of one metric; `time_ms` is fixed when measured, so that writing twice stores it once."""

    name: str
    value: float
    step: int
    time_ms: int


@dataclass(frozen=True, kw_only=True)
class Input:
    """A dataset or a model that the cell used."""

    name: str
    digest: str
    context: str
    """`train`, `validation`, `test` or `model`."""
    source: str
    rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Everything that is stored about one training."""

    metrics: tuple[Metric, ...] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    inputs: tuple[Input, ...] = ()
    artifacts: Mapping[str, bytes] = field(default_factory=dict)
    """Artifact path -> contents."""

    def with_note(self, note: str) -> Recording:
        """The same with one more thing that a reader should know."""
        notes = [*json.loads(self.tags.get(schema.TAG_NOTES, "[]")), note]
        return replace(self, tags={**self.tags, schema.TAG_NOTES: json.dumps(notes, ensure_ascii=False)})

    def header(self) -> dict[str, Any]:
        """All but the artifacts, as JSON-ready values."""
        return {
            "metrics": [asdict(metric) for metric in self.metrics],
            "params": dict(self.params),
            "tags": dict(self.tags),
            "inputs": [asdict(one) for one in self.inputs],
        }

    def check_names(self) -> None:
        """Refuse names that no store takes, and artifacts that would lie outside their run.

        Raises:
            ValueError: which name, and what is allowed.
        """
        for what, names in (
            ("metric", [metric.name for metric in self.metrics]),
            ("param", list(self.params)),
            ("tag", list(self.tags)),
        ):
            for name in names:
                problem = schema.name_problem(name.removesuffix(schema.by_dim_metric("")))
                if problem is not None:
                    raise ValueError(f"{what} {name[:60]!r} cannot be recorded; {problem}")
        for path in self.artifacts:
            if problem := artifact_problem(path):
                raise ValueError(f"artifact {path[:60]!r} cannot be recorded; {problem}")

    @classmethod
    def from_parts(cls, header: Mapping[str, Any], artifacts: Mapping[str, bytes]) -> Recording:
        """The inverse of `header()` and `artifacts`."""
        return cls(
            metrics=tuple(Metric(**metric) for metric in header["metrics"]),
            params=header["params"],
            tags=header["tags"],
            inputs=tuple(Input(**one) for one in header["inputs"]),
            artifacts=artifacts,
        )


def artifact_problem(path: str) -> str | None:
    """Why an artifact may not have this path; None where it may. It must lie inside its run."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in path or not path.isprintable():
        return "expected a relative path such as predictions/test.parquet, without `..`"
    return None


def cell_tags(study: str, cell: Cell) -> dict[str, str]:
    """Tags that say which cell a run is of; set when the run is created."""
    return {
        schema.TAG_STUDY: study,
        schema.TAG_SCHEMA: schema.SCHEMA_VERSION,
        schema.TAG_KIND: cell.kind,
        schema.TAG_CELL: cell.key,
        schema.TAG_SPEC: cell.spec_key,
        schema.TAG_VARIANT: cell.variant,
        schema.TAG_SEED: str(cell.seed),
        schema.TAG_SETTING: cell.setting,
        schema.TAG_VARIANT_FIELDS: json.dumps(list(cell.variant_fields)),
        schema.TAG_FIELDS: json.dumps(cell.spec.flat(), sort_keys=True),
        schema.TAG_REVISION: str(cell.revision),
        **{schema.TAG_DIGEST_PREFIX + name: digest for name, digest in cell.digests.items()},
    }


def attempt_tags(study: str, cell: Cell, *, attempt: int, owner: str, launch: str) -> dict[str, str]:
    """The tags of a cell's run, with which attempt it is.

    Args:
        study: Its name.
        cell: The cell.
        attempt: 1 for the first.
        owner: The driver that launched it.
        launch: Random id of the attempt.
    """
    own = {schema.TAG_ATTEMPT: str(attempt), schema.TAG_OWNER: owner, schema.TAG_LAUNCH: launch}
    return {**cell_tags(study, cell), **own}


def cell_params(cell: Cell) -> dict[str, str]:
    """The flat resolved spec as MLflow params (text), with `variant`, `seed` and `setting`.

    Params cannot be changed: they keep the names that the cell had when it ran, the tags follow a renaming.
    """
    spec = {name: _param(value) for name, value in cell.spec.flat().items()}
    return {**spec, "variant": cell.variant, "seed": str(cell.seed), "setting": cell.setting}


def _param(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= MAX_PARAM else text[: MAX_PARAM - 3] + "..."


def recording_of(cell: Cell, result: TrainResult, *, time_ms: int, output: bytes = b"") -> Recording:
    """What to store about a cell that trained.

    Args:
        cell: Which cell it is.
        result: What its trainable returned.
        time_ms: When, in milliseconds since 1970.
        output: What its process wrote.

    Raises:
        NonFiniteScore: a score is NaN, infinite, or so large that stores take it for infinite.
        ValueError: a score, a fingerprint or a split has a name that cannot be recorded.
    """
    from trainables.errors import NonFiniteScore

    for name, value in result.scores.items():
        if not abs(value) < schema.LARGEST_SCORE:
            why = ", which stores take for infinite" if math.isfinite(value) else ""
            raise NonFiniteScore(f"{name} is {value}{why}")
    points = [(name, float(value), 0) for name, value in result.scores.items()]
    for name, value in result.scores.items():
        try:
            endpoint = schema.parse_endpoint(name)
        except ValueError:
            continue  # a score of a trainable of one's own that has no dim
        points.append((schema.by_dim_metric(endpoint.metric), float(value), endpoint.dim))
    points += [
        (schema.METRIC_LOSS, float(loss), step) for step, loss in result.loss_curve if abs(loss) < schema.LARGEST_SCORE
    ]
    points += [(schema.METRIC_TIME_PREFIX + name, float(seconds), 0) for name, seconds in result.times.items()]
    if result.memory_peak_mb is not None:
        points.append((schema.METRIC_MEMORY_PEAK, float(result.memory_peak_mb), 0))
    tags = {schema.TAG_FINGERPRINT_PREFIX + name: value for name, value in result.fingerprint.items()}
    if result.notes:
        tags[schema.TAG_NOTES] = json.dumps(list(result.notes), ensure_ascii=False)
    recording = Recording(
        metrics=tuple(Metric(name=name, value=value, step=step, time_ms=time_ms) for name, value, step in points),
        params=cell_params(cell),
        tags=tags,
        inputs=_inputs(cell, result),
        artifacts={
            **{
                schema.predictions_artifact(split): predictions_parquet(one)
                for split, one in result.predictions.items()
            },
            **_output(output),
        },
    )
    recording.check_names()
    return recording


def _inputs(cell: Cell, result: TrainResult) -> tuple[Input, ...]:
    used = [
        Input(name=data.source, digest=data.digest, context=data.split, source=data.source, rows=data.rows)
        for data in result.datasets
    ]
    if cell.spec.model is not None:
        name = cell.spec.model.name
        digest = cell.digests.get("model", cell.spec.model.revision or "")
        used.append(Input(name=name, digest=digest, context="model", source=name))
    return tuple(used)


def _output(output: bytes) -> dict[str, bytes]:
    shown = hide_credentials(output.decode("utf-8", errors="replace"))
    return {OUTPUT_ARTIFACT: shown.encode()} if shown.strip() else {}


def failure_recording(cell: Cell, *, reason: str, kind: str, detail: str, output: bytes = b"") -> Recording:
    """What to store about a cell that failed: one line as a tag, the whole story as an artifact."""
    return Recording(
        params={name: value for name, value in cell_params(cell).items() if schema.name_problem(name) is None},
        tags={schema.TAG_FAILURE: hide_credentials(reason), schema.TAG_FAILURE_KIND: kind},
        artifacts={FAILURE_ARTIFACT: hide_credentials(detail).encode("utf-8", errors="replace"), **_output(output)},
    )


def predictions_parquet(predictions: Predictions) -> bytes:
    """Parquet of one test set, rows in the order of the data.

    Columns `id` and `cluster` (text) where there are some, `label` and a cosine per dim, a value per metric and dim;
    numbers are float64.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {}
    if predictions.ids is not None:
        columns[schema.PREDICTION_ID_COLUMN] = list(predictions.ids)
    if predictions.clusters is not None:
        columns[schema.PREDICTION_CLUSTER_COLUMN] = list(predictions.clusters)
    if predictions.labels is not None:
        columns[schema.PREDICTION_LABEL_COLUMN] = predictions.labels
    columns |= {schema.prediction_column(dim): predictions.by_dim[dim] for dim in sorted(predictions.by_dim)}
    columns |= {schema.value_column(*key): predictions.values[key] for key in sorted(predictions.values)}
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, compression="zstd", use_dictionary=False)
    return buffer.getvalue()
