"""The `search:` block: what it accepts, and the line that names what it does not."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from sweep.study.search_block import Range, SearchBlock, number_of_points, rounded

VALID: dict[str, Any] = {
    "space": {"learning_rate": {"low": "1e-6", "high": 1e-4, "log": True}, "batch_size": [16, "32"]},
    "trials": 12,
    "seeds": [100, 101],
    "endpoint": "validation/spearman_64",
}


def problem(**changed: Any) -> tuple[str, Any, str]:
    """(place, value, what is allowed) of the first error."""
    with pytest.raises(ValidationError) as caught:
        SearchBlock.model_validate({**VALID, **changed})
    first = caught.value.errors()[0]
    context = first.get("ctx") or {}
    place = [*first["loc"], *context.get("at", ())]
    return ".".join(map(str, place)), context.get("value", first["input"]), context.get("allowed", first["msg"])


def test_numbers_become_numbers_of_their_training_field() -> None:
    search = SearchBlock.model_validate(VALID)
    assert search.space == {"learning_rate": Range(low=1e-6, high=1e-4, log=True), "batch_size": (16, 32)}
    assert search.seeds == (100, 101)
    assert SearchBlock.model_validate(search.model_dump(mode="json")) == search


@pytest.mark.parametrize(
    ("domain", "place", "value", "allowed"),
    [
        ({"low": 1e-4, "high": 1e-6}, ".low", 1e-4, "expected a number below high: 1e-06"),
        ({"low": 0, "high": 1e-4, "log": True}, ".low", 0.0, "log: true needs a low above 0"),
        ({"low": 1e-6}, "", {"low": 1e-6}, "expected {low, high, log}; high is missing"),
        ({"low": 1e-6, "high": 1e-4, "log": "yes"}, ".log", "yes", "expected true or false"),
        ({"low": -1, "high": 1e-4}, ".low", -1, "expected a number not below 0"),
        ([1e-5], "", [1e-5], "expected at least two choices"),
        ([1e-5, "1e-5"], ".1", 1e-5, "it is listed twice"),
        ([1e-5, -1], ".1", -1, "expected a number not below 0"),
        ("2e-5", "", "2e-5", "expected {low, high, log} or a list of choices"),
    ],
)
def test_a_wrong_domain_is_named(domain: Any, place: str, value: Any, allowed: str) -> None:
    assert problem(space={"learning_rate": domain}) == (f"space.learning_rate{place}", value, allowed)


def test_unknown_names_are_refused_with_a_suggestion() -> None:
    place, _, allowed = problem(space={"learning_rat": [1e-5, 2e-5]})
    assert place == "space.learning_rat"
    assert "did you mean 'learning_rate'?" in allowed
    place, _, allowed = problem(space={"learning_rate": {"low": 1e-6, "high": 1e-4, "step": 1}})
    assert place == "space.learning_rate.step"
    assert "allowed here: high, log, low" in allowed


def test_a_range_does_not_fit_a_field_that_is_not_a_number() -> None:
    place, _, allowed = problem(space={"lr_scheduler_type": {"low": 0, "high": 1}})
    assert (place, allowed) == ("space.lr_scheduler_type", "a range does not fit this field; give a list of choices")


def test_the_endpoint_and_the_seeds_are_checked() -> None:
    assert problem(endpoint="spearman")[2] == "expected split/metric_dim, such as validation/spearman_64"
    assert problem(seeds=[1, 1])[2] == "it is listed twice"
    assert problem(trials=0)[0] == "trials"


def test_a_budget_larger_than_a_finite_space_is_refused() -> None:
    space = {"batch_size": [8, 16, 32], "warmup_steps": {"low": 0, "high": 2}}
    assert number_of_points(SearchBlock.model_validate({**VALID, "space": space, "trials": 9}).space) == 9
    assert problem(space=space, trials=10) == ("trials", 10, "the space has only 9 different points")


def test_rounding_stays_inside_the_range() -> None:
    domain = Range(low=1.23456789e-6, high=9.87654321e-5)
    assert rounded(1.23456799e-5, domain) == 1.23457e-5
    assert rounded(domain.low, domain) == 1.23457e-6
    assert rounded(domain.high, domain) == 9.87654e-5
    assert rounded(1.2345649e-6, Range(low=1.2345649e-6, high=1.0)) == 1.2345649e-6  # rounding would leave the range
