"""Users' code checked in one process of its own for all distinct trainings: imported, constructed, and on request one
forward and backward of the first batch. The other end is trainables.first_batch.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from analysis.revisions import Place
from sweep.console import one_line
from sweep.errors import PreflightError
from sweep.study import Study
from trainables.errors import FirstBatchError, InputError
from trainables.spec import TrainSpec

_CODE: Final = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from trainables.first_batch import main; "


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What the process said of one training."""

    place: Place
    warnings: tuple[str, ...] = ()
    error: InputError | FirstBatchError | None = None


def check_code(
    study: Study, *, tries_batch: bool, on_output: Callable[[str], None] = lambda text: None
) -> list[Checked]:
    """Check the code that a study names; only the first training of those that are alike.

    Args:
        study: Data and models of it can be read.
        tries_batch: Also compute the first batch of each.
        on_output: Gets what the code printed.

    Raises:
        PreflightError: the process could not be started.
    """
    from trainables.checks import names_code
    from trainables.first_batch import distinct_key

    distinct: dict[str, tuple[Place, TrainSpec]] = {}
    for place, spec in study.specs.items():
        if tries_batch or names_code(spec):
            distinct.setdefault(distinct_key(spec), (place, spec))
    if not distinct:
        return []
    chosen = list(distinct.values())
    answers, status, output = _ask(study, [spec for _, spec in chosen], tries_batch=tries_batch)
    on_output(output)
    found = [_checked(place, heard) for (place, _), heard in zip(chosen, answers, strict=False)]
    if len(found) < len(chosen):
        what = f"is ended by {_signal(-status)}" if status < 0 else f"ends its process with exit status {status}"
        error = FirstBatchError(field="", says=f"its code {what}", detail=output)
        found.append(Checked(place=chosen[len(found)][0], error=error))
    return found


def _ask(study: Study, specs: Sequence[TrainSpec], *, tries_batch: bool) -> tuple[list[dict[str, Any]], int, str]:
    """The answers, how the process ended, and what was printed."""
    asked = {
        "specs": [
            {"spec": spec.model_dump(mode="json"), "root": None if spec.root is None else str(spec.root)}
            for spec in specs
        ],
        "tries_batch": tries_batch,
        "threads": max(1, int(study.resources.cpus)),
        "hides_gpus": study.resources.gpus == 0,
    }
    with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as printed:
        number = told.fileno()
        command = [sys.executable, "-c", f"{_CODE}main({number})", json.dumps(sys.path)]
        try:
            done = subprocess.run(
                command, input=json.dumps(asked).encode() + b"\n", stdout=printed, stderr=printed,
                pass_fds=(number,), check=False,
            )  # fmt: skip
        except OSError as error:
            raise PreflightError(f"the code of the study cannot be checked: {one_line(error)}") from error
        answers = [json.loads(line) for line in _read(told.fileno()).splitlines() if line.endswith("}")]
        return answers, done.returncode, _read(printed.fileno())


def _read(descriptor: int) -> str:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode("utf-8", errors="replace")


def _checked(place: Place, heard: dict[str, Any]) -> Checked:
    if "input" in heard:
        return Checked(place=place, error=InputError(**heard["input"]))
    if "batch" in heard:
        return Checked(place=place, error=FirstBatchError(**heard["batch"]))
    return Checked(place=place, warnings=tuple(heard["warnings"]))


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
