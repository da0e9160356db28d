"""What is said: digits that show the value, counts that are those of the endpoint they are said of."""

from __future__ import annotations

import pytest

from analysis.comparing.wording import counts, interval_text, joined, over_settings, settings_favour, signed


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
