"""Write a commented study file from flags."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.schema import ANGLE_LAYOUTS
from analysis.statistics.closed_forms import seeds_for_sign_test
from sweep.errors import SweepError
from sweep.study import load_study
from sweep.study.fields import suggestion
from trainables.spec import TOY_MODELS

PRESETS: dict[str, str] = {
    **{layout: f"{{loss: angle, layout: {layout}}}" for layout in ANGLE_LAYOUTS},
    "cosent": "{loss: cosent}",
    "cosine": "{loss: cosine}",
}
ALPHA = 0.05
"""As the file that is written declares it."""
DEFAULT_VARIANTS = ("chunked", "interleaved")

_TEMPLATE = """\
# A study: which variant trains the better embeddings? Every field: docs/study-file.md.
#   sweep check {file}      is everything there
#   sweep plan {file}       what would run, and what it could show
#   sweep run {file}        train and record; the same command continues
#   analysis report {file}  the verdict
version: 1
name: {name}

model: {{name: {model}}}
data: {data}
# Embedding sizes that are trained and evaluated, cut from one embedding.
matryoshka_dims: {dims}

# What is compared. A variant may override anything above and `training` below.
variants:
{variants}
baseline: {baseline}

# The unit of evidence. Fewest that an exact two-sided test can call at alpha = .05{over}: {least}, if all agree.
seeds: {seeds}

# Fields of SentenceTransformerTrainingArguments, with the library's defaults.
training: {{epochs: 1, batch_size: 32, learning_rate: {learning_rate}, warmup_ratio: 0.1}}

# Optional: the same comparison under other conditions.
# settings:
#   grid: {{learning_rate: [1e-5, 2e-5], batch_size: [16, 32]}}

resources: {{cpus: {cpus}, gpus: {gpus}}}

# Declared before there are results. margin: differences below it do not matter to you.
analysis: {{primary: [test/spearman_{largest}], alpha: 0.05, margin: 0.005, stopping: fixed}}
"""


class InitError(SweepError):
    """A flag of `sweep init` that cannot be used."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The flags of `sweep init`, as given."""

    name: str | None
    model: str
    data: str
    train: str | None
    validation: str | None
    test: str | None
    columns: str | None
    label_range: str | None
    variants: Sequence[str]
    dims: str | None
    seeds: int | None
    """None: the fewest that can decide."""
    cpus: int
    gpus: float


def write_study_file(file: Path | None, wanted: Wanted) -> Path:
    """Write the file; every flag is checked as the study file's field that it becomes.

    Raises:
        InitError: a file that exists, or a flag that cannot be read.
        StudyError: a flag whose value the study file would refuse.
    """
    model = wanted.model
    if file is None:
        if not wanted.name:
            raise InitError("sweep init: give a FILE or --name")
        file = Path(f"{wanted.name}.yaml")
    if file.exists():
        raise InitError(f"{file}: it exists already; choose another name or remove it")
    sizes = (
        _numbers("--dims", wanted.dims) if wanted.dims else [16, 32, 64] if model in TOY_MODELS else [32, 64, 128, 256]
    )
    own = {"train": wanted.train, "validation": wanted.validation, "test": wanted.test}
    files = {split: path for split, path in own.items() if path}
    chosen = _variants(wanted.variants)
    comparisons = len(chosen) - 1
    least = seeds_for_sign_test(ALPHA, max(1, comparisons))
    text = _TEMPLATE.format(
        file=file,
        name=_text(wanted.name or file.stem),
        model=_text(model),
        data=_data(wanted.data, files, wanted.columns, wanted.label_range),
        dims=json.dumps(sizes),
        largest=max(sizes, default=0),
        variants="\n".join(f"  {_text(label)}: {overrides}" for label, overrides in chosen.items()),
        baseline=_text(next(iter(chosen))),
        least=least,
        over=f", with Holm over {comparisons} comparisons" if comparisons > 1 else "",
        seeds=least if wanted.seeds is None else wanted.seeds,
        # The toy encoder is small and young: at a rate for large ones it would learn next to nothing.
        learning_rate="1e-3" if model in TOY_MODELS else "2e-5",
        cpus=wanted.cpus,
        gpus=f"{wanted.gpus:g}",
    )
    _write_checked(file, text)
    return file


def _write_checked(file: Path, text: str) -> None:
    """Write beside the target, check, then link into place: a file that appears meanwhile is not overwritten."""
    try:
        handle, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=".yaml")
    except OSError as error:
        raise InitError(f"{file}: it cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        try:
            load_study(draft)
        except SweepError as error:
            raise InitError(str(error).replace(draft, str(file), 1)) from None
        Path(draft).chmod(0o644)
        try:
            os.link(draft, file)
        except FileExistsError:
            raise InitError(f"{file}: it exists already; choose another name or remove it") from None
    finally:
        Path(draft).unlink(missing_ok=True)


def _variants(given: Sequence[str]) -> dict[str, str]:
    names = [part.strip() for text in given for part in text.split(",")] or list(DEFAULT_VARIANTS)
    chosen: dict[str, str] = {}
    for name in names:
        label, equals, loss = name.partition("=")
        if equals and label and loss:
            overrides = PRESETS.get(loss, f"{{loss: {_text(loss)}}}")
        elif name in PRESETS:
            label, overrides = name, PRESETS[name]
        else:
            allowed = f"{suggestion(name, PRESETS)}expected {', '.join(PRESETS)}, or LABEL=LOSS"
            raise InitError(f"--variants: {name!r} is not valid; {allowed}")
        if label in chosen:
            raise InitError(f"--variants: {label!r} is not valid; it is given twice")
        chosen[label] = overrides
    return chosen


def _data(name: str, own: dict[str, str], columns: str | None, label_range: str | None) -> str:
    fields: dict[str, str] = {split: _text(path) for split, path in own.items()} or {"name": _text(name)}
    if columns:
        pairs = [part.partition("=") for part in columns.split(",")]
        if not all(ours and equals and yours for ours, equals, yours in pairs):
            raise InitError(
                f"--columns: {columns!r} is not valid; expected such as sentence1=a,sentence2=b,label=score"
            )
        fields["columns"] = "{" + ", ".join(f"{ours.strip()}: {_text(yours.strip())}" for ours, _, yours in pairs) + "}"
    if label_range:
        try:
            low, high = (float(part) for part in label_range.split(","))
        except ValueError:
            raise InitError(f"--label-range: {label_range!r} is not valid; expected LOW,HIGH, such as 0,5") from None
        fields["label_range"] = f"[{low:g}, {high:g}]"
    return "{" + ", ".join(f"{key}: {value}" for key, value in fields.items()) + "}"


def _numbers(flag: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InitError(f"{flag}: {text!r} is not valid; expected whole numbers, such as 32,64,128") from None


def _text(value: str) -> str:
    """A YAML scalar: plain where that is safe, else in double quotes."""
    plain = value.replace("-", "a").replace("_", "a").replace("/", "a").replace(".", "a")
    safe = plain.isalnum() and plain.isascii() and value[0].isalpha() and value.lower() not in _YAML_WORDS
    return value if safe else json.dumps(value, ensure_ascii=False)


_YAML_WORDS = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")
