"""What a recorded result looks like: names of MLflow tags, params and metrics, and of result columns.

Standard library only, so that whoever writes results and whoever reads them can share these names.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, get_args

SCHEMA_VERSION: Final = "1"

# -- MLflow tags -----------------------------------------------------------------------------------------------
TAG_STUDY: Final = "sweep.study"
TAG_SCHEMA: Final = "sweep.schema"
TAG_KIND: Final = "sweep.kind"
"""`study` (the parent run), `cell` or `search`."""
TAG_CELL: Final = "sweep.cell"
"""The cell key."""
TAG_SPEC: Final = "sweep.spec"
"""The cell key without digests of data, model and modules."""
TAG_VARIANT: Final = "sweep.variant"
TAG_FIRST_VARIANT: Final = "sweep.first_variant"
"""What the variant was called when the cell ran, where it was renamed since: the declared plan uses that name."""
TAG_SEED: Final = "sweep.seed"
TAG_SETTING: Final = "sweep.setting"
"""The setting's label; which cells share a setting is derived from the resolved specs, not from it."""
TAG_VARIANT_FIELDS: Final = "sweep.variant_fields"
"""JSON list of the flat spec fields that this cell's variant declares (and so may differ inside a pair)."""
TAG_FIELDS: Final = "sweep.fields"
"""JSON object: the flat resolved spec, as typed values (params are text)."""
TAG_REVISION: Final = "sweep.revision"
"""Which revision of its variant the cell is of, counted from 1 (analysis.revisions)."""
TAG_RETIRED: Final = "sweep.retired"
"""On a run that `sweep retire` has deleted: when. MLflow shows such runs under Deleted; `--undo` restores them."""
TAG_ATTEMPT: Final = "sweep.attempt"
TAG_OWNER: Final = "sweep.owner"
"""Which driver launched the attempt: tells a running cell from a stale one."""
TAG_COMPLETE: Final = "sweep.complete"
"""`true` once metrics and artifacts of a cell are all stored: what is left is to set the run FINISHED."""
TAG_SUPERSEDED_BY: Final = "sweep.superseded_by"
TAG_FAILURE: Final = "sweep.failure"
"""Why a cell failed, in one line."""
TAG_FAILURE_KIND: Final = "sweep.failure_kind"
"""`cell` (by itself: a retry fails again) or `infrastructure`."""
TAG_FINGERPRINT_PREFIX: Final = "fingerprint."
TAG_DIGEST_PREFIX: Final = "sweep.digest."
"""Prefix; digest of the `data`, the `model` and each user module that the cell used."""
TAG_NOTES: Final = "sweep.notes"
"""JSON list: what a reader of the cell should know."""
TAG_MODEL: Final = "sweep.model"
"""`last` on a cell whose final model is kept as the artifact folder MODEL_ARTIFACT; absent where none is."""
TAG_LAUNCH: Final = "sweep.launch"
"""Random id of one attempt, so that a creation whose answer was lost can be found again."""
TAG_HEARTBEAT: Final = "sweep.heartbeat"
"""On the study run: JSON {owner, host, boot, pid, time, beat} of the driver that holds the study."""
TAG_STUDY_FILE: Final = "sweep.study_file"
TAG_PLAN: Final = "sweep.plan"
"""On the study run: the content of PLAN_ARTIFACT, so that it is known without its files; absent where longer than
LONGEST_PLAN."""
LONGEST_PLAN: Final = 5000
TAG_VERDICT_PREFIX: Final = "sweep.verdict."
"""Prefix; on the study run, one tag per treatment: the verdict of the report last logged."""
TAG_DESCRIPTION: Final = "mlflow.note.content"
"""On the study run: Markdown that the UI shows. The paragraph that begins with VERDICT_HEADING is the analysis'."""
VERDICT_HEADING: Final = "**Verdict.**"

# -- fingerprint: what must be equal between the two cells of a pair -----------------------------------------------
FINGERPRINT_INITIAL_WEIGHTS: Final = "initial_weights"
FINGERPRINT_EXAMPLE_ORDER: Final = "example_order"
FINGERPRINT_DATA: Final = "data"
FINGERPRINT_SOFTWARE: Final = "software"
FINGERPRINT_DTYPE: Final = "dtype"
FINGERPRINT_DEVICE: Final = "device"
FINGERPRINT_TF32: Final = "tf32"
FINGERPRINT_DETERMINISTIC: Final = "deterministic"
FINGERPRINT_INSTRUCTION_SET: Final = "instruction_set"
FINGERPRINT_THREADS: Final = "threads"
FINGERPRINT_FIELDS: Final = (
    FINGERPRINT_INITIAL_WEIGHTS, FINGERPRINT_EXAMPLE_ORDER, FINGERPRINT_DATA, FINGERPRINT_SOFTWARE,
    FINGERPRINT_DTYPE, FINGERPRINT_DEVICE, FINGERPRINT_TF32, FINGERPRINT_DETERMINISTIC,
    FINGERPRINT_INSTRUCTION_SET, FINGERPRINT_THREADS,
)  # fmt: skip
"""What the built-in trainables record; TF32 and determinism on a GPU only, instruction set and threads on a CPU only.
A trainable of one's own may record others: they must be equal whatever the variants declare."""

KIND_STUDY: Final = "study"
KIND_CELL: Final = "cell"
KIND_SEARCH: Final = "search"

FAILURE_CELL: Final = "cell"
FAILURE_INFRASTRUCTURE: Final = "infrastructure"

# -- artifacts -------------------------------------------------------------------------------------------------
STUDY_ARTIFACT: Final = "study/study.yaml"
PLAN_ARTIFACT: Final = "study/analysis_plan.json"
"""The analysis plan as declared at the first run: it is the one that counts."""
HISTORY_TAG_SEEDS: Final = "sweep.history.seeds."
"""Prefix; one tag per change of the seed list: JSON {time, seeds}."""
HISTORY_TAG_REVISIONS: Final = "sweep.history.revisions."
"""Prefix; one tag per change of what the study file means: JSON {time, current}, current: variant -> its revision."""
HISTORY_TAG_REPORT: Final = "sweep.history.report."
"""Prefix; one tag per report made: JSON {time, pairs, could_reach_alpha}."""
REPORTS_ARTIFACT_DIR: Final = "reports"


MODEL_ARTIFACT: Final = "model"
"""Folder of a cell's kept model."""
MODEL_LAST: Final = "last"
"""Value of TAG_MODEL."""
PREDICTIONS_ARTIFACT_DIR: Final = "predictions"


def predictions_artifact(split: str) -> str:
    """Artifact path of the per-example predictions of a split."""
    return f"{PREDICTIONS_ARTIFACT_DIR}/{split}.parquet"


PREDICTION_LABEL_COLUMN: Final = "label"
PREDICTION_ID_COLUMN: Final = "id"
"""Text that names an example, unique in its test set; absent where the order of rows is all there is."""
PREDICTION_CLUSTER_COLUMN: Final = "cluster"
"""Text that names the cluster an example belongs to; absent where examples are independent."""


def prediction_column(dim: int) -> str:
    """Column of the Parquet predictions that holds the cosine at one dim."""
    return f"cosine_{dim}"


_VALUE_PREFIX: Final = "value."


def value_column(statistic: str, dim: int) -> str:
    """Column that holds each example's value of a metric that is their mean: `value.ndcg_at_10_256`."""
    return f"{_VALUE_PREFIX}{statistic}_{dim}"


_VALUE_COLUMN = re.compile(rf"^{re.escape(_VALUE_PREFIX)}(?P<statistic>\S+)_(?P<dim>[1-9][0-9]*)$")


def parse_value_column(name: str) -> tuple[str, int] | None:
    """(statistic, dim) of such a column; None of any other."""
    match = _VALUE_COLUMN.match(name)
    return None if match is None else (match["statistic"], int(match["dim"]))


# -- AnglE -----------------------------------------------------------------------------------------------------
AngleLayout = Literal["chunked", "interleaved", "interleaved_swapped"]
"""How AnglE reads an embedding of d numbers as d/2 complex ones: `chunked` (the library's) pairs index i with
i + d/2, `interleaved` 2i with 2i + 1; `interleaved_swapped` the same with the parts exchanged."""
ANGLE_LAYOUTS: Final[tuple[AngleLayout, ...]] = get_args(AngleLayout)

# -- metrics ---------------------------------------------------------------------------------------------------
CORRELATIONS: Final = ("spearman", "pearson")


class Endpoint(NamedTuple):
    """One metric at one dim on one split: `test/spearman_256` is Endpoint("test/spearman", 256)."""

    metric: str
    dim: int
    """0: the metric has no dims, as in tables of other tools; its name is all there is."""

    def __str__(self) -> str:
        return f"{self.metric}_{self.dim}" if self.dim else self.metric

    @property
    def split(self) -> str:
        """`test` of `test/spearman`."""
        return self.metric.split("/", 1)[0]

    @property
    def statistic(self) -> str:
        """`spearman` of `test/spearman`."""
        return self.metric.split("/", 1)[-1]


_RANGES: Final = {
    **dict.fromkeys(("spearman", "pearson", "kendall", "cosine"), (-1.0, 1.0)),
    **dict.fromkeys(("ndcg", "map", "mrr", "recall", "precision", "accuracy", "f1", "hit", "hits"), (0.0, 1.0)),
}
_ROUNDING: Final = 1e-9
LARGEST_SCORE: Final = 1.79e308
"""Stores that know no infinity write the largest double for it: from here on a score is not finite."""


def score_range(statistic: str) -> tuple[float, float] | None:
    """Lowest and highest value of a metric whose range is known; `ndcg@10` and `ndcg_at_10` are nDCG; else None."""
    return _RANGES.get(re.split(r"[@_]", statistic.lower(), maxsplit=1)[0])


def out_of_range(statistic: str, value: float) -> tuple[float, float] | None:
    """The range that a finite value of a metric leaves; None where it does not, or where no range is known."""
    known = score_range(statistic)
    if known is None or not abs(value) < LARGEST_SCORE:
        return None
    return None if known[0] - _ROUNDING <= value <= known[1] + _ROUNDING else known


_NAMED = re.compile(r"^(?P<metric>.+)_(?P<dim>[1-9][0-9]*)$")
_ENDPOINT = re.compile(r"^(?P<metric>[^/\s]+/[^/\s]+)_(?P<dim>[1-9][0-9]*)$")


def parse_endpoint(text: str) -> Endpoint:
    """`test/spearman_256` -> Endpoint.

    Raises:
        ValueError: the text is not `split/metric_dim`.
    """
    match = _ENDPOINT.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not an endpoint; expected split/metric_dim, such as test/spearman_256")
    return Endpoint(match["metric"], int(match["dim"]))


def endpoint_named(text: str) -> Endpoint:
    """The endpoint whose name this is, with dim 0 where the name has none: the inverse of `str`.

    >>> endpoint_named("test/spearman_256"), endpoint_named("accuracy"), endpoint_named("hits_at_10")
    (Endpoint(metric='test/spearman', dim=256), Endpoint(metric='accuracy', dim=0), Endpoint(metric='hits_at', dim=10))
    """
    match = _NAMED.match(text)
    return Endpoint(text, 0) if match is None else Endpoint(match["metric"], int(match["dim"]))


LONGEST_NAME: Final = 250
"""Of a metric, param or tag in MLflow."""
_NAME = re.compile(r"[/\w.\- :]*")


def name_problem(name: str) -> str | None:
    """Why a store would refuse a metric, param or tag of this name; None where it takes it."""
    longest = LONGEST_NAME - len(by_dim_metric(""))  # of a metric, the curve over dims is recorded too
    if len(name) > longest:
        return f"expected a name of at most {longest} characters"
    if not _NAME.fullmatch(name):
        return "expected a name of letters, digits, blanks and / . - _ :"
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "expected a name without empty parts, `.` and `..` between slashes"
    return None


def by_dim_metric(metric: str) -> str:
    """Metric logged as a curve over dims (step = dim)."""
    return f"{metric}_by_dim"


METRIC_LOSS: Final = "train/loss"
METRIC_TIME_PREFIX: Final = "time/"
METRIC_MEMORY_PEAK: Final = "memory/peak_mb"
REPORT_METRIC_PREFIX: Final = "report/"
REPORT_MEAN: Final = f"{REPORT_METRIC_PREFIX}mean"
REPORT_DIFFERENCE: Final = f"{REPORT_METRIC_PREFIX}mean_difference"
REPORT_P: Final = f"{REPORT_METRIC_PREFIX}p"


def report_metric(what: str, variant: str, endpoint: str) -> str:
    """On the study run, of the report last logged: `report/p.interleaved.test.spearman_64`; one section of the UI."""
    return f"{what}.{recordable(variant)}.{endpoint.replace('/', '.')}"


def recordable(label: str) -> str:
    """A label as part of a name that every store takes: `lr=1e-5` is `lr_1e-5`."""
    return re.sub(r"[^\w.\- ]", "_", label)


NOT_ENDPOINT_PREFIXES: Final = ("train/", "time/", "memory/")

# -- columns of a results table: one row per cell x metric x dim -----------------------------------------------
COLUMN_VARIANT: Final = "variant"
COLUMN_SEED: Final = "seed"
COLUMN_SETTING: Final = "setting"
COLUMN_METRIC: Final = "metric"
COLUMN_DIM: Final = "dim"
COLUMN_VALUE: Final = "value"
COLUMN_CELL: Final = "cell"
RESULT_COLUMNS: Final = (
    COLUMN_CELL, COLUMN_VARIANT, COLUMN_SEED, COLUMN_SETTING, COLUMN_METRIC, COLUMN_DIM, COLUMN_VALUE,
)  # fmt: skip
PLAIN_COLUMNS: Final = RESULT_COLUMNS[1:]
"""What a plain CSV from any other tool must have."""
DEFAULT_SETTING: Final = "default"

# -- states of a cell ------------------------------------------------------------------------------------------
STATE_TO_RUN: Final = "to_run"
STATE_RUNNING: Final = "running"
STATE_FINISHED: Final = "finished"
STATE_FAILED: Final = "failed"
STATE_STALE: Final = "stale"
