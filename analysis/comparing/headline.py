"""The sentence that speaks for a comparison, made of those of its primary endpoints."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.comparing.endpoint import Ruled
from analysis.comparing.findings import Verdict
from analysis.comparing.wording import counts, joined

_SHORT = {
    "cannot_decide": "cannot be decided",
    "different_but_negligible": "different but negligible",
    "different_but_negligible_on_this_test_set": "different but negligible on this test set",
    "better_on_this_test_set": "better on this test set",
    "worse_on_this_test_set": "worse on this test set",
    "equivalent_on_this_test_set": "equivalent on this test set",
    "undecided_underpowered": "undecided",
}


def leading(verdict: Verdict, ruled: Sequence[Ruled]) -> int:
    """Position of the primary whose sentence speaks for the comparison: its verdict, then p, then agreement."""
    order = sorted(
        range(len(ruled)),
        key=lambda j: (
            ruled[j].verdict != verdict,
            ruled[j].adjusted_p,
            -abs(ruled[j].sign.wins - ruled[j].sign.losses),
        ),
    )
    return order[0] if order else 0


def sentence_of(
    verdict: Verdict, ruled: Sequence[Ruled], lead: int, *, treatment: str, baseline: str, place: str
) -> str:
    """The comparison's sentence: its leading primary's, then verdict and counts of every other primary."""
    if not ruled:
        return f"{treatment} against {baseline}{place} cannot be decided: there are no finished pairs."
    if verdict == "mixed" and ruled[lead].verdict != "mixed":
        up = sum(r.evidence.significant and r.evidence.direction > 0 for r in ruled)
        down = sum(r.evidence.significant and r.evidence.direction < 0 for r in ruled)
        return (
            f"Mixed: {treatment} and {baseline} differ in opposite directions over the primary endpoints{place} "
            f"({up} favour {treatment}, {down} favour {baseline})."
        )
    others = [r for j, r in enumerate(ruled) if j != lead]
    if not others or all(r.verdict == "cannot_decide" for r in ruled):
        return ruled[lead].sentence
    one_metric = len({r.endpoint.metric for r in ruled}) == 1
    listed = _others(others, treatment=treatment, baseline=baseline, one_metric=one_metric)
    return f"{ruled[lead].sentence} The other primaries (same trained models): {listed}."


def _others(others: Sequence[Ruled], *, treatment: str, baseline: str, one_metric: bool) -> str:
    """`undecided at 256 and 512 (5 of 5 seeds favour b) and at 32 (3 of 5 seeds favour a)`."""
    groups: dict[str, dict[str, list[Ruled]]] = {}
    for r in sorted(others, key=lambda r: -abs(r.sign.wins - r.sign.losses)):
        count = counts(r.sign.wins, r.sign.losses, r.sign.ties, treatment, baseline)
        groups.setdefault(_SHORT.get(r.verdict, r.verdict), {}).setdefault(count, []).append(r)
    return "; ".join(
        f"{word} {joined([f'{_where(same, one_metric=one_metric)} ({count})' for count, same in by_count.items()])}"
        for word, by_count in groups.items()
    )


def _where(ruled: Sequence[Ruled], *, one_metric: bool) -> str:
    if one_metric:
        return f"at {joined([str(r.endpoint.dim) for r in ruled])}"
    return f"on {joined([str(r.endpoint) for r in ruled])}"
