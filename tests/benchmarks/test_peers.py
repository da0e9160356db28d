"""Our cells against the library's own trainer and evaluators: the same work gives the same scores."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import study
from benchmarks.encoder import build_bert
from benchmarks.ours import study_of
from benchmarks.tables import Spread, disagreement
from benchmarks.work import Work

AGREEMENT = 2e-4
"""Rounding of three training steps, and ranks of 60 pairs that it may swap."""


@pytest.mark.parametrize("length_aware", [True, False])
@pytest.mark.parametrize("variant", ["chunked", "interleaved"])
def test_a_cell_scores_as_the_library_does(work: Work, variant: str, length_aware: bool) -> None:
    from benchmarks.peers.library import train_cell
    from trainables.sentence_pair.train import train
    from trainables.spec import LossSpec, TrainSpec

    described = study_of(work, "test")
    spec = TrainSpec(
        model=described["model"],
        data=described["data"],
        loss=(LossSpec(name="angle", layout=variant),),
        matryoshka_dims=work.dims,
        training=described["training"],
        options={"length_aware": length_aware},
        seed=0,
    )
    ours = train(spec, lambda progress: None).scores
    theirs = train_cell(work.folder / "work.json", variant, 0)
    assert set(theirs) == set(ours)
    assert disagreement({(variant, 0): ours}, {(variant, 0): theirs}) < AGREEMENT


@pytest.mark.endtoend
def test_one_command_compares_both_sides(work: Work) -> None:
    report = study.compare(work, ["processes"], 1, title="tiny")
    rows = [line for line in report.splitlines() if line.startswith("| ")]
    assert [row.split("|")[1].strip() for row in rows[1:]] == ["pairsweep", study.PEERS["processes"][0]]
    assert "Largest difference of a score" in report


def test_the_encoder_is_the_same_every_time(tmp_path: Path) -> None:
    sentences = ["A man plays a flute.", "a woman cuts an onion", "A man, a plan"]
    for name in ("first", "second"):
        build_bert(tmp_path / name, sentences, layers=1, width=32, dropout=0.0)
    for file in ("tokenizer.json", "model.safetensors", "config.json"):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()


def test_disagreement_refuses_other_cells_and_missing_scores() -> None:
    ours = {("a", 0): {"x": 1.0, "y": 2.0}}
    assert disagreement(ours, {("a", 0): {"x": 1.5}}) == 0.5
    with pytest.raises(SystemExit, match="cells differ"):
        disagreement(ours, {("b", 0): {"x": 1.0}})
    with pytest.raises(SystemExit, match="missing"):
        disagreement(ours, {("a", 0): {"z": 1.0}})


def test_spread_of_repeats() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(low=1.0, median=2.0, high=3.0)
    assert Spread.of([2.0]).text() == "2.0"
    assert Spread.of([1.0, 2.0, 4.0]).text(2) == "2.00 (1.00-4.00)"
