"""One cell in this process, for breakpoints and prints: no scheduler, no store."""

from __future__ import annotations

import sys
import traceback
from bdb import BdbQuit

from analysis.schema import DEFAULT_SETTING
from sweep.console import say
from sweep.errors import SweepError
from sweep.run.preflight import check_resolved, resolved_cells
from sweep.run.training import Job, train_job
from sweep.study import Study
from trainables.errors import InputError
from trainables.spec import Progress


def debug_cell(study: Study, *, variant: str, seed: int | None = None, setting: str | None = None) -> int:
    """Train one cell here, print its scores, record nothing.

    Args:
        study: A validated study.
        variant: Label of the variant.
        seed: Any seed; None: the study's first.
        setting: Label of the setting; None: the study's first.

    Returns:
        Exit code: 0 trained, 1 the training failed (its traceback is on stderr) or the debugger was left.

    Raises:
        SweepError: no such variant or setting; data or model that cannot be read.
    """
    seed = study.seeds[0] if seed is None else seed
    setting = next(iter(study.settings)) if setting is None else setting
    for option, given, known in (("--variant", variant, study.variants), ("--setting", setting, study.settings)):
        if given not in known:
            raise SweepError(f"{option}: {given!r} is not valid; expected one of {', '.join(known)}")
    try:
        cells = resolved_cells(study.with_seeds([seed]))
    except ValueError as error:
        raise SweepError(f"--seed: {seed} is not valid; {error}") from None
    cell = next(one for one in cells if (one.variant, one.setting) == (variant, setting))
    check_resolved(study, [cell])
    under = "" if setting == DEFAULT_SETTING else f", setting {setting}"
    say(f"training {variant}, seed {seed}{under} in this process; nothing is recorded")
    job = Job(spec=cell.spec, digests=cell.digests, threads=study.resources.cpus, hides_gpus=study.resources.gpus == 0)
    phases: list[str] = []

    def report(progress: Progress) -> None:
        if progress.phase not in phases:
            phases.append(progress.phase)
            say(f"phase: {progress.phase}")

    try:
        result = train_job(job, report)
    except InputError as error:
        raise SweepError(str(error)) from error
    except BdbQuit:
        say("left by the debugger")
        return 1
    except Exception:
        traceback.print_exc(file=sys.stderr)
        return 1
    for name, value in sorted(result.scores.items()):
        print(f"{name}  {value:.6f}")
    for note in result.notes:
        say(f"note: {note}")
    return 0
