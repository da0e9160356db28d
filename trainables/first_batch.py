"""A process that runs users' code to check it, before anything is scheduled (sweep.run.first_batch asks).

It reads one line of JSON with all the trainings, and answers each with a line: `{"warnings": [...]}`,
`{"input": {where, field, value, allowed}}` or `{"batch": {field, says, detail}}`.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from trainables.checks import check_code, names_code
from trainables.errors import FirstBatchError, InputError
from trainables.runtime import configure
from trainables.spec import BUILTIN_TRAINABLE, TrainSpec
from trainables.user_code import add_to_import_path

_NOT_IN_A_BATCH = (
    "epochs", "max_steps", "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_ratio", "warmup_steps",
    "optim", "optim_args", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "gradient_accumulation_steps",
    "max_grad_norm", "dataloader_drop_last", "batch_sampler",
)  # fmt: skip
"""Training fields that change nothing before the first step is taken."""


def distinct_key(spec: TrainSpec) -> str:
    """Equal for specs that have the same first batch, loss and gradient, whatever their seed."""
    flat = {name: value for name, value in spec.flat().items() if name not in (*_NOT_IN_A_BATCH, "seed")}
    return json.dumps(flat, sort_keys=True)


def answer(spec: TrainSpec, *, tries_batch: bool) -> dict[str, Any]:
    """Check one training in this process.

    Args:
        spec: What is trained.
        tries_batch: Also compute its first batch, where the trainable is the built-in one.
    """
    try:
        if names_code(spec):
            check_code(spec)
        warnings: tuple[str, ...] = ()
        if tries_batch and spec.trainable == BUILTIN_TRAINABLE:
            from trainables.sentence_pair.first_batch import try_first_batch

            warnings = try_first_batch(spec)
    except InputError as error:
        traceback.print_exc()
        return {"input": {name: getattr(error, name) for name in ("where", "field", "value", "allowed")}}
    except FirstBatchError as error:
        return {"batch": vars(error)}
    except Exception as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return {"batch": {"field": "", "says": f"raises {what}", "detail": traceback.format_exc()}}
    return {"warnings": list(warnings)}


def main(descriptor: int) -> None:
    """The process from start to end.

    Args:
        descriptor: Open file that takes the answers; standard output is the user's.
    """
    asked = json.loads(sys.stdin.readline())
    if asked["hides_gpus"]:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    configure(asked["threads"])
    with os.fdopen(descriptor, "w", encoding="utf-8") as answers:
        for one in asked["specs"]:
            root = None if one["root"] is None else Path(one["root"])
            add_to_import_path(root)
            spec = TrainSpec.model_validate({**one["spec"], "root": root})
            answers.write(json.dumps(answer(spec, tries_batch=asked["tries_batch"]), default=str) + "\n")
            answers.flush()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)  # not waiting for threads that a module has left running
