"""The study file's reference and JSON Schema, written by `python -m sweep.study.reference`."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from analysis.plan import AnalysisPlan
from sweep.study.model import Keep, Overrides, Resources, Settings, StudyFile
from sweep.study.search_block import SearchBlock, SearchedBy
from trainables.spec import DataSpec, LossSpec, ModelSpec
from trainables.tasks import TASKS, source_class
from trainables.training_fields import LIBRARY_NAMES, TRAINING_FIELDS, expected

REFERENCE = Path("docs/study-file.md")
SCHEMA = Path("docs/study.schema.json")

_DOCUMENTED: dict[str, type[BaseModel]] = {
    "StudyFile": StudyFile,
    "Overrides": Overrides,
    "Model": ModelSpec,
    "Data": DataSpec,
    "Loss": LossSpec,
    "Settings": Settings,
    "Resources": Resources,
    "Keep": Keep,
    "AnalysisPlan": AnalysisPlan,
    "SearchBlock": SearchBlock,
    "SearchedBy": SearchedBy,
}
"""Name in the schema -> the model whose docstrings describe its fields."""

_SECTIONS: tuple[tuple[str, type[BaseModel], str], ...] = (
    ("`model`", ModelSpec, "Which encoder."),
    ("`data`", DataSpec, "Which sentence pairs: a built-in set, your own files, or a hub dataset."),
    ("Terms of `loss`", LossSpec, "What stands in the list when `loss` is a weighted sum."),
    ("`settings`", Settings, "Other conditions under which the variants are compared."),
    ("`resources`", Resources, "What one cell occupies while it trains."),
    ("`keep`", Keep, "Off by default. See [Where are the trained models?](faq.md#where-are-the-trained-models)"),
    ("`analysis`", AnalysisPlan, "What is compared, declared before there are results."),
    ("`search`", SearchBlock, "For `sweep tune`: one search per variant, with the same budget each."),
    ("`searched_by`", SearchedBy, "Written by `sweep tune` into the study that follows a search."),
)

_RULES = """\
## Rules

- A **variant** may override `trainable`, `model`, `data`, `loss`, `layout`, `loss_args`, `matryoshka_dims`,
  `trained_dims`, `evaluate`, `training` and `options`, with the nesting of the study file:
  `{training: {learning_rate: 1e-5}}`, `{model: {prompt: "q: "}}`.
  Two variants must not mean the same training.
- **Settings** are the points of the grid and the named ones, without the study as it stands; `named: {base: {}}` adds
  that one. A grid names bare training fields, or `model.x`, `data.x`, `options.x`, `loss_args.x`; its points are
  called `learning_rate=1e-05,batch_size=16`.
- A field is set by variants or by settings, never by both.
- What describes a thing goes with it: another `loss` drops the layout and arguments of the first, another model its
  revision, another dataset its revision, files, columns and label range (not its limit).
- **Cells** are variants x settings x seeds, seed by seed, all variants of a seed adjacent: pairs are complete early.
- Relative paths start at the study file's folder. Modules of your own (`module:function`) are found there too, after
  everything that is installed.
- Keys are read as written, so a variant may be called `no` or `1`; a key given twice is an error; `2e-5` is a number.
- Labels hold no slashes, quotes or control characters, and no two may differ only in Unicode normalisation. Where a
  grid's value has a character that cannot be seen, its label shows it written out (`\\n`). Names of options and of
  endpoints are recorded as they are: letters, digits, blanks and `/ . - _ :`, at most 243 characters.
- The study's name, labels, resources, `keep` and `analysis` are no part of a cell's identity: change them, and nothing
  is trained again. Any other change makes other cells. After a renaming, the next `sweep run` gives recorded runs the
  new names (and keeps the first one as `sweep.first_variant`); the report reads under them, the declared baseline too.
"""

_EXAMPLE = """\
```yaml
version: 1
name: angle-mrl
model: {name: cl-nagoya/ruri-v3-130m}
data: {name: jsts}
matryoshka_dims: [32, 64, 128, 256, 512]
evaluate:
  english: {task: sentence-pair, name: stsb-en}
variants:
  chunked:     {loss: angle, layout: chunked}
  interleaved: {loss: angle, layout: interleaved}
  both:        {loss: [{name: cosent, weight: 1.0}, {name: angle, layout: interleaved, weight: 0.5}]}
  mine:        {loss: "my_losses:Margin", loss_args: {margin: 0.2}}
baseline: chunked
seeds: 8
training: {epochs: 3, batch_size: 32, learning_rate: 2e-5, warmup_ratio: 0.1}
settings:
  grid: {learning_rate: [1e-5, 2e-5], batch_size: [16, 32]}
  named: {other-data: {data: {name: stsb-en}}}
resources: {cpus: 4, gpus: 1}
analysis: {primary: [test/spearman_512], alpha: 0.05, margin: 0.002, stopping: fixed}
```
"""


_EVALUATE = """\
Test sets by name, beside the splits of `data` or (with `data: {splits: [train]}`) instead of them. The encoder is
trained once; every distinct text is encoded once for all sets and sizes. An endpoint begins with the set's name:
`english/spearman_64`. A name holds letters, digits, dots and hyphens.

```yaml
evaluate:
  english:      {task: sentence-pair, name: stsb-en}
  own:          {file: own.csv, label_range: [0, 5]}
  last-columns: {name: stsb-en, take: last}
```
"""


def attribute_docs(model: type[BaseModel]) -> dict[str, str]:
    """Field -> the docstring under it, of a model and its bases."""
    docs: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if not issubclass(kind, BaseModel) or kind is BaseModel:
            continue
        body = _class_body(kind)
        for before, after in itertools.pairwise(body):
            is_field = isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name)
            if is_field and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                docs[before.target.id] = " ".join(str(after.value.value).split())  # type: ignore[attr-defined]
    return docs


def _class_body(kind: type[BaseModel]) -> list[ast.stmt]:
    definition = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    return definition.body if isinstance(definition, ast.ClassDef) else []


def study_schema() -> dict[str, Any]:
    """JSON Schema of a study file, for editors."""
    schema = StudyFile.model_json_schema()
    for name, block in [("StudyFile", schema), *schema["$defs"].items()]:
        block.pop("title", None)
        docs = attribute_docs(_DOCUMENTED[name]) if name in _DOCUMENTED else {}
        for field, entry in block.get("properties", {}).items():
            entry.pop("title", None)
            if field in docs:
                entry["description"] = docs[field].replace("`", "")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pairsweep study file, version 1",
        **schema,
    }


def study_reference() -> str:
    """The reference in Markdown."""
    parts = [
        "# The study file",
        "Generated from the models by `python -m sweep.study.reference`; a test holds it current. "
        "[study.schema.json](study.schema.json) is the same for editors: put "
        "`# yaml-language-server: $schema=study.schema.json` on the first line of a study file.",
        _EXAMPLE.rstrip(),
        _RULES.rstrip(),
        "## Fields",
        _table(StudyFile),
    ]
    for title, model, sentence in _SECTIONS:
        parts += [f"## {title}", sentence, _table(model)]
    parts += ["## `evaluate`", _EVALUATE.rstrip()]
    for name, task in TASKS.items():
        parts += [f"### `task: {name}`", f"Scores {task.about}.", _table(source_class(name))]
    parts += [
        "## `training`",
        "Fields of SentenceTransformerTrainingArguments, with the library's defaults.",
        _training(),
    ]
    return "\n\n".join(parts) + "\n"


def _table(model: type[BaseModel]) -> str:
    docs = attribute_docs(model)
    return _rows(("field", "default", "meaning"), _fields(model, docs))


def _fields(model: type[BaseModel], docs: dict[str, str]) -> Iterator[tuple[str, ...]]:
    first = [name for name in ("version", "name") if name in model.model_fields]
    for name in dict.fromkeys([*first, *model.model_fields]):
        info = model.model_fields[name]
        default = "required" if info.is_required() else _default(info.get_default(call_default_factory=True))
        yield f"`{name}`", default, (docs.get(name, "") + _allowed(info.annotation)).strip()


def _allowed(annotation: Any) -> str:
    """The choices of a Literal, where there is one."""
    choices = re.findall(r"Literal\[([^\]]*)\]", str(annotation))
    words = re.findall(r"'([^']*)'", choices[0]) if choices and "Mapping" not in str(annotation) else []
    return f" One of {', '.join(f'`{word}`' for word in words)}." if words else ""


def _default(value: Any) -> str:
    if value is None or value == () or value == {}:
        return ""
    if isinstance(value, BaseModel):
        return "see below"
    return f"`{json.dumps(value)}`"


def _training() -> str:
    rows = []
    for name, spec in TRAINING_FIELDS.items():
        meaning = expected(spec) + (" or empty" if spec.optional else "")
        if name in LIBRARY_NAMES:
            meaning += f" (`{LIBRARY_NAMES[name]}`)"
        rows.append((f"`{name}`", _default(spec.default), meaning))
    return _rows(("field", "default", "allowed"), iter(rows))


def _rows(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, ("---",) * len(head), *rows)]
    return "\n".join(lines)


def schema_text() -> str:
    """The schema as it stands in the docs."""
    return json.dumps(study_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    REFERENCE.write_text(study_reference(), encoding="utf-8")
    SCHEMA.write_text(schema_text(), encoding="utf-8")
