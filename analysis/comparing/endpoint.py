"""One endpoint of one comparison: every number about it, then its verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis import schema
from analysis.comparing.example_influence import ExampleStore, PairInfluence
from analysis.comparing.findings import (
    CrossedFinding,
    EndpointFinding,
    EquivalenceFinding,
    Interval,
    OnePairFinding,
    PlanUsed,
    Verdict,
)
from analysis.comparing.one_pair import one_pair
from analysis.comparing.pairing import PairedScores
from analysis.comparing.verdict import Evidence, Side, endpoint_verdict, evidence
from analysis.comparing.wording import exploratory_sentence, p_text, verdict_sentence
from analysis.statistics import paired, sequential
from analysis.statistics.closed_forms import e_threshold, p_floor, seeds_for_e_value
from analysis.statistics.crossed import Crossed, SettingInfluence, crossed, crossed_bootstrap
from analysis.statistics.equivalence import Equivalence, effect_at_margin, equivalence
from analysis.statistics.paired import Floats
from analysis.statistics.power import minimum_seeds, seeds_needed_t

BOOTSTRAP_RESAMPLES = 1_000


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What is the same for all endpoints of a study."""

    plan: PlanUsed
    hypotheses: int
    """Primaries x comparisons: m of a sequential study."""
    comparisons: int
    signs: paired.SignSource
    rng: np.random.Generator

    @property
    def sequential(self) -> bool:
        """Does E stand for p?"""
        return self.plan.stopping == "sequential"

    @property
    def e_threshold(self) -> float | None:
        """m / alpha, in a sequential study."""
        return e_threshold(self.hypotheses, self.plan.alpha) if self.sequential else None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """An endpoint's data and those results that need no other comparison."""

    endpoint: schema.Endpoint
    primary: bool
    seeds: tuple[int, ...]
    treatment: Floats
    baseline: Floats
    sign: paired.SignTest
    crossed: Crossed | None
    crossed_missing: str | None
    influence: SettingInfluence
    bootstrap: Interval | None
    one_pair: OnePairFinding | None
    equivalence: Equivalence | None
    disagreements: tuple[str, ...]
    """What is wrong with the stored predictions, one sentence each."""

    @property
    def differences(self) -> Floats:
        """(seeds,)"""
        return self.treatment - self.baseline


def measure(
    name: str, pairs: PairedScores, *, frame: Frame, examples: ExampleStore, extra_wins: int, extra_losses: int
) -> Measured:
    """Everything about one endpoint that does not depend on multiplicity."""
    endpoint = schema.parse_endpoint(name)
    t, b = np.array(pairs.treatment.get(name, ())), np.array(pairs.baseline.get(name, ()))
    if pairs.conflict or not t.size:
        t, b = np.empty(0), np.empty(0)
    known = np.flatnonzero(np.isfinite(t) & np.isfinite(b))
    t, b = t[known], b[known]
    seeds = tuple(pairs.seeds[i] for i in known)
    cells = tuple(tuple(side[i] for i in known) for side in (pairs.treatment_cells, pairs.baseline_cells))
    primary = name in frame.plan.primary
    found = examples.pair(endpoint, seeds=seeds, treatment=cells[0], baseline=cells[1], scores=(t.tolist(), b.tolist()))
    d = t - b
    part = SettingInfluence(seeds=seeds, differences=d, influence=found.values, test_set=found.test_set)
    margin = frame.plan.margin
    return Measured(
        endpoint=endpoint,
        primary=primary,
        seeds=seeds,
        treatment=t,
        baseline=b,
        sign=paired.sign_test(d, extra_wins=extra_wins, extra_losses=extra_losses),
        crossed=None if found.values is None else crossed(d, found.values),
        crossed_missing=_missing(found, d.size),
        influence=part,
        bootstrap=_bootstrap(d, found, frame) if primary else None,
        one_pair=one_pair(endpoint, cells, examples, fixed=not frame.sequential) if d.size == 1 else None,
        equivalence=None if margin is None else equivalence(d, margin=margin, alpha=frame.plan.alpha, rng=frame.signs),
        disagreements=(*found.disagreements, *_partly(found, endpoint.split)),
    )


def _partly(found: PairInfluence, split: str) -> list[str]:
    """Said where the crossed interval rests on fewer seeds than the tests."""
    return [f"crossed intervals on {split}: {found.missing}"] if found.values is not None and found.missing else []


def _missing(found: PairInfluence, n: int) -> str | None:
    if found.values is None:
        return found.missing
    known = int(np.isfinite(found.values).all(axis=1).sum())
    return None if known >= 2 and n >= 2 else "it needs two seeds with stored predictions"


def _bootstrap(d: Floats, found: PairInfluence, frame: Frame) -> Interval | None:
    if d.size < paired.BOOTSTRAP_FROM or found.values is None or not np.isfinite(found.values).all():
        return None
    result = crossed_bootstrap(d[:, None] + found.values, rng=frame.rng, resamples=BOOTSTRAP_RESAMPLES)
    return result.ci95 if result else None


def crossed_finding(found: Crossed | None, frame: Frame) -> CrossedFinding | None:
    """As the report keeps it."""
    if found is None:
        return None
    return CrossedFinding(
        mean=found.mean,
        n_seeds=found.n_seeds,
        n_examples=found.n_examples,
        seed_variance_of_mean=found.seed_variance_of_mean,
        shared_example_variance=found.shared_example_variance,
        interaction_variance_per_seed=found.interaction_variance_per_seed,
        total_variance=found.total_variance,
        df=found.df,
        ci95=found.interval(0.95),
        ci90=found.interval(0.90),
        ci95_joint=found.interval(0.95, hypotheses=frame.hypotheses),
        half_width_infinite_seeds=found.half_width_infinite_seeds(),
        examples_needed=found.examples_needed(hypotheses=frame.hypotheses),
        blocked_by_examples=found.blocked_by_examples(hypotheses=frame.hypotheses),
    )


def equivalence_finding(found: Equivalence | None, d: Floats, frame: Frame) -> EquivalenceFinding | None:
    """Against the margin: by sign flips, or by e-values in a sequential study."""
    margin = frame.plan.margin
    if found is None or margin is None:
        return None
    e = sequential.equivalence_e_values(d, margin=margin, alpha=frame.plan.alpha) if frame.sequential else None
    return EquivalenceFinding(
        margin=margin,
        exact_p=None if e else found.exact_p,
        tost_p=None if e else found.tost_p,
        t_ci90=found.ci90,
        equivalent=e.equivalent if e else found.equivalent,
        e_lower=e.e_lower if e else None,
        e_upper=e.e_upper if e else None,
        e_threshold=e.threshold if e else None,
    )


@dataclass(frozen=True, kw_only=True)
class Ruled:
    """Evidence, verdict and sentence of a primary endpoint."""

    endpoint: schema.Endpoint
    sign: paired.SignTest
    adjusted_p: float
    evidence: Evidence
    verdict: Verdict
    sentence: str


def rule(
    d: Floats,
    sign: paired.SignTest,
    *,
    frame: Frame,
    adjusted_p: float,
    factor: int,
    equivalent: bool,
    interval: CrossedFinding | None,
    conflict: str | None,
    failed: frozenset[Side],
    treatment: str,
    baseline: str,
    endpoint: schema.Endpoint,
    place: str,
    weights: Sequence[float] | None = None,
) -> Ruled:
    """Apply the verdict's rules to one primary endpoint, in one setting or over all (`weights`: of its seeds)."""
    plan = frame.plan
    floor = joint_floor(d, factor)
    found = evidence(
        d,
        wins=sign.wins,
        losses=sign.losses,
        alpha=plan.alpha,
        margin=plan.margin,
        adjusted_p=adjusted_p,
        floor=floor,
        equivalent=equivalent,
        crossed_ci95=interval.ci95_joint if interval else None,
        crossed_ci90=interval.ci90 if interval else None,
        conflict=conflict is not None,
        failed=failed,
        e_threshold=frame.e_threshold,
        weights=weights,
    )
    verdict = endpoint_verdict(found)
    names: dict[Side, str] = {"treatment": treatment, "baseline": baseline}
    e = sequential.e_value(sign.wins, sign.losses)
    return Ruled(
        endpoint=endpoint,
        sign=sign,
        adjusted_p=adjusted_p,
        evidence=found,
        verdict=verdict,
        sentence=verdict_sentence(
            verdict,
            treatment=treatment,
            baseline=baseline,
            where=f"on {endpoint}{place}",
            wins=sign.wins,
            losses=sign.losses,
            ties=sign.ties,
            n_pairs=d.size,
            mean=float(d.mean()) if d.size else None,
            evidence=f"E = {e:.3g} of {frame.e_threshold:g}" if frame.e_threshold else f"p = {p_text(adjusted_p)}",
            crossed=interval.ci95_joint if interval else None,
            margin=plan.margin,
            smallest_p=floor,
            alpha=plan.alpha,
            seeds_needed=seeds_to_reach_alpha(frame, factor),
            reachable=found.can_be_significant,
            conflict=conflict,
            blocked_by_examples=interval.examples_needed if interval and interval.blocked_by_examples else None,
            crossed_known=interval is not None and interval.ci95 is not None,
            failed=[names[side] for side in sorted(failed)],
            power_at_margin=found.power_at_margin,
            seeds_at_margin=seeds_at_margin(d, frame, factor, weights),
            sequential=frame.sequential,
            hypotheses=frame.hypotheses,
            comparisons=factor,
        ),
    )


def joint_floor(d: Floats, factor: int) -> float:
    """Smallest step-down p that these pairs can give; a seed without a difference counts in the sign test only."""
    return min(1.0, factor * p_floor(int(np.count_nonzero(paired.snap_ties(d)))))


def seeds_to_reach_alpha(frame: Frame, factor: int) -> int:
    """Smallest number of untied seeds that can reach alpha, or E its threshold."""
    threshold = frame.e_threshold
    if threshold is None:
        return minimum_seeds(frame.plan.alpha, comparisons=factor).joint
    return seeds_for_e_value(threshold)


def seeds_at_margin(d: Floats, frame: Frame, factor: int, weights: Sequence[float] | None = None) -> int | None:
    """Seeds for 80% power of the paired t test at the margin, with the observed sd and Holm's factor."""
    if frame.plan.margin is None:
        return None
    effect = effect_at_margin(d, margin=frame.plan.margin, weights=weights)
    return seeds_needed_t(effect, alpha=frame.plan.alpha / factor) if effect and math.isfinite(effect) else None


@dataclass(frozen=True, kw_only=True)
class Joint:
    """What multiplicity says about one endpoint."""

    sign_flip_p: float
    adjusted_p: float | None
    single_step_p: float | None
    holm_p: float | None
    factor: int
    e_closed: float | None


def finding(measured: Measured, joint: Joint, ruled: Ruled | None, *, frame: Frame) -> EndpointFinding:
    """The endpoint as the report keeps it; fixed-n p-values are left out of a sequential study."""
    m, d, fixed = measured, measured.differences, not frame.sequential
    t, wilcoxon = paired.paired_t(d), paired.wilcoxon_signed_rank(d)
    exact = paired.sign_flip_interval(d, rng=frame.signs) if m.primary or d.size <= paired.EXACT_UP_TO else None
    enough = d.size >= paired.BOOTSTRAP_FROM and m.primary
    floor = p_floor(m.sign.n_used)
    means = [float(x.mean()) if x.size else None for x in (m.treatment, m.baseline)]
    spreads = [float(x.std(ddof=1)) if x.size > 1 else None for x in (m.treatment, m.baseline)]
    in_play = fixed and m.primary
    return EndpointFinding(
        endpoint=str(m.endpoint),
        metric=m.endpoint.metric,
        dim=m.endpoint.dim,
        primary=m.primary,
        n_pairs=d.size,
        seeds=m.seeds,
        scores_treatment=tuple(m.treatment.tolist()),
        scores_baseline=tuple(m.baseline.tolist()),
        differences=tuple(d.tolist()),
        mean_treatment=means[0],
        mean_baseline=means[1],
        sd_treatment=spreads[0],
        sd_baseline=spreads[1],
        mean_difference=t.mean,
        sd_difference=t.sd,
        wins=m.sign.wins,
        losses=m.sign.losses,
        ties=m.sign.ties,
        sign_test_p=m.sign.p_value if fixed else None,
        p_floor=floor,
        sign_flip_p=joint.sign_flip_p if fixed else None,
        adjusted_p=joint.adjusted_p if in_play else None,
        adjusted_floor=joint_floor(d, joint.factor) if in_play else None,
        holm_p=joint.holm_p if in_play else None,
        wilcoxon_p=wilcoxon.p_value if fixed else None,
        t_p=t.p_value if fixed else None,
        t_ci95=t.ci95,
        exact_interval=(exact.interval or exact.widest) if exact else None,
        exact_interval_level=(0.95 if exact.interval else exact.widest_level) if exact else None,
        bootstrap_ci95=paired.bca_interval(d, rng=frame.rng) if enough else None,
        hodges_lehmann=paired.hodges_lehmann(d),
        dz=t.dz,
        gz=t.gz,
        prob_improvement=paired.probability_of_improvement(m.baseline, m.treatment).paired,
        crossed=crossed_finding(m.crossed, frame),
        crossed_missing=m.crossed_missing,
        equivalence=equivalence_finding(m.equivalence, d, frame),
        one_pair=m.one_pair,
        e_value=sequential.e_value(m.sign.wins, m.sign.losses) if not fixed else None,
        e_threshold=frame.e_threshold if m.primary else None,
        win_rate_interval=None
        if fixed
        else sequential.win_rate_interval(m.sign.wins, m.sign.losses, alpha=frame.plan.alpha),
        verdict=ruled.verdict if ruled else None,
        sentence=ruled.sentence
        if ruled
        else exploratory_sentence(
            str(m.endpoint), mean=t.mean, wins=m.sign.wins, losses=m.sign.losses, ties=m.sign.ties
        ),
        welch_p=paired.welch_p(m.treatment, m.baseline) if fixed else None,
        single_step_p=joint.single_step_p if in_play else None,
        e_closed=joint.e_closed,
        crossed_bootstrap_ci95=m.bootstrap,
    )
