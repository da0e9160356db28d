"""An MLflow server read through its REST interface, without importing mlflow.

Honours the same environment variables as MLflow for credentials: MLFLOW_TRACKING_TOKEN, or
MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD.
"""

from __future__ import annotations

import base64
import json
import math
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from analysis import schema
from analysis.errors import ResultsError
from analysis.results.store import StoredRun, hide_credentials, unknown_experiment

PAGE = 1000
TIMEOUT_S = 60.0


class RestStore:
    """Reads one MLflow server."""

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")

    def stamp(self, experiment: str) -> None:
        """None: the server cannot count runs without sending them all."""
        return

    def study_runs(self, experiment: str) -> list[StoredRun]:
        """The study's parent runs, oldest first."""
        return self._search(experiment, schema.KIND_STUDY)

    def cell_runs(self, experiment: str) -> list[StoredRun]:
        """All runs of cells, oldest first."""
        return self._search(experiment, schema.KIND_CELL)

    def artifact(self, artifact_uri: str, path: str) -> bytes | None:
        """Content of an artifact that the server serves itself; None if there is none.

        Raises:
            ResultsError: the server does not answer as it should.
        """
        inside = urllib.parse.urlsplit(artifact_uri).path.strip("/")
        target = urllib.parse.quote(f"{inside}/{path}")
        try:
            return self._send(f"/api/2.0/mlflow-artifacts/artifacts/{target}")
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise self._failed(error) from None

    def _search(self, experiment: str, kind: str) -> list[StoredRun]:
        found: list[StoredRun] = []
        token: str | None = None
        identifier = self._experiment_id(experiment)
        while True:
            body: dict[str, Any] = {
                "experiment_ids": [identifier],
                "filter": f"tags.`{schema.TAG_KIND}` = '{kind}'",
                "max_results": PAGE,
                "order_by": ["attributes.start_time ASC"],
            }
            if token:
                body["page_token"] = token
            answer = self._json("/api/2.0/mlflow/runs/search", body)
            found.extend(_run(item) for item in answer.get("runs", []))
            token = answer.get("next_page_token")
            if not token:
                return found

    def _experiment_id(self, experiment: str) -> str:
        name = urllib.parse.quote(experiment, safe="")
        try:
            answer = json.loads(self._send(f"/api/2.0/mlflow/experiments/get-by-name?experiment_name={name}"))
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise self._failed(error) from None
            listed = self._json("/api/2.0/mlflow/experiments/search", {"max_results": PAGE})
            names = [item["name"] for item in listed.get("experiments", []) if item["name"] != "Default"]
            raise unknown_experiment(experiment, self.uri, names) from None
        return str(answer["experiment"]["experiment_id"])

    def _json(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = json.loads(self._send(path, json.dumps(body).encode()))
        except urllib.error.HTTPError as error:
            raise self._failed(error) from None
        except ValueError:
            raise ResultsError(
                f"{hide_credentials(self.uri)}: the answer is not MLflow's; is this its server?"
            ) from None
        return dict(answer)

    def _send(self, path: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(self.uri + path, data=body)
        request.add_header("Content-Type", "application/json")
        token, user = os.environ.get("MLFLOW_TRACKING_TOKEN"), os.environ.get("MLFLOW_TRACKING_USERNAME")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        elif user:
            pair = f"{user}:{os.environ.get('MLFLOW_TRACKING_PASSWORD', '')}".encode()
            request.add_header("Authorization", "Basic " + base64.b64encode(pair).decode())
        context = None
        if os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() == "true":
            context = ssl._create_unverified_context()
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError:
            raise
        except OSError as error:
            raise ResultsError(f"{hide_credentials(self.uri)}: the tracking server does not answer: {error}") from None

    def _failed(self, error: urllib.error.HTTPError) -> ResultsError:
        return ResultsError(
            f"{hide_credentials(self.uri)}: the tracking server answers {error.code} {error.reason}"
            + ("; set MLFLOW_TRACKING_TOKEN or _USERNAME and _PASSWORD" if error.code in (401, 403) else "")
        )


def _run(item: dict[str, Any]) -> StoredRun:
    info, data = item["info"], item.get("data", {})
    return StoredRun(
        run_id=info["run_id"],
        status=info["status"],
        start_time=_time(info.get("start_time")),
        end_time=_time(info.get("end_time")),
        artifact_uri=info.get("artifact_uri", ""),
        tags={pair["key"]: pair["value"] for pair in data.get("tags", [])},
        metrics={pair["key"]: _number(pair.get("value")) for pair in data.get("metrics", [])},
        params={pair["key"]: pair["value"] for pair in data.get("params", [])},
    )


def _time(value: Any) -> int | None:
    return None if value in (None, "") else int(value)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
