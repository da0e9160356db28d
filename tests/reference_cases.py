"""One door to the statistics for worked reference cases: names of cases in, names of cases out.

`evaluate(function, inputs)` calls the very functions that the report calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from scipy import special, stats

from analysis import schema
from analysis.comparing import pairing, verdict
from analysis.results.model import CellRecord, Results
from analysis.statistics import across_settings as settings
from analysis.statistics import (
    closed_forms,
    crossed,
    equivalence,
    influence,
    joint,
    paired,
    power,
    qualitative,
    sequential,
)
from analysis.statistics import correlations as dependent
from analysis.statistics import friedman as variants

SEED = 20_240_229
"""Of Monte Carlo tests and bootstraps."""
D = "differences_B_minus_A"
SCORE = schema.Endpoint("test/score", 1)
Inputs = Mapping[str, Any]


def _rng() -> np.random.Generator:
    return np.random.default_rng(SEED)


def _numbers(values: Any) -> np.ndarray:
    """None becomes NaN, also inside nested lists; nothing at all is empty."""
    return np.array([] if values is None else values, dtype=np.float64)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _groups(values: Mapping[str, Sequence[float]] | Sequence[Sequence[float]] | None) -> list[np.ndarray]:
    values = [] if values is None else values
    return [_numbers(v) for v in (values.values() if isinstance(values, Mapping) else values)]


def _each(inputs: Inputs, names: Sequence[str], call: Callable[..., Any]) -> Any:
    """Call once per position where any of the inputs is a list, else once."""
    values = [inputs[n] for n in names]
    length = max((len(v) for v in values if isinstance(v, list)), default=None)
    if length is None:
        return call(*values)
    columns = [v if isinstance(v, list) else [v] * length for v in values]
    return [call(*row) for row in zip(*columns, strict=True)]


def sign_test_log10(wins: int, n_used: int) -> float:
    """log10 of the two-sided p, also where p itself is too small for a float."""
    tail = np.arange(min(wins, n_used - wins) + 1)
    log_p = math.log(2) + float(special.logsumexp(stats.binom.logpmf(tail, n_used, 0.5))) if n_used else 0.0
    return min(0.0, log_p) / math.log(10)


def crossed_linear(seed_by_example: Any) -> crossed.Crossed | None:
    """The same for a score that is a mean over examples: rows are seeds, columns examples.

    A seed with an entry that is not finite is left out as a whole.
    """
    rows = complete_rows(seed_by_example)
    if rows.shape[1] == 0:
        return None
    means = seed_means(rows)
    return crossed.crossed(means, rows - means[:, None])


def complete_rows(seed_by_example: Any) -> np.ndarray:
    """Rows without missing entries, shape (seeds, examples)."""
    rows = np.array(seed_by_example, dtype=np.float64, ndmin=2)
    return rows[np.isfinite(rows).all(axis=1)]


def seed_means(seed_by_example: Any) -> np.ndarray:
    """Mean over examples of every complete seed, shape (seeds,); empty without examples."""
    rows = complete_rows(seed_by_example)
    return rows.mean(axis=1) if rows.shape[1] else np.empty(0)


def sign_test(i: Inputs) -> dict[str, Any]:
    t = paired.sign_test(
        _numbers(i[D]),
        alternative=i.get("alternative", "two-sided"),
        tie_tolerance=i.get("tie_tolerance", paired.TIE_TOLERANCE),
    )
    return {
        "n_used": t.n_used, "n_ties": t.ties, "n_favour_B": t.wins, "n_favour_A": t.losses,
        "p_value": t.p_value, "p_floor": t.p_floor,
    }  # fmt: skip


def sign_test_from_counts(i: Inputs) -> dict[str, Any]:
    k, n = i["n_favour_B"], i["n_used"]
    return {
        "p_value": paired.sign_test_from_counts(k, n, i.get("alternative", "two-sided")),
        "log10_p_value": sign_test_log10(k, n),
    }


def p_value_floor(i: Inputs) -> dict[str, Any]:
    return {"floor": _each(i, ["n"], lambda n: closed_forms.p_floor(n, i.get("alternative", "two-sided")))}


def minimum_seeds(i: Inputs) -> dict[str, Any]:
    given = {"alpha": i.get("alpha", 0.05), "m": i.get("m", 1)}
    found = _each(given, ["alpha", "m"], power.minimum_seeds)
    if isinstance(found, list):
        return {"holm": [f.holm for f in found], "max_t": [f.joint for f in found]}
    return {"holm": found.holm, "max_t": found.joint}


def wilcoxon_signed_rank(i: Inputs) -> dict[str, Any]:
    method = {"wilcox": "drop", "drop": "drop", "pratt": "pratt"}[i.get("zero_method", "drop")]
    w = paired.wilcoxon_signed_rank(_numbers(i[D]), zero_method=method, alternative=i.get("alternative", "two-sided"))
    return {"w_plus": w.w_plus, "p_value": w.p_value}


def sign_flip_test(i: Inputs) -> dict[str, Any]:
    return asdict(paired.sign_flip_test(_numbers(i[D]), alternative=i.get("alternative", "two-sided"), rng=_rng()))


def sign_flip_confidence_interval(i: Inputs) -> dict[str, Any]:
    level = i.get("level", 0.95)
    found = paired.sign_flip_interval(_numbers(i[D]), level=level, rng=_rng())
    return {
        f"interval_{100 * level:g}": found.interval,
        "interval": found.interval,
        "attainable_level": found.widest_level,
        "interval_attainable": found.widest,
    }


def paired_t_summary(i: Inputs) -> dict[str, Any]:
    t = paired.paired_t(_numbers(i[D]))
    return {
        "mean": t.mean, "sd": t.sd, "ci95": t.ci95, "p_value": t.p_value, "cohen_dz": t.dz, "hedges_gz": t.gz,
    }  # fmt: skip


def paired_t_summary_vs_welch(i: Inputs) -> dict[str, Any]:
    a, b = _numbers(i["A"]), _numbers(i["B"])
    return {
        "p_paired_t": paired.paired_t(b - a).p_value,
        "p_welch": paired.welch_p(b, a),
        "p_sign_flip": paired.sign_flip_test(b - a, rng=_rng()).p_value,
    }


def hodges_lehmann(i: Inputs) -> dict[str, Any]:
    return {"estimate": paired.hodges_lehmann(_numbers(i[D]))}


def probability_of_improvement(i: Inputs) -> dict[str, Any]:
    tolerance = i.get("tie_tolerance", paired.TIE_TOLERANCE)
    return asdict(paired.probability_of_improvement(_numbers(i["A"]), _numbers(i["B"]), tie_tolerance=tolerance))


def bca_interval(i: Inputs) -> dict[str, Any]:
    return {"interval": paired.bca_interval(_numbers(i[D]), level=i.get("level", 0.95), rng=_rng())}


def holm(i: Inputs) -> dict[str, Any]:
    return {"adjusted": joint.holm(i.get("p_values", []))}


def max_t_sign_flip(i: Inputs) -> dict[str, Any]:
    return asdict(joint.joint_sign_flip(_numbers(i["differences_seed_by_endpoint"]), rng=_rng()))


def equivalence_case(i: Inputs) -> dict[str, Any]:
    if i["margin"] is None:
        ci90 = paired.t_interval(_numbers(i[D]), 0.90)
        return {"tost_p": None, "exact_p": None, "ci90": ci90, "equivalent": False}
    e = equivalence.equivalence(_numbers(i[D]), margin=i["margin"], alpha=i.get("alpha", 0.05), rng=_rng())
    return {"tost_p": e.tost_p, "exact_p": e.exact_p, "ci90": e.ci90, "equivalent": e.equivalent}


def crossed_interval(i: Inputs) -> dict[str, Any]:
    c = crossed_linear(_numbers(i["seed_by_example"]))
    names = (
        "mean", "seed_variance_of_mean", "shared_example_variance", "interaction_variance_per_seed",
        "total_variance", "df",
    )  # fmt: skip
    level = i.get("level", 0.95)
    out = {n: None if c is None else getattr(c, n) for n in names}
    if c is None:  # one seed or one example: what is defined all the same
        t = paired.paired_t(seed_means(_numbers(i["seed_by_example"])))
        n = seed_means(_numbers(i["seed_by_example"])).size
        out |= {"mean": t.mean, "seed_variance_of_mean": None if t.sd is None else t.sd**2 / n}
    interval = None if c is None else c.interval(level)
    return {**out, f"ci{100 * level:g}": interval, "interval": interval}


def crossed_bootstrap(i: Inputs) -> dict[str, Any]:
    c = crossed.crossed_bootstrap(_numbers(i["seed_by_example"]), rng=_rng())
    return {"bootstrap_mean": c and c.mean, "bootstrap_variance": c and c.variance}


def paired_correlation_difference(i: Inputs) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for statistic in ("spearman", "pearson"):
        c = influence.correlation_difference(
            _numbers(i["labels"]), _numbers(i["predictions_A"]), _numbers(i["predictions_B"]), statistic=statistic
        )
        out[statistic] = {
            "A": c.first, "B": c.second, "difference": c.difference, "jackknife_se": c.jackknife_se,
        }  # fmt: skip
    return out


def dependent_correlations(i: Inputs) -> dict[str, Any]:
    first, second, between = (_number(i[name]) for name in ("r_label_A", "r_label_B", "r_A_B"))
    return asdict(dependent.dependent_correlations(first, second, between, i.get("n", 0)))


def meta_analysis(i: Inputs) -> dict[str, Any]:
    m = settings.meta_analysis(_numbers(i["effects"]), _numbers(i["variances"]))
    out: dict[str, Any] = {
        "fixed": m.fixed, "Q": m.q, "Q_p": m.q_p, "I2": m.i2,
        "tau2_dl": m.tau2_dl, "tau2_pm": m.tau2_pm, "tau2_reml": m.tau2_reml,
        "unweighted_mean": m.unweighted_mean, "unweighted_ci95": m.unweighted_ci95,
    }  # fmt: skip
    for name, random in (("dl", m.dl), ("pm", m.pm)):
        out |= {
            f"random_{name}": random.mean,
            f"hk_truncated_se_{name}": random.se,
            f"hk_untruncated_se_{name}": random.se_untruncated,
            f"hk_ci95_{name}": random.ci95,
        }
    return out


def heterogeneity_test(i: Inputs) -> dict[str, Any]:
    h = settings.heterogeneity(_groups(i["differences_by_setting"]))
    return {"welch_F": h.f, "p_value": h.p_value, "df": h.df}


def leave_one_setting_out(i: Inputs) -> dict[str, Any]:
    return asdict(settings.leave_one_out(_groups(i["differences_by_setting"])))


def gail_simon(i: Inputs) -> dict[str, Any]:
    return asdict(qualitative.gail_simon(_numbers(i["normal_scores"])))


def crossed_over_test_sets(i: Inputs) -> dict[str, Any]:
    parts = []
    for number, rows in enumerate(i["seed_by_example_by_setting"]):
        values = _numbers(rows)
        means = values.mean(axis=1)
        seeds = tuple(range(100 * number, 100 * number + len(means)))
        parts.append(
            crossed.SettingInfluence(seeds=seeds, differences=means, influence=values - means[:, None], test_set=number)
        )
    c = crossed.crossed_over_settings(parts)
    return {} if c is None else {"total_variance": c.total_variance, "df": c.df, "example_df": c.example_df}


def pooled_sign_flip(i: Inputs) -> dict[str, Any]:
    offset, by_seed = 0, []
    for group in _groups(i["differences_by_setting"]):
        by_seed.append({n + offset: float(v) for n, v in enumerate(group) if np.isfinite(v)})
        offset += 0 if i["seeds_shared_between_settings"] else group.size
    return asdict(settings.pooled_by_seed(by_seed, rng=_rng()))


def cluster_sign_test(i: Inputs) -> dict[str, Any]:
    s = settings.settings_sign_test(_numbers(i["setting_means"]))
    return {"n_settings": s.n_settings, "n_favour_B": s.favouring_treatment, "p_value": s.p_value}


def simpson_flag(i: Inputs) -> dict[str, Any]:
    a, b = i.get("scores_A", {}), i.get("scores_B", {})
    names = list(dict.fromkeys((*a, *b)))
    s = settings.simpson([_numbers(a.get(n, [])) for n in names], [_numbers(b.get(n, [])) for n in names])
    return {"within_setting_difference": s.within, "pooled_difference": s.pooled, "reversal": s.reversal}


def e_value_sign(i: Inputs) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if "n_used" in i:
        k, lost = i["n_favour_B"], i["n_used"] - i["n_favour_B"]
        e = sequential.e_value(k, lost)
        out = {
            "jeffreys_a_half": e,
            "uniform_a_1": sequential.e_value(k, lost, 1.0),
            "anytime_p_jeffreys_at_this_n": min(1.0, 1 / e) if e > 0 else 1.0,
        }
    if "max_n" in i:
        n, threshold = i["max_n"], i["threshold"]
        out |= {
            "prob_cross": sequential.crossing_probability(n, threshold, a=i.get("a", closed_forms.JEFFREYS)),
            "prob_naive_peeking": sequential.naive_peeking_probability(n, 1 / threshold),
        }
    return out


def confidence_sequence_sign(i: Inputs) -> dict[str, Any]:
    k, n = i["n_favour_B"], i["n_used"]
    interval = sequential.win_rate_interval(k, n - k, alpha=i.get("alpha", 0.05), a=i.get("a", closed_forms.JEFFREYS))
    return {"interval": interval}


def e_bonferroni(i: Inputs) -> dict[str, Any]:
    wins = i["n_favour_B"]
    used = i["n_used"] if isinstance(i["n_used"], list) else [i["n_used"]] * len(wins)
    threshold = closed_forms.e_threshold(len(wins), i.get("alpha", 0.05))
    e = [sequential.e_value(k, n - k) for k, n in zip(wins, used, strict=True)]
    return {"threshold": threshold, "e": e, "reject": [closed_forms.reached(x, threshold) for x in e]}


def e_closed_testing(i: Inputs) -> dict[str, Any]:
    c = sequential.e_closed(i["e"], alpha=i.get("alpha", 0.05))
    return {"adjusted_e": c.e, "reject": c.reject}


def power_sign_test(i: Inputs) -> dict[str, Any]:
    alpha = i.get("alpha", 0.05)
    call = lambda n, p: power.power_sign_test(n, p, alpha=alpha)  # noqa: E731
    return {"power": _each(i, ["n", "prob_B_better"], call)}


def seeds_needed(i: Inputs) -> dict[str, Any]:
    wanted = {"alpha": i.get("alpha", 0.05), "power": i.get("power", 0.8)}
    found = _each(i, ["prob_B_better"], lambda p: power.seeds_needed(p, **wanted))
    if isinstance(found, list):
        return {"first": [f.first for f in found], "always": [f.always for f in found]}
    return {"first": found.first, "always": found.always}


def seeds_needed_t(i: Inputs) -> dict[str, Any]:
    wanted = {"alpha": i.get("alpha", 0.05), "power": i.get("power", 0.8)}
    return {"n": _each(i, ["cohen_dz"], lambda dz: power.seeds_needed_t(dz, **wanted))}


def friedman(i: Inputs) -> dict[str, Any]:
    f = variants.friedman(_numbers(i["seed_by_variant"]), rng=_rng())
    return {"chi2": f.chi2, "p_chi2": f.p_chi2, "p_exact": f.p_value}


def all_pairs(i: Inputs) -> dict[str, Any]:
    found = variants.all_pairs(_numbers(i["seed_by_variant"]), rng=_rng())
    return {"raw": [p.raw for p in found], "holm": [p.holm for p in found]}


def selection_bias(i: Inputs) -> dict[str, Any]:
    return {"expected_max_sd": _each(i, ["k"], power.selection_bias)}


def _recorded_pairs(sides: Mapping[str, Sequence[tuple[int, float | None]]]) -> pairing.PairedScores:
    """Trials (seed, score) of two variants, paired as recorded results are."""
    trials = [(name, seed, _number(score)) for name, side in sides.items() for seed, score in side]
    cells = {(name, seed): f"{name}-{seed}" for name, seed, _ in trials}
    rows = [(cells[name, seed], name, seed, schema.DEFAULT_SETTING, *SCORE, score) for name, seed, score in trials]
    results = Results(
        study="trials",
        table=pd.DataFrame(rows, columns=list(schema.RESULT_COLUMNS)),
        cells=tuple(
            CellRecord(cell=cell, variant=name, seed=seed, setting=schema.DEFAULT_SETTING, state=schema.STATE_FINISHED)
            for (name, seed), cell in cells.items()
        ),
    )
    return pairing.pair(
        pairing.index(results),
        treatment="B",
        baseline="A",
        setting=schema.DEFAULT_SETTING,
        fingerprinted=False,
        allow_unverified=True,
    )


def pair_trials(i: Inputs) -> dict[str, Any]:
    if "records" in i:
        sides = {v: [(_seed(s), x) for name, s, x in i["records"] if name == v] for v in ("A", "B")}
    else:
        sides = {v: [(_seed(s), x) for s, x in i.get(v, {}).items()] for v in ("A", "B")}
    order = sorted({seed for side in sides.values() for seed, _ in side}, key=lambda s: (isinstance(s, str), s))
    pairs = _recorded_pairs({v: [(order.index(s), x) for s, x in side] for v, side in sides.items()})
    treatment, baseline = (_numbers(side.get(str(SCORE), [])) for side in (pairs.treatment, pairs.baseline))
    known = np.isfinite(treatment - baseline) & (pairs.conflict is None)
    test = paired.sign_test((treatment - baseline)[known])
    return {
        "used": [order[seed] for seed, both in zip(pairs.seeds, known, strict=True) if both],
        "dropped": [order[drop.seed] for drop in pairs.dropped if "two different scores" not in drop.reason],
        "n_pairs": int(known.sum()),
        "p_value_sign": test.p_value,
        "refused": pairs.conflict is not None,
    }


def _seed(seed: int | str) -> int | str:
    return int(seed) if isinstance(seed, str) and seed.lstrip("-").isdigit() else seed


def verdict_case(i: Inputs) -> dict[str, Any]:
    matrix = i.get("primary_endpoints")
    d = _numbers(matrix) if matrix is not None else _numbers(i[D])[:, None]

    def per_endpoint(name: str) -> list[tuple[float, float] | None] | None:
        given = i.get(name)
        if given is None:
            return None
        nested = any(isinstance(g, list) or g is None for g in given)
        return [None if g is None else tuple(g) for g in given] if nested else [tuple(given)] * d.shape[1]

    decided = verdict.decide(
        d,
        alpha=i.get("alpha", 0.05),
        margin=i.get("margin"),
        crossed_ci95=per_endpoint("crossed_ci95"),
        crossed_ci90=per_endpoint("crossed_ci90"),
        rng=_rng(),
    )
    return {"verdict": decided}


FUNCTIONS: dict[str, Callable[[Inputs], dict[str, Any]]] = {
    f.__name__: f
    for f in (
        sign_test, sign_test_from_counts, p_value_floor, minimum_seeds, wilcoxon_signed_rank, sign_flip_test,
        sign_flip_confidence_interval, paired_t_summary, paired_t_summary_vs_welch, hodges_lehmann,
        probability_of_improvement, bca_interval, holm, max_t_sign_flip, crossed_interval, crossed_bootstrap,
        paired_correlation_difference, dependent_correlations, meta_analysis, heterogeneity_test,
        leave_one_setting_out, gail_simon, crossed_over_test_sets, pooled_sign_flip, cluster_sign_test,
        simpson_flag, e_value_sign,
        confidence_sequence_sign, e_bonferroni, e_closed_testing, power_sign_test, seeds_needed, seeds_needed_t,
        friedman, all_pairs, selection_bias, pair_trials,
    )
} | {"equivalence": equivalence_case, "verdict": verdict_case}  # fmt: skip


def evaluate(function: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Results of one reference function; NaN and undefined are None, tuples are lists.

    An input that is None counts as not given: its default holds, and what is needed and missing is undefined.

    Raises:
        KeyError: no such function.
    """
    return _plain(FUNCTIONS[function](_Given({k: v for k, v in inputs.items() if v is not None})))


class _Given(dict[str, Any]):
    def __missing__(self, name: str) -> None:
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    return value
