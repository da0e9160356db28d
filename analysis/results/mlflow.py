"""MLflow's own client: any store that is not read directly, and everything that is written back.

The one module of this package that imports mlflow, always inside a function.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from analysis import schema
from analysis.errors import ResultsError
from analysis.results.store import StoredRun, unknown_experiment
from analysis.showing import ANSWERED_WITH_A_PAGE, hide_credentials, is_page, shown_uri

PAGE = 1000
RETRIES = "2"
"""Of a request to a server; MLflow's own seven keep a reader waiting for minutes."""


class ClientStore:
    """Reads and writes through MlflowClient."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def stamp(self, experiment: str) -> None:
        """None: the client has no query cheaper than reading all runs."""
        return

    def study_runs(self, experiment: str) -> list[StoredRun]:
        """The study's parent runs, oldest first."""
        return self._search(experiment, schema.KIND_STUDY)

    def cell_runs(self, experiment: str) -> list[StoredRun]:
        """All runs of cells, oldest first."""
        return self._search(experiment, schema.KIND_CELL)

    def _search(self, experiment: str, kind: str) -> list[StoredRun]:
        with self._client() as client:
            found = client.get_experiment_by_name(experiment)
            if found is None or found.lifecycle_stage != "active":  # deleted ones are found by name, too
                names = [one.name for one in client.search_experiments() if one.name != "Default"]
                raise unknown_experiment(experiment, self.uri, names)
            runs: list[StoredRun] = []
            token: str | None = None
            while True:
                page = client.search_runs(
                    [found.experiment_id],
                    filter_string=f"tags.`{schema.TAG_KIND}` = '{kind}'",
                    max_results=PAGE,
                    order_by=["attributes.start_time ASC"],
                    page_token=token,
                )
                runs.extend(_run(run) for run in page)
                token = page.token
                if not token:
                    return runs

    def download(self, artifact_uri: str, path: str, folder: Path) -> Path | None:
        """Fetch one artifact into `folder`; None if it does not exist."""
        from mlflow.artifacts import download_artifacts
        from mlflow.exceptions import MlflowException

        with self._client():
            try:
                return Path(
                    download_artifacts(
                        artifact_uri=f"{artifact_uri.rstrip('/')}/{path}", dst_path=str(folder), tracking_uri=self.uri
                    )
                )
            except (MlflowException, OSError):
                return None

    def set_tag(self, run_id: str, key: str, value: str) -> None:
        """Set one tag."""
        with self._client() as client:
            client.set_tag(run_id, key, value)

    def delete_tag(self, run_id: str, key: str) -> None:
        """Remove one tag."""
        with self._client() as client:
            client.delete_tag(run_id, key)

    def log_metrics(self, run_id: str, metrics: Mapping[str, float]) -> None:
        """Record numbers on a run."""
        with self._client() as client:
            for name, value in metrics.items():
                client.log_metric(run_id, name, value)

    def log_files(self, run_id: str, folder: Path, artifact_dir: str) -> None:
        """Attach all files of a folder to a run."""
        with self._client() as client:
            client.log_artifacts(run_id, str(folder), artifact_dir)

    @contextmanager
    def _client(self) -> Iterator[Any]:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", RETRIES)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                from mlflow.exceptions import MlflowException
                from mlflow.tracking import MlflowClient
            except ImportError as error:
                raise ResultsError(f"mlflow cannot be imported: {error}") from None
            logging.getLogger("mlflow").setLevel(logging.ERROR)
            try:
                yield MlflowClient(self.uri)
            except ModuleNotFoundError as error:  # of a database's driver
                said = f"needs the package {error.name!r}, which is not installed here"
                raise ResultsError(f"{shown_uri(self.uri)}: {said}") from None
            except MlflowException as error:
                first = " ".join(str(error).strip().splitlines()[:1]).replace(self.uri, shown_uri(self.uri))
                said = ANSWERED_WITH_A_PAGE if is_page(error) else f"MLflow says: {first}"
                raise ResultsError(hide_credentials(f"{shown_uri(self.uri)}: {said}")) from None


def _run(run: Any) -> StoredRun:
    return StoredRun(
        run_id=run.info.run_id,
        status=run.info.status,
        start_time=run.info.start_time,
        end_time=run.info.end_time,
        artifact_uri=run.info.artifact_uri or "",
        tags=dict(run.data.tags),
        metrics={key: float(value) for key, value in run.data.metrics.items()},
        params=dict(run.data.params),
    )
