"""What the report says, in plain words, one line each; no statistics are computed here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from analysis import schema
from analysis.comparing.findings import CrossedFinding, Interval, OnePairFinding, Verdict

if TYPE_CHECKING:  # a report from the cache says its words without scipy
    from analysis.comparing.verdict import Evidence

NULL_HYPOTHESIS = (
    "The null hypothesis is that within a seed the two labels are exchangeable (differences are symmetric about 0)."
)
METHOD_FIXED = (
    "Each seed trains both variants from the same start on the same examples, and its difference is the unit of "
    "evidence; whole seeds are sign-flipped over all primary endpoints at once (Westfall-Young step-down).",
    "`better` and `worse` without `on this test set` also need a 95% interval over seeds and test sentences that "
    "excludes 0, because agreement over seeds says nothing about new sentences when all seeds share one test set.",
    "Equivalence is claimed only against the declared margin; endpoints that were not declared primary get no verdict.",
)
METHOD_SEQUENTIAL = (
    "Each seed trains both variants from the same start on the same examples; after each seed the e-value of the sign "
    "test is compared with m / alpha, which stays valid however often one looks.",
    METHOD_FIXED[1],
    METHOD_FIXED[2],
)
_SHORT = {
    "cannot_decide": "cannot be decided",
    "different_but_negligible": "different but negligible",
    "different_but_negligible_on_this_test_set": "different but negligible on this test set",
    "better_on_this_test_set": "better on this test set",
    "worse_on_this_test_set": "worse on this test set",
    "equivalent_on_this_test_set": "equivalent on this test set",
    "undecided_underpowered": "undecided",
}


def signed(value: float | None) -> str:
    """`+0.0035`, `-0.00021`: four decimals, more where they would leave fewer than two digits of the value."""
    if value is None:
        return "undefined"
    size = abs(value)
    if size == 0:
        return "0"
    if size < 1e-6:
        return f"{value:+.1e}"
    return f"{value:+.{max(4, 1 - math.floor(math.log10(size)))}f}"


def p_text(p: float | None) -> str:
    """`0.0312`, in plain digits as far as they go."""
    if p is None:
        return "undefined"
    return f"{p:.4f}".rstrip("0").rstrip(".") if p >= 0.001 else f"{p:.1e}"


def interval_text(interval: Interval) -> str:
    """`+0.0010 to +0.0042`."""
    return f"{signed(interval[0])} to {signed(interval[1])}"


def examples_text(found: CrossedFinding) -> str:
    """`1,588 test examples`, `4,420 test examples in 59 clusters`."""
    clusters = "" if found.n_clusters is None else f" in {found.n_clusters:,} clusters"
    return f"{found.n_examples:,} test examples{clusters}"


def joined(parts: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1]))) if parts else ""


def endpoints_text(endpoints: Sequence[str]) -> str:
    """`test/spearman at 32, 64 and 128`, metric by metric."""
    by_metric: dict[str, list[schema.Endpoint]] = {}
    for name in endpoints:
        endpoint = schema.endpoint_named(name)
        by_metric.setdefault(endpoint.metric, []).append(endpoint)
    return "; ".join(
        str(same[0]) if len(same) == 1 else f"{metric} at {joined([str(e.dim) for e in same])}"
        for metric, same in by_metric.items()
    )


def verdict_sentence(e: Evidence, *, treatment: str, baseline: str, place: str) -> str:
    """One sentence for the verdict of one primary endpoint.

    Args:
        e: The evidence, with its verdict.
        treatment: Variant under test.
        baseline: What it is compared with.
        place: `, setting x` where there are several, else empty.
    """
    verdict, sign, criteria = e.verdict, e.sign, e.criteria
    margin, threshold, crossed = criteria.margin, criteria.e_threshold, e.crossed_ci95
    where = f"on {e.endpoint}{place}"
    evidence = f"E = {e.e_value:.3g} of {threshold:g}" if threshold else f"p = {p_text(e.adjusted_p)}"
    favour = counts(sign.wins, sign.losses, sign.ties, treatment, baseline)
    mean_text = signed(e.mean)
    pair = f"{treatment} and {baseline}"
    kind = "95% interval over seeds and test examples"
    if criteria.hypotheses > 1:
        kind = f"interval over seeds and test examples, 95% jointly over {criteria.hypotheses} endpoints,"
    over = f"{kind} {interval_text(crossed)}" if crossed else ""
    if verdict == "cannot_decide":
        if e.conflict:
            why = e.conflict
        elif e.n_pairs < 2:
            why = f"there {'is only 1 pair' if e.n_pairs == 1 else 'are no pairs'}, and at least 2 are needed"
        else:
            why = "all differences are 0; was one checkpoint evaluated twice?"
        return f"{treatment} against {baseline} {where} cannot be decided: {why}{'' if why.endswith('?') else '.'}"
    if verdict == "mixed" and e.opposed_settings is not None:
        return (
            f"Mixed: which of {pair} scores higher {where}, depends on the setting: {e.opposed_settings}"
            f" (mean difference {mean_text}, which speaks for no setting)."
        )
    if verdict == "mixed":
        return (
            f"Mixed: {pair} differ in opposite directions {where} ({favour}; mean difference {mean_text}; {evidence})."
        )
    if verdict in ("better", "worse"):
        return f"{treatment} is {verdict} than {baseline} {where}: {mean_text} ({favour}; {evidence}; {over})."
    if verdict in ("better_on_this_test_set", "worse_on_this_test_set"):
        word = verdict.split("_")[0]
        if e.repeated:
            limit = f"all {e.n_pairs} seeds gave the same scores, which is the evidence of one"
        elif e.examples_needed is not None:
            limit = (
                f"only more test examples, about {e.examples_needed:,} in all (80% power), can show more; further "
                "seeds cannot"
            )
        elif crossed:
            limit = f"the {over} includes 0"
        else:
            limit = "without stored predictions nothing is said about new sentences"
        opening = f"{treatment} is {word} than {baseline} {where}, on this test set"
        return f"{opening}: {mean_text} ({favour}; {evidence}); {limit}."
    if verdict in ("different_but_negligible", "different_but_negligible_on_this_test_set"):
        tail = "" if verdict == "different_but_negligible" else ", on this test set"
        return (
            f"{pair} differ {where}, but by less than the margin {margin:g}{tail}: {mean_text} ({favour}; {evidence})."
        )
    if verdict in ("equivalent", "equivalent_on_this_test_set"):
        tail = "" if verdict == "equivalent" else ", on this test set"
        return f"{pair} are equivalent {where} within the margin {margin:g}{tail}: {mean_text} ({favour})."
    opening = f"Undecided: {favour} {where} (mean difference {mean_text}; {evidence})"
    if verdict == "undecided_underpowered":
        why = _power_too_low(e) if e.can_be_significant else _floor_too_high(e)
        text = f"{opening}; {why}"
    elif margin is not None:
        text = f"{opening}; neither a difference nor equivalence within {margin:g} is shown"
    else:
        text = f"{opening}; no margin was declared, so equivalence is not tested"
    if e.failed:
        names = {"treatment": treatment, "baseline": baseline}
        who = joined([names[side] for side in sorted(e.failed)])
        text += f"; while {who} fails by itself on some seeds it is called neither better nor equivalent"
    if e.untrained and e.equivalent:
        names = {"treatment": treatment, "baseline": baseline}
        who = joined([names[side] for side in sorted(e.untrained)])
        text += f"; {who} did not train (no gradient in any step), so equivalence is not claimed"
    return f"{text}."


def _floor_too_high(e: Evidence) -> str:
    holm = f" (Holm over {e.factor} comparisons)" if e.factor > 1 else ""
    limit = f"the smallest attainable p is {p_text(e.floor)}{holm}, above alpha {e.criteria.alpha:g}"
    if e.criteria.sequential:
        limit = "so few seeds cannot bring E to its threshold"
    return f"{limit}; at least {e.seeds_to_reach_alpha} seeds are needed"


def _power_too_low(e: Evidence) -> str:
    shown = "" if e.power_at_margin is None else f", {e.power_at_margin:.2f},"
    if e.examples_at_margin is not None:
        return (
            f"the power to see a difference of {e.criteria.margin or 0.0:g}{shown} is under 0.8, and no number of "
            f"seeds lifts it: about {e.examples_at_margin:,} test examples in all are needed (80% power)"
        )
    seeds = e.seeds_at_margin
    needed = f"about {seeds} seeds are needed" if seeds else "more seeds are needed"
    floor = "" if e.criteria.sequential else f" (smallest attainable p {p_text(e.floor)})"
    return f"the power to see a difference of {e.criteria.margin or 0.0:g}{shown} is under 0.8; {needed}{floor}"


def leading(verdict: Verdict, primaries: Sequence[Evidence]) -> int:
    """Position of the primary whose sentence speaks for the comparison: its verdict, then p, then agreement."""
    order = sorted(
        range(len(primaries)),
        key=lambda j: (
            primaries[j].verdict != verdict,
            primaries[j].adjusted_p,
            -abs(primaries[j].sign.wins - primaries[j].sign.losses),
        ),
    )
    return order[0] if order else 0


def sentence_of(
    verdict: Verdict, primaries: Sequence[Evidence], lead: int, *, treatment: str, baseline: str, place: str
) -> str:
    """The comparison's sentence: its leading primary's, then verdict and counts of every other primary."""
    if not primaries:
        return f"{treatment} against {baseline}{place} cannot be decided: there are no finished pairs."
    if verdict == "mixed" and primaries[lead].verdict != "mixed":
        up = sum(e.significant and e.direction > 0 for e in primaries)
        down = sum(e.significant and e.direction < 0 for e in primaries)
        return (
            f"Mixed: {treatment} and {baseline} differ in opposite directions over the primary endpoints{place} "
            f"({up} favour {treatment}, {down} favour {baseline})."
        )
    first = verdict_sentence(primaries[lead], treatment=treatment, baseline=baseline, place=place)
    others = [e for j, e in enumerate(primaries) if j != lead]
    if not others or all(e.verdict == "cannot_decide" for e in primaries):
        return first
    one_metric = len({e.endpoint.metric for e in primaries}) == 1 and all(e.endpoint.dim for e in primaries)
    listed = _others(others, treatment=treatment, baseline=baseline, one_metric=one_metric)
    return f"{first} The other primaries (same trained models): {listed}."


def _others(others: Sequence[Evidence], *, treatment: str, baseline: str, one_metric: bool) -> str:
    """`undecided at 256 and 512 (5 of 5 seeds favour b) and at 32 (3 of 5 seeds favour a)`."""
    groups: dict[str, dict[str, list[Evidence]]] = {}
    for e in sorted(others, key=lambda e: -abs(e.sign.wins - e.sign.losses)):
        count = counts(e.sign.wins, e.sign.losses, e.sign.ties, treatment, baseline)
        groups.setdefault(_SHORT.get(e.verdict, e.verdict), {}).setdefault(count, []).append(e)
    return "; ".join(
        f"{word} {joined([f'{_where(same, one_metric=one_metric)} ({count})' for count, same in by_count.items()])}"
        for word, by_count in groups.items()
    )


def _where(primaries: Sequence[Evidence], *, one_metric: bool) -> str:
    if one_metric:
        return f"at {joined([str(e.endpoint.dim) for e in primaries])}"
    return f"on {joined([str(e.endpoint) for e in primaries])}"


def counts(wins: int, losses: int, ties: int, treatment: str, baseline: str) -> str:
    """`5 of 5 seeds favour interleaved`; the variant with more seeds is named."""
    total = wins + losses + ties
    if not total:
        return "no seed has a pair"
    tied = f", {ties} tied" if ties else ""
    if wins == losses:
        return f"{wins} of {total} seeds favour each{tied}" if wins else f"all {total} seeds are tied"
    leader, most = (treatment, wins) if wins > losses else (baseline, losses)
    return f"{most} of {total} seeds favour {leader}{tied}"


def over_settings(used: int) -> str:
    """Where a verdict across settings holds: `, over 3 settings`; `used` is how many of them have pairs."""
    if used == 1:
        return ", in the one setting that has pairs"
    return f", over {used} settings" if used else ""


def settings_favour(favouring: int, used: int, variant: str) -> str:
    """`2 of 3 settings favour interleaved.`; `used` is how many of them have pairs."""
    if used == 0:
        return "No setting has pairs."
    if used == 1:
        return f"The one setting that has pairs {'favours' if favouring else 'does not favour'} {variant}."
    return f"{favouring} of {used} settings {'favours' if favouring == 1 else 'favour'} {variant}."


def exploratory_sentence(endpoint: str, *, mean: float | None, wins: int, losses: int, ties: int) -> str:
    """Mean difference and wins of an endpoint that gets no verdict."""
    total = wins + losses + ties
    return f"{endpoint} is exploratory: mean difference {signed(mean)}, {wins} of {total} seeds favour the treatment."


def failure_lead(failures: Mapping[str, Sequence[int]]) -> str:
    """Start of the headline when a variant failed by itself; else empty."""
    parts = [
        f"{variant} failed by itself on seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
        for variant, seeds in failures.items()
    ]
    return f"{'; '.join(parts)}, which counts as a loss." if parts else ""


def undefined_lead(undefined: Mapping[str, Mapping[str, Sequence[int]]]) -> str:
    """Start of the headline where one side's primary scores are not numbers; else empty.

    Args:
        undefined: Variant -> endpoint -> seeds.
    """
    parts = []
    for variant, by_endpoint in undefined.items():
        seeds = sorted({seed for found in by_endpoint.values() for seed in found})
        listed = ", ".join(map(str, seeds)) if len(seeds) <= 10 else f"{seeds[0]} to {seeds[-1]} ({len(seeds)} of them)"
        where = endpoints_text(list(by_endpoint))
        parts.append(f"{variant} has no defined score ({where}) on seed{'s' if len(seeds) > 1 else ''} {listed}")
    return f"{'; '.join(parts)}, which counts as a loss." if parts else ""


def contradiction_lead(count: int, endpoints: Sequence[str]) -> str:
    """Start of the headline where recorded scores contradict their stored predictions; else empty."""
    if not count:
        return ""
    what = "1 seed is not used: a recorded score contradicts its"
    if count > 1:
        what = f"{count} seeds are not used: recorded scores contradict their"
    return f"{what} stored predictions ({endpoints_text(endpoints)})."


FEW_CLUSTERS = 30
"""Below about this many clusters a variance over them is itself uncertain (Cameron and Miller 2015)."""


def few_clusters(endpoints: Sequence[str], clusters: int) -> str:
    """A warning where the interval over test examples rests on few clusters."""
    return (
        f"The test examples of {endpoints_text(endpoints)} come in {clusters} clusters; below about {FEW_CLUSTERS}"
        " the interval over them can be too narrow, though its degrees of freedom are those of the clusters."
    )


def one_pair_sentence(found: OnePairFinding | None) -> str:
    """What test examples alone say where one seed exists; says nothing about other seeds."""
    if found is None or found.zou_ci95 is None:
        return ""
    return (
        f" In this one trained pair the noise of {found.n_examples:,} test examples alone leaves "
        f"{interval_text(found.zou_ci95)} (95%, Zou); what another seed would give is unknown."
    )
