"""`sweep tune`: one search per variant, all with the same budget, then the chosen settings frozen into a study file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from analysis import schema
from analysis.files import write_atomically
from sweep.console import EXIT_INTERRUPTED, say
from sweep.errors import StudyError, SweepError
from sweep.files import lock_file
from sweep.record.retry import START_WAIT_S, tracking_wait_s
from sweep.record.study_lock import Owner, StudyLock
from sweep.record.tracking import Tracking
from sweep.record.tracking_uri import database_file, default_uri
from sweep.run.backend import Backend
from sweep.run.launch import DEFAULT_RETRIES, RunOptions
from sweep.run.preflight import resolved_cells
from sweep.run.run_study import run_cells
from sweep.study import Study, load_study
from sweep.study.cells import Cell
from sweep.study.search_block import Point, SearchBlock, SearchedBy, endpoint_warnings, search_endpoint
from sweep.study.yaml_reader import MISSING, read_document
from sweep.tune.optuna import Tried, VariantSearch, best_of, default_storage, open_storage, storage_url
from sweep.tune.rounds import SearchRounds, shown, trial_label

_PLAIN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_HEADER = """\
# Written by `sweep tune {source}`: for each variant the settings that its search chose.
# Each value under searched_by.best is the best of many, so it flatters its variant; what counts is the comparison
# below, on seeds that the search has not used.
"""


def tune(
    study: Study,
    backend: Backend,
    *,
    tracking_uri: str | None = None,
    max_concurrent: int | None = None,
    retries: int | None = None,
    output: Path | None = None,
) -> int:
    """Search for every variant, continuing what is there, and write the frozen study file.

    Args:
        study: With a `search:` block.
        backend: Where the trainings run.
        tracking_uri: None: MLFLOW_TRACKING_URI, else `mlflow.db` in the current folder.
        max_concurrent: Most cells at once; it changes how long a search takes, never what it finds.
        retries: Of a cell lost to infrastructure; None: the default of `sweep run`.
        output: Where the frozen study goes; None: `x.tuned.yaml` beside `x.yaml`.

    Returns:
        Exit code: 0 frozen; 1 a trial could not be trained, or all trials of a variant failed; 130 interrupted.

    Raises:
        SweepError: nothing could be started, or the frozen study cannot be written.
    """

    search = _declared(study)
    path = _checked_output(study, output)
    for line in endpoint_warnings(search_endpoint(search, study.common_dims)):
        say(f"warning: {line}")
    tracking = Tracking(tracking_uri or default_uri(), wait_s=min(START_WAIT_S, tracking_wait_s()), on_wait=say)
    options = RunOptions(
        tracking_uri=tracking.uri,
        max_concurrent=max_concurrent,
        retries=DEFAULT_RETRIES if retries is None else retries,
        # Trials of an earlier search space stay recorded; no comparison ever reads a search trial.
        accept_changes=True,
    )
    code, trials = _searched(study, search, tracking, backend, options)
    if code == EXIT_INTERRUPTED:
        return code
    if code:
        say("the search is not complete; the same command continues it")
        return code
    record = search_record(study, search, trials)
    for variant, tried in trials.items():
        say(_summary(variant, tried, record))
    if isinstance(record, str):
        say(record)
        return 1
    _write(path, study, record)
    print(path)
    say(f"next: sweep run {path}")
    return 0


def _declared(study: Study) -> SearchBlock:
    if study.search is None:
        allowed = "`sweep tune` needs this block; see docs/tuning.md"
        raise StudyError(file=str(study.path), field="search", value=MISSING, allowed=allowed)
    try:
        search_endpoint(study.search, study.common_dims)
    except ValueError as error:
        raise StudyError(file=str(study.path), field="search.endpoint", value=None, allowed=str(error)) from None
    return study.search


def _checked_output(study: Study, output: Path | None) -> Path:
    path = output or frozen_path(study.path)
    if path.resolve().parent != study.root:
        allowed = f"the frozen study lies beside {study.path.name}, because its relative paths start there"
        raise StudyError(file="--output", field="output", value=str(path), allowed=allowed)
    if path.resolve() == study.path.resolve():
        raise StudyError(file="--output", field="output", value=str(path), allowed="it is the study itself")
    return path


def _searched(
    study: Study, search: SearchBlock, tracking: Tracking, backend: Backend, options: RunOptions
) -> tuple[int, dict[str, list[Tried]]]:
    """Run what is missing of the searches of all variants: exit code, and the trials by variant."""

    file = database_file(tracking.uri)
    base = {cell.variant: cell for cell in resolved_cells(study.with_seeds(search.seeds[:1]))}
    # Beside the claim that each launch makes on the study: trials are proposed between launches, too.
    lock = StudyLock(lock_file(f"{study.name} (search)", tracking.uri, file))
    lock.acquire(study.name, Owner.here())
    try:
        tracking.study_run(study.name)  # a wrong address is said at once; later a server that is away is waited for
        tracking.wait_s = tracking_wait_s()
        url = default_storage(file) if search.storage is None else storage_url(search.storage, study.root)
        storage = open_storage(url)
        states = {
            variant: VariantSearch(storage, search_name(study.name, search, cell), search)
            for variant, cell in base.items()
        }
        rounds = SearchRounds(
            study,
            search,
            base=base,
            states=states,
            recorded=lambda: tracking.recorded_runs(study.name, schema.KIND_SEARCH),
            say=say,
        )
        code = run_cells(rounds, backend, options)
        # A training that failed by itself has used up its trial, so it does not fail the search.
        return 0 if rounds.complete else code or 1, rounds.trials()
    finally:
        lock.release()


def search_name(study: str, search: SearchBlock, cell: Cell) -> str:
    """Name of a variant's search in the Optuna storage: another space, seed, endpoint, model or data is another search.

    A larger budget is not: it continues.
    """
    declared = search.model_dump(mode="json", exclude={"trials", "storage"})
    identity = json.dumps([declared, cell.key], sort_keys=True, separators=(",", ":"))
    return f"{study}/{cell.variant}/{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def search_record(study: Study, search: SearchBlock, trials: Mapping[str, Sequence[Tried]]) -> SearchedBy | str:
    """What the search did and chose; or, in words, why nothing can be chosen."""

    best = {}
    for variant, tried in trials.items():
        found = best_of(list(tried))
        if found is None or found.value is None:
            return f"nothing to freeze: all {len(tried)} trials of {variant} failed"
        best[variant] = (found, found.value)
    endpoint = search_endpoint(search, study.common_dims)
    return SearchedBy(
        study=study.name,
        split=schema.parse_endpoint(endpoint).split,
        endpoint=endpoint,
        seeds=search.seeds,
        budget={variant: len(tried) for variant, tried in trials.items()},
        failed={variant: sum(one.state == "fail" for one in tried) for variant, tried in trials.items()},
        sampler_seed=search.sampler_seed,
        startup=search.startup,
        parallel=search.parallel,
        space=search.space,
        chosen={variant: found.point for variant, (found, _) in best.items()},
        chosen_trial={variant: found.number for variant, (found, _) in best.items()},
        best={variant: value for variant, (_, value) in best.items()},
    )


def _summary(variant: str, tried: Sequence[Tried], record: SearchedBy | str) -> str:
    failed = sum(one.state == "fail" for one in tried)
    text = f"{variant}: {len(tried)} trials" + (f", {failed} failed" if failed else "")
    if isinstance(record, str):
        return text
    chosen = f"{trial_label(record.chosen_trial[variant], len(tried))} ({shown(dict(record.chosen[variant]))})"
    return f"{text}; chosen: {chosen}, {record.endpoint} {record.best[variant]:.4f}"


def _write(path: Path, study: Study, record: SearchedBy) -> None:
    """Write the frozen study whole or not at all; never over a file that somebody has changed.

    Raises:
        SweepError: another file is there, or the folder cannot be written.
    """

    text = frozen_study(study.path.name, read_document(study.path).data, record)
    try:
        there = path.read_text(encoding="utf-8") if path.exists() else None
        if there is not None and there != text:
            raise SweepError(f"{path}: is there already and says something else; move it away or give --output")
        if there is None:
            write_atomically(path, text.encode())
    except OSError as error:
        raise SweepError(f"{path}: cannot be written: {error.strerror}") from error
    load_study(path)


def frozen_name(study: str) -> str:
    """Name of the comparison that follows a search, and of its MLflow experiment."""
    return f"{study}-tuned"


def frozen_path(study_file: Path) -> Path:
    """Where it goes unless told otherwise: `x.yaml` -> `x.tuned.yaml`."""
    return study_file.with_name(f"{study_file.stem}.tuned.yaml")


def frozen_study(source: str, data: Mapping[str, Any], record: SearchedBy) -> str:
    """Text of the frozen study file.

    Args:
        source: Name of the study file that declared the search.
        data: Its contents, as read.
        record: What the search did and chose.
    """
    out = {key: value for key, value in data.items() if key not in ("search", "searched_by")}
    out["name"] = frozen_name(str(data["name"]))
    out["variants"] = {
        label: _with_training(overrides or {}, dict(record.chosen[label]))
        for label, overrides in data["variants"].items()
    }
    out["searched_by"] = record.model_dump(mode="json")
    return _HEADER.format(source=source) + yaml.dump(
        out, Dumper=_Dumper, sort_keys=False, default_flow_style=None, allow_unicode=True, width=110
    )


def _with_training(overrides: Mapping[str, Any], chosen: Point) -> dict[str, Any]:
    return {**overrides, "training": {**(overrides.get("training") or {}), **chosen}}


class _Dumper(yaml.SafeDumper):
    """Quotes every text that is not plainly a word: study files read `1e5` as a number where YAML 1.1 does not."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _PLAIN_TEXT.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
