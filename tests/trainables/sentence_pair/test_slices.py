from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from trainables.sentence_pair.slices import overhead_tokens, plan_slices


def cost(lengths: list[int], slices: list[list[int]], overhead: float) -> float:
    return sum(overhead + len(one) * max(lengths[index] for index in one) for one in slices)


@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=9), overhead=st.floats(0.5, 200))
@settings(max_examples=80, deadline=None)
def test_plan_against_enumeration(lengths: list[int], overhead: float) -> None:
    slices = plan_slices(lengths, overhead)
    assert sorted(index for one in slices for index in one) == list(range(len(lengths)))
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    best = min(
        cost(lengths, [order[a:b] for a, b in zip((0, *cuts), (*cuts, len(order)), strict=True)], overhead)
        for count in range(len(order))
        for cuts in combinations(range(1, len(order)), count)
    )
    assert abs(cost(lengths, slices, overhead) - best) < 1e-6


def test_a_tiny_model_is_not_sliced_and_a_large_one_is() -> None:
    lengths = [8] * 32 + [14] * 32
    tiny = overhead_tokens(parameters=70_000, layers=2, threads=1, gpu=False)
    large = overhead_tokens(parameters=85_000_000, layers=12, threads=1, gpu=False)
    assert len(plan_slices(lengths, tiny)) == 1
    assert len(plan_slices(lengths, large)) == 2
