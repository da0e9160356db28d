"""One endpoint of one comparison: every number about it, the evidence for its verdict, and what the report keeps."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analysis import schema
from analysis.comparing.example_influence import ExampleStore, PairInfluence, one_pair
from analysis.comparing.findings import (
    CrossedFinding,
    DroppedSeed,
    EndpointFinding,
    EquivalenceFinding,
    Interval,
    OnePairFinding,
    PlanUsed,
)
from analysis.comparing.pairing import PairedScores
from analysis.comparing.verdict import Criteria, Evidence, Side
from analysis.comparing.wording import exploratory_sentence
from analysis.statistics import paired, sequential
from analysis.statistics.closed_forms import p_floor
from analysis.statistics.crossed import Crossed, SettingInfluence, crossed, crossed_bootstrap
from analysis.statistics.equivalence import equivalence
from analysis.statistics.joint import FamilyMember
from analysis.statistics.paired import Floats

BOOTSTRAP_RESAMPLES = 1_000


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What is the same for all endpoints of a study."""

    plan: PlanUsed
    hypotheses: int
    """Primaries x comparisons."""
    signs: paired.SignSource
    rng: np.random.Generator

    @property
    def sequential(self) -> bool:
        """E-values take the place of p-values."""
        return self.plan.stopping == "sequential"

    @property
    def comparisons(self) -> int:
        """Treatments compared with the baseline."""
        return max(1, self.hypotheses // max(1, len(self.plan.primary)))

    @property
    def criteria(self) -> Criteria:
        """What this study declared for its verdicts."""
        plan = self.plan
        return Criteria(alpha=plan.alpha, margin=plan.margin, hypotheses=self.hypotheses, sequential=self.sequential)


@dataclass(frozen=True, kw_only=True)
class Tested:
    """An endpoint's differences, in one setting or over all, and those tests that need no other comparison."""

    endpoint: schema.Endpoint
    primary: bool
    differences: Floats = field(repr=False)
    """(pairs,); over settings one per distinct seed."""
    sign: paired.SignTest
    crossed: CrossedFinding | None
    equivalence: EquivalenceFinding | None
    """None without a margin."""
    weights: tuple[float, ...] | None = None
    """As in `equivalence`."""
    repeated: bool = False
    """Every seed gave both variants the same two scores: so many seeds are the evidence of one."""

    def evidence(
        self,
        j: int,
        member: FamilyMember,
        *,
        frame: Frame,
        conflict: str | None,
        failed: frozenset[Side],
        untrained: frozenset[Side],
    ) -> Evidence:
        """What the rules look at.

        Args:
            j: Position among the primary endpoints.
            member: Their p-values after the other comparisons were counted.
            frame: The study's frame.
            conflict: Which key has two different scores; None: none has.
            failed: Sides that failed by themselves on some seed.
            untrained: Sides that did not train on some seed.
        """
        crossed = self.crossed
        return Evidence(
            endpoint=self.endpoint,
            criteria=frame.criteria,
            differences=self.differences,
            sign=self.sign,
            adjusted_p=member.adjusted[j],
            factor=member.factor,
            equivalent=self.equivalence is not None and self.equivalence.equivalent,
            weights=self.weights,
            crossed_ci95=crossed.ci95_joint if crossed else None,
            crossed_ci90=crossed.ci90_joint if crossed else None,
            examples_needed=crossed.examples_for_80_percent if crossed and crossed.blocked_by_examples else None,
            examples_at_margin=_only_examples(crossed, frame.plan.margin),
            conflict=conflict,
            failed=failed,
            untrained=untrained,
            repeated=self.repeated,
        )


def _only_examples(crossed: CrossedFinding | None, margin: float | None) -> int | None:
    """Examples that a difference as large as the margin needs, where no number of seeds could show it; else None."""
    if crossed is None or margin is None or crossed.half_width_infinite_seeds_joint is None:
        return None
    seen = max(margin, abs(crossed.mean))
    return crossed.examples_at_margin if crossed.half_width_infinite_seeds_joint >= seen else None


@dataclass(frozen=True, kw_only=True)
class Measured(Tested):
    """One endpoint in one setting."""

    seeds: tuple[int, ...]
    treatment: Floats = field(repr=False)
    """(seeds,)"""
    baseline: Floats = field(repr=False)
    crossed_missing: str | None
    influence: SettingInfluence
    bootstrap: Interval | None
    one_pair: OnePairFinding | None
    disagreements: tuple[str, ...]
    """What is wrong with the stored predictions, one sentence each."""
    contradicted: tuple[DroppedSeed, ...]
    """Seeds left out because a recorded score contradicts its stored predictions."""


def measure(
    name: str, pairs: PairedScores, *, variants: tuple[str, str], frame: Frame, examples: ExampleStore
) -> Measured:
    """Everything about one endpoint that does not depend on other endpoints or comparisons.

    Args:
        name: Endpoint, such as `test/spearman_512`.
        pairs: Scores of both variants.
        variants: Treatment and baseline.
        frame: The study's frame.
        examples: Stored predictions.
    """
    endpoint = schema.endpoint_named(name)
    t, b = np.array(pairs.treatment.get(name, ())), np.array(pairs.baseline.get(name, ()))
    if pairs.conflict or not t.size:
        t, b = np.empty(0), np.empty(0)
    known = np.flatnonzero(np.isfinite(t) & np.isfinite(b))
    first = _examples_of(endpoint, pairs, known, t, b, examples)
    wrong = first.contradicted
    contradicted = tuple(DroppedSeed(seed=pairs.seeds[known[i]], reason=s, endpoint=name) for i, s in wrong.items())
    if contradicted:
        known = np.delete(known, list(wrong))
    found = _examples_of(endpoint, pairs, known, t, b, examples) if contradicted else first
    t, b = t[known], b[known]
    seeds = tuple(pairs.seeds[i] for i in known)
    cells = tuple(tuple(side[i] for i in known) for side in (pairs.treatment_cells, pairs.baseline_cells))
    primary = name in frame.plan.primary
    d = t - b
    # At a scale of 1e5 the last bit of a score is larger than an absolute tolerance: rounding is a tie there too.
    size = np.maximum(np.abs(t), np.abs(b))
    d[(size > 1) & (np.abs(d) <= paired.TIE_TOLERANCE * size)] = 0.0
    part = SettingInfluence(
        seeds=seeds, differences=d, influence=found.values, test_set=found.test_set, clusters=found.clusters
    )
    return Measured(
        endpoint=endpoint,
        primary=primary,
        seeds=seeds,
        treatment=t,
        baseline=b,
        differences=d,
        sign=paired.sign_test(
            d, extra_wins=pairs.lost_by(variants[1], name), extra_losses=pairs.lost_by(variants[0], name)
        ),
        crossed=None if found.values is None else crossed_finding(crossed(d, found.values, found.clusters), frame),
        crossed_missing=_missing(found, d.size),
        influence=part,
        bootstrap=_bootstrap(d, found, frame) if primary else None,
        one_pair=one_pair(endpoint, cells, examples, fixed=not frame.sequential) if d.size == 1 else None,
        equivalence=equivalence_finding(d, frame),
        disagreements=(*first.disagreements, *_partly(found, endpoint.split)),
        contradicted=contradicted,
        repeated=d.size >= 2 and not paired.paired_t(t).sd and not paired.paired_t(b).sd,
    )


def _examples_of(
    endpoint: schema.Endpoint,
    pairs: PairedScores,
    known: NDArray[np.intp],
    t: Floats,
    b: Floats,
    examples: ExampleStore,
) -> PairInfluence:
    """Influence values of the seeds at these positions."""
    return examples.pair(
        endpoint,
        seeds=[pairs.seeds[i] for i in known],
        treatment=[pairs.treatment_cells[i] for i in known],
        baseline=[pairs.baseline_cells[i] for i in known],
        scores=(t[known].tolist(), b[known].tolist()),
    )


def _partly(found: PairInfluence, split: str) -> list[str]:
    """A sentence where the crossed interval uses fewer seeds than the tests."""
    return [f"crossed intervals on {split}: {found.missing}"] if found.values is not None and found.missing else []


def _missing(found: PairInfluence, n: int) -> str | None:
    if found.values is None:
        return found.missing
    known = int(np.isfinite(found.values).all(axis=1).sum())
    return None if known >= 2 and n >= 2 else "it needs two seeds with stored predictions"


def _bootstrap(d: Floats, found: PairInfluence, frame: Frame) -> Interval | None:
    if d.size < paired.BOOTSTRAP_FROM or found.values is None or not np.isfinite(found.values).all():
        return None
    result = crossed_bootstrap(
        d[:, None] + found.values, rng=frame.rng, resamples=BOOTSTRAP_RESAMPLES, clusters=found.clusters
    )
    return result.ci95 if result else None


def crossed_finding(found: Crossed | None, frame: Frame) -> CrossedFinding | None:
    """Variance components and intervals as the report keeps them."""
    if found is None:
        return None
    return CrossedFinding(
        mean=found.mean,
        n_seeds=found.n_seeds,
        n_examples=found.n_examples,
        n_clusters=found.n_clusters,
        seed_variance_of_mean=found.seed_variance_of_mean,
        shared_example_variance=found.shared_example_variance,
        interaction_variance_per_seed=found.interaction_variance_per_seed,
        total_variance=found.total_variance,
        df=found.df,
        ci95=found.interval(0.95),
        ci90=found.interval(0.90),
        ci95_joint=found.interval(0.95, hypotheses=frame.hypotheses),
        ci90_joint=found.interval(0.90, hypotheses=frame.comparisons),
        half_width_infinite_seeds=found.half_width_infinite_seeds(),
        half_width_infinite_seeds_joint=found.half_width_infinite_seeds(hypotheses=frame.hypotheses),
        examples_for_80_percent=found.examples_for(found.mean, hypotheses=frame.hypotheses),
        examples_at_margin=None
        if frame.plan.margin is None
        else found.examples_for(frame.plan.margin, hypotheses=frame.hypotheses),
        examples_needed=found.examples_needed(hypotheses=frame.hypotheses),
        blocked_by_examples=found.blocked_by_examples(hypotheses=frame.hypotheses),
    )


def equivalence_finding(d: Floats, frame: Frame, weights: tuple[float, ...] | None = None) -> EquivalenceFinding | None:
    """Against the margin: by sign flips, or by e-values in a sequential study; None without a margin.

    Several comparisons share alpha (Bonferroni), so that one wrong `equivalent` among them is as rare as with one.
    """
    margin, alpha = frame.plan.margin, frame.plan.alpha
    if margin is None:
        return None
    found = equivalence(d, margin=margin, alpha=alpha, weights=weights, rng=frame.signs)
    e = sequential.equivalence_e_values(d, margin=margin, alpha=alpha) if frame.sequential else None
    return EquivalenceFinding(
        margin=margin,
        exact_p=None if e else found.exact_p,
        tost_p=None if e else found.tost_p,
        t_ci90=found.ci90,
        equivalent=e.equivalent if e else found.exact_p * frame.comparisons <= alpha,
        e_lower=e.e_lower if e else None,
        e_upper=e.e_upper if e else None,
        e_threshold=e.threshold if e else None,
    )


def finding(
    m: Measured,
    e: Evidence | None,
    *,
    sign_flip_p: float,
    single_step_p: float | None = None,
    holm_p: float | None = None,
    e_closed: float | None = None,
    sentence: str = "",
    frame: Frame,
) -> EndpointFinding:
    """The endpoint as the report keeps it; fixed-n p-values are left out of a sequential study.

    Args:
        m: What was measured.
        e: Evidence for a primary endpoint's verdict; None: exploratory. The rest but `sign_flip_p` goes with it.
        sign_flip_p: Of this endpoint alone.
        single_step_p: Of the joint test.
        holm_p: Holm over the primaries' own sign flips.
        e_closed: E-value after closed testing, in a sequential study.
        sentence: The verdict's.
        frame: The study's frame.
    """
    d, fixed = m.differences, not frame.sequential
    t, wilcoxon = paired.paired_t(d), paired.wilcoxon_signed_rank(d)
    exact = paired.sign_flip_interval(d, rng=frame.signs) if m.primary or d.size <= paired.EXACT_UP_TO else None
    enough = d.size >= paired.BOOTSTRAP_FROM and m.primary
    floor = p_floor(m.sign.n_used)
    means = [float(x.mean()) if x.size else None for x in (m.treatment, m.baseline)]
    spreads = [float(x.std(ddof=1)) if x.size > 1 else None for x in (m.treatment, m.baseline)]
    p = e if fixed else None
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
        sign_flip_p=sign_flip_p if fixed else None,
        adjusted_p=p.adjusted_p if p else None,
        adjusted_floor=p.floor if p else None,
        holm_p=holm_p if p else None,
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
        crossed=m.crossed,
        crossed_missing=m.crossed_missing,
        equivalence=m.equivalence,
        one_pair=m.one_pair,
        e_value=sequential.e_value(m.sign.wins, m.sign.losses) if not fixed else None,
        e_threshold=e.criteria.e_threshold if e else None,
        win_rate_interval=None
        if fixed
        else sequential.win_rate_interval(m.sign.wins, m.sign.losses, alpha=frame.plan.alpha),
        verdict=e.verdict if e else None,
        sentence=sentence
        if e
        else exploratory_sentence(
            str(m.endpoint), mean=t.mean, wins=m.sign.wins, losses=m.sign.losses, ties=m.sign.ties
        ),
        welch_p=paired.welch_p(m.treatment, m.baseline) if fixed else None,
        single_step_p=single_step_p if p else None,
        e_closed=e_closed,
        crossed_bootstrap_ci95=m.bootstrap,
    )
