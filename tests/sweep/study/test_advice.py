"""What a study of this size can show: in the sentences that users read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweep.study import load_study
from sweep.study.warnings import study_warnings
from tests.sweep.studies import toy, write

FOUR = [f"test/{metric}_{dim}" for metric in ("spearman", "pearson") for dim in (32, 64)]
THREE = {"a": {"loss": "angle"}, "b": {"loss": "cosent"}, "c": {"loss": "cosine"}}


def warnings(folder: Path, study: dict[str, Any]) -> list[str]:
    return study_warnings(load_study(write(folder, study)))


def test_five_seeds(tmp_path: Path) -> None:
    assert warnings(tmp_path, toy(seeds=5)) == ["5 seeds cannot reach alpha = .05 in a two-sided exact test; 6 can"]


def test_five_seeds_and_four_endpoints(tmp_path: Path) -> None:
    assert warnings(tmp_path, toy(seeds=5, analysis={"primary": FOUR})) == [
        "5 seeds cannot reach alpha = .05 in a two-sided exact test; 6 can; 8 for Holm over 4 endpoints"
    ]


@pytest.mark.parametrize(("seeds", "warned"), [(5, True), (6, True), (7, False)])
def test_two_comparisons_need_one_seed_more(seeds: int, warned: bool, tmp_path: Path) -> None:
    found = warnings(tmp_path, toy(seeds=seeds, variants=THREE))
    assert bool(found) is warned
    assert all("7" in line and "2 comparisons" in line for line in found)


def test_six_seeds_are_enough(tmp_path: Path) -> None:
    assert warnings(tmp_path, toy(seeds=6)) == []


def test_another_alpha(tmp_path: Path) -> None:
    found = warnings(tmp_path, toy(seeds=6, analysis={"primary": ["test/spearman_64"], "alpha": 0.01}))
    assert found == ["6 seeds cannot reach alpha = .01 in a two-sided exact test; 8 can"]


def test_a_sequential_study_that_could_never_decide(tmp_path: Path) -> None:
    plan = {"primary": ["test/spearman_64"], "stopping": "sequential", "max_seeds": 6}
    (line,) = warnings(tmp_path, toy(seeds=2, analysis=plan))
    assert line.startswith("max_seeds: 6 cannot decide at alpha = .05")
    assert line.endswith("7 can")
    assert warnings(tmp_path, toy(seeds=2, analysis={**plan, "max_seeds": 7})) == []


def test_one_variant_compares_nothing(tmp_path: Path) -> None:
    assert warnings(tmp_path, toy(variants={"a": {"loss": "angle"}})) == ["only one variant (a): nothing is compared"]


def test_no_primary_is_said(tmp_path: Path) -> None:
    (line,) = warnings(tmp_path, toy(analysis=None))
    assert line.startswith("no primary endpoint is named: test/spearman_64 is primary")
