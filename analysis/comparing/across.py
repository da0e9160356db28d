"""One treatment over several settings: in these settings (the verdict), and in settings like these."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.comparing.comparison import Draft
from analysis.comparing.endpoint import Frame, Measured, Tested, crossed_finding, equivalence_finding
from analysis.comparing.findings import (
    AcrossEndpoint,
    AcrossSettings,
    Comparison,
    MetaAnalysis,
    SettingRow,
)
from analysis.comparing.pairing import Indexed, finished_scores
from analysis.comparing.verdict import Evidence, Side, joint_floor, verdict_over
from analysis.comparing.wording import (
    exploratory_sentence,
    leading,
    over_settings,
    p_text,
    sentence_of,
    settings_favour,
    verdict_sentence,
)
from analysis.statistics import across_settings, paired, sequential
from analysis.statistics.closed_forms import reached
from analysis.statistics.crossed import crossed_over_settings
from analysis.statistics.joint import FamilyMember, joint_sign_flip
from analysis.statistics.qualitative import gail_simon, normal_scores


@dataclass(frozen=True, kw_only=True)
class Pooled(Tested):
    """One endpoint over all settings: each distinct seed is one unit."""

    by_setting: tuple[Measured, ...]


@dataclass(frozen=True, kw_only=True)
class AcrossDraft:
    """A treatment pooled over its settings, not yet corrected for the other treatments."""

    drafts: tuple[Draft, ...]
    """One per setting."""
    by_endpoint: tuple[tuple[Measured, ...], ...]
    """Endpoint -> its measurement per setting, primaries first."""
    contributions: tuple[dict[int, float], ...]
    """Endpoint -> distinct seed -> what it adds (across_settings.seed_contributions)."""
    weights: tuple[tuple[float, ...], ...]
    """Endpoint -> weight of each contribution (across_settings.seed_weights)."""
    step_down: tuple[float, ...]
    """Joint p of the primaries, whole seeds flipped over settings and endpoints."""

    @property
    def treatment(self) -> str:
        """The variant under test."""
        return self.drafts[0].treatment

    @property
    def baseline(self) -> str:
        """What it is compared with."""
        return self.drafts[0].baseline

    @property
    def conflict(self) -> str | None:
        """The first setting's that has one."""
        return next((d.pairs.conflict for d in self.drafts if d.pairs.conflict), None)

    @property
    def failed(self) -> frozenset[Side]:
        """Sides that failed by themselves in any setting."""
        return frozenset(side for d in self.drafts for side in d.failed)

    @property
    def untrained(self) -> frozenset[Side]:
        """Sides that did not train on some seed of any setting."""
        return frozenset(side for d in self.drafts for side in d.untrained)


def draft_across(drafts: Sequence[Draft], *, frame: Frame) -> AcrossDraft:
    """Pool a treatment's settings: each distinct seed is one unit."""
    columns = tuple(zip(*(d.endpoints for d in drafts), strict=True))
    by_setting = [_differences(column, frame) for column in columns]
    contributions = tuple(map(across_settings.seed_contributions, by_setting))
    primaries = [c for column, c in zip(columns, contributions, strict=True) if column[0].primary]
    seeds = sorted({s for c in primaries for s in c})
    matrix = np.array([[c.get(s, np.nan) for c in primaries] for s in seeds]).reshape(len(seeds), len(primaries))
    return AcrossDraft(
        drafts=tuple(drafts),
        by_endpoint=columns,
        contributions=contributions,
        weights=tuple(map(across_settings.seed_weights, by_setting)),
        step_down=joint_sign_flip(matrix, rng=frame.signs).step_down,
    )


def by_seed(measured: Measured) -> dict[int, float]:
    """Seed -> difference."""
    return dict(zip(measured.seeds, measured.differences.tolist(), strict=True))


def _differences(column: Sequence[Measured], frame: Frame) -> list[dict[int, float]]:
    """Per setting: seed -> difference; in a sequential study only of seeds that are complete over all settings."""
    known = [by_seed(m) for m in column if m.seeds]
    if not frame.sequential:
        return known
    complete = set.intersection(*map(set, known)) if known else set()
    return [{seed: d for seed, d in one.items() if seed in complete} for one in known]


def decide_across(
    drafted: AcrossDraft, member: FamilyMember, comparisons: Sequence[Comparison], *, indexed: Indexed, frame: Frame
) -> AcrossSettings:
    """Verdict across settings: the rules of one endpoint, applied to the pooled differences.

    Args:
        drafted: The pooled settings.
        member: The primaries' p-values after the other treatments were counted.
        comparisons: This treatment's, one per setting.
        indexed: All recorded scores, for the unpaired differences.
        frame: The study's frame.
    """
    treatment, baseline = drafted.treatment, drafted.baseline
    used = [d for d in drafted.drafts if any(m.seeds for m in d.primaries)]
    place = over_settings(len(used))
    primaries: list[Evidence] = []
    found = []
    for j in range(len(drafted.by_endpoint)):
        pooled = _pool(j, drafted, frame)
        e = None
        if pooled.primary:
            e = pooled.evidence(
                j,
                member,
                frame=frame,
                conflict=drafted.conflict,
                failed=drafted.failed,
                untrained=drafted.untrained,
            )
            e = replace(e, opposed_settings=_opposed(pooled, treatment, baseline, frame))
            primaries.append(e)
        rows = tuple(_row(c, j) for c in comparisons)
        unpaired = [
            [finished_scores(indexed, variant, x.setting, str(pooled.endpoint)) for x in drafted.drafts]
            for variant in (baseline, treatment)
        ]
        text = verdict_sentence(e, treatment=treatment, baseline=baseline, place=place) if e else ""
        found.append(_endpoint(pooled, e, rows, sentence=text, unpaired=unpaired, frame=frame))
    verdict = verdict_over(primaries)
    lead = leading(verdict, primaries)
    text = sentence_of(verdict, primaries, lead, treatment=treatment, baseline=baseline, place=place)
    if primaries:
        up = sum((c.endpoints[lead].mean_difference or 0) > 0 for c in comparisons)
        text = f"{text} {settings_favour(up, len(used), treatment)}"
    return AcrossSettings(
        treatment=treatment,
        baseline=baseline,
        settings=tuple(d.setting for d in drafted.drafts),
        verdict=verdict,
        sentence=text,
        endpoints=tuple(found),
    )


def _qualitative(pooled: Pooled, frame: Frame) -> float | None:
    """p of Gail and Simon's test over the settings whose seeds differ; None in a sequential study or below two."""
    used = [m.differences for m in pooled.by_setting if m.seeds and not m.repeated]
    if frame.sequential or len(used) < 2:
        return None
    return gail_simon(normal_scores(used, rng=frame.signs)).p_value


def _opposed(pooled: Pooled, treatment: str, baseline: str, frame: Frame) -> str | None:
    """What shows that settings differ in direction; None where it could be chance."""
    used = [m for m in pooled.by_setting if m.seeds and not m.repeated]
    up = sum(float(m.differences.mean()) > 0 for m in used)
    down = sum(float(m.differences.mean()) < 0 for m in used)
    counts = f"{up} of {len(used)} settings favour{'s' if up == 1 else ''} {treatment}, {down} {baseline}"
    if frame.sequential:
        threshold = len(used) * (frame.criteria.e_threshold or math.inf)
        shown = {
            m.sign.wins > m.sign.losses
            for m in used
            if reached(sequential.e_value(m.sign.wins, m.sign.losses), threshold)
        }
        return f"{counts}; E of single settings reaches {threshold:g} both ways" if len(shown) == 2 else None
    p = _qualitative(pooled, frame)
    if p is None or p * frame.hypotheses > frame.plan.alpha:
        return None
    return f"{counts}; Gail and Simon p = {p_text(min(1.0, p * frame.hypotheses))}"


def _pool(j: int, drafted: AcrossDraft, frame: Frame) -> Pooled:
    """One endpoint over all settings; what is not primary gets the sign test alone."""
    column, weights = drafted.by_endpoint[j], drafted.weights[j]
    d = np.array(list(drafted.contributions[j].values()))
    primary = column[0].primary
    crossed = crossed_over_settings([m.influence for m in column if m.seeds]) if primary else None
    return Pooled(
        endpoint=column[0].endpoint,
        primary=primary,
        differences=d,
        sign=_sign(drafted.contributions[j], drafted, str(column[0].endpoint)),
        crossed=crossed_finding(crossed, frame),
        equivalence=equivalence_finding(d, frame, weights) if primary else None,
        weights=weights,
        by_setting=column,
        repeated=any(m.seeds for m in column) and all(m.repeated for m in column if m.seeds),
    )


def _sign(contributions: Mapping[int, float], drafted: AcrossDraft, endpoint: str) -> paired.SignTest:
    """Sign test over distinct seeds; a seed that only one side failed in any setting is that side's loss."""
    first = drafted.drafts[0]
    dropped = [seed for x in drafted.drafts for seed in x.pairs.dropped if seed.endpoint in (None, endpoint)]
    losses = {seed.seed for seed in dropped if seed.loss_for == first.treatment}
    wins = {seed.seed for seed in dropped if seed.loss_for == first.baseline}
    counted = [d for seed, d in contributions.items() if seed not in losses | wins]
    return paired.sign_test(counted, extra_losses=len(losses), extra_wins=len(wins))


def _endpoint(
    pooled: Pooled,
    e: Evidence | None,
    rows: tuple[SettingRow, ...],
    *,
    sentence: str,
    unpaired: Sequence[Sequence[tuple[float, ...]]],
    frame: Frame,
) -> AcrossEndpoint:
    """One endpoint over all settings, as the report keeps it.

    Args:
        pooled: The endpoint over all settings.
        e: Evidence for a primary endpoint's verdict; None: exploratory.
        rows: One per setting.
        sentence: The verdict's.
        unpaired: Scores of baseline and treatment, setting by setting, whether or not they have a partner.
        frame: The study's frame.
    """
    fixed = not frame.sequential
    p = e if fixed else None
    column, sign = pooled.by_setting, pooled.sign
    differences = [m.differences for m in column]
    means = across_settings.mean_by_setting(differences)
    units, unit_signs = across_settings.settings_t(means), across_settings.settings_sign_test(means)
    spread = across_settings.heterogeneity([x for x in differences if x.size >= 2])
    left = across_settings.leave_one_out(differences)
    reversal = across_settings.simpson(*unpaired)
    mean = left.overall
    return AcrossEndpoint(
        endpoint=str(pooled.endpoint),
        primary=pooled.primary,
        rows=rows,
        n_settings=means.size,
        n_distinct_seeds=pooled.differences.size,
        pooled_sign_flip_p=across_settings.pooled_by_seed([by_seed(m) for m in column], rng=frame.signs).p_value
        if fixed
        else None,
        adjusted_p=p.adjusted_p if p else None,
        p_floor=joint_floor(pooled.differences),
        adjusted_floor=p.floor if p else None,
        wins=sign.wins,
        losses=sign.losses,
        ties=sign.ties,
        mean_difference=mean,
        crossed=pooled.crossed,
        equivalence=pooled.equivalence,
        settings_t_p=units.p_value if fixed else None,
        settings_t_ci95=units.ci95,
        settings_favouring_treatment=unit_signs.favouring_treatment,
        settings_sign_p=unit_signs.p_value if fixed else None,
        heterogeneity_f=spread.f,
        heterogeneity_df=spread.df,
        heterogeneity_p=spread.p_value if fixed else None,
        meta=_meta(differences, fixed=fixed),
        qualitative_p=_qualitative(pooled, frame) if pooled.primary else None,
        without={x.setting: w for x, w in zip(rows, left.without, strict=True)},
        direction_depends_on_one_setting=left.direction_depends_on_one_setting,
        simpson=reversal.reversal,
        pooled_unpaired_difference=reversal.pooled,
        e_value=sequential.e_value(sign.wins, sign.losses) if not fixed else None,
        e_threshold=e.criteria.e_threshold if e else None,
        verdict=e.verdict if e else None,
        sentence=sentence
        if e
        else exploratory_sentence(str(pooled.endpoint), mean=mean, wins=sign.wins, losses=sign.losses, ties=sign.ties),
    )


def _row(comparison: Comparison, j: int) -> SettingRow:
    e = comparison.endpoints[j]
    return SettingRow(
        setting=comparison.setting,
        n_pairs=e.n_pairs,
        wins=e.wins,
        losses=e.losses,
        ties=e.ties,
        mean_difference=e.mean_difference,
        sd_difference=e.sd_difference,
        t_ci95=e.t_ci95,
        crossed_ci95=e.crossed_ci95,
        crossed_ci95_joint=e.crossed.ci95_joint if e.crossed else None,
        sign_flip_p=e.sign_flip_p,
        verdict=e.verdict,
    )


def _meta(differences: Sequence[paired.Floats], *, fixed: bool) -> MetaAnalysis | None:
    known = [x for x in differences if x.size >= 2]
    if len(known) < 2:
        return None
    m = across_settings.meta_analysis(across_settings.mean_by_setting(known), across_settings.variance_of_means(known))
    return MetaAnalysis(
        fixed=m.fixed,
        q=m.q,
        q_p=m.q_p if fixed else None,
        i2=m.i2,
        tau2=m.tau2_dl,
        random=m.dl.mean,
        hartung_knapp_ci95=m.dl.ci95,
        tau2_paule_mandel=m.tau2_pm,
        tau2_reml=m.tau2_reml,
        random_paule_mandel=m.pm.mean,
    )
