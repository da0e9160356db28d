"""Treatment against baseline inside one setting: measure all endpoints, then decide beside the other comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.comparing.endpoint import Frame, Measured, finding, measure
from analysis.comparing.example_influence import ExampleStore
from analysis.comparing.findings import Comparison, SeedsAdvice
from analysis.comparing.pairing import PairedScores
from analysis.comparing.verdict import Evidence, Side, verdict_over
from analysis.comparing.wording import leading, one_pair_sentence, sentence_of, verdict_sentence
from analysis.statistics import paired, sequential
from analysis.statistics.joint import FamilyMember, JointTest, holm, joint_sign_flip
from analysis.statistics.power import WIN_RATES, seeds_needed


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A measured comparison, not yet corrected for the others."""

    treatment: str
    baseline: str
    setting: str
    pairs: PairedScores
    endpoints: tuple[Measured, ...]
    """Primaries first, in the plan's order."""
    joint: JointTest
    """Of the primaries."""
    failed: frozenset[Side]
    untrained: frozenset[Side]

    @property
    def primaries(self) -> tuple[Measured, ...]:
        """Primary endpoints."""
        return tuple(m for m in self.endpoints if m.primary)


def draft(
    pairs: PairedScores,
    *,
    treatment: str,
    baseline: str,
    setting: str,
    endpoints: Sequence[str],
    frame: Frame,
    examples: ExampleStore,
) -> Draft:
    """Measure all endpoints of a comparison and test its primaries jointly."""
    ordered = [*frame.plan.primary, *(e for e in endpoints if e not in frame.plan.primary)]
    measured = tuple(measure(e, pairs, variants=(treatment, baseline), frame=frame, examples=examples) for e in ordered)
    sides: tuple[tuple[Side, str], ...] = (("treatment", treatment), ("baseline", baseline))
    decisive = (None, *frame.plan.primary)
    lost = {d.loss_for for d in pairs.dropped if d.endpoint in decisive}
    contradicted = [seed for m in measured for seed in m.contradicted]
    if contradicted:
        pairs = replace(pairs, dropped=tuple(sorted((*pairs.dropped, *contradicted), key=lambda d: d.seed)))
    primaries = [m for m in measured if m.primary]
    return Draft(
        treatment=treatment,
        baseline=baseline,
        setting=setting,
        pairs=pairs,
        endpoints=measured,
        joint=joint_sign_flip(seed_matrix(primaries), rng=frame.signs),
        failed=frozenset(side for side, name in sides if name in lost),
        untrained=frozenset(side for side, name in sides if name in pairs.untrained),
    )


def seed_matrix(endpoints: Sequence[Measured]) -> paired.Floats:
    """Differences as (seeds, endpoints), NaN where an endpoint lacks a seed."""
    seeds = sorted({s for m in endpoints for s in m.seeds})
    rows = {seed: i for i, seed in enumerate(seeds)}
    matrix = np.full((len(seeds), len(endpoints)), np.nan)
    for j, m in enumerate(endpoints):
        matrix[[rows[s] for s in m.seeds], j] = m.differences
    return matrix


def decide(
    drafted: Draft, member: FamilyMember, e_closed: Sequence[float | None], *, frame: Frame, several_settings: bool
) -> Comparison:
    """Verdicts and sentences of a comparison.

    Args:
        drafted: What was measured.
        member: Its primaries' p-values after the other comparisons were counted.
        e_closed: Per primary: e-value after closed testing, None in a fixed study.
        frame: The study's frame.
        several_settings: The verdict is descriptive, and sentences name the setting.
    """
    d, pairs = drafted, drafted.pairs
    place = f", setting {d.setting}" if several_settings else ""
    flips = [paired.sign_flip_test(m.differences, rng=frame.signs).p_value for m in d.endpoints]
    holm_p = holm(flips[: len(d.primaries)])
    primaries = [
        m.evidence(j, member, frame=frame, conflict=pairs.conflict, failed=d.failed, untrained=d.untrained)
        for j, m in enumerate(d.primaries)
    ]
    found = [
        finding(
            m,
            e,
            sign_flip_p=flips[j],
            single_step_p=d.joint.single_step[j],
            holm_p=holm_p[j],
            e_closed=e_closed[j],
            sentence=verdict_sentence(e, treatment=d.treatment, baseline=d.baseline, place=place),
            frame=frame,
        )
        for j, (m, e) in enumerate(zip(d.primaries, primaries, strict=True))
    ]
    rest = range(len(primaries), len(flips))
    found += [finding(d.endpoints[j], None, sign_flip_p=flips[j], frame=frame) for j in rest]
    verdict = verdict_over(primaries)
    lead = leading(verdict, primaries)
    first = d.primaries[0] if d.primaries else None
    correlation = paired.seed_correlation(first.treatment, first.baseline) if first else None
    return Comparison(
        treatment=d.treatment,
        baseline=d.baseline,
        setting=d.setting,
        verdict=verdict,
        sentence=sentence_of(verdict, primaries, lead, treatment=d.treatment, baseline=d.baseline, place=place)
        + one_pair_sentence(first.one_pair if first else None),
        endpoints=tuple(found),
        dropped=pairs.dropped,
        seed_correlation=correlation,
        seed_correlation_warning=None
        if correlation is None or correlation > 0
        else f"over seeds the scores of {d.treatment} and {d.baseline} do not move together (correlation "
        f"{correlation:.2f}): pairing removed no noise here",
        declared_differences=pairs.declared,
        unverified_pairs=pairs.unverified,
        conflict=pairs.conflict,
        advice=_advice(d, primaries, lead, place) if primaries else None,
        descriptive=several_settings,
    )


def _advice(d: Draft, primaries: Sequence[Evidence], lead: int, place: str) -> SeedsAdvice:
    """What would decide the comparison: one `better` is enough, so examples are asked for only where no primary gains
    from seeds, and then for the one that needs fewest."""
    e = primaries[lead]
    alpha, threshold = e.criteria.alpha, e.criteria.e_threshold
    reach = e.seeds_to_reach_alpha
    rates = {
        f"{rate:g}": needed
        for rate in WIN_RATES
        if (needed := seeds_needed(rate, alpha=alpha / e.factor).first) is not None
    }
    to_go = None
    if threshold is not None:
        to_go = sequential.seeds_to_go(e.sign.wins, e.sign.losses, threshold) or None
    blocked = [
        (m.crossed.examples_for_80_percent, m.crossed.n_examples, str(m.endpoint))
        for m in d.primaries
        if m.crossed is not None and m.crossed.blocked_by_examples and m.crossed.examples_for_80_percent is not None
    ]
    if len(blocked) == len(primaries):
        needed, now, name = min(blocked)
        fewest = ", the primary that needs fewest" if len(primaries) > 1 else ""
        text = (
            f"More seeds cannot separate {d.treatment} from {d.baseline} on new sentences: about {needed:,} test "
            f"examples in all would be needed for 80% power on {name}{place}{fewest} (now {now:,})."
        )
    elif e.criteria.sequential:
        text = (
            f"If the win rate so far goes on, {to_go} more seed{'s' if to_go > 1 else ''} will decide."
            if to_go
            else f"The earliest decision comes at {reach} seeds that all agree."
        )
    else:
        takes = ", ".join(f"{n} if it wins {float(rate):.0%}" for rate, n in rates.items())
        text = f"{reach} untied seeds are the fewest that can reach alpha {alpha:g}; 80% power takes {takes} of them."
    return SeedsAdvice(
        seeds_to_reach_alpha=reach,
        seeds_for_win_rate=rates,
        seeds_at_margin=e.seeds_at_margin,
        sequential_seeds_to_go=to_go,
        sentence=text,
    )
