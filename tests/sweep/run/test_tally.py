"""Who is ahead while a sweep runs."""

from __future__ import annotations

from dataclasses import replace

from analysis.schema import KIND_CELL, KIND_SEARCH
from sweep.run.tally import Tally, tally_of
from sweep.study import load_study
from tests.sweep import studies
from tests.sweep.runs import a_cell, a_run

PRIMARY = "test/spearman_64"


def test_counts_pairs_and_says_that_it_is_no_verdict() -> None:
    tally = Tally([PRIMARY], ["a", "b"], "a")
    for seed, (base, other) in enumerate([(0.5, 0.6), (0.5, 0.4), (0.5, 0.5 + 1e-13)]):
        tally.add(a_cell("a", seed), {PRIMARY: base, "test/spearman_8": 9.0})
        tally.add(a_cell("b", seed), {PRIMARY: other})
    assert tally.lines() == [f"so far, not a verdict: {PRIMARY}: b ahead of a in 1 of 3 pairs, 1 tied"]


def test_a_cell_without_its_partner_is_no_pair() -> None:
    tally = Tally([PRIMARY], ["a", "b"], "a")
    tally.add(a_cell("a", 0), {PRIMARY: 0.5})
    tally.add(a_cell("b", 1), {PRIMARY: 0.6})
    assert tally.lines() == []
    tally.add(a_cell("b", 0), {PRIMARY: 0.6})
    assert tally.lines() == [f"so far, not a verdict: {PRIMARY}: b ahead of a in 1 of 1 pair"]


def test_settings_and_endpoints_and_treatments_stand_apart() -> None:
    tally = Tally([PRIMARY, "test/pearson_64"], ["a", "b", "c"], "a")
    for setting in ("x", "y"):
        for variant, score in (("a", 0.5), ("b", 0.6), ("c", 0.4)):
            tally.add(a_cell(variant, 0, setting), {PRIMARY: score})
    assert tally.lines() == [
        f"so far, not a verdict: {PRIMARY}: b ahead of a in 2 of 2 pairs",
        f"so far, not a verdict: {PRIMARY}: c ahead of a in 0 of 2 pairs",
    ]


def test_a_repeated_cell_counts_as_it_is_now() -> None:
    tally = Tally([PRIMARY], ["a", "b"], "a")
    tally.add(a_cell("a", 0), {PRIMARY: 0.5})
    tally.add(a_cell("b", 0), {PRIMARY: 0.4})
    tally.add(a_cell("b", 0), {PRIMARY: 0.6})
    assert tally.lines() == [f"so far, not a verdict: {PRIMARY}: b ahead of a in 1 of 1 pair"]


class TestBeginsWithWhatIsRecorded:
    def test_finished_runs_of_the_study_count(self, tmp_path) -> None:  # type: ignore[no-untyped-def]
        study = load_study(studies.write(tmp_path, studies.noop(analysis={"primary": [PRIMARY]})))
        pair = [a_cell("a", 0), a_cell("b", 0)]
        other = [a_cell("a", 1), a_cell("b", 1)]
        runs = [replace(a_run(cell, "FINISHED"), metrics={PRIMARY: 0.5}) for cell in pair]
        runs += [replace(a_run(cell, "KILLED"), metrics={PRIMARY: 0.5}) for cell in other]
        gone = replace(a_run(a_cell("b", 7), "FINISHED"), metrics={PRIMARY: 0.5})
        tally = tally_of(study, KIND_CELL, [*pair, *other], [*runs, gone])
        assert tally.lines() == [f"so far, not a verdict: {PRIMARY}: b ahead of a in 0 of 1 pair, 1 tied"]
        assert tally_of(study, KIND_SEARCH, [*pair, *other], runs).lines() == []
