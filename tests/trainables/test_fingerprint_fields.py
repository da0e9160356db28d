"""One list of fingerprint fields on both sides: what trainables record, and what the analysis lets a variant change."""

from __future__ import annotations

import pytest
import torch

from analysis import schema
from analysis.comparing.fingerprints import AFFECTED_KEYS
from tests.trainables.conftest import toy_spec
from trainables.sentence_pair.fingerprint import environment
from trainables.sentence_pair.train import train
from trainables.spec import TrainSpec
from trainables.synthetic import closed_form, noop


def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the environment records where torch sees a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "a GPU")
    return environment("float32")


def test_every_field_of_the_list_is_recorded_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU or on a GPU: a field renamed on one side only would drop pairs, or keep them, in silence."""
    recorded = train(toy_spec(), lambda progress: None).fingerprint.keys()
    with monkeypatch.context() as patch:
        on_gpu = on_a_gpu(patch).keys()
    assert recorded | on_gpu == set(schema.FINGERPRINT_FIELDS)
    assert recorded & on_gpu == {schema.FINGERPRINT_SOFTWARE, schema.FINGERPRINT_DTYPE, schema.FINGERPRINT_DEVICE}


@pytest.mark.parametrize("trainable", [noop, closed_form])
def test_the_synthetic_trainables_record_fields_of_the_list(trainable: object) -> None:
    spec = TrainSpec(trainable="noop" if trainable is noop else "closed-form", seed=0)
    fields = trainable(spec, lambda progress: None).fingerprint.keys()  # type: ignore[operator]
    assert fields <= set(schema.FINGERPRINT_FIELDS)


def test_what_a_variant_may_change_is_recorded() -> None:
    assert {key for keys in AFFECTED_KEYS.values() for key in keys} <= set(schema.FINGERPRINT_FIELDS)


def test_the_recorded_names_have_not_changed() -> None:
    """People have studies that carry them."""
    assert schema.FINGERPRINT_FIELDS == (
        "initial_weights", "example_order", "data", "software", "dtype", "device", "tf32", "deterministic",
        "instruction_set", "threads",
    )  # fmt: skip
