"""Cells: keys are identity, and the order brings complete pairs first."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sweep.study import load_study
from sweep.study.cells import Cell, cell_key, expand
from tests.sweep.studies import ARTICLE, noop, toy, write
from trainables.spec import TrainSpec


@dataclass(frozen=True)
class Known:
    data: str | None = None
    model: str | None = None
    evaluate: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    unresolved: tuple[str, ...] = ()


def cells(folder: Path, study: dict[str, Any] | str, known: Known | None = None) -> list[Cell]:
    return expand(load_study(write(folder, study)), lambda spec: known or Known())


def keys(folder: Path, study: dict[str, Any] | str) -> list[str]:
    return [cell.key for cell in cells(folder, study)]


def test_seed_by_seed_with_the_variants_of_a_setting_adjacent(tmp_path: Path) -> None:
    study = toy(seeds=[5, 1], settings={"grid": {"batch_size": [4, 8]}})
    order = [(cell.seed, cell.setting, cell.variant) for cell in cells(tmp_path, study)]
    assert order == [
        (seed, setting, variant)
        for seed in (5, 1)
        for setting in ("batch_size=4", "batch_size=8")
        for variant in ("a", "b")
    ]


def test_more_seeds_keep_the_cells_and_add_behind_them(tmp_path: Path) -> None:
    few, many = keys(tmp_path, toy(seeds=5)), keys(tmp_path, toy(seeds=8))
    assert many[: len(few)] == few
    assert len(many) - len(few) == 6


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "another"},
        {"variants": {"A": {"loss": "angle", "layout": "chunked"}, "B": {"loss": "cosent"}}},
        {"baseline": "b"},
        {"resources": {"cpus": 3, "gpus": 0.5}},
        {"analysis": {"primary": ["test/pearson_16"], "alpha": 0.01}},
        {"training": {"learning_rate": "5e-5"}},
        {"matryoshka_dims": [64, 32, 16]},
        {"variants": {"a": {"loss": "angle"}, "b": {"loss": [{"name": "cosent"}]}}},
    ],
    ids=[
        "name",
        "labels",
        "baseline",
        "resources",
        "analysis",
        "a default spelt out",
        "order of sizes",
        "form of a loss",
    ],
)
def test_what_does_not_change_a_cell(changes: dict[str, Any], tmp_path: Path) -> None:
    assert keys(tmp_path, toy(**changes)) == keys(tmp_path, toy())


@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"learning_rate": 4e-5}},
        {"model": {"name": "toy-random"}},
        {"data": {"name": "toy", "limit": {"train": 10}}},
        {"matryoshka_dims": [32, 64]},
        {"options": {"x": 1}},
        {"seeds": [6, 7, 8, 9, 10, 11]},
    ],
    ids=["training", "model", "data", "sizes", "options", "seed"],
)
def test_what_makes_another_cell(changes: dict[str, Any], tmp_path: Path) -> None:
    assert not set(keys(tmp_path, toy(**changes))) & set(keys(tmp_path, toy()))


def test_the_label_of_a_setting_does_not_change_a_cell(tmp_path: Path) -> None:
    grid = keys(tmp_path, toy(settings={"grid": {"batch_size": [4]}}))
    named = keys(tmp_path, toy(settings={"named": {"small": {"training": {"batch_size": 4}}}}))
    plain = keys(tmp_path, toy(training={"batch_size": 4}))
    assert grid == named == plain


def test_the_folder_does_not_change_a_cell(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    assert keys(tmp_path / "other", toy()) == keys(tmp_path, toy())


def test_digests_are_part_of_the_key_and_not_of_the_spec_key(tmp_path: Path) -> None:
    known = [
        Known(),
        Known(data="1"),
        Known(data="2"),
        Known(model="1"),
        Known(evaluate={"set": "1"}),
        Known(modules={"mine": "1"}),
    ]
    found = [cells(tmp_path, toy(), one)[0] for one in known]
    assert len({cell.key for cell in found}) == len(known)
    assert len({cell.spec_key for cell in found}) == 1
    assert found[5].digests == {"module:mine": "1"}


def test_key_against_its_definition() -> None:
    spec = TrainSpec(trainable="noop", seed=3)
    text = json.dumps(spec.flat(), sort_keys=True, separators=(",", ":"))
    identity = json.dumps([text, {"data": "d"}], separators=(",", ":"))
    assert cell_key(spec, {"data": "d"}) == hashlib.sha256(identity.encode()).hexdigest()


def test_unresolved_digests_are_named(tmp_path: Path) -> None:
    assert cells(tmp_path, toy(), Known(unresolved=("model",)))[0].unresolved == ("model",)


def test_digests_are_read_once_per_variant_and_setting(tmp_path: Path) -> None:
    asked = []

    def digests(spec: TrainSpec) -> Known:
        asked.append(spec)
        return Known()

    expand(load_study(write(tmp_path, toy(seeds=50, settings={"grid": {"batch_size": [4, 8, 16]}}))), digests)
    assert len(asked) == 6


def test_the_articles_cells(tmp_path: Path) -> None:
    found = cells(tmp_path, ARTICLE)
    assert [(cell.variant, cell.seed) for cell in found] == [
        (variant, seed) for seed in range(5) for variant in ("chunked", "interleaved")
    ]
    assert found[3].run_name == "interleaved-s1-default"


def test_every_cell_knows_what_variants_declare(tmp_path: Path) -> None:
    assert cells(tmp_path, noop())[0].variant_fields == ("options.sleep_s",)
