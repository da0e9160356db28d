"""What an analysis found: the hand-over from the method to the report. Numbers, names and sentences; no arrays.

Everything here is plain data (numbers, text, tuples, None), so that `dataclasses.asdict` gives what the JSON report
needs. None means "not defined for these data", never "not computed yet". Differences are treatment minus baseline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from analysis.results.model import Problem

Verdict = Literal[
    "cannot_decide",
    "mixed",
    "different_but_negligible",
    "different_but_negligible_on_this_test_set",
    "better",
    "worse",
    "better_on_this_test_set",
    "worse_on_this_test_set",
    "equivalent",
    "equivalent_on_this_test_set",
    "undecided_underpowered",
    "undecided",
]
Interval = tuple[float, float]
"""(low, high)."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something a reader must know before the numbers; shown on top of the report."""

    kind: Literal[
        "failed_by_itself",
        "unverified",
        "exploratory",
        "default_primary",
        "baseline",
        "data",
        "correlation",
        "contradiction",
        "identical_seeds",
        "untrained",
        "skew",
        "file",
    ]
    text: str
    """One sentence, no markup."""


@dataclass(frozen=True, kw_only=True)
class PlanUsed:
    """The analysis plan that this analysis followed, beside the declared one."""

    primary: tuple[str, ...]
    """Endpoints, such as `test/spearman_512`; never empty when anything was compared."""
    default_primary: bool
    """True when the primaries were not named by anyone but chosen by the stated default."""
    alpha: float
    margin: float | None
    stopping: Literal["fixed", "sequential"]
    max_seeds: int | None
    baseline: str | None
    exploratory: tuple[str, ...]
    """Why this report is exploratory, one sentence each; empty when it is not."""
    declared: Mapping[str, Any] | None
    """What the first run recorded (primary, alpha, margin, stopping, baseline); None when nothing was recorded."""


@dataclass(frozen=True, kw_only=True)
class DroppedSeed:
    """A seed that is not used in a comparison, and why."""

    seed: int
    reason: str
    loss_for: str | None = None
    """The variant that failed by itself on this seed: the seed counts as its loss in the sign test."""
    endpoint: str | None = None
    """The one endpoint that lacks this seed; None: the seed is missing altogether."""


@dataclass(frozen=True, kw_only=True)
class DeclaredDifference:
    """A field that differs inside the pairs because a variant declares it."""

    field: str
    treatment: Any
    baseline: Any


@dataclass(frozen=True, kw_only=True)
class CrossedFinding:
    """Seeds and test examples as two sources of variance (method.md); units of the metric, variances squared."""

    mean: float
    """Mean difference that the intervals are centred on: the recorded scores' where there are some."""
    n_seeds: int
    n_examples: int
    n_clusters: int | None = None
    """Clusters that the examples come in, and that the intervals take as their units; None: independent examples."""
    seed_variance_of_mean: float
    """s^2 / n."""
    shared_example_variance: float
    """Part of the mean's variance that no further seed removes."""
    interaction_variance_per_seed: float
    total_variance: float
    df: float | None
    ci95: Interval | None
    ci90: Interval | None
    half_width_infinite_seeds: float
    """Half width of the 95% interval that infinitely many seeds would leave."""
    examples_needed: int | None
    """About how many test examples would bring the half width of `ci95_joint` that infinitely many seeds leave below
    |mean|; None when |mean| is 0."""
    ci95_joint: Interval | None = None
    """The interval that the verdict looks at: 95% for all primaries and comparisons at once (Bonferroni); with one
    primary and one treatment it is `ci95`."""
    ci90_joint: Interval | None = None
    """The interval that equivalence looks at: 90% for all comparisons at once."""
    half_width_infinite_seeds_joint: float | None = None
    """As `half_width_infinite_seeds`, for `ci95_joint`."""
    examples_for_80_percent: int | None = None
    """About how many test examples give 80% power if the true difference is the observed one: some 2.04 times
    `examples_needed`, which is a coin flip; None when |mean| is 0."""
    examples_at_margin: int | None = None
    """The same for a true difference as large as the declared margin; None without a margin."""
    blocked_by_examples: bool
    """True when |mean| lies inside that half width of `ci95_joint`: more seeds cannot make it `better`, more examples
    may."""


@dataclass(frozen=True, kw_only=True)
class EquivalenceFinding:
    """Equivalence against the declared margin."""

    margin: float
    exact_p: float | None
    """Larger of the two exact shifted one-sided sign-flip p-values; None in a sequential study."""
    tost_p: float | None
    """The same by t (two one-sided tests)."""
    t_ci90: Interval | None
    equivalent: bool
    """exact_p times the number of comparisons <= alpha, or both e-values at their threshold in a sequential study."""
    e_lower: float | None
    """Sequential only: e-value against `difference <= -margin`."""
    e_upper: float | None
    """Sequential only: e-value against `difference >= margin`."""
    e_threshold: float | None


@dataclass(frozen=True, kw_only=True)
class OnePairFinding:
    """One trained pair only: how far test examples alone explain the difference. Says nothing about seeds."""

    n_examples: int
    correlation_treatment: float
    correlation_baseline: float
    correlation_between: float
    """Correlation of the two variants' predictions."""
    zou_ci95: Interval | None
    steiger_z: float | None
    steiger_p: float | None
    """None in a sequential study, as every fixed-n p-value."""
    williams_t: float | None
    williams_p: float | None
    jackknife_se: float | None


@dataclass(frozen=True, kw_only=True)
class EndpointFinding:
    """One endpoint of one comparison."""

    endpoint: str
    """`test/spearman_512`."""
    metric: str
    """`test/spearman`."""
    dim: int
    primary: bool
    """False: exploratory, without a verdict."""
    n_pairs: int
    seeds: tuple[int, ...]
    """Seeds of the pairs, in the order of the three tuples below."""
    scores_treatment: tuple[float, ...]
    scores_baseline: tuple[float, ...]
    differences: tuple[float, ...]
    mean_treatment: float | None
    mean_baseline: float | None
    sd_treatment: float | None
    sd_baseline: float | None
    mean_difference: float | None
    sd_difference: float | None
    # -- sign test -----------------------------------------------------------------------------------------
    wins: int
    """Pairs that favour the treatment, plus seeds on which only the baseline failed by itself."""
    losses: int
    ties: int
    sign_test_p: float | None
    """None in a sequential study, as every fixed-n p-value."""
    p_floor: float
    """Smallest two-sided p that wins + losses untied seeds can give."""
    # -- the tests -----------------------------------------------------------------------------------------
    sign_flip_p: float | None
    adjusted_p: float | None
    """Step-down joint p over the primaries, times the number of comparisons still in play (Holm)."""
    adjusted_floor: float | None
    """The smallest adjusted_p that this many seeds can give."""
    holm_p: float | None
    """For comparison: Holm over the primaries' own sign-flip p-values."""
    wilcoxon_p: float | None
    t_p: float | None
    t_ci95: Interval | None
    exact_interval: Interval | None
    """Inversion of the sign-flip test at `exact_interval_level`."""
    exact_interval_level: float | None
    """0.95, or the highest attainable level below it (0.9375 with five seeds)."""
    bootstrap_ci95: Interval | None
    """BCa; from 20 pairs up only."""
    # -- sizes of effect -----------------------------------------------------------------------------------
    hodges_lehmann: float | None
    dz: float | None
    gz: float | None
    prob_improvement: float | None
    """Share of seeds on which the treatment scores higher, ties half."""
    # -- beyond seeds --------------------------------------------------------------------------------------
    crossed: CrossedFinding | None
    crossed_missing: str | None
    """Why there is no crossed interval; None when there is one."""
    equivalence: EquivalenceFinding | None
    one_pair: OnePairFinding | None
    e_value: float | None
    e_threshold: float | None
    win_rate_interval: Interval | None
    """Sequential only: confidence sequence for P(treatment wins on an untied seed)."""
    verdict: Verdict | None
    """None for exploratory endpoints."""
    sentence: str
    # -- for comparison only -------------------------------------------------------------------------------
    welch_p: float | None = None
    """The unpaired test, to show what the pairing gains."""
    single_step_p: float | None = None
    """Single-step joint p: never smaller than the step-down one."""
    e_closed: float | None = None
    """Sequential only: e-value after closed testing over all primaries and comparisons (threshold 1 / alpha)."""
    crossed_bootstrap_ci95: Interval | None = None
    """Resampling seeds and examples; from 20 pairs up, primaries only."""

    @property
    def crossed_ci95(self) -> Interval | None:
        """The crossed 95% interval, or None."""
        return self.crossed.ci95 if self.crossed else None


@dataclass(frozen=True, kw_only=True)
class SeedsAdvice:
    """What more seeds would buy. For planning only: it uses the floor and the spread, not the observed effect."""

    seeds_to_reach_alpha: int
    """Smallest number of untied seeds whose floor can reach alpha here."""
    seeds_for_win_rate: Mapping[str, int]
    """P(win) ("0.95", ...) -> seeds for 80% power of the sign test at alpha over the comparisons in play (Holm)."""
    seeds_at_margin: int | None
    """Seeds for 80% power of the paired t test if the true difference were the margin, with the observed sd."""
    sequential_seeds_to_go: int | None
    """Sequential only: further seeds until the threshold if the win rate so far went on; None: never, or decided."""
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Treatment against baseline inside one setting."""

    treatment: str
    baseline: str
    setting: str
    verdict: Verdict
    sentence: str
    endpoints: tuple[EndpointFinding, ...]
    """Primaries first, in the plan's order, then by metric and dim."""
    dropped: tuple[DroppedSeed, ...]
    seed_correlation: float | None
    """Correlation of the two variants' scores over seeds, first primary endpoint."""
    seed_correlation_warning: str | None
    """A sentence when it is 0 or below: pairing removed no noise."""
    declared_differences: tuple[DeclaredDifference, ...]
    unverified_pairs: int
    """Pairs used whose fingerprints are absent or disagree (only where that was allowed)."""
    conflict: str | None
    """Two different scores for one key: why the comparison is refused."""
    advice: SeedsAdvice | None
    descriptive: bool
    """True once there are several settings: the verdict that counts is the one across settings."""


@dataclass(frozen=True, kw_only=True)
class SettingRow:
    """One setting's line in the matrix of an endpoint."""

    setting: str
    n_pairs: int
    wins: int
    losses: int
    ties: int
    mean_difference: float | None
    sd_difference: float | None
    t_ci95: Interval | None
    crossed_ci95: Interval | None
    sign_flip_p: float | None
    verdict: Verdict | None
    crossed_ci95_joint: Interval | None = None
    """For all primaries and comparisons at once: the one that the verdict looks at."""


@dataclass(frozen=True, kw_only=True)
class MetaAnalysis:
    """Random-effects description of the setting means (DerSimonian-Laird, Hartung-Knapp); descriptive only."""

    fixed: float | None
    q: float | None
    q_p: float | None
    i2: float | None
    tau2: float | None
    random: float | None
    hartung_knapp_ci95: Interval | None
    tau2_paule_mandel: float | None = None
    tau2_reml: float | None = None
    random_paule_mandel: float | None = None


@dataclass(frozen=True, kw_only=True)
class AcrossEndpoint:
    """One endpoint over all settings of a comparison."""

    endpoint: str
    primary: bool
    rows: tuple[SettingRow, ...]
    n_settings: int
    """Settings with at least one pair."""
    n_distinct_seeds: int
    pooled_sign_flip_p: float | None
    """Whole seeds flipped jointly over their settings; None in a sequential study."""
    adjusted_p: float | None
    p_floor: float
    """Smallest pooled p that the untied distinct seeds can give."""
    wins: int
    """Distinct seeds whose mean over settings favours the treatment."""
    losses: int
    ties: int
    mean_difference: float | None
    """Unweighted mean of setting means."""
    crossed: CrossedFinding | None
    equivalence: EquivalenceFinding | None
    settings_t_p: float | None
    """Settings as units: t on the setting means, df = settings - 1."""
    settings_t_ci95: Interval | None
    settings_favouring_treatment: int
    settings_sign_p: float | None
    heterogeneity_f: float | None
    heterogeneity_df: tuple[float, float] | None
    heterogeneity_p: float | None
    meta: MetaAnalysis | None
    without: Mapping[str, float | None]
    """Setting -> mean of setting means without it."""
    qualitative_p: float | None = None
    """Gail and Simon's test that settings differ in direction; at alpha (over all primaries and comparisons) the
    verdict is `mixed`. None in a sequential study, where e-values of single settings decide."""
    direction_depends_on_one_setting: bool
    simpson: bool
    """The pooled unpaired difference has another sign than every within-setting one."""
    pooled_unpaired_difference: float | None
    e_value: float | None
    e_threshold: float | None
    verdict: Verdict | None
    sentence: str
    adjusted_floor: float | None = None
    """The smallest adjusted_p that these seeds can give: Holm's factor counts."""


@dataclass(frozen=True, kw_only=True)
class AcrossSettings:
    """One treatment against the baseline, over all settings."""

    treatment: str
    baseline: str
    settings: tuple[str, ...]
    verdict: Verdict
    sentence: str
    endpoints: tuple[AcrossEndpoint, ...]


@dataclass(frozen=True, kw_only=True)
class VariantPair:
    """One pair of variants among all pairs."""

    first: str
    second: str
    mean_difference: float
    """second minus first."""
    sign_flip_p: float | None
    """None in a sequential study, as every fixed-n p-value."""
    holm_p: float | None


@dataclass(frozen=True, kw_only=True)
class ManyVariants:
    """More than two variants on the seeds that all of them finished; one primary endpoint in one setting."""

    endpoint: str
    setting: str
    variants: tuple[str, ...]
    seeds: tuple[int, ...]
    friedman_chi2: float | None
    friedman_p: float | None
    """Exact by enumeration, or Monte Carlo (`friedman_exact` False)."""
    friedman_exact: bool
    pairs: tuple[VariantPair, ...]
    """Only on request (all pairs)."""


@dataclass(frozen=True, kw_only=True)
class CellCount:
    """Recorded cells of one variant."""

    variant: str
    by_state: Mapping[str, int]
    """State (analysis.schema) -> cells."""


@dataclass(frozen=True, kw_only=True)
class StudyFindings:
    """The whole analysis of a study."""

    study: str
    headline: str
    """The first line of every report: the verdict in plain words, led by variants that failed by themselves."""
    sentences: tuple[str, ...]
    """One sentence per comparison (or per treatment, across settings); the headline is made of them."""
    notices: tuple[Notice, ...]
    plan: PlanUsed
    baseline: str | None
    comparisons: tuple[Comparison, ...]
    across_settings: tuple[AcrossSettings, ...]
    """One per treatment; empty when there is one setting only."""
    many_variants: tuple[ManyVariants, ...]
    settings: tuple[str, ...]
    cells: tuple[CellCount, ...]
    problems: tuple[Problem, ...]
    """What was not used and why, beyond the seeds dropped inside a comparison."""
    null_hypothesis: str
    method: tuple[str, str, str]
    """The method in three sentences."""
    skew_warning: str | None
    """Said where a primary's difference is significant and its seeds are skewed against it, or where mean and median
    have opposite signs: the sign-flip test may then err more than alpha."""
