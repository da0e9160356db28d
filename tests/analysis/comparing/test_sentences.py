"""What is said: digits that show the value, counts that are those of the endpoint they are said of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.comparing.verdict import Criteria, Evidence
from analysis.comparing.wording import (
    counts,
    interval_text,
    joined,
    over_settings,
    settings_favour,
    signed,
    verdict_sentence,
)
from analysis.schema import Endpoint
from analysis.statistics.paired import sign_test


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0035, "+0.0035"),
        (-0.123456, "-0.1235"),
        (1.25, "+1.2500"),
        (-0.00005, "-0.000050"),
        (0.000213, "+0.00021"),
        (2.31e-9, "+2.3e-09"),
        (0.0, "0"),
        (None, "undefined"),
    ],
)
def test_a_difference_shows_its_digits(value: float | None, text: str) -> None:
    assert signed(value) == text


def test_an_interval_that_excludes_0_does_not_read_as_if_it_touched_it() -> None:
    assert interval_text((0.00001234, 0.0042)) == "+0.000012 to +0.0042"


@pytest.mark.parametrize(
    ("wins", "losses", "ties", "text"),
    [
        (5, 0, 0, "5 of 5 seeds favour b"),
        (2, 3, 1, "3 of 6 seeds favour a, 1 tied"),
        (3, 3, 0, "3 of 6 seeds favour each"),
        (0, 0, 4, "all 4 seeds are tied"),
    ],
)
def test_counts_name_who_has_more(wins: int, losses: int, ties: int, text: str) -> None:
    assert counts(wins, losses, ties, "b", "a") == text


def test_lists_end_with_and() -> None:
    assert [joined(["a"]), joined(["a", "b"]), joined(["a", "b", "c"]), joined([])] == [
        "a",
        "a and b",
        "a, b and c",
        "",
    ]


def test_settings_are_counted_in_words_that_fit_their_number() -> None:
    assert [over_settings(n) for n in (0, 1, 3)] == ["", ", in the one setting that has pairs", ", over 3 settings"]
    assert settings_favour(0, 0, "b") == "No setting has pairs."
    assert settings_favour(1, 1, "b") == "The one setting that has pairs favours b."
    assert settings_favour(0, 1, "b") == "The one setting that has pairs does not favour b."
    assert settings_favour(1, 3, "b") == "1 of 3 settings favours b."
    assert settings_favour(2, 3, "b") == "2 of 3 settings favour b."


UP6 = np.array([0.0035, 0.0031, 0.004, 0.0029, 0.0036, 0.003])
EVIDENCE = Evidence(
    endpoint=Endpoint("test/spearman", 64),
    criteria=Criteria(alpha=0.05, margin=None),
    differences=UP6,
    sign=sign_test(UP6),
    adjusted_p=1 / 32,
    equivalent=False,
)


def said(e: Evidence) -> str:
    return verdict_sentence(e, treatment="b", baseline="a", place="")


def test_the_crossed_interval_decides_how_far_better_reaches() -> None:
    better = "b is better than a on test/spearman_64, on this test set: +0.0034 (6 of 6 seeds favour b; p = 0.0312); "
    assert said(EVIDENCE) == f"{better}without stored predictions nothing is said about new sentences."
    wide = replace(EVIDENCE, crossed_ci95=(-0.001, 0.008))
    assert said(wide) == f"{better}the 95% interval over seeds and test examples -0.0010 to +0.0080 includes 0."
    blocked = replace(wide, examples_needed=12_345)
    assert (
        said(blocked)
        == f"{better}only more test examples, about 12,345 in all (80% power), can show more; further seeds cannot."
    )
    assert said(replace(EVIDENCE, crossed_ci95=(0.001, 0.006))).startswith("b is better than a on test/spearman_64: ")


def test_p_and_an_interval_on_opposite_sides_are_mixed() -> None:
    assert said(replace(EVIDENCE, crossed_ci95=(-0.009, -0.001))).startswith("Mixed: b and a differ in opposite")


def test_a_variant_that_fails_by_itself_is_named() -> None:
    text = said(replace(EVIDENCE, failed=frozenset({"treatment"})))
    assert text.endswith("while b fails by itself on some seeds it is called neither better nor equivalent.")


def test_holm_over_comparisons_is_said_with_the_floor() -> None:
    two = replace(EVIDENCE, adjusted_p=1 / 16, factor=2)
    assert "smallest attainable p is 0.0625 (Holm over 2 comparisons), above alpha 0.05; at least 7 seeds" in said(two)


def test_a_sequential_study_speaks_of_e() -> None:
    early = replace(EVIDENCE, criteria=Criteria(alpha=0.05, margin=None, hypotheses=2, sequential=True))
    assert "E = 14.4 of 40); so few seeds cannot bring E to its threshold; at least 8 seeds are needed." in said(early)
