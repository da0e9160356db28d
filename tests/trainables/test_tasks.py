"""Entries of `evaluate:`: what may stand there, and what is said where it may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.trainables.conftest import toy_spec
from trainables import tasks
from trainables.digests import resolve_digests
from trainables.downloads import pinned_digest
from trainables.encoder.fetch import pinned
from trainables.tasks import TASKS, WrongSource, read_sources

WRONG: dict[str, tuple[Any, str, str]] = {
    "no mapping": (["stsb-en"], "evaluate", "expected a mapping of names"),
    "no fields": ({"english": "stsb-en"}, "evaluate.english", "expected a mapping, such as"),
    "a slash": ({"a/b": {"name": "toy"}}, "evaluate.a/b", "letters, digits, dots and hyphens"),
    "an underscore": ({"a_b": {"name": "toy"}}, "evaluate.a_b", "letters, digits, dots and hyphens"),
    "a number": ({5: {"name": "toy"}}, "evaluate.5", "letters, digits, dots and hyphens"),
    "too long": ({"a" * 61: {"name": "toy"}}, f"evaluate.{'a' * 61}", "at most 60"),
    "a split's name": ({"test": {"name": "toy"}}, "evaluate.test", "are taken"),
    "what times are called": ({"time": {"name": "toy"}}, "evaluate.time", "are taken"),
    "unknown task": ({"a": {"task": "sentence-pairs"}}, "evaluate.a.task", "did you mean 'sentence-pair'?"),
    "unknown field": ({"a": {"nam": "toy"}}, "evaluate.a.nam", "did you mean 'name'?"),
    "nowhere": ({"a": {}}, "evaluate.a", "either name:"),
    "two places": ({"a": {"name": "toy", "file": "x.csv"}}, "evaluate.a", "or file:"),
    "split of a file": (
        {"a": {"file": "x.csv", "split": "test", "label_range": [0, 1]}}, "evaluate.a.split", "does not go with",
    ),
    "split of a built-in set": ({"a": {"name": "toy", "split": "dev"}}, "evaluate.a.split", "one of train, validation"),
    "no label range": ({"a": {"file": "x.csv"}}, "evaluate.a.label_range", "is required"),
    "label range upside down": (
        {"a": {"file": "x.csv", "label_range": [5, 0]}}, "evaluate.a.label_range", "from low to high",
    ),
    "limit of nothing": ({"a": {"name": "toy", "limit": 0}}, "evaluate.a.limit", "greater than or equal to 1"),
    "unknown columns": ({"a": {"name": "toy", "take": "middle"}}, "evaluate.a.take", "'first', 'last' or 'random'"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_entry_is_named(case: str) -> None:
    given, place, allowed = WRONG[case]
    with pytest.raises(WrongSource) as caught:
        read_sources(given)
    assert ".".join(map(str, ("evaluate", *caught.value.path))) == place
    assert allowed in caught.value.allowed
    assert str(caught.value).startswith(f"{place}: ")


def test_every_task_has_a_reader_and_an_opener() -> None:
    for name, task in TASKS.items():
        kind = tasks.source_class(name)
        assert kind.model_fields["task"].default == name
        assert callable(tasks.opener(name))
        assert task.primary


def test_fields_left_out_are_no_part_of_a_cell() -> None:
    short = toy_spec(evaluate={"english": {"name": "stsb-en"}})
    long = toy_spec(evaluate={"english": {"task": "sentence-pair", "name": "stsb-en", "take": "first", "split": None}})
    assert short.canonical_json() == long.canonical_json()
    assert short.flat()["evaluate.english"] == {"task": "sentence-pair", "take": "first", "name": "stsb-en"}
    assert not [name for name in toy_spec().flat() if name.startswith("evaluate")]


def test_digests_of_named_sets(tmp_path: Path) -> None:
    """Built-in sets by their pinned checksums, files by their contents, and what is not there is unresolved."""
    sets = {
        "english": {"name": "stsb-en"},
        "own": {"file": "own.csv", "label_range": [0, 5]},
        "hub": {"name": "org/set", "label_range": [0, 5]},
        "hub-commit": {"name": "org/set", "revision": "a" * 40, "label_range": [0, 5]},
    }
    spec = toy_spec(evaluate=sets, root=tmp_path)
    found = resolve_digests(spec)
    assert found.evaluate == {"english": pinned_digest("stsb-en"), "hub-commit": "a" * 40}
    assert set(found.unresolved) == {"evaluate:own", "evaluate:hub"}
    (tmp_path / "own.csv").write_text("sentence1,sentence2,label\na,b,1\n")
    first = resolve_digests(spec).evaluate["own"]
    (tmp_path / "own.csv").write_text("sentence1,sentence2,label\na,b,2\n")
    assert resolve_digests(spec).evaluate["own"] not in (first, None)


def test_a_hub_set_is_read_at_the_commit_of_the_cell() -> None:
    spec = toy_spec(evaluate={"hub": {"name": "org/set", "label_range": [0, 5]}, "own": {"name": "toy"}})
    at: Any = pinned(spec, {"evaluate:hub": "b" * 40, "evaluate:own": "no commit"}).evaluate
    assert at["hub"].revision == "b" * 40
    assert at["own"] == spec.evaluate["own"]
