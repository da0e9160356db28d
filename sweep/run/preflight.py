"""What is checked before anything is scheduled: data, model, losses and trainables of every distinct training,
the tracking store, and whether the machine or cluster can run one cell.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from analysis.schema import DEFAULT_SETTING
from sweep.errors import PreflightError, StudyError, TrackingError
from sweep.run.first_batch import check_code
from sweep.study import Study
from sweep.study.cells import Cell, Digests, expand
from trainables.errors import FirstBatchError, InputError
from trainables.registry import modules_of
from trainables.spec import TrainSpec


def resolve_digests(spec: TrainSpec) -> Digests:
    """Digests of what a spec names, as far as they can be read here (trainables.digests)."""
    from trainables import digests

    return digests.resolve_digests(spec)


def planned_cells(study: Study) -> list[Cell]:
    """The cells of a study; where model or data cannot be read here, their keys are provisional."""
    return expand(study, resolve_digests)


def resolved_cells(study: Study) -> list[Cell]:
    """The cells of a study with final keys; looks on the hub for the revision of what is not cached here yet.

    Raises:
        PreflightError: data, a model or a module that cannot be read here.
    """
    cells = planned_cells(study)
    if any(cell.unresolved for cell in cells):
        check_study(study)  # names what is wrong, or caches what the identity of a cell needs
        cells = planned_cells(study)
        check_resolved(study, cells)
    return cells


def check_study(
    study: Study, *, on_progress: Callable[[str], None] = lambda line: None, tries_batch: bool = False
) -> list[str]:
    """Check every distinct training of a study: read its data, its model's configuration, its losses and modules.

    The study's own code runs in a process of its own.

    Args:
        study: A validated study.
        on_progress: Called with a line before each training that is looked at.
        tries_batch: Also compute loss and gradient of each one's first batch.

    Returns:
        Warnings, one line each, none twice.

    Raises:
        PreflightError: the first thing that is wrong: where, which field, which value, what is allowed; its `detail`
            is the whole traceback where there is one.
    """
    from trainables.checks import check_inputs

    warnings: dict[str, None] = {}
    for (variant, setting), spec in study.specs.items():
        on_progress(f"checking {variant}" if setting == DEFAULT_SETTING else f"checking {variant}, {setting}")
        try:
            found = check_inputs(spec)
        except InputError as error:
            raise PreflightError(_in_study(study, error, variant, setting)) from error
        warnings.update(dict.fromkeys(found))
    printed: list[str] = []
    for checked in check_code(study, tries_batch=tries_batch, on_output=printed.append):
        variant, setting = checked.place
        if isinstance(checked.error, InputError):
            raise PreflightError(_in_study(study, checked.error, variant, setting), detail="".join(printed))
        if checked.error is not None:
            line = _of_batch(study, checked.error, variant, setting)
            raise PreflightError(line, detail="\n".join([*printed, checked.error.detail]).strip())
        for warning in checked.warnings:
            at_loss = FirstBatchError(field="loss", says=warning)
            tells_of_loss = warning.startswith("'")
            warnings[_of_batch(study, at_loss, variant, setting) if tells_of_loss else warning] = None
    return list(warnings)


def _of_batch(study: Study, error: FirstBatchError, variant: str, setting: str) -> str:
    """One line: the study file, the field, what it does."""
    place = _place_of(study, error.field, variant, setting) if error.field else f"variants.{variant}"
    under = "" if setting == DEFAULT_SETTING else f" (setting {setting!r})"
    return " ".join(f"{study.path}: {place}: {error.says}{under}".split())


def _place_of(study: Study, field: str, variant: str, setting: str) -> str:
    """Where the study file sets a field of a training."""
    head = field.partition(".")[0]
    if head in study.settings[setting]:
        return f"settings.{setting}.{field}"
    return f"variants.{variant}.{field}" if head in study.variants[variant] else field


def _in_study(study: Study, error: InputError, variant: str, setting: str) -> str:
    """One line that begins with a file: the data file at fault where there is one, else the study file."""
    file, _, line = error.where.rpartition(":")
    if Path(file if line.isdigit() else error.where).is_file():
        return " ".join(str(error).split())
    field = _place_of(study, error.field, variant, setting)
    known = error.where in ("study", "import path", str(study.root))
    where = "" if known else f"{error.where}, "
    under = "" if setting == DEFAULT_SETTING else f", setting {setting!r}"
    allowed = f"{error.allowed} ({where}variant {variant!r}{under})"
    line = str(StudyError(file=str(study.path), field=field, value=error.value, allowed=allowed))
    return " ".join(line.split())


def unresolved_notices(cells: Iterable[Cell]) -> list[str]:
    """`digest unresolved: ...` for each thing whose contents could not be read here."""
    seen: dict[str, None] = {}
    for cell in cells:
        for name in cell.unresolved:
            seen[f"digest unresolved: {_what(cell.spec, name)}; keys of its cells are provisional"] = None
    return list(seen)


def _what(spec: TrainSpec, name: str) -> str:
    if name == "model" and spec.model is not None:
        return f"model {spec.model.name} cannot be read here"
    if name == "data" and spec.data is not None:
        return f"data {spec.data.name or spec.data.train} cannot be read here"
    if name.startswith("evaluate:"):
        return f"test set {name.partition(':')[2]} cannot be read here"
    return f"{name.replace(':', ' ')} cannot be found here"


def modules_ahead(study: Study) -> tuple[str, ...]:
    """Modules that the cells of a study need and that may be imported before it is known which cell comes."""
    names = dict.fromkeys(spec.trainable for spec in study.specs.values())
    return tuple(dict.fromkeys(module for name in names for module in modules_of(name, study.root)))


def check_resolved(study: Study, cells: Sequence[Cell]) -> None:
    """Refuse to run cells whose identity is not known.

    Raises:
        PreflightError: data, a model or a module that cannot be read here.
    """
    for cell in cells:
        for name in cell.unresolved:
            raise PreflightError(
                f"{study.path}: {name.partition(':')[0]}: {_what(cell.spec, name)}, so what a cell would train is "
                "not known; make it available on the machine that runs `sweep run`"
            )


def check_tracking(uri: str, *, nodes: int = 1) -> None:
    """Check that the tracking store can be written from where the cells run.

    Args:
        uri: Tracking URI.
        nodes: Machines that take part.

    Raises:
        TrackingError: not a usable URI, a file that cannot be written, or a file with more than one machine.
    """
    from sweep.record.tracking_uri import absolute_uri, database_file

    file = database_file(absolute_uri(uri))
    if file is None:
        return
    if nodes > 1:
        raise TrackingError(
            f"tracking URI: {uri!r} is a file on one machine, but the cluster has {nodes}; run an MLflow server on the "
            "head (`mlflow server --host 0.0.0.0 --serve-artifacts --workers 1`) and pass "
            "--tracking-uri http://HEAD:5000"
        )
    if file.is_dir():
        raise TrackingError(f"tracking URI: {uri!r} is not valid; {file} is a folder, expected a file")
    existing = file if file.exists() else next(folder for folder in file.parents if folder.exists())
    if not existing.is_dir() and existing != file:
        raise TrackingError(f"tracking URI: {uri!r} is not valid; {existing} is not a folder")
    if not os.access(existing, os.W_OK):
        raise TrackingError(f"tracking URI: {uri!r} is not valid; {existing} cannot be written")


def check_resources(study: Study, nodes: Sequence[Mapping[str, float]]) -> None:
    """Check that at least one machine can hold a cell.

    Args:
        study: The study.
        nodes: For each machine what it has in all, in Ray's names: `CPU`, `GPU`.

    Raises:
        PreflightError: no machine has the CPUs and GPUs that one cell asks for.
    """
    wanted = {"cpus": float(study.resources.cpus), "gpus": study.resources.gpus}
    has = [{"cpus": node.get("CPU", 0.0), "gpus": node.get("GPU", 0.0)} for node in nodes]
    if any(all(node[name] >= amount for name, amount in wanted.items()) for node in has):
        return
    for name, amount in wanted.items():
        most = max((node[name] for node in has), default=0.0)
        if most < amount:
            raise PreflightError(
                f"{study.path}: resources.{name}: {amount:g} is not valid; expected at most {most:g}, "
                f"the most that a machine here has"
            )
    raise PreflightError(
        f"{study.path}: resources: cpus {wanted['cpus']:g} with gpus {wanted['gpus']:g} is not valid; "
        "no single machine has both"
    )
