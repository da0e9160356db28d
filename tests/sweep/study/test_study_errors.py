"""Study files that cannot be used: one line with file, field, value and what is allowed, and never a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweep.errors import StudyError
from sweep.study import load_study
from tests.sweep.studies import noop, toy, write

NAMED: dict[str, Any] = {"x": {"training": {"batch_size": 4}}}

# (what is changed, field, value as shown, part of what is allowed)
WRONG: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "unknown field": (toy(lose="angle"), "lose", "'angle'", "did you mean 'loss'?"),
    "unknown block": (toy(xyzzy={}), "xyzzy", "{}", "allowed here: analysis, baseline"),
    "name missing": (toy(name=None), "name", "(missing)", "it is required"),
    "name a number": (toy(name=5), "name", "5", "expected text"),
    "name empty": (toy(name=""), "name", "''", "blanks"),
    "name with a slash": (toy(name="a/b"), "name", "'a/b'", "slashes"),
    "name with a newline": (toy(name="a\nb"), "name", r"'a\nb'", "control"),
    "version of the future": (toy(version=2), "version", "2", "expected 1"),
    "version true": (toy(version=True), "version", "True", "expected 1"),
    "version text": (toy(version="1"), "version", "'1'", "expected 1"),
    "no variants": (toy(variants=None), "variants", "(missing)", "it is required"),
    "empty variants": (toy(variants={}), "variants", "{}", "label -> what it overrides"),
    "variants a list": (toy(variants=["a", "b"]), "variants", "['a', 'b']", "label -> what it overrides"),
    "variant a text": (toy(variants={"a": "angle"}), "variants.a", "'angle'", "expected a mapping"),
    "variant a list": (toy(variants={"a": ["angle"]}), "variants.a", "['angle']", "expected a mapping"),
    "variant label with a slash": (toy(variants={"a/b": {"loss": "angle"}}), "variants.a/b", "'a/b'", "slashes"),
    "variant label blank": (toy(variants={" ": {"loss": "angle"}}), "variants. ", "' '", "blanks"),
    "variant label long": (toy(variants={"a" * 101: {"loss": "angle"}}), "variants.aaa", "", "at most 100"),
    "unknown field in a variant": (toy(variants={"a": {"los": "angle"}}), "variants.a.los", "'angle'", "'loss'"),
    "training field bare in a variant": (
        toy(variants={"a": {"learning_rate": 1e-5}}),
        "variants.a.learning_rate", "1e-05", "it goes under `training: {learning_rate: ...}`",
    ),
    "training field bare at the top": (toy(batch_size=8), "batch_size", "8", "it goes under `training:"),
    "seeds in a variant": (toy(variants={"a": {"loss": "angle", "seeds": 3}}), "variants.a.seeds", "3", "no such"),
    "evaluate a list": (toy(evaluate=["stsb-en"]), "evaluate", "['stsb-en']", "a mapping of names and test sets"),
    "evaluate of no task": (
        toy(evaluate={"a": {"task": "search", "name": "toy"}}), "evaluate.a.task", "'search'", "expected one of",
    ),
    "evaluate without a place": (toy(evaluate={"a": {}}), "evaluate.a", "{}", "either name:"),
    "evaluate in a variant": (
        toy(variants={"a": {"loss": "angle"}, "b": {"loss": "angle", "evaluate": {"a": {"nam": "toy"}}}}),
        "variants.b.evaluate.a.nam", "'toy'", "did you mean 'name'?",
    ),
    "primary of a set that is not there": (
        toy(evaluate={"a": {"name": "toy"}}, analysis={"primary": ["b/spearman_64"]}),
        "analysis.primary[0]", "'b/spearman_64'", "a/spearman_DIM, a/pearson_DIM",
    ),
    "primary of a split that is not scored": (
        toy(data={"name": "toy", "splits": ["train"]}, evaluate={"a": {"name": "toy"}}),
        "analysis.primary[0]", "'test/spearman_64'", "expected one of a/spearman_DIM",
    ),
    "nothing scored": (toy(data={"name": "toy", "splits": ["train"]}), "evaluate", "", "nothing would be scored"),
    "splits without train": (toy(data={"name": "toy", "splits": ["test"]}), "data.splits", "['test']", "train must be"),
    "trained size twice": (toy(trained_dims=[8, 8]), "trained_dims[1]", "8", "listed twice"),
    "trained size odd": (toy(trained_dims=[7]), "trained_dims", "[7]", "7 is odd"),
    "baseline unknown": (toy(baseline="c"), "baseline", "'c'", "expected one of the variants: a, b"),
    "baseline misspelt": (
        toy(variants={"chunked": {"loss": "angle"}, "b": {"loss": "cosent"}}, baseline="chunkd"),
        "baseline", "'chunkd'", "did you mean 'chunked'?",
    ),
    "baseline a list": (toy(baseline=["a"]), "baseline", "['a']", "expected text"),
    "seeds missing": (toy(seeds=None), "seeds", "(missing)", "it is required"),
    "seeds none": (toy(seeds=0), "seeds", "0", "from 1 to"),
    "seeds negative": (toy(seeds=-1), "seeds", "-1", "from 1 to"),
    "seeds a fraction": (toy(seeds=2.5), "seeds", "2.5", "whole number"),
    "seeds true": (toy(seeds=True), "seeds", "True", "expected a count"),
    "seeds text": (toy(seeds="five"), "seeds", "'five'", "expected a count"),
    "seeds too many": (toy(seeds=10**9), "seeds", "1000000000", "from 1 to"),
    "seeds an empty list": (toy(seeds=[]), "seeds", "[]", "at least one seed"),
    "seed twice": (toy(seeds=[1, 2, 1]), "seeds[2]", "1", "listed twice"),
    "seed negative": (toy(seeds=[0, -1]), "seeds[1]", "-1", "whole numbers from 0"),
    "seed too large": (toy(seeds=[2**32]), "seeds[0]", str(2**32), "4294967295"),
    "seed a bool": (toy(seeds=[0, True]), "seeds[1]", "True", "whole numbers"),
    "seed a text": (toy(seeds=["0"]), "seeds[0]", "'0'", "whole numbers"),
    "seeds a mapping": (toy(seeds={"n": 5}), "seeds", "{'n': 5}", "expected a count"),
    "model missing": (toy(model=None), "model", "(missing)", "required by the trainable 'sentence-pair'"),
    "model a text": (toy(model="toy"), "model", "'toy'", "expected a mapping"),
    "model without a name": (toy(model={"prompt": "x"}), "model.name", "(missing)", "it is required"),
    "model name a number": (toy(model={"name": 5}), "model.name", "5", "expected text"),
    "model name empty": (toy(model={"name": ""}), "model.name", "''", "not empty"),
    "model field unknown": (toy(model={"name": "toy", "dtyp": "float32"}), "model.dtyp", "'float32'", "'dtype'"),
    "dtype unknown": (toy(model={"name": "toy", "dtype": "int8"}), "model.dtype", "'int8'", "float32, bfloat16"),
    "max length zero": (toy(model={"name": "toy", "max_seq_length": 0}), "model.max_seq_length", "0", "greater"),
    "max length bool": (toy(model={"name": "toy", "max_seq_length": True}), "model.max_seq_length", "True", "number"),
    "data missing": (toy(data=None), "data", "(missing)", "required by the trainable"),
    "data a text": (toy(data="jsts"), "data", "'jsts'", "expected a mapping"),
    "data without a source": (toy(data={"limit": {"train": 5}}), "data", "", "give a name"),
    "data built in with files": (toy(data={"name": "jsts", "train": "x.csv"}), "data.train", "'x.csv'", "built-in"),
    "own data without a range": (
        toy(data={"train": "x.csv", "test": "y.csv"}), "data.label_range", "(missing)", "is required",
    ),
    "label range reversed": (
        toy(data={"train": "x.csv", "test": "y.csv", "label_range": [5, 0]}),
        "data.label_range", "[5, 0]", "from low to high",
    ),
    "label range short": (
        toy(data={"train": "x.csv", "test": "y.csv", "label_range": [5]}), "data.label_range", "", "",
    ),
    "column unknown": (
        toy(data={"train": "x.csv", "test": "y.csv", "label_range": [0, 5], "columns": {"sentence3": "a"}}),
        "data.columns.sentence3", "'sentence3'", "sentence1, sentence2, label",
    ),
    "limit zero": (toy(data={"name": "toy", "limit": {"train": 0}}), "data.limit.train", "0", "greater"),
    "limit of no split": (toy(data={"name": "toy", "limit": {"dev": 5}}), "data.limit.dev", "'dev'", "validation"),
    "limit a number": (toy(data={"name": "toy", "limit": 5}), "data.limit", "5", "mapping"),
    "dims missing": (toy(matryoshka_dims=None), "matryoshka_dims", "(missing)", "required by the trainable"),
    "dims empty": (toy(matryoshka_dims=[]), "matryoshka_dims", "[]", "expected a list of embedding sizes"),
    "dims a number": (toy(matryoshka_dims=64), "matryoshka_dims", "64", "expected a list of embedding sizes"),
    "dim zero": (toy(matryoshka_dims=[0, 64]), "matryoshka_dims[0]", "0", "not below 1"),
    "dim a text": (toy(matryoshka_dims=["64"]), "matryoshka_dims[0]", "'64'", "whole number"),
    "dim a fraction": (toy(matryoshka_dims=[64.5]), "matryoshka_dims[0]", "64.5", "whole number"),
    "dim twice": (toy(matryoshka_dims=[64, 64]), "matryoshka_dims[1]", "64", "listed twice"),
    "dim odd with AnglE": (toy(matryoshka_dims=[33, 64]), "matryoshka_dims", "[33, 64]", "33 is odd"),
    "loss missing": (toy(variants={"a": {}, "b": {"loss": "cosent"}}), "loss", "(missing)", "variant 'a'"),
    "loss a number": (toy(loss=5), "loss", "5", "expected a loss by name"),
    "loss empty": (toy(loss=""), "loss", "''", "expected a loss by name"),
    "loss an empty list": (toy(loss=[]), "loss", "[]", "expected a loss by name"),
    "loss term without a name": (toy(loss=[{"weight": 1}]), "loss[0].name", "(missing)", "a loss by name"),
    "loss no import path": (toy(loss="my losses:Margin"), "loss", "'my losses:Margin'", "module:Class"),
    "loss term unknown field": (toy(loss=[{"name": "cosent", "wieght": 1}]), "loss[0].wieght", "1", "'weight'"),
    "loss weight a text": (toy(loss=[{"name": "cosent", "weight": "x"}]), "loss[0].weight", "'x'", "a number"),
    "loss weight zero": (
        toy(loss=["cosent", {"name": "angle", "weight": 0}]), "loss[1].weight", "0", "a term of weight 0 does nothing",
    ),
    "both number types": (
        toy(training={"bf16": True, "fp16": True}), "training.fp16", "True", "does not go with bf16",
    ),
    "no steps": (toy(training={"max_steps": 0}), "training.max_steps", "0", "and not 0"),
    "optimizer unknown": (toy(training={"optim": "adam"}), "training.optim", "'adam'", "one of adamw_torch"),
    "loss layout unknown": (
        toy(variants={"a": {"loss": "angle", "layout": "interleave"}}),
        "variants.a.layout", "'interleave'", "chunked, interleaved, interleaved_swapped",
    ),
    "layout without AnglE": (
        toy(variants={"a": {"loss": "cosent", "layout": "chunked"}}), "variants.a.layout", "'chunked'", "'angle' only",
    ),
    "layout beside several terms": (
        toy(variants={"a": {"loss": ["cosent", "angle"], "layout": "chunked"}}),
        "variants.a.layout", "'chunked'", "into a term",
    ),
    "loss_args a list": (toy(variants={"a": {"loss_args": [1]}}), "variants.a.loss_args", "[1]", "mapping"),
    "training a list": (toy(training=["epochs"]), "training", "['epochs']", "mapping of training fields"),
    "training field unknown": (toy(training={"learning_rat": 1}), "training.learning_rat", "1", "'learning_rate'"),
    "training library name": (
        toy(training={"num_train_epochs": 3}), "training.num_train_epochs", "3", "it is called 'epochs' here",
    ),
    "training seed": (toy(training={"seed": 3}), "training.seed", "3", "seeds: gives the seeds"),
    "epochs zero": (toy(training={"epochs": 0}), "training.epochs", "0", "a number above 0"),
    "epochs text": (toy(training={"epochs": "three"}), "training.epochs", "'three'", "a number above 0"),
    "epochs true": (toy(training={"epochs": True}), "training.epochs", "True", "a number above 0"),
    "epochs a list": (toy(training={"epochs": [1, 2]}), "training.epochs", "[1, 2]", "a number above 0"),
    "batch size a fraction": (toy(training={"batch_size": 8.5}), "training.batch_size", "8.5", "whole number"),
    "batch size zero": (toy(training={"batch_size": 0}), "training.batch_size", "0", "not below 1"),
    "learning rate negative": (toy(training={"learning_rate": -1}), "training.learning_rate", "-1", "not below 0"),
    "warmup above one": (toy(training={"warmup_ratio": 2}), "training.warmup_ratio", "2", "from 0 to 1"),
    "scheduler unknown": (
        toy(training={"lr_scheduler_type": "linar"}), "training.lr_scheduler_type", "'linar'", "one of linear",
    ),
    "bf16 a number": (toy(training={"bf16": 1}), "training.bf16", "1", "true or false"),
    "training field empty": (toy(training={"epochs": None}), "training.epochs", "None", "a number above 0"),
    "settings empty": (toy(settings={}), "settings", "{}", "grid: or named:"),
    "settings a list": (toy(settings=[1]), "settings", "[1]", "expected a mapping"),
    "settings unknown": (toy(settings={"gird": {}}), "settings.gird", "{}", "'grid'"),
    "grid a list": (toy(settings={"grid": [1]}), "settings.grid", "[1]", "mapping"),
    "grid unknown": (toy(settings={"grid": {"lr": [1]}}), "settings.grid.lr", "[1]", "no such field"),
    "grid misspelt": (toy(settings={"grid": {"batchsize": [1]}}), "settings.grid.batchsize", "[1]", "'batch_size'"),
    "grid a number": (toy(settings={"grid": {"batch_size": 8}}), "settings.grid.batch_size", "8", "a list of values"),
    "grid no values": (toy(settings={"grid": {"batch_size": []}}), "settings.grid.batch_size", "[]", "list of values"),
    "grid value wrong": (toy(settings={"grid": {"batch_size": [8, 0]}}), "settings.grid.batch_size[1]", "0", "below 1"),
    "grid value twice": (
        toy(settings={"grid": {"learning_rate": [1e-5, "0.00001"]}}),
        "settings.grid.learning_rate[1]", "'0.00001'", "listed twice",
    ),
    "grid of the model, unknown": (
        toy(settings={"grid": {"model.dtyp": ["float32"]}}), "settings.grid.model.dtyp", "'float32'", "'dtype'",
    ),
    "grid too large": (
        toy(settings={"grid": {"batch_size": list(range(1, 1001)), "warmup_steps": list(range(1000))}}),
        "settings.grid", "'1000000 points'", "at most 100000",
    ),
    "cells too many": (
        toy(seeds=10_000, settings={"grid": {"batch_size": list(range(1, 11))}}), "seeds", "'200000 cells'", "100000",
    ),
    "named a list": (toy(settings={"named": [1]}), "settings.named", "[1]", "label -> what it overrides"),
    "named field unknown": (
        toy(settings={"named": {"x": {"trainin": {}}}}), "settings.named.x.trainin", "{}", "'training'",
    ),
    "named as a grid point": (
        toy(settings={"grid": {"batch_size": [8]}, "named": {"batch_size=8": {"training": {"epochs": 1}}}}),
        "settings.named.batch_size=8", "'batch_size=8'", "the grid has a point with this label",
    ),
    "two settings alike": (
        toy(settings={"grid": {"batch_size": [4]}, "named": NAMED}), "settings.named.x", "'x'", "same training",
    ),
    "variant and grid": (
        toy(
            variants={"a": {"loss": "angle", "training": {"batch_size": 4}}, "b": {"loss": "cosent"}},
            settings={"grid": {"batch_size": [8, 16]}},
        ),
        "settings.grid.batch_size", "[8, 16]", "variant 'a' sets it too",
    ),
    "variant and named": (
        toy(
            variants={"a": {"loss": "angle", "training": {"batch_size": 8}}, "b": {"loss": "cosent"}},
            settings={"named": NAMED},
        ),
        "settings.named.x.training.batch_size", "4", "not by both",
    ),
    "variant and named loss": (
        toy(settings={"named": {"x": {"loss": "cosine"}}}), "settings.named.x.loss", "", "not by both",
    ),
    "two variants alike": (
        toy(variants={"a": {"loss": "angle"}, "b": {"loss": "angle", "layout": "chunked"}}),
        "variants.b", "", "same training as variant 'a'",
    ),
    "two variants alike by a default": (
        toy(variants={"a": {"loss": "angle"}, "b": {"loss": "angle", "training": {"learning_rate": 5e-5}}}),
        "variants.b", "", "same training as variant 'a'",
    ),
    "resources a number": (toy(resources=4), "resources", "4", "expected a mapping"),
    "resources unknown": (toy(resources={"gpu": 1}), "resources.gpu", "1", "'gpus'"),
    "cpus zero": (toy(resources={"cpus": 0}), "resources.cpus", "0", "greater"),
    "cpus a fraction": (toy(resources={"cpus": 1.5}), "resources.cpus", "1.5", "whole number"),
    "gpus negative": (toy(resources={"gpus": -1}), "resources.gpus", "-1", "greater"),
    "gpus above one and a fraction": (toy(resources={"gpus": 1.5}), "resources.gpus", "1.5", "0, 1 or a fraction"),
    "gpus two": (toy(resources={"gpus": 2}), "resources.gpus", "2", "more GPUs train more cells at once"),
    "memory without a unit": (toy(resources={"memory": 8}), "resources.memory", "8", "such as 8GiB"),
    "memory too small": (toy(resources={"memory": "1MiB"}), "resources.memory", "'1MiB'", "at least 64MiB"),
    "time limit without a unit": (toy(resources={"time_limit": 7}), "resources.time_limit", "7", "such as 2h"),
    "time limit zero": (toy(resources={"time_limit": "0s"}), "resources.time_limit", "'0s'", "above 0"),
    "gpus true": (toy(resources={"gpus": True}), "resources.gpus", "True", "number"),
    "analysis unknown": (toy(analysis={"primay": []}), "analysis.primay", "[]", "'primary'"),
    "analysis a text": (toy(analysis="x"), "analysis", "'x'", "expected a mapping"),
    "primary no endpoint": (toy(analysis={"primary": ["rho"]}), "analysis.primary", "['rho']", "split/metric"),
    "primary twice": (
        toy(analysis={"primary": ["test/spearman_64"] * 2}), "analysis.primary", "", "twice",
    ),
    "keep a word": (toy(keep="last"), "keep", "'last'", "expected a mapping"),
    "keep the best": (toy(keep={"model": "best"}), "keep.model", "'best'", "last"),
    "keep unknown": (toy(keep={"models": "last"}), "keep.models", "'last'", "did you mean 'model'?"),
    "primary of no size": (
        toy(analysis={"primary": ["test/spearman_128"]}), "analysis.primary[0]", "'test/spearman_128'", "16, 32, 64",
    ),
    "primary of no statistic": (
        toy(analysis={"primary": ["test/kendall_64"]}), "analysis.primary[0]", "'test/kendall_64'", "test/pearson_DIM",
    ),
    "primary on training": (
        toy(analysis={"primary": ["train/spearman_64"]}), "analysis.primary[0]", "", "expected one of validation/",
    ),
    "primary where a variant lacks the size": (
        toy(variants={"a": {"loss": "angle"}, "b": {"loss": "angle", "matryoshka_dims": [16]}}),
        "analysis.primary[0]", "", "every cell has: 16",
    ),
    "alpha one": (toy(analysis={"alpha": 1}), "analysis.alpha", "1", "less than 1"),
    "alpha text": (toy(analysis={"alpha": "five"}), "analysis.alpha", "'five'", "a number"),
    "margin zero": (toy(analysis={"margin": 0}), "analysis.margin", "0", "greater than 0"),
    "stopping unknown": (toy(analysis={"stopping": "early"}), "analysis.stopping", "'early'", "fixed, sequential"),
    "max_seeds of a fixed study": (toy(analysis={"max_seeds": 9}), "analysis.max_seeds", "9", "sequential"),
    "trainable a number": (noop(trainable=5), "trainable", "5", "module:function"),
    "trainable unknown": (noop(trainable="sentence-pairs"), "trainable", "'sentence-pairs'", "'sentence-pair'"),
    "trainable no import path": (noop(trainable="my module:f"), "trainable", "'my module:f'", "module:function"),
    "options a list": (noop(options=[1]), "options", "[1]", "mapping"),
    "search of nothing": (toy(search={"space": {}, "trials": 3, "seeds": [99]}), "search.space", "{}", ""),
    "search of no field": (
        toy(search={"space": {"lr": [1, 2]}, "trials": 2, "seeds": [99]}), "search.space.lr", "[1, 2]", "no such field",
    ),
    "search on the study's seeds": (
        toy(search={"space": {"batch_size": [4, 8]}, "trials": 2, "seeds": [0]}), "search.seeds", "[0]", "seed 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_field(case: str, tmp_path: Path) -> None:
    study, field, value, allowed = WRONG[case]
    path = write(tmp_path, study)
    with pytest.raises(StudyError) as caught:
        load_study(path)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(f"{path}:")
    assert caught.value.field.startswith(field), line
    assert f" {value}" in line
    assert allowed in line
    assert caught.value.exit_code == 2


HEAD = "name: x\nmodel: {name: toy}\ndata: {name: toy}\nmatryoshka_dims: [64]\nseeds: 2\n"
BODY = "variants: {a: {loss: angle}, b: {loss: cosent}}\n"

# (bytes of the file, line that is named or None, part of the message)
WRONG_TEXT: dict[str, tuple[bytes, int | None, str]] = {
    "empty": (b"", None, "the file is empty"),
    "only a comment": (b"# nothing yet\n", None, "the file is empty"),
    "only null": (b"null\n", 1, "expected fields and values"),
    "a list": (b"- name: x\n", 1, "expected fields and values"),
    "a text": (b"hello\n", 1, "expected fields and values"),
    "indented by tabs": (b"name: x\nmodel:\n\tname: toy\n", 3, "not with tabs"),
    "not closed": (b"name: x\nmodel: {name: toy\n", 3, "it is not YAML"),
    "two documents": (b"name: x\n---\nname: y\n", 2, "expected one document"),
    "duplicate field": (HEAD.encode() + b"seeds: 3\n" + BODY.encode(), 6, "given twice (first on line 5)"),
    "duplicate variant": (HEAD.encode() + b"variants:\n  a: {loss: angle}\n  a: {loss: cosent}\n", 8, "given twice"),
    "duplicate in a flow": (b"name: x\nmodel: {name: toy, name: toy-random}\n", 2, "model.name"),
    "not UTF-8": ("name: caf\xe9\n".encode("latin-1"), None, "expected UTF-8 text"),
    "UTF-16": ("name: x\n".encode("utf-16"), None, "expected UTF-8 text"),
    "control character": (b"name: x\n\x00\n", 2, "expected printable text"),
    "not a number": (HEAD.encode() + b"training: {learning_rate: .nan}\n" + BODY.encode(), 6, "a finite number"),
    "infinite": (HEAD.encode() + b"training: {learning_rate: 1e999}\n" + BODY.encode(), 6, "a finite number"),
    "a number without end": (HEAD.encode() + b"options: {x: " + b"9" * 5000 + b"}\n" + BODY.encode(), 6, "64 bits"),
    "a python object": (b"name: !!python/object/apply:os.getcwd []\n", 1, "YAML tags are not used"),
    "a binary": (b"name: !!binary aGVsbG8=\n", 1, "YAML tags are not used"),
    "an own tag": (b"name: !mine x\n", 1, "YAML tags are not used"),
    "unknown alias": (b"name: *nobody\n", 1, "undefined alias"),
    "endless alias": (b"name: x\noptions: &o {again: *o}\n", 2, "may not contain itself"),
    "endless merge": (b"name: x\noptions: &o {<<: *o}\n", 2, "may not contain itself"),
    "a bomb of aliases": (
        b"a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + b"".join(b"%c: &%c [%s]\n" % (c + 1, c + 1, b",".join([b"*%c" % c] * 10)) for c in range(97, 103)),
        None, "more than 100000 values",
    ),
    "nested without end": (b"name: " + b"[" * 20_000, None, "nested too deeply"),
    "a mapping as key": (b"{{x}}: 1\n", 1, "expected text as the name of a field"),
    "too large": (b"# " + b"x" * 1_000_001, None, "expected at most"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_TEXT)
def test_wrong_text(case: str, tmp_path: Path) -> None:
    content, number, message = WRONG_TEXT[case]
    path = tmp_path / "study.yaml"
    path.write_bytes(content)
    with pytest.raises(StudyError) as caught:
        load_study(path)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(f"{path}:{number}: " if number else f"{path}:"), line
    assert message in line


def test_a_wrong_field_names_its_line(tmp_path: Path) -> None:
    path = write(
        tmp_path, HEAD + "variants:\n  a: {loss: angle}\n  b:\n    loss: cosent\n    training:\n      epochs: x\n"
    )
    with pytest.raises(StudyError, match=rf"^{path}:11: variants\.b\.training\.epochs: 'x' is not valid"):
        load_study(path)


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_not_a_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"there is no such file|it is a folder"):
        load_study(tmp_path / name)


def test_a_device_without_end() -> None:
    with pytest.raises(StudyError, match="expected at most 1000000 bytes"):
        load_study("/dev/zero")


def test_a_name_no_system_accepts() -> None:
    with pytest.raises(StudyError, match="cannot be read"):
        load_study("a\0b.yaml")


@pytest.mark.parametrize("name", ["test/spear?man_8", "test/#_8", "test/" + "x" * 250 + "_8", "../x_8"])
def test_an_endpoint_that_no_store_can_record_is_refused(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, noop(analysis={"primary": [name]}))
    with pytest.raises(StudyError, match=r"analysis\.primary\[0\]: .* is not valid; expected a name"):
        load_study(path)


def test_an_option_that_no_store_can_record_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, noop(variants={"a": {}, "b": {"options": {"what?": 1}}}))
    with pytest.raises(StudyError, match=r"options\.what\?: .* is not valid; expected a name of letters"):
        load_study(path)


def test_labels_that_differ_only_in_normalisation_are_refused(tmp_path: Path) -> None:
    one, two = "caf\u00e9", "cafe\u0301"
    path = write(tmp_path, noop(variants={one: {}, two: {"options": {"sleep_s": 0.1}}}))
    with pytest.raises(StudyError, match=r"differs from 'caf\\xe9' only in Unicode normalisation") as caught:
        load_study(path)
    assert r"cafe\u0301" in str(caught.value)
    named = {"grid": {"options.x": [one]}, "named": {f"options.x={two}": {"options": {"x": 2}}}}
    path = write(tmp_path, noop(settings=named))
    with pytest.raises(StudyError, match="only in Unicode normalisation"):
        load_study(path)


def test_a_label_of_a_grid_shows_what_cannot_be_seen(tmp_path: Path) -> None:
    path = write(tmp_path, noop(settings={"grid": {"options.x": ["a\nb", "\u202egnp", "\x1b[31m", "日本　語"]}}))
    shown = [r"options.x=a\nb", r"options.x=\u202egnp", r"options.x=\x1b[31m", "options.x=日本　語"]
    study = load_study(path)
    assert list(study.settings) == shown
    assert study.settings[shown[0]] == {"options": {"x": "a\nb"}}


def test_two_points_of_a_grid_with_one_label_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, noop(settings={"grid": {"options.x": ["a\nb", r"a\nb"]}}))
    with pytest.raises(StudyError, match="two points would have this label"):
        load_study(path)


@pytest.mark.parametrize("label", ["a\nb", "a\u202eb", "a\x1b[31mb", "a\u2066b"])
def test_a_label_that_would_move_text_is_refused(label: str, tmp_path: Path) -> None:
    for given in ({"name": label}, {"variants": {"a": {}, label: {"options": {"x": 1}}}}):
        with pytest.raises(StudyError, match="control characters") as caught:
            load_study(write(tmp_path, noop(**given)))
        assert label not in str(caught.value)


def test_a_size_beyond_any_model_is_refused_by_the_right_rule(tmp_path: Path) -> None:
    path = write(tmp_path, toy(matryoshka_dims=[16, 100_000_000]))
    allowed = "expected a size not larger than the model's embedding size"
    with pytest.raises(StudyError, match=rf"matryoshka_dims\[1\]: 100000000 is not valid; {allowed}"):
        load_study(path)
