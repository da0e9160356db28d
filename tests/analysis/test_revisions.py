"""Which revisions of a variant there are, how they are numbered, and which one a report shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from analysis import schema
from analysis.revisions import (
    Content,
    Meant,
    TrainedRun,
    content_of,
    current_numbers,
    numbers_for,
    revisions,
    shown_by_name,
    shown_now,
)

PLACE = ("mine", "default")


def run(
    name: str,
    *,
    code: str = "c1",
    epochs: int = 1,
    seed: int = 0,
    variant: str = "mine",
    setting: str = "default",
    start: int = 0,
    number: int | None = None,
    finished: bool = True,
) -> TrainedRun:
    fields = {"epochs": epochs, "seed": seed}
    return TrainedRun(
        run_id=name,
        start_ms=start * 60_000,
        finished=finished,
        tags={
            schema.TAG_CELL: f"{variant} {setting} {code} {epochs} {seed}",
            schema.TAG_VARIANT: variant,
            schema.TAG_SETTING: setting,
            schema.TAG_SEED: str(seed),
            schema.TAG_FIELDS: json.dumps(fields),
            schema.TAG_DIGEST_PREFIX + "module:own": code,
            **({} if number is None else {schema.TAG_REVISION: str(number)}),
        },
    )


def content(code: str = "c1", epochs: int = 1) -> Content:
    return Content(fields={"epochs": epochs}, digests={"module:own": code})


def meant(contents: Mapping[tuple[str, str], Content]) -> Meant:
    return Meant(file="study.yaml", contents=contents)


def numbers(runs: list[TrainedRun]) -> dict[str, int]:
    return {r.run_id: one.number for group in revisions(runs).values() for one in group for r in one.runs}


def test_the_seed_is_no_part_of_what_was_trained() -> None:
    assert content_of(run("a", seed=1).tags) == content_of(run("b", seed=2).tags) == content()


def test_what_cannot_be_read_here_is_not_held_against_a_run() -> None:
    unread = Content(fields={"epochs": 1}, digests={})
    assert unread.fits(content())
    assert not unread.fits(content(epochs=2))


def test_runs_without_a_number_are_counted_as_they_were_first_trained() -> None:
    runs = [run("b", code="c2", start=5), run("a", start=1), run("a2", seed=1, start=9), run("c", code="c3", start=7)]
    assert numbers(runs) == {"a": 1, "a2": 1, "b": 2, "c": 3}


def test_a_number_that_was_given_stands_and_is_never_shared() -> None:
    runs = [run("a", code="c2", number=4, start=1), run("b", start=2, number=4)]
    assert numbers(runs) == {"a": 4, "b": 5}


def test_what_was_trained_before_keeps_its_number() -> None:
    known = revisions([run("a", start=1), run("b", code="c2", start=2)])
    assert numbers_for({PLACE: content()}, known) == {PLACE: 1}
    assert numbers_for({PLACE: content("c2")}, known) == {PLACE: 2}
    assert numbers_for({PLACE: content("c3")}, known) == {PLACE: 3}
    assert numbers_for({("other", "default"): content()}, known) == {("other", "default"): 1}


def test_all_settings_of_an_edited_variant_get_one_number() -> None:
    small, large = ("mine", "small"), ("mine", "large")
    known = revisions(
        [
            run("a", setting="small", start=1),
            run("b", setting="small", code="c2", start=2),
            run("c", setting="large", epochs=2, start=3),
        ]
    )
    assert numbers_for({small: content("c3"), large: content("c3", 2)}, known) == {small: 3, large: 3}


def test_a_setting_that_is_merely_added_belongs_to_the_revision_that_there_is() -> None:
    small, large = ("mine", "small"), ("mine", "large")
    known = revisions([run("a", setting="small", start=1), run("b", setting="small", code="c2", start=2)])
    assert numbers_for({small: content("c2"), large: content("c2", 2)}, known) == {small: 2, large: 2}


TWO = [run("old0", start=1), run("old1", seed=1, start=2), run("new0", code="c2", number=2, start=60)]


@pytest.mark.parametrize(
    ("contents", "launched", "wanted"),
    [
        ({PLACE: content("c2")}, {}, {"new0"}),
        ({PLACE: content()}, {}, {"old0", "old1"}),
        (None, {}, {"new0"}),
        (None, {"mine": 1}, {"old0", "old1"}),
        ({PLACE: content("c3")}, {"mine": 1}, {"old0", "old1"}),
        ({PLACE: content("c3")}, {}, {"new0"}),
    ],
)
def test_the_file_decides_then_the_last_launch_then_the_last_training(
    contents: Any, launched: dict[str, int], wanted: set[str]
) -> None:
    found = shown_now(TWO, None if contents is None else meant(contents), launched=launched)
    assert found.run_ids == wanted


def test_other_revisions_are_named_with_their_times_and_how_to_compare() -> None:
    (line,) = shown_now(TWO, meant({PLACE: content("c2")})).warnings
    assert line == (
        "mine was edited: shown is mine@2, and no p-value is corrected for earlier looks at mine@1 (2 finished cells,"
        " 1970-01-01 00:01 to 00:02 UTC, differs in module own). To compare: --variants mine@1,mine@2."
    )


def test_a_file_that_nothing_was_trained_of_is_said_with_what_differs() -> None:
    first, _ = shown_now(TWO, meant({PLACE: content("c2", epochs=3)})).warnings
    assert first == (
        "mine in study.yaml is not what is recorded: it differs in epochs (3, recorded 1). Shown is mine@2, trained"
        " 1970-01-01 01:00 UTC; sweep run study.yaml trains what the file means."
    )


def test_one_revision_gives_no_warning() -> None:
    assert shown_now(TWO[:2], meant({PLACE: content()})).warnings == ()
    assert shown_now(TWO[:2]).warnings == ()


def test_failed_runs_of_another_revision_are_not_shown() -> None:
    runs = [run("old", finished=False, start=1), run("new", code="c2", number=2, start=2)]
    found = shown_now(runs, meant({PLACE: content("c2")}))
    assert found.run_ids == {"new"}
    assert found.warnings == ()


def test_a_variant_that_was_renamed_in_the_file_alone_is_still_found() -> None:
    found = shown_now(TWO, meant({("renamed", "default"): content()}), launched={"mine": 2})
    assert found.run_ids == {"old0", "old1"}


def test_a_file_that_cannot_be_read_is_said() -> None:
    found = shown_now(TWO, Meant(file="study.yaml", contents={}, problem="seeds: 0 is not valid"))
    assert found.run_ids == {"new0"}
    assert "study.yaml cannot be read (seeds: 0 is not valid)" in found.warnings[0]


def test_two_revisions_by_name_are_two_variants_that_may_differ_in_what_was_edited() -> None:
    runs = [*TWO, run("e0", epochs=5, number=3, start=99), run("base0", variant="base", start=1)]
    now = shown_now(runs)
    found = shown_by_name(runs, now, ["mine@1", "mine@3"])
    assert found.names == {"old0": "mine@1", "old1": "mine@1", "e0": "mine@3"}
    assert found.edited == ("epochs",)
    assert found.warnings == ("mine@3 differs from mine@1 in epochs (5, recorded 1).",)
    assert shown_by_name(runs, now, ["base", "mine"]).run_ids == {"base0", "e0"}
    with pytest.raises(ValueError, match=r"'mine@9' is not recorded; recorded: base@1, mine@1, mine@2, mine@3"):
        shown_by_name(runs, now, ["base", "mine@9"])


def test_a_variant_that_is_called_like_a_revision_is_taken_whole() -> None:
    runs = [run("a", variant="mine@2", start=1)]
    assert shown_by_name(runs, shown_now(runs), ["mine@2"]).run_ids == {"a"}


def test_what_the_last_launch_meant_stands_on_the_study_run() -> None:
    first = {f"{schema.HISTORY_TAG_REVISIONS}0000": json.dumps({"time": "t", "current": {"mine": 1}})}
    second = {f"{schema.HISTORY_TAG_REVISIONS}0001": json.dumps({"time": "t", "current": {"mine": 2}})}
    assert current_numbers({**first, **second}) == {"mine": 2}
    assert current_numbers({}) == current_numbers({f"{schema.HISTORY_TAG_REVISIONS}0000": "broken"}) == {}
