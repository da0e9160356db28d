"""The MLflow writer and query: the only place in this package that knows MLflow.

Every call waits, within a bound, for a store that is away or locked; every write may be repeated.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from analysis import schema
from analysis.files import write_atomically, written_atomically
from analysis.showing import ANSWERED_WITH_A_PAGE, is_page
from sweep.console import one_line
from sweep.errors import RefusedRecord, TrackingError, TrackingUnavailable
from sweep.record.ledger import RecordedRun
from sweep.record.recording import Input, Recording, artifact_problem
from sweep.record.retry import patiently, tracking_wait_s
from sweep.record.tracking_uri import absolute_uri, alone_with, database_file, host_refusal, make_private

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput, Run

PARENT_TAG: Final = "mlflow.parentRunId"
USER_TAG: Final = "mlflow.user"
_MODEL_DATA: Final = "model.sentence_transformer"
"""Where MLflow's sentence_transformers flavor looks for the model's own files."""
PAGE: Final = 1000
MAX_DIGEST: Final = 36
"""MLflow's longest dataset digest; the whole digest stands in the tags."""

_HTTP: Final = {
    # One try, answered within seconds: this module does the waiting, with a bound of its own.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}
_PERMANENT: Final = frozenset(
    {
        "BAD_REQUEST", "ENDPOINT_NOT_FOUND", "FEATURE_DISABLED", "INVALID_PARAMETER_VALUE", "INVALID_STATE",
        "MALFORMED_REQUEST", "NOT_IMPLEMENTED", "PERMISSION_DENIED", "RESOURCE_ALREADY_EXISTS",
        "RESOURCE_DOES_NOT_EXIST", "UNAUTHENTICATED",
    }
)  # fmt: skip
_REFUSED: Final = frozenset({"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "MALFORMED_REQUEST"})
"""Of these: what was asked is wrong, whoever asks."""
_GONE: Final = "put it back and run the same command; without it, that command trains anew what only it held"
_DAMAGE: Final = {
    "file is not a database": "cannot be read as an MLflow database",
    "database disk image is malformed": "cannot be read as an MLflow database",
    "no such table": f"has lost its tables: emptied or replaced by another; {_GONE}",
    "attempt to write a readonly database": f"cannot be written: read-only, or moved or removed in use; {_GONE}",
}
"""SQLite's word -> what it means, of a file that is damaged, was never a database, or is not there any more."""
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class StudyRun:
    """The parent run of a study."""

    run_id: str
    experiment_id: str
    status: str
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CellRun:
    """A cell's run, just created or found again."""

    run_id: str
    artifact_uri: str


def _worth_waiting(error: Exception) -> bool:
    """A store that is away, locked or busy may come back; a request that it refuses will be refused again."""
    from mlflow.exceptions import InvalidUrlException, MlflowException

    if _damage(error) is not None or is_page(error) or isinstance(error, InvalidUrlException):
        return False
    if _made_by_another(error):
        return True
    if isinstance(error, MlflowException):
        passing = "database is locked" in str(error) or _written_by_another(error)
        return passing or str(error.error_code) not in _PERMANENT
    return isinstance(error, OSError)


def _written_by_another(error: Exception) -> bool:
    """Two workers registered the same dataset at the same instant; the second try finds it there."""
    text = str(error).lower()
    return "unique constraint" in text and "dataset" in text


def _made_by_another(error: Exception) -> bool:
    """Two processes make a new SQLite database at the same moment; once one is through, the other finds it made."""
    return "sqlite3.OperationalError" in str(error) and "already exists" in str(error)


def _damage(error: BaseException) -> str | None:
    """What has become of the database that will not pass by waiting; None where it is not that."""
    text = str(error)
    return next((what for sign, what in _DAMAGE.items() if sign in text), None)


class Tracking:
    """One store. Cheap to make: MLflow is imported and the store opened at the first call."""

    def __init__(
        self, uri: str, *, wait_s: float | None = None, on_wait: Callable[[str], None] = lambda line: None
    ) -> None:
        self.uri = absolute_uri(uri)
        self.wait_s = tracking_wait_s() if wait_s is None else wait_s
        self._on_wait = on_wait
        self._opened: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self.uri, self.wait_s))

    @contextmanager
    def waiting_at_most(self, wait_s: float) -> Iterator[Tracking]:
        """The same store with less patience."""
        before = self.wait_s
        self.wait_s = min(before, wait_s)
        try:
            yield self
        finally:
            self.wait_s = before

    @contextmanager
    def telling(self, on_wait: Callable[[str], None]) -> Iterator[Tracking]:
        """The same store, with somebody else told of what is waited for."""
        before, self._on_wait = self._on_wait, on_wait
        try:
            yield self
        finally:
            self._on_wait = before

    @property
    def _client(self) -> Any:
        if self._opened is None:
            for name, value in _HTTP.items():
                os.environ.setdefault(name, value)
            logging.getLogger("alembic").setLevel(logging.WARNING)
            from mlflow.tracking import MlflowClient

            # Its own traceback of every locked database would flood the terminal; errors are reported here.
            logging.getLogger("mlflow").setLevel(logging.CRITICAL)
            file = database_file(self.uri)
            with alone_with(file):
                if file is not None:
                    make_private(file)
                self._opened = MlflowClient(tracking_uri=self.uri)
        return self._opened

    def open(self) -> None:
        """Import MLflow and open the store now, without waiting for it; a database that does not exist yet is made."""
        _ = self._client

    def _call(self, call: Callable[[Any, int], _T], *, what: str = "") -> _T:
        try:
            return patiently(
                lambda failures: call(self._client, failures),
                worth_waiting=_worth_waiting,
                bound_s=self.wait_s,
                what=what or f"tracking store {self.uri}",
                on_wait=self._on_wait,
            )
        except TrackingUnavailable:
            raise
        except Exception as error:
            if "Invalid Host header" in str(error):
                raise TrackingError(f"tracking store: {host_refusal(self.uri)}") from error
            if is_page(error):
                raise TrackingError(f"tracking store {self.uri}: {ANSWERED_WITH_A_PAGE}") from error
            if damage := _damage(error):
                file = database_file(self.uri)
                raise TrackingError(f"tracking store {self.uri}: {file or 'its database'} {damage}") from error
            kind = RefusedRecord if getattr(error, "error_code", "") in _REFUSED else TrackingError
            raise kind(f"tracking store {self.uri}: {one_line(error)}") from error

    # -- reading ---------------------------------------------------------------------------------------------

    def experiment_id(self, study: str) -> str | None:
        """Id of the study's experiment; None where there is none.

        Raises:
            TrackingError: the experiment was deleted.
        """
        file = database_file(self.uri)
        if file is not None and not file.exists():
            return None  # asking MLflow would create the database
        found = self._call(lambda client, _: client.get_experiment_by_name(study))
        if found is None:
            return None
        if found.lifecycle_stage != "active":
            raise TrackingError(
                f"tracking store {self.uri}: experiment {study!r} was deleted; restore it or rename the study"
            )
        return str(found.experiment_id)

    def recorded_runs(self, study: str, kind: str = schema.KIND_CELL) -> list[RecordedRun]:
        """All runs of a study's cells (or of its search trials), oldest first."""
        experiment = self.experiment_id(study)
        if experiment is None:
            return []
        return [_recorded(run) for run in self._search(experiment, {schema.TAG_KIND: kind})]

    def retired_runs(self, study: str) -> list[RecordedRun]:
        """Runs of cells that `sweep retire` has deleted, oldest first."""
        experiment = self.experiment_id(study)
        if experiment is None:
            return []
        runs = self._search(experiment, {schema.TAG_KIND: schema.KIND_CELL}, deleted=True)
        return [_recorded(run) for run in runs if schema.TAG_RETIRED in run.data.tags]

    def study_run(self, study: str) -> StudyRun | None:
        """The study's parent run; the oldest, should there be several."""
        experiment = self.experiment_id(study)
        if experiment is None:
            return None
        found = self._search(experiment, {schema.TAG_KIND: schema.KIND_STUDY})
        return _study_run(found[0]) if found else None

    def run(self, run_id: str) -> RecordedRun:
        """One run."""
        return _recorded(self._call(lambda client, _: client.get_run(run_id)))

    def launched(self, experiment_id: str, launch: str) -> RecordedRun | None:
        """The run of one attempt, found by its launch id."""
        found = self._search(experiment_id, {schema.TAG_LAUNCH: launch})
        return _recorded(found[0]) if found else None

    def _search(self, experiment_id: str, tags: Mapping[str, str], *, deleted: bool = False) -> list[Run]:
        from mlflow.entities import ViewType

        where = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())

        def page(token: str | None) -> Any:
            return self._call(
                lambda client, _: client.search_runs(
                    [experiment_id],
                    filter_string=where,
                    run_view_type=ViewType.DELETED_ONLY if deleted else ViewType.ACTIVE_ONLY,
                    max_results=PAGE,
                    order_by=["attributes.start_time ASC"],
                    page_token=token,
                )
            )

        runs: list[Run] = []
        token: str | None = None
        while True:
            got = page(token)
            runs += got
            token = got.token
            if not token:
                return runs

    # -- writing ---------------------------------------------------------------------------------------------

    def open_experiment(self, study: str) -> str:
        """Id of the study's experiment, created where there is none."""
        found = self.experiment_id(study)
        if found is not None:
            return found
        file = database_file(self.uri)
        # Said explicitly: MLflow's own default depends on the folder that a process happens to run in.
        location = None if file is None else (file.parent / "mlruns" / uuid.uuid4().hex[:16]).as_uri()

        def create(client: Any, failures: int) -> str:
            if failures:
                there = client.get_experiment_by_name(study)
                if there is not None:
                    return str(there.experiment_id)
            return str(client.create_experiment(study, artifact_location=location))

        try:
            return self._call(create)
        except TrackingError:
            there = self.experiment_id(study)  # another process may have been faster
            if there is None:
                raise
            return there

    def experiment_tags(self, experiment_id: str) -> dict[str, str]:
        """Tags of an experiment."""
        return dict(self._call(lambda client, _: client.get_experiment(experiment_id)).tags)

    def set_experiment_tags(self, experiment_id: str, tags: Mapping[str, str]) -> None:
        """Set tags of an experiment, over what they were."""

        def write(client: Any, _: int) -> None:
            for name, value in tags.items():
                client.set_experiment_tag(experiment_id, name, value)

        self._call(write)

    def create_study_run(self, experiment_id: str, study: str, tags: Mapping[str, str]) -> StudyRun:
        """A new parent run for a study."""
        own = {schema.TAG_STUDY: study, schema.TAG_SCHEMA: schema.SCHEMA_VERSION, schema.TAG_KIND: schema.KIND_STUDY}
        run = self._create(experiment_id, study, {**tags, **own})
        return _study_run(run)

    def create_cell_run(
        self, experiment_id: str, parent: str, name: str, tags: Mapping[str, str], launch: str
    ) -> CellRun:
        """A new run for one attempt at a cell; `launch` finds it again should the answer get lost."""
        run = self._create(experiment_id, name, {**tags, PARENT_TAG: parent}, launch)
        return CellRun(run_id=run.info.run_id, artifact_uri=run.info.artifact_uri)

    def _create(self, experiment_id: str, name: str, tags: Mapping[str, str], launch: str | None = None) -> Run:
        launch = launch or uuid.uuid4().hex
        all_tags = {**tags, schema.TAG_LAUNCH: launch, USER_TAG: os.environ.get("USER", "sweep")}

        def create(client: Any, failures: int) -> Any:
            if failures:
                found = client.search_runs(
                    [experiment_id], filter_string=f"tags.`{schema.TAG_LAUNCH}` = '{launch}'", max_results=1
                )
                if found:
                    return found[0]
            return client.create_run(experiment_id, run_name=name, tags=all_tags)

        run: Run = self._call(create)
        return run

    def record(self, run: CellRun, recording: Recording, *, complete: bool, model: Path | None = None) -> None:
        """Store a recording: metrics, then artifacts, then (if asked) the tag that says all is stored.

        Args:
            run: Of the cell.
            recording: What to store.
            complete: That is all there is.
            model: Folder of the cell's saved model, where it is kept.
        """
        from mlflow.entities import Metric, Param, RunTag

        done = [RunTag(schema.TAG_COMPLETE, "true")]
        if model is not None:
            done.append(RunTag(schema.TAG_MODEL, schema.MODEL_LAST))
        in_one = complete and not recording.artifacts and not recording.inputs and model is None
        tags = [RunTag(name, value) for name, value in recording.tags.items()]
        metrics = [Metric(one.name, one.value, one.time_ms, one.step) for one in recording.metrics]
        params = [Param(name, value) for name, value in recording.params.items()]
        # Within one batch MLflow writes params, then metrics, then tags; more than fits one batch goes first.
        head, last = metrics[:-800], metrics[-800:]
        if head:
            self._call(lambda client, _: client.log_batch(run.run_id, metrics=head))
        batch = {"metrics": last, "params": params, "tags": [*tags, *done] if in_one else tags}
        self._call(lambda client, _: client.log_batch(run.run_id, **batch))
        if recording.inputs:
            inputs = [_dataset_input(one) for one in recording.inputs]
            self._call(lambda client, _: client.log_inputs(run.run_id, datasets=inputs))
        for path, content in recording.artifacts.items():
            self.put_artifact(run, path, content)
        if model is not None:
            self.put_model(run, model)
        if complete and not in_one:
            self._call(lambda client, _: client.log_batch(run.run_id, tags=done))

    def put_artifact(self, run: CellRun, path: str, content: bytes) -> None:
        """Store one artifact; on a local disk atomically.

        Raises:
            RefusedRecord: its path leads out of the run.
        """
        if problem := artifact_problem(path):
            raise RefusedRecord(f"artifact {path[:60]!r} cannot be recorded; {problem}")
        folder, _, name = path.rpartition("/")
        local = _local_path(run.artifact_uri)
        if local is not None:
            self._call(lambda client, _: write_atomically(local / path, content), what=f"artifact folder {local}")
            return
        with tempfile.TemporaryDirectory(prefix="sweep-artifact-") as scratch:
            file = Path(scratch) / name
            file.write_bytes(content)
            self._call(lambda client, _: client.log_artifact(run.run_id, str(file), folder or None))

    def put_model(self, run: CellRun, folder: Path) -> None:
        """Store a saved model as the artifact folder `model`, never with a whole file in memory.

        A folder of sentence-transformers (one with `modules.json`) becomes an MLflow model, which registries take; any
        other is stored as it is.
        """
        of_library = (folder / "modules.json").is_file()
        into = f"{schema.MODEL_ARTIFACT}/{_MODEL_DATA}" if of_library else schema.MODEL_ARTIFACT
        local = _local_path(run.artifact_uri)
        if local is None:
            self._call(lambda client, _: client.log_artifacts(run.run_id, str(folder), into))
        else:
            for file in sorted(path for path in folder.rglob("*") if path.is_file()):
                target = local / into / file.relative_to(folder)
                self._call(partial(_copy, file, target), what=f"artifact folder {local}")
        if of_library:  # last: without it, the folder is no model
            self.put_artifact(run, f"{schema.MODEL_ARTIFACT}/MLmodel", _mlmodel(run).encode())

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set tags, over what they were."""
        from mlflow.entities import RunTag

        self._call(lambda client, _: client.log_batch(run_id, tags=[RunTag(k, v) for k, v in tags.items()]))

    def close(
        self, run_id: str, status: str, tags: Mapping[str, str] | None = None, *, ended_ms: int | None = None
    ) -> None:
        """End a run as FINISHED, FAILED or KILLED; `ended_ms` is when it really ended, where that is not now."""
        if tags:
            self.set_tags(run_id, tags)
        end = int(time.time() * 1000) if ended_ms is None else ended_ms
        self._call(lambda client, _: client.set_terminated(run_id, status=status, end_time=end))

    def retire(self, run_id: str, when: str) -> None:
        """Take a run out of sight: MLflow keeps it among the deleted ones."""
        self.set_tags(run_id, {schema.TAG_RETIRED: when})
        self._call(lambda client, _: client.delete_run(run_id))

    def restore(self, run_id: str) -> None:
        """Bring a retired run back."""
        self._call(lambda client, _: client.restore_run(run_id))
        self._call(lambda client, _: client.delete_tag(run_id, schema.TAG_RETIRED))

    def reopen(self, run_id: str) -> None:
        """Set a run back to RUNNING."""
        self._call(lambda client, _: client.update_run(run_id, status="RUNNING"))

    def artifact_uri(self, run_id: str) -> str:
        """Where a run's artifacts lie."""
        return str(self._call(lambda client, _: client.get_run(run_id)).info.artifact_uri)

    def has_artifact(self, run_id: str, path: str) -> bool:
        """Whether a run has an artifact at exactly that path."""
        folder = path.rpartition("/")[0] or None
        return any(one.path == path for one in self._call(lambda client, _: client.list_artifacts(run_id, folder)))

    def artifact_text(self, run_id: str, path: str) -> str | None:
        """A text artifact of a run; None where it has none at that path."""
        if not self.has_artifact(run_id, path):
            return None
        with tempfile.TemporaryDirectory(prefix="artifact-") as folder:
            found = self._call(lambda client, _: client.download_artifacts(run_id, path, folder))
            return Path(found).read_text(encoding="utf-8", errors="replace")


def _reopen(uri: str, wait_s: float) -> Tracking:
    return Tracking(uri, wait_s=wait_s)


def _recorded(run: Run) -> RecordedRun:
    return RecordedRun(
        run_id=run.info.run_id,
        status=run.info.status,
        tags=dict(run.data.tags),
        start_ms=run.info.start_time or 0,
        end_ms=run.info.end_time,
        metrics=dict(run.data.metrics),
    )


def _study_run(run: Run) -> StudyRun:
    return StudyRun(
        run_id=run.info.run_id,
        experiment_id=str(run.info.experiment_id),
        status=run.info.status,
        tags=dict(run.data.tags),
    )


def _dataset_input(one: Input) -> DatasetInput:
    import json

    from mlflow.entities import Dataset, DatasetInput, InputTag

    digest = one.digest.removeprefix("sha256:")[:MAX_DIGEST] or "unknown"
    profile = None if one.rows is None else json.dumps({"num_rows": one.rows})
    dataset = Dataset(
        name=one.name[:500] or "unnamed",
        digest=digest,
        source_type="model" if one.context == "model" else "data",
        source=json.dumps({"uri": one.source}),
        profile=profile,
    )
    return DatasetInput(dataset, [InputTag("mlflow.data.context", one.context)])


def _copy(file: Path, target: Path, client: Any, failures: int) -> None:
    with written_atomically(target) as temporary:
        shutil.copyfile(file, temporary)


def _mlmodel(run: CellRun) -> str:
    """The file that makes a folder an MLflow model, as mlflow.sentence_transformers.load_model reads it."""
    from mlflow.models import Model

    model = Model(artifact_path=schema.MODEL_ARTIFACT, run_id=run.run_id)
    model.add_flavor("sentence_transformers", sentence_transformers_version=version("sentence-transformers"), code=None)
    return str(model.to_yaml())


def _local_path(artifact_uri: str) -> Path | None:
    from urllib.parse import unquote, urlparse

    parsed = urlparse(artifact_uri)
    return Path(unquote(parsed.path)) if parsed.scheme in ("", "file") else None
