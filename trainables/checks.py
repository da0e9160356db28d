"""What is checked about one training before anything is scheduled."""

from __future__ import annotations

from trainables.errors import InputError
from trainables.registry import BUILTIN_TRAINABLES, load_trainable
from trainables.spec import BUILTIN_TRAINABLE, TrainSpec
from trainables.user_code import module_file


def check_spec(spec: TrainSpec) -> tuple[str, ...]:
    """Check that a training can start: trainable, data, model and loss.

    Reads the data, but no weights. Only losses that are not built in make it import torch.

    Returns:
        Warnings, one line each.

    Raises:
        InputError: what is wrong, where, and what is allowed.
    """
    warnings = check_inputs(spec)
    if names_code(spec):
        check_code(spec)
    return warnings


def names_code(spec: TrainSpec) -> bool:
    """Whether a spec names a trainable or a loss that has to be imported to be checked."""
    if spec.trainable != BUILTIN_TRAINABLE:
        return spec.trainable not in BUILTIN_TRAINABLES
    return not all(term.name in ("angle", "cosent", "cosine") and not term.args for term in spec.loss)


def check_code(spec: TrainSpec) -> None:
    """Import the spec's trainable, or construct its loss; this runs the user's code.

    Raises:
        InputError: it does not exist, does not import, or does not take its arguments.
    """
    if spec.trainable != BUILTIN_TRAINABLE:
        load_trainable(spec.trainable, spec.root)
        return
    from trainables.sentence_pair.losses import check_losses

    check_losses(spec)


def check_inputs(spec: TrainSpec) -> tuple[str, ...]:
    """Check what a spec names besides code: options, data and model; runs nothing of the user's.

    Returns:
        Warnings, one line each.

    Raises:
        InputError: what is wrong, where, and what is allowed.
    """
    if spec.trainable not in BUILTIN_TRAINABLES:
        return _check_fingerprint(spec)
    if spec.trainable != BUILTIN_TRAINABLE:
        if spec.evaluate:
            allowed = f"trainable {spec.trainable!r} scores no test sets; leave it out"
            raise InputError(where="study", field="evaluate", value=list(spec.evaluate), allowed=allowed)
        from trainables.synthetic import check_options

        check_options(spec)
        return ()
    from trainables.sentence_pair.options import sentence_pair_options

    sentence_pair_options(spec)
    return (*_check_data(spec), *_check_batches(spec), *_check_model(spec))


def _check_fingerprint(spec: TrainSpec) -> tuple[str, ...]:
    """Whether the source speaks of a fingerprint at all; what a function returns is only known once it has run."""
    file = module_file(spec.trainable.partition(":")[0], spec.root)
    try:
        source = file.read_text(encoding="utf-8") if file is not None else "fingerprint"
    except (OSError, UnicodeDecodeError):
        return ()
    if "fingerprint" in source or "import *" in source:
        return ()
    return (
        f"trainable: {spec.trainable} seems to give no fingerprint: pairs are unverified, so `sweep run` stops after "
        "its first cell and the report drops the pairs; both need --allow-unverified",
    )


def _check_data(spec: TrainSpec) -> tuple[str, ...]:
    from trainables.data.load import load_split, splits_of

    present = splits_of(spec)
    notes = [note for split in present for note in load_split(spec, split).notes]
    assert spec.data is not None
    missing = [split for split in spec.data.scored if split not in present]
    notes += [f"data: no {split} split; its scores are left out" for split in missing]
    if spec.evaluate:
        from trainables.evaluation import open_test_sets

        notes += [note for one in open_test_sets(spec).values() for note in one.notes]
    return tuple(notes)


def _check_batches(spec: TrainSpec) -> tuple[str, ...]:
    from trainables.data.load import load_split
    from trainables.sentence_pair.options import batches_of_one

    return batches_of_one(spec, len(load_split(spec, "train")))


def _check_model(spec: TrainSpec) -> tuple[str, ...]:
    from trainables.encoder.model_checks import embedding_size, unused_prompt, unused_prompt_note

    size = embedding_size(spec)
    if size is None:
        return ("model: its embedding size cannot be read before it is downloaded; matryoshka_dims are not checked",)
    assert spec.model is not None
    for field, dims in (("matryoshka_dims", spec.matryoshka_dims), ("trained_dims", spec.trained_dims or ())):
        too_large = [dim for dim in dims if dim > size]
        if too_large:
            raise InputError(
                where=f"model {spec.model.name}",
                field=field,
                value=too_large[0],
                allowed=f"the model gives {size} dimensions, so every size must be from 1 to {size}",
            )
    if spec.trained_dims == () and size % 2 and any(term.name == "angle" for term in spec.loss):
        raise InputError(
            where=f"model {spec.model.name}",
            field="trained_dims",
            value=[],
            allowed=f"the model gives {size} dimensions; AnglE pairs indices, so name an even size",
        )
    prompt = unused_prompt(spec)
    return () if prompt is None else (unused_prompt_note(prompt),)
