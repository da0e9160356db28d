"""From recorded results to the findings of a study: pair, compare, decide, say so."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from analysis.comparing import wording as sentences
from analysis.comparing.across import decide_across, draft_across
from analysis.comparing.comparison import Draft, decide, draft
from analysis.comparing.endpoint import Frame
from analysis.comparing.example_influence import ExampleStore
from analysis.comparing.findings import (
    AcrossSettings,
    CellCount,
    Comparison,
    ManyVariants,
    Notice,
    PlanUsed,
    StudyFindings,
    VariantPair,
)
from analysis.comparing.pairing import Indexed, index, pair
from analysis.comparing.plan_in_force import plan_in_force
from analysis.comparing.stopping import StoppingRule, until_stopped
from analysis.plan import AnalysisPlan
from analysis.results.model import Problem, Results
from analysis.statistics import paired, sequential
from analysis.statistics.friedman import all_pairs as test_all_pairs
from analysis.statistics.friedman import friedman
from analysis.statistics.joint import over_comparisons


def compare(
    results: Results,
    *,
    plan: AnalysisPlan | None,
    baseline: str | None,
    allow_unverified: bool,
    all_pairs: bool = False,
    rng: np.random.Generator,
) -> StudyFindings:
    """Compare every other variant with the baseline, in every setting and over all of them.

    Args:
        results: What was recorded.
        plan: The plan asked for now; None: the declared one (`results.declared_plan`), else the defaults.
        baseline: A variant's name; None: the declared baseline, else the first variant.
        allow_unverified: Use pairs whose fingerprints are absent or disagree; said on top.
        all_pairs: Also compare all pairs of variants (Holm over paired sign flips).
        rng: For Monte Carlo tests (above 16 seeds) and bootstrap intervals.

    Raises:
        PlanError: an unknown primary endpoint or baseline.
    """
    indexed = index(results)
    used = plan_in_force(results, plan=plan, baseline=baseline, endpoints=indexed.endpoints, variants=indexed.variants)
    if used.stopping == "sequential" and used.baseline is not None:
        rule = StoppingRule(
            primary=used.primary,
            alpha=used.alpha,
            margin=used.margin,
            max_seeds=used.max_seeds,
            baseline=used.baseline,
        )
        results = until_stopped(results, rule, allow_unverified=allow_unverified)
        indexed = index(results)
    treatments = [v for v in indexed.variants if v != used.baseline]
    frame = Frame(
        plan=used,
        hypotheses=max(1, len(used.primary) * len(treatments)),
        signs=paired.SignSource(rng),
        rng=rng,
    )
    drafts = _drafts(results, indexed, treatments, frame, allow_unverified=allow_unverified)
    comparisons = _decide_all(drafts, frame, several_settings=len(indexed.settings) > 1)
    across = _across(indexed, drafts, comparisons, treatments, frame) if len(indexed.settings) > 1 else ()
    spoken = tuple(a.sentence for a in across) or tuple(c.sentence for c in comparisons)
    failures = _failures(comparisons)
    disagreements = dict.fromkeys(text for d in drafts for m in d.endpoints for text in m.disagreements)
    problems = [*results.problems, *(Problem(where="predictions", reason=text) for text in disagreements)]
    undefined = _undefined(comparisons, used.primary)
    contradicted = {(d.setting, m.endpoint, s.seed) for d in drafts for m in d.endpoints for s in m.contradicted}
    wrong = sentences.contradiction_lead(
        len({(s, n) for s, _, n in contradicted}), sorted({str(e) for _, e, _ in contradicted})
    )
    lead = " ".join(filter(None, (sentences.failure_lead(failures), sentences.undefined_lead(undefined))))
    nothing = "There is nothing to compare: " + (
        f"{indexed.variants[0]} is the only variant." if indexed.variants else "no cells were recorded."
    )
    skewed = _skew(comparisons, frame)
    return StudyFindings(
        study=results.study,
        headline=" ".join(filter(None, (lead, wrong, *spoken))) if spoken else nothing,
        sentences=spoken or (nothing,),
        notices=(*_notices(results, used, comparisons, drafts, lead, wrong), *_as_notice(skewed)),
        plan=used,
        baseline=used.baseline,
        comparisons=comparisons,
        across_settings=across,
        many_variants=_many_variants(indexed, drafts, used, wanted=all_pairs, frame=frame),
        settings=indexed.settings,
        cells=_counts(results, indexed),
        problems=tuple(problems),
        null_hypothesis=sentences.NULL_HYPOTHESIS,
        method=sentences.METHOD_SEQUENTIAL if frame.sequential else sentences.METHOD_FIXED,
        skew_warning=skewed,
    )


def _drafts(
    results: Results, indexed: Indexed, treatments: Sequence[str], frame: Frame, *, allow_unverified: bool
) -> list[Draft]:
    examples = ExampleStore(results.predictions, turned=results.turned)
    out = []
    for setting in indexed.settings:
        examples.forget()
        for treatment in treatments:
            pairs = pair(
                indexed,
                treatment=treatment,
                baseline=str(frame.plan.baseline),
                setting=setting,
                fingerprinted=results.fingerprinted,
                allow_unverified=allow_unverified,
            )
            out.append(
                draft(
                    pairs,
                    treatment=treatment,
                    baseline=str(frame.plan.baseline),
                    setting=setting,
                    endpoints=indexed.endpoints,
                    frame=frame,
                    examples=examples,
                )
            )
    return out


def _decide_all(drafts: Sequence[Draft], frame: Frame, *, several_settings: bool) -> tuple[Comparison, ...]:
    """Holm over the treatments of a setting: with several settings the verdict that counts is the one across them."""
    by_setting: dict[str, list[Draft]] = defaultdict(list)
    for d in drafts:
        by_setting[d.setting].append(d)
    out = []
    for family in by_setting.values():
        members = over_comparisons([d.joint.step_down for d in family], alpha=frame.plan.alpha)
        closed = _closed_e(family, frame)
        for d, member, e_closed in zip(family, members, closed, strict=True):
            out.append(decide(d, member, e_closed, frame=frame, several_settings=several_settings))
    return tuple(out)


def _closed_e(family: Sequence[Draft], frame: Frame) -> list[list[float | None]]:
    """Per comparison and primary: e-value after closed testing over all of the setting's; None in a fixed study."""
    if not frame.sequential:
        return [[None] * len(d.primaries) for d in family]
    flat = [sequential.e_value(m.sign.wins, m.sign.losses) for d in family for m in d.primaries]
    adjusted = iter(sequential.e_closed(flat, alpha=frame.plan.alpha).e if flat else ())
    return [[next(adjusted) for _ in d.primaries] for d in family]


def _across(
    indexed: Indexed,
    drafts: Sequence[Draft],
    comparisons: Sequence[Comparison],
    treatments: Sequence[str],
    frame: Frame,
) -> tuple[AcrossSettings, ...]:
    pooled = [draft_across([d for d in drafts if d.treatment == t], frame=frame) for t in treatments]
    members = over_comparisons([p.step_down for p in pooled], alpha=frame.plan.alpha)
    return tuple(
        decide_across(p, member, [c for c in comparisons if c.treatment == t], indexed=indexed, frame=frame)
        for t, p, member in zip(treatments, pooled, members, strict=True)
    )


def _failures(comparisons: Sequence[Comparison]) -> dict[str, list[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for c in comparisons:
        for dropped in c.dropped:
            if dropped.loss_for is not None and dropped.endpoint is None:
                found[dropped.loss_for].add(dropped.seed)
    return {variant: sorted(seeds) for variant, seeds in found.items()}


def _undefined(comparisons: Sequence[Comparison], primary: Sequence[str]) -> dict[str, dict[str, list[int]]]:
    """Variant -> primary endpoint -> seeds on which it alone has no defined score."""
    found: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for c in comparisons:
        for dropped in c.dropped:
            if dropped.loss_for is not None and dropped.endpoint in primary:
                found[dropped.loss_for][str(dropped.endpoint)].append(dropped.seed)
    return found


def _repeated(drafts: Sequence[Draft]) -> list[str]:
    """A sentence per comparison whose seeds all gave the same scores: they are no independent evidence."""
    several = len({d.setting for d in drafts}) > 1
    out = []
    for d in drafts:
        same = [m for m in d.primaries if m.repeated and np.any(paired.snap_ties(m.differences))]
        if same:
            where = sentences.endpoints_text([str(m.endpoint) for m in same])
            place = f", setting {d.setting}" if several else ""
            out.append(
                f"All {same[0].differences.size} seeds of {d.treatment} and {d.baseline} gave the same scores ({where}"
                f"{place}): seeds that change nothing are the evidence of one, and nothing is claimed beyond this test"
                " set."
            )
    return out


def _few_clusters(comparisons: Sequence[Comparison]) -> list[str]:
    """A sentence per number of clusters that is too small for the interval of a primary endpoint."""
    found: dict[int, dict[str, None]] = defaultdict(dict)
    for c in comparisons:
        for e in c.endpoints:
            known = e.crossed.n_clusters if e.crossed is not None else None
            if e.primary and known is not None and known < sentences.FEW_CLUSTERS:
                found[known][e.endpoint] = None
    return [sentences.few_clusters(list(endpoints), clusters) for clusters, endpoints in found.items()]


def _untrained(drafts: Sequence[Draft]) -> list[str]:
    """A sentence per variant that did not train."""
    found: dict[str, set[int]] = defaultdict(set)
    for d in drafts:
        for variant, seeds in d.pairs.untrained.items():
            found[variant].update(seeds)
    return [
        f"{variant} did not train on seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, sorted(seeds)))}: its"
        " loss had no gradient in any step. It is not called equivalent to anything."
        for variant, seeds in found.items()
    ]


def _sequential_limits(plan: PlanUsed, treatments: int) -> list[str]:
    """What in a sequential report does not hold at a stop that the data chose."""
    if plan.stopping != "sequential":
        return []
    out = [
        "Sequential: crossed and t intervals are those of a fixed number of seeds; at a stop that the data chose they"
        " miss the truth more often than they say."
    ]
    if plan.margin is not None:
        several = f" and is not corrected over the {treatments} comparisons" if treatments > 1 else ""
        out.append(f"Sequential: equivalence is about the median difference, not the mean{several}.")
    return out


def _notices(
    results: Results,
    plan: PlanUsed,
    comparisons: Sequence[Comparison],
    drafts: Sequence[Draft],
    failure_lead: str,
    contradiction_lead: str,
) -> tuple[Notice, ...]:
    out = []
    if failure_lead:
        out.append(Notice(kind="failed_by_itself", text=failure_lead))
    if contradiction_lead:
        out.append(Notice(kind="contradiction", text=contradiction_lead))
    out += [Notice(kind="identical_seeds", text=text) for text in _repeated(drafts)]
    out += [
        Notice(kind="data", text=text) for text in _sequential_limits(plan, len({c.treatment for c in comparisons}))
    ]
    out += [Notice(kind="data", text=text) for text in results.warnings]
    out += [
        Notice(kind="data", text=f"{metric}: lower is better, so its scores are shown with the other sign.")
        for metric in results.turned
    ]
    out += [Notice(kind="data", text=text) for text in _few_clusters(comparisons)]
    out += [Notice(kind="untrained", text=text) for text in _untrained(drafts)]
    unverified = sum(c.unverified_pairs for c in comparisons)
    if not results.fingerprinted:
        text = "Paired by seed number, unverified: these results carry no fingerprints."
        out.append(Notice(kind="unverified", text=text))
    elif unverified:
        why = "their fingerprints are absent or disagree, and they were used on request"
        text = f"{unverified} pair{'s are' if unverified > 1 else ' is'} unverified: {why}."
        out.append(Notice(kind="unverified", text=text))
    out += [Notice(kind="exploratory", text=f"Exploratory: {reason}.") for reason in plan.exploratory]
    if plan.default_primary and plan.primary:
        text = f"No primary endpoint was named; primary by default: {sentences.endpoints_text(plan.primary)}."
        out.append(Notice(kind="default_primary", text=text))
    out += [
        Notice(kind="correlation", text=f"{c.seed_correlation_warning[0].upper()}{c.seed_correlation_warning[1:]}.")
        for c in comparisons
        if c.seed_correlation_warning
    ]
    return tuple(out)


def _counts(results: Results, indexed: Indexed) -> tuple[CellCount, ...]:
    return tuple(
        CellCount(variant=v, by_state=dict(Counter(c.state for c in results.cells if c.variant == v)))
        for v in indexed.variants
    )


def _as_notice(skewed: str | None) -> list[Notice]:
    return [Notice(kind="skew", text=skewed)] if skewed else []


def _skew(comparisons: Sequence[Comparison], frame: Frame) -> str | None:
    """A warning where a mean may not stand for the seeds; None in a sequential study, which tests the median."""
    if frame.sequential:
        return None
    found = []
    for c in comparisons:
        for e in c.endpoints:
            if not e.primary or not e.mean_difference or e.sign_flip_p is None:
                continue
            if paired.mean_misleads(e.differences, p_value=e.sign_flip_p, alpha=frame.plan.alpha):
                skew, middle = paired.skewness(e.differences), float(np.median(e.differences))
                shown = "" if skew is None else f"skewness {skew:+.1f}, "
                favour = sentences.counts(e.wins, e.losses, e.ties, c.treatment, c.baseline)
                found.append(
                    f"{e.endpoint} ({c.treatment}: {shown}mean {sentences.signed(e.mean_difference)}, median "
                    f"{sentences.signed(middle)}, {favour})"
                )
    if not found:
        return None
    return (
        f"The seeds are skewed against their mean difference for {'; '.join(found)}. The test asks whether labels are "
        "exchangeable within a seed, which is more than a mean of 0: with skewed differences it can err more often "
        "than alpha."
    )


def _many_variants(
    indexed: Indexed, drafts: Sequence[Draft], plan: PlanUsed, *, wanted: bool, frame: Frame
) -> tuple[ManyVariants, ...]:
    """Friedman over the seeds that are paired in every comparison; all pairs on request."""
    out = []
    for setting in indexed.settings:
        family = [d for d in drafts if d.setting == setting]
        if len(family) < 2 or any(d.pairs.conflict for d in family):
            continue
        for j, name in enumerate(plan.primary):
            columns = [d.primaries[j] for d in family]
            seeds = sorted(set.intersection(*(set(m.seeds) for m in columns)))
            if not seeds:
                continue
            first = columns[0]
            rows = [first.baseline[[first.seeds.index(s) for s in seeds]]]
            rows += [m.treatment[[m.seeds.index(s) for s in seeds]] for m in columns]
            scores = np.stack(rows, axis=1)
            names = (str(plan.baseline), *(d.treatment for d in family))
            test = friedman(scores, rng=frame.rng)
            pairs = test_all_pairs(scores, rng=frame.signs) if wanted else ()
            out.append(
                ManyVariants(
                    endpoint=name,
                    setting=setting,
                    variants=names,
                    seeds=tuple(seeds),
                    friedman_chi2=test.chi2,
                    friedman_p=None if frame.sequential else test.p_value,
                    friedman_exact=test.exact,
                    pairs=tuple(
                        VariantPair(
                            first=names[p.i],
                            second=names[p.j],
                            mean_difference=p.mean_difference or 0.0,
                            sign_flip_p=None if frame.sequential else p.raw,
                            holm_p=None if frame.sequential else p.holm,
                        )
                        for p in pairs
                    ),
                )
            )
    return tuple(out)
