"""What the report says, in plain words, one line each. No numbers are made here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from analysis.comparing.findings import Interval, OnePairFinding, Verdict

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


def joined(parts: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1]))) if parts else ""


def endpoints_text(endpoints: Sequence[str]) -> str:
    """`test/spearman at 32, 64 and 128`, metric by metric."""
    by_metric: dict[str, list[str]] = {}
    for name in endpoints:
        metric, _, dim = name.rpartition("_")
        by_metric.setdefault(metric, []).append(dim)
    return "; ".join(
        f"{metric}_{dims[0]}" if len(dims) == 1 else f"{metric} at {joined(dims)}" for metric, dims in by_metric.items()
    )


def verdict_sentence(
    verdict: Verdict,
    *,
    treatment: str,
    baseline: str,
    where: str,
    wins: int,
    losses: int,
    ties: int,
    n_pairs: int,
    mean: float | None,
    evidence: str,
    crossed: Interval | None,
    margin: float | None,
    smallest_p: float,
    alpha: float,
    seeds_needed: int,
    reachable: bool,
    conflict: str | None = None,
    blocked_by_examples: int | None = None,
    crossed_known: bool = True,
    failed: Sequence[str] = (),
    power_at_margin: float | None = None,
    seeds_at_margin: int | None = None,
    sequential: bool = False,
    hypotheses: int = 1,
    comparisons: int = 1,
) -> str:
    """One sentence for one verdict.

    Args:
        verdict: The verdict.
        treatment: Variant under test.
        baseline: What it is compared with.
        where: `on test/spearman_512`, with the setting where there are several.
        wins: Untied seeds that favour the treatment.
        losses: Untied seeds that favour the baseline.
        ties: Tied seeds.
        n_pairs: Pairs.
        mean: Mean difference.
        evidence: `p = 0.0312` or `E = 26.8`.
        crossed: Crossed 95% interval.
        margin: Declared margin.
        smallest_p: Smallest attainable p.
        alpha: Error rate.
        seeds_needed: Seeds whose floor can reach alpha.
        reachable: This many seeds can reach alpha (or the threshold of E).
        conflict: Why the comparison is refused.
        blocked_by_examples: Test examples needed, where only these can make it better.
        crossed_known: A crossed interval was computed.
        failed: Variants that failed by themselves on some seed.
        power_at_margin: Power of the t test at the margin.
        seeds_at_margin: Seeds for 80% of it.
        sequential: A sequential study.
        comparisons: Comparisons that p is corrected for.
        hypotheses: Primary endpoints x comparisons for which the crossed interval holds at once.
    """
    favour = counts(wins, losses, ties, treatment, baseline)
    mean_text = signed(mean)
    pair = f"{treatment} and {baseline}"
    kind = "95% interval over seeds and test examples"
    if hypotheses > 1:
        kind = f"interval over seeds and test examples, 95% jointly over {hypotheses} endpoints,"
    over = f"{kind} {interval_text(crossed)}" if crossed else ""
    if verdict == "cannot_decide":
        if conflict:
            why = conflict
        elif n_pairs < 2:
            why = f"there {'is only 1 pair' if n_pairs == 1 else 'are no pairs'}, and at least 2 are needed"
        else:
            why = "all differences are 0; was one checkpoint evaluated twice?"
        return f"{treatment} against {baseline} {where} cannot be decided: {why}{'' if why.endswith('?') else '.'}"
    if verdict == "mixed":
        return (
            f"Mixed: {pair} differ in opposite directions {where} ({favour}; mean difference {mean_text}; {evidence})."
        )
    if verdict in ("better", "worse"):
        return f"{treatment} is {verdict} than {baseline} {where}: {mean_text} ({favour}; {evidence}; {over})."
    if verdict in ("better_on_this_test_set", "worse_on_this_test_set"):
        word = verdict.split("_")[0]
        if blocked_by_examples is not None:
            limit = f"only more test examples, about {blocked_by_examples:,}, can show more; further seeds cannot"
        elif crossed_known:
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
        why = (
            _floor_too_high(smallest_p, alpha, seeds_needed, comparisons=comparisons, sequential=sequential)
            if not reachable
            else _power_too_low(margin or 0.0, power_at_margin, seeds_at_margin, None if sequential else smallest_p)
        )
        text = f"{opening}; {why}"
    elif margin is not None:
        text = f"{opening}; neither a difference nor equivalence within {margin:g} is shown"
    else:
        text = f"{opening}; no margin was declared, so equivalence is not tested"
    if failed:
        text += f"; while {joined(failed)} fails by itself on some seeds it is called neither better nor equivalent"
    return f"{text}."


def _floor_too_high(smallest_p: float, alpha: float, seeds_needed: int, *, comparisons: int, sequential: bool) -> str:
    holm = f" (Holm over {comparisons} comparisons)" if comparisons > 1 else ""
    limit = f"the smallest attainable p is {p_text(smallest_p)}{holm}, above alpha {alpha:g}"
    if sequential:
        limit = "so few seeds cannot bring E to its threshold"
    return f"{limit}; at least {seeds_needed} seeds are needed"


def _power_too_low(margin: float, power: float | None, seeds_needed: int | None, smallest_p: float | None) -> str:
    shown = "" if power is None else f", {power:.2f},"
    needed = f"about {seeds_needed} seeds are needed" if seeds_needed else "more seeds are needed"
    floor = "" if smallest_p is None else f" (smallest attainable p {p_text(smallest_p)})"
    return f"the power to see a difference of {margin:g}{shown} is under 0.8; {needed}{floor}"


def counts(wins: int, losses: int, ties: int, treatment: str, baseline: str) -> str:
    """`5 of 5 seeds favour interleaved`; the variant with more seeds is named."""
    total = wins + losses + ties
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
    """No verdict for an endpoint that was not declared."""
    total = wins + losses + ties
    return f"{endpoint} is exploratory: mean difference {signed(mean)}, {wins} of {total} seeds favour the treatment."


def failure_lead(failures: Mapping[str, Sequence[int]]) -> str:
    """What the first line of a report begins with while a variant fails by itself."""
    parts = [
        f"{variant} failed by itself on seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
        for variant, seeds in failures.items()
    ]
    return f"{'; '.join(parts)}, which counts as a loss." if parts else ""


def one_pair_sentence(found: OnePairFinding | None) -> str:
    """What test examples alone say where one seed exists; says nothing about other seeds."""
    if found is None or found.zou_ci95 is None:
        return ""
    return (
        f" In this one trained pair the noise of {found.n_examples:,} test examples alone leaves "
        f"{interval_text(found.zou_ci95)} (95%, Zou); what another seed would give is unknown."
    )
