"""The study file's reference and schema are those of the models, and the schema agrees with the reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from sweep.study import load_study
from sweep.study.reference import (
    _DOCUMENTED,
    REFERENCE,
    SCHEMA,
    attribute_docs,
    schema_text,
    study_reference,
    study_schema,
)
from sweep.study.yaml_reader import read_document
from tests.sweep.studies import ARTICLE, noop, toy, write
from trainables.training_fields import TRAINING_FIELDS

ROOT = Path(__file__).parents[3]
VALIDATOR = Draft202012Validator(study_schema())


def test_the_docs_are_current() -> None:
    assert (ROOT / REFERENCE).read_text(encoding="utf-8") == study_reference(), "run: python -m sweep.study.reference"
    assert (ROOT / SCHEMA).read_text(encoding="utf-8") == schema_text(), "run: python -m sweep.study.reference"


@pytest.mark.parametrize("name", _DOCUMENTED)
def test_every_field_has_a_meaning(name: str) -> None:
    model = _DOCUMENTED[name]
    assert set(model.model_fields) <= set(attribute_docs(model))


def test_every_training_field_is_listed() -> None:
    reference = study_reference()
    assert all(f"| `{name}` |" in reference for name in TRAINING_FIELDS)


def test_the_example_of_the_reference_is_a_study(tmp_path: Path) -> None:
    example = study_reference().split("```yaml\n")[1].split("```")[0]
    assert len(load_study(write(tmp_path, example)).specs) == 20


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(study_schema())


@pytest.mark.parametrize("path", sorted((ROOT / "studies").glob("*.yaml")), ids=lambda path: path.name)
def test_the_ready_studies_follow_the_schema(path: Path) -> None:
    load_study(path)
    VALIDATOR.validate(read_document(path).data)


@pytest.mark.parametrize(
    "study",
    [
        toy(),
        noop(),
        toy(loss=["cosent", {"name": "angle", "weight": 0.5}], variants={"a": {}, "b": {"loss": "cosent"}}),
        toy(settings={"grid": {"batch_size": [4, 16]}, "named": {"base": {}}}),
        toy(search={"space": {"learning_rate": {"low": 1e-6, "high": 1e-4, "log": True}}, "trials": 4, "seeds": [99]}),
        toy(seeds=[3, 1]),
        toy(keep={"model": "last"}),
    ],
)
def test_the_schema_takes_what_the_reader_takes(study: dict[str, Any], tmp_path: Path) -> None:
    load_study(write(tmp_path, study))
    VALIDATOR.validate(study)


@pytest.mark.parametrize(
    "study",
    [
        toy(lose="angle"),
        toy(seeds=0),
        toy(seeds=[]),
        toy(seeds="five"),
        toy(matryoshka_dims=[]),
        toy(training={"learning_rat": 1}),
        toy(training={"epochs": 0}),
        toy(training={"lr_scheduler_type": "linar"}),
        toy(variants={"a": {"layout": "interleave"}}),
        toy(resources={"gpu": 1}),
        toy(analysis={"stopping": "early"}),
        toy(keep={"model": "best"}),
        toy(name=None),
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(study: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid(study)


def test_the_articles_study_follows_the_schema(tmp_path: Path) -> None:
    VALIDATOR.validate(read_document(write(tmp_path, ARTICLE)).data)
