"""One study in one MLflow store: what is recorded, what a cached report must match, and notes written back."""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from analysis import schema
from analysis.errors import ResultsError
from analysis.files import write_atomically
from analysis.places import ARTIFACTS_FOLDER, experiment_folder, local_folder, placed
from analysis.results.mlflow_sqlite import SqliteStore
from analysis.results.model import Results
from analysis.results.predictions import StoredPredictions
from analysis.results.runs import history, names_now, results_from_runs
from analysis.results.store import Store, StoredRun, canonical_uri, default_uri, sqlite_path
from analysis.revisions import Meant, Shown, TrainedRun, current_numbers, shown_by_name, shown_now
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

    def __init__(self, study: str, tracking_uri: str | None, *, meant: Meant | None = None) -> None:
        """Open the store; reads nothing yet.

        Args:
            study: The experiment's name.
            tracking_uri: The store; None: as `default_uri`.
            meant: What the study's file means now: which revisions count. None: the last ones.

        Raises:
            ResultsError: there is no such store.
        """
        self.study, self._meant = study, meant
        self.uri = canonical_uri(default_uri(tracking_uri))
        self._store: Store = open_store(default_uri(tracking_uri))
        self._database = sqlite_path(self.uri)
        self._recorded_at: dict[str, str] = {}

    @property
    def folder(self) -> Path:
        """Where what is kept of this study lies in the cache."""
        digest = hashlib.sha256(json.dumps([self.uri, self.study]).encode()).hexdigest()[:16]
        return cache_folder() / "studies" / digest

    @cached_property
    def study_runs(self) -> list[StoredRun]:
        """The parent runs, oldest first."""
        return self._placed(self._store.study_runs(self.study))

    @cached_property
    def _cells(self) -> list[StoredRun]:
        return self._placed(self._store.cell_runs(self.study))

    def _placed(self, runs: list[StoredRun]) -> list[StoredRun]:
        """Runs with the URI at which their files lie now; the recorded one is remembered."""
        self._recorded_at.update((run.run_id, run.artifact_uri) for run in runs)
        return [replace(run, artifact_uri=placed(self._database, run.artifact_uri)) for run in runs]

    def moved(self) -> str | None:
        """What to tell of a folder that was moved or copied, in one line; None where it was not."""
        for run in self.study_runs:
            if run.artifact_uri != self._recorded_at[run.run_id]:
                old, new = experiment_folder(self._recorded_at[run.run_id]), experiment_folder(run.artifact_uri)
                return (
                    f"this folder was moved or copied from {old}: the files of its runs are read from {new}; "
                    "`sweep run` and `sweep relocate` record the new place"
                )
        return None

    def _unreachable(self) -> str | None:
        """Where the files of all runs were looked for in vain; None where their folder is there, or is remote."""
        for run in self.study_runs:
            folder = experiment_folder(run.artifact_uri)
            if folder is None or folder.is_dir():
                return None
        if not self.study_runs:
            return None
        old = experiment_folder(self.study_runs[0].artifact_uri)
        beside = None
        if old is not None and self._database is not None:
            beside = self._database.parent / ARTIFACTS_FOLDER / old.name
        also = "" if beside is None or beside == old else f", nor in {beside}"
        mend = "put them back"
        mend += "" if self._database is None else ", or name their folder: sweep relocate STUDY --artifacts FOLDER"
        return f"the files of its runs are not in {old}, where they were recorded{also}; {mend}"

    def _warnings(self) -> tuple[str, ...]:
        """What a reader must know of files that cannot be read, one sentence each."""
        lost = self._unreachable()
        told = []
        if lost is not None:
            told.append(f"Files cannot be reached: {lost}. Without them there are no per-example predictions.")
        recorded = [run for run in self.study_runs if lost is not None or schema.TAG_STUDY_FILE in run.tags]
        if recorded and not any(self._plan_text(run) for run in self.study_runs):
            told.append(
                "The plan and the baseline declared at the first run cannot be read: unless told otherwise, this "
                "report takes the default primary endpoint, the default alpha and the first variant recorded."
            )
        return tuple(told)

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
            "meant": None if self._meant is None else self._meant.key,
            "launched": self._launched,
            "stamp": stamp,
            "plans": plans,
            "unreachable": self._unreachable(),
            "history": [[entry.kind, entry.time, dict(entry.detail)] for entry in entries[: last + 1]],
            "reports": sorted({json.dumps(dict(entry.detail), sort_keys=True) for entry in entries[last + 1 :]}),
        }

    def state_after_note(self, state: dict[str, Any], detail: dict[str, Any]) -> dict[str, Any]:
        """The state once a report with this detail is noted on the study run."""
        reports = sorted({*state["reports"], json.dumps(detail, sort_keys=True)})
        return {**state, "reports": reports}

    def results(self, variants: Sequence[str] = (), *, every_revision: bool = False) -> Results:
        """What is recorded: of each variant the revision that counts.

        Args:
            variants: Only these, each as `mine` or `mine@1`, a revision; empty: all.
            every_revision: All revisions of all variants, under one name each.

        Raises:
            ResultsError: no cell is recorded, none of a variant that was asked for, or the store cannot be read.
        """
        if not self._cells:
            raise ResultsError(f"study {self.study!r}: no cell is recorded yet; run it with: sweep run STUDY")
        cells, shown = self._cells, Shown(run_ids=frozenset())
        if not every_revision:
            shown = self._shown(variants)
            cells = [_as_shown(run, shown) for run in cells if run.run_id in shown.run_ids]
        predictions = StoredPredictions(
            artifact_uris={
                run.tags.get(schema.TAG_CELL) or run.run_id: run.artifact_uri
                for run in cells
                if run.status == "FINISHED"
            },
            fetch=self._fetch,
            keep=self.folder / "predictions",
            unreachable=self._unreachable(),
        )
        results = results_from_runs(
            study=self.study,
            cells=cells,
            names=names_now(self._cells),
            studies=self.study_runs,
            predictions=predictions,
            plan_text=self._plan_text,
        )
        order = tuple(variants) or results.variant_order
        warnings = (*shown.warnings, *results.warnings, *self._warnings())
        return replace(results, warnings=warnings, variant_order=order)

    @property
    def _launched(self) -> dict[str, int]:
        return current_numbers(self.study_runs[0].tags) if self.study_runs else {}

    def _shown(self, variants: Sequence[str]) -> Shown:
        runs = [
            TrainedRun(
                run_id=run.run_id, tags=run.tags, start_ms=run.start_time or 0, finished=run.status == "FINISHED"
            )
            for run in self._cells
        ]
        try:
            now = shown_now(runs, self._meant, launched=self._launched)
            return shown_by_name(runs, now, variants) if variants else now
        except ValueError as error:
            raise ResultsError(f"--variants: {error}") from None

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
        run = self._noted_run()
        place = local_folder(run.artifact_uri)
        if (lost := self._unreachable()) is not None:
            raise ResultsError(f"study {self.study!r}: {lost}")
        if place is not None and run.artifact_uri != self._recorded_at[run.run_id]:
            # MLflow would write to the place that is recorded: into the folder that this one was copied from.
            for file in sorted(path for path in folder.rglob("*") if path.is_file()):
                write_atomically(place / schema.REPORTS_ARTIFACT_DIR / file.relative_to(folder), file.read_bytes())
            return
        from analysis.results.mlflow import ClientStore

        ClientStore(self.uri).log_files(run.run_id, folder, schema.REPORTS_ARTIFACT_DIR)

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
            text = file.read_text(encoding="utf-8") if file.is_file() else None
        else:
            fetched = self._fetch(run.artifact_uri, schema.PLAN_ARTIFACT)
            text = None if fetched is None else fetched.decode()
        return run.tags.get(schema.TAG_PLAN) if text is None else text

    def _fetch(self, artifact_uri: str, path: str) -> bytes | None:
        from analysis.results.mlflow import ClientStore

        with tempfile.TemporaryDirectory() as folder:
            file = ClientStore(self.uri).download(artifact_uri, path, Path(folder))
            return None if file is None else file.read_bytes()


def _as_shown(run: StoredRun, shown: Shown) -> StoredRun:
    """The run under the name by which its revision was asked for; what was edited between revisions may differ."""
    name = shown.names.get(run.run_id)
    if name is None or name == run.tags.get(schema.TAG_VARIANT):
        return run
    declared = json.loads(run.tags.get(schema.TAG_VARIANT_FIELDS) or "[]")
    fields = json.dumps([*declared, *(field for field in shown.edited if field not in declared)])
    return replace(run, tags={**run.tags, schema.TAG_VARIANT: name, schema.TAG_VARIANT_FIELDS: fields})


def finished_splits(results: Results) -> list[str]:
    """Splits that the recorded metrics are of, such as `test`."""
    return sorted({str(metric).split("/", 1)[0] for metric in results.table[schema.COLUMN_METRIC].unique()})
