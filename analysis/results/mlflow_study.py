"""One study in one MLflow store: what is recorded, what a cached report must match, and notes written back."""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from analysis import schema
from analysis.errors import ResultsError
from analysis.results.mlflow_sqlite import SqliteStore
from analysis.results.model import Results
from analysis.results.predictions import StoredPredictions, local_folder
from analysis.results.runs import history, results_from_runs
from analysis.results.store import Store, StoredRun, canonical_uri, default_uri, sqlite_path
from analysis.showing import hide_credentials


def cache_folder() -> Path:
    """PAIRSWEEP_CACHE, else `pairsweep` in the user's cache folder."""
    own = os.environ.get("PAIRSWEEP_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pairsweep"


def open_store(uri: str) -> Store:
    """The store behind a tracking URI.

    Raises:
        ResultsError: no database file, or a URI that MLflow does not know.
    """
    path = sqlite_path(uri)
    if path is not None:
        if not path.is_file():
            raise ResultsError(
                f"{hide_credentials(uri)}: there is no such MLflow database; give --tracking-uri or run the study first"
            )
        store = SqliteStore(uri, path)
        if store.schema_is_known():
            return store
    from analysis.results.mlflow import ClientStore

    return ClientStore(uri)


class MlflowStudy:
    """A study as its MLflow experiment records it."""

    def __init__(self, study: str, tracking_uri: str | None) -> None:
        """Open the store; reads nothing yet.

        Raises:
            ResultsError: there is no such store.
        """
        self.study = study
        self.uri = canonical_uri(default_uri(tracking_uri))
        self._store: Store = open_store(default_uri(tracking_uri))

    @property
    def folder(self) -> Path:
        """Where what is kept of this study lies in the cache."""
        digest = hashlib.sha256(json.dumps([self.uri, self.study]).encode()).hexdigest()[:16]
        return cache_folder() / "studies" / digest

    @cached_property
    def study_runs(self) -> list[StoredRun]:
        """The parent runs, oldest first."""
        return self._store.study_runs(self.study)

    @cached_property
    def _cells(self) -> list[StoredRun]:
        return self._store.cell_runs(self.study)

    def state(self) -> dict[str, Any]:
        """What findings depend on besides the question asked; equal states give equal findings.

        Reports made after the last change of the seeds count by what they say, not by when they were made.
        """
        stamp: Any = self._store.stamp(self.study)
        if stamp is None:
            shown = [
                [run.run_id, run.status, run.end_time, sorted(run.tags.items()), sorted(run.metrics.items())]
                for run in self._cells
            ]
            stamp = hashlib.sha256(json.dumps(shown).encode()).hexdigest()
        entries = history(self.study_runs)
        last = max((i for i, entry in enumerate(entries) if entry.kind == "seeds"), default=-1)
        plans = [self._plan_text(run) for run in self.study_runs]
        return {
            "uri": self.uri,
            "study": self.study,
            "stamp": stamp,
            "plans": plans,
            "history": [[entry.kind, entry.time, dict(entry.detail)] for entry in entries[: last + 1]],
            "reports": sorted({json.dumps(dict(entry.detail), sort_keys=True) for entry in entries[last + 1 :]}),
        }

    def state_after_note(self, state: dict[str, Any], detail: dict[str, Any]) -> dict[str, Any]:
        """The state once a report with this detail is noted on the study run."""
        reports = sorted({*state["reports"], json.dumps(detail, sort_keys=True)})
        return {**state, "reports": reports}

    def results(self) -> Results:
        """Everything recorded.

        Raises:
            ResultsError: no cell is recorded, or the store cannot be read.
        """
        if not self._cells:
            raise ResultsError(f"study {self.study!r}: no cell is recorded yet; run it with: sweep run STUDY")
        predictions = StoredPredictions(
            artifact_uris={
                run.tags.get(schema.TAG_CELL) or run.run_id: run.artifact_uri
                for run in self._cells
                if run.status == "FINISHED"
            },
            fetch=self._fetch,
            keep=self.folder / "predictions",
        )
        return results_from_runs(
            study=self.study,
            cells=self._cells,
            studies=self.study_runs,
            predictions=predictions,
            plan_text=self._plan_text,
        )

    def note_report(self, detail: dict[str, Any]) -> None:
        """Append to the study run that a report was made.

        A SQLite file is written without MLflow, whose import would keep the command for seconds after its answer.

        Raises:
            ResultsError: there is no study run, or the store cannot be written.
        """
        now = datetime.now(UTC)
        key = f"{schema.HISTORY_TAG_REPORT}{now:%Y%m%dT%H%M%S.%fZ}"
        text = json.dumps({"time": now.isoformat(timespec="seconds"), **detail})
        run_id = self._noted_run().run_id
        if isinstance(self._store, SqliteStore):
            self._store.add_tag(run_id, key, text)
            return
        from analysis.results.mlflow import ClientStore

        ClientStore(self.uri).set_tag(run_id, key, text)

    def attach(self, folder: Path) -> None:
        """Attach a folder of report files to the study run.

        Raises:
            ResultsError: there is no study run, or the store cannot be written.
        """
        from analysis.results.mlflow import ClientStore

        ClientStore(self.uri).log_files(self._noted_run().run_id, folder, schema.REPORTS_ARTIFACT_DIR)

    def describe(self, verdict: str) -> None:
        """Put a verdict where the UI shows it: into the study run's description, in place of an earlier one.

        Raises:
            ResultsError: there is no study run, or the store cannot be written.
        """
        from analysis.results.mlflow import ClientStore

        run = self._noted_run()
        paragraphs = [part for part in run.tags.get(schema.TAG_DESCRIPTION, "").split("\n\n") if part]
        told = f"{schema.VERDICT_HEADING} {verdict}"
        if any(part.startswith(schema.VERDICT_HEADING) for part in paragraphs):
            paragraphs = [told if part.startswith(schema.VERDICT_HEADING) else part for part in paragraphs]
        else:
            paragraphs.append(told)
        ClientStore(self.uri).set_tag(run.run_id, schema.TAG_DESCRIPTION, "\n\n".join(paragraphs))

    def record_findings(self, metrics: Mapping[str, float], verdicts: Mapping[str, str]) -> None:
        """Put a report's numbers and verdicts on the study run, where the UI lists runs.

        What an earlier report left there and this one does not say goes: tags are removed, numbers become NaN, since
        MLflow removes none.

        Args:
            metrics: Name -> value.
            verdicts: Treatment -> verdict.

        Raises:
            ResultsError: there is no study run, or the store cannot be written.
        """
        from analysis.results.mlflow import ClientStore

        store, run = ClientStore(self.uri), self._noted_run()
        new = {name: value for name, value in metrics.items() if not schema.name_problem(name)}
        old = {name for name in run.metrics if name.startswith(schema.REPORT_METRIC_PREFIX)}
        store.log_metrics(run.run_id, {**dict.fromkeys(old - new.keys(), math.nan), **new})
        tags = {schema.TAG_VERDICT_PREFIX + schema.recordable(one): verdict for one, verdict in verdicts.items()}
        for name, verdict in tags.items():
            store.set_tag(run.run_id, name, verdict)
        for name in run.tags:
            if name.startswith(schema.TAG_VERDICT_PREFIX) and name not in tags:
                store.delete_tag(run.run_id, name)

    def _noted_run(self) -> StoredRun:
        if not self.study_runs:
            raise ResultsError(f"study {self.study!r} has no study run to note the report on")
        return self.study_runs[0]

    def _plan_text(self, run: StoredRun) -> str | None:
        folder = local_folder(run.artifact_uri)
        if folder is not None:
            file = folder / schema.PLAN_ARTIFACT
            return file.read_text(encoding="utf-8") if file.is_file() else None
        fetched = self._fetch(run.artifact_uri, schema.PLAN_ARTIFACT)
        return None if fetched is None else fetched.decode()

    def _fetch(self, artifact_uri: str, path: str) -> bytes | None:
        from analysis.results.mlflow import ClientStore

        with tempfile.TemporaryDirectory() as folder:
            file = ClientStore(self.uri).download(artifact_uri, path, Path(folder))
            return None if file is None else file.read_bytes()


def finished_splits(results: Results) -> list[str]:
    """Splits that the recorded metrics are of, such as `test`."""
    return sorted({str(metric).split("/", 1)[0] for metric in results.table[schema.COLUMN_METRIC].unique()})
