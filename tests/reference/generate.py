"""The project's own worked cases of the statistics, from oracles that share no code with it.

    python -m tests.reference.generate        writes tests/reference/cases.json; a test holds it current

Oracles: enumeration of all sign patterns with exact fractions, scipy, statsmodels, numerical integration. Nothing is
imported from the package. The format is that of the file which PAIRSWEEP_REFERENCE may name: function, inputs,
expected, tolerances, and how the expected values were found.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from scipy import integrate, optimize, stats
from statsmodels.stats.meta_analysis import combine_effects
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.oneway import anova_oneway
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import ttost_paired

FILE = Path(__file__).with_name("cases.json")
D = "differences_B_minus_A"
EXACT, CLOSE = (1e-9, 1e-12), (1e-6, 1e-12)

UP5 = [0.0031, 0.0024, 0.0052, 0.0009, 0.0044]
MIXED6 = [0.0031, -0.0012, 0.0052, 0.0009, 0.0044, 0.0021]
TIED7 = [0.002, 0.0, 0.001, -0.003, 0.0, 0.004, 0.002]
EIGHT = [0.011, 0.004, -0.002, 0.007, 0.009, 0.001, 0.005, -0.003]
SCALED8 = [x * 1e-7 for x in EIGHT]
SAMPLES = {"up5": UP5, "mixed6": MIXED6, "tied7": TIED7, "eight": EIGHT, "scaled8": SCALED8}


def fractions(values: Sequence[float]) -> list[Fraction]:
    return [Fraction(str(v)) for v in values]


def flips(n: int) -> Iterator[tuple[int, ...]]:
    return itertools.product((1, -1), repeat=n)


def binomial_two_sided(k: int, n: int) -> Fraction:
    """Twice the smaller tail at p = 1/2, at most 1."""
    if n == 0:
        return Fraction(1)
    tail = sum(math.comb(n, j) for j in range(max(k, n - k), n + 1))
    return min(Fraction(1), Fraction(2 * tail, 2**n))


def flip_p(values: Sequence[Fraction]) -> Fraction:
    """Share of sign patterns whose |sum| is at least the observed one."""
    seen = abs(sum(values))
    hits = sum(abs(sum(s * v for s, v in zip(signs, values, strict=True))) >= seen for signs in flips(len(values)))
    return Fraction(hits, 2 ** len(values))


def case(
    name: str, function: str, inputs: dict[str, Any], expected: dict[str, Any], how: str,
    tolerances: tuple[float, float] = EXACT,
) -> dict[str, Any]:  # fmt: skip
    rtol, atol = tolerances
    return {
        "id": name, "function": function, "inputs": inputs, "expected": expected, "rtol": rtol, "atol": atol,
        "how_computed": how, "level": "required",
    }  # fmt: skip


def one_sample() -> Iterator[dict[str, Any]]:
    for name, d in SAMPLES.items():
        exact = fractions(d)
        wins, losses = sum(x > 0 for x in exact), sum(x < 0 for x in exact)
        used = wins + losses
        tolerance = 0 if name == "scaled8" else 1e-12
        counts = {"n_used": used, "n_ties": len(d) - used, "n_favour_B": wins, "n_favour_A": losses}
        p = {"p_value": float(binomial_two_sided(wins, used)), "p_floor": min(1.0, 2.0 ** (1 - used))}
        inputs = {D: d, "tie_tolerance": tolerance}
        yield case(f"sign_{name}", "sign_test", inputs, {**counts, **p}, "binomial tail in fractions")
        yield case(
            f"flip_{name}", "sign_flip_test", {D: d}, {"p_value": float(flip_p(exact)), "mean": float(np.mean(d))},
            "enumeration of all sign patterns in fractions",
        )  # fmt: skip
        yield case(
            f"walsh_{name}", "hodges_lehmann", {D: d}, {"estimate": float(_walsh_median(exact))},
            "median of all Walsh averages in fractions", (1e-9, 1e-15),
        )  # fmt: skip
        t = stats.ttest_1samp(d, 0)
        low, high = t.confidence_interval(0.95)
        n, sd = len(d), float(np.std(d, ddof=1))
        correction = math.gamma((n - 1) / 2) / (math.sqrt((n - 1) / 2) * math.gamma((n - 2) / 2))
        dz = float(np.mean(d)) / sd
        expected = {
            "mean": float(np.mean(d)), "sd": sd, "ci95": [float(low), float(high)], "p_value": float(t.pvalue),
            "cohen_dz": dz, "hedges_gz": dz * correction,
        }  # fmt: skip
        yield case(f"t_{name}", "paired_t_summary", {D: d}, expected, "scipy ttest_1samp; gamma-function correction",
                   (1e-8, 1e-15))  # fmt: skip
    for name in ("up5", "mixed6", "eight"):
        d = SAMPLES[name]
        w_plus, p = _wilcoxon(fractions(d))
        expected = {"w_plus": float(w_plus), "p_value": float(p)}
        yield case(f"wilcoxon_{name}", "wilcoxon_signed_rank", {D: d}, expected, "all sign patterns of the midranks")


def _walsh_median(values: Sequence[Fraction]) -> Fraction:
    averages = sorted((a + b) / 2 for a, b in itertools.combinations_with_replacement(values, 2))
    middle = len(averages) // 2
    return averages[middle] if len(averages) % 2 else (averages[middle - 1] + averages[middle]) / 2


def _wilcoxon(values: Sequence[Fraction]) -> tuple[Fraction, Fraction]:
    sizes = [abs(v) for v in values if v]
    ranks = [Fraction(sum(b < a for b in sizes)) + Fraction(sum(b == a for b in sizes) + 1, 2) for a in sizes]
    observed = sum((r for r, v in zip(ranks, [v for v in values if v], strict=True) if v > 0), Fraction(0))
    centre = sum(ranks, Fraction(0)) / 2
    hits = sum(
        abs(sum((r for r, s in zip(ranks, signs, strict=True) if s > 0), Fraction(0)) - centre)
        >= abs(observed - centre)
        for signs in flips(len(ranks))
    )
    return observed, Fraction(hits, 2 ** len(ranks))


def counted() -> Iterator[dict[str, Any]]:
    for k, n in ((5, 5), (6, 7), (3, 10), (0, 9), (61, 100), (0, 0)):
        yield case(
            f"counts_{k}_of_{n}", "sign_test_from_counts", {"n_favour_B": k, "n_used": n},
            {"p_value": float(binomial_two_sided(k, n))}, "binomial tail in fractions",
        )  # fmt: skip
    for k, n in ((7, 7), (6, 8), (4, 9)):
        half, _ = integrate.quad(
            lambda t, k=k, n=n: 2 / math.pi * math.sin(t) ** (2 * k) * math.cos(t) ** (2 * (n - k)), 0, math.pi / 2,
            epsabs=1e-14,
        )  # fmt: skip
        uniform = Fraction(2**n, (n + 1) * math.comb(n, k))
        e = 2**n * half
        expected = {"jeffreys_a_half": e, "uniform_a_1": float(uniform), "anytime_p_jeffreys_at_this_n": min(1, 1 / e)}
        yield case(f"e_{k}_of_{n}", "e_value_sign", {"n_favour_B": k, "n_used": n}, expected,
                   "integral over the mixture; fractions for a = 1", CLOSE)  # fmt: skip
        yield case(f"cs_{k}_of_{n}", "confidence_sequence_sign", {"n_favour_B": k, "n_used": n, "alpha": 0.05},
                   {"interval": _win_rates(k, n, half)}, "root of the likelihood ratio", CLOSE)  # fmt: skip
    table = list(range(1, 14))
    yield case("floors", "p_value_floor", {"n": table}, {"floor": [min(1.0, 2.0 ** (1 - n)) for n in table]}, "2^(1-n)")
    alphas, tests = [0.05, 0.05, 0.1, 0.001], [1, 5, 1, 3]
    expected = {
        "holm": [_smallest(lambda n, a=a, m=m: 2.0 ** (1 - n) * m <= a) for a, m in zip(alphas, tests, strict=True)],
        "max_t": [_smallest(lambda n, a=a: 2.0 ** (1 - n) <= a) for a in alphas],
    }
    yield case("fewest_seeds", "minimum_seeds", {"alpha": alphas, "m": tests}, expected, "search over 2^(1-n)")
    wins, n = [8, 7, 4], 8
    es = [_mixture(k, n) for k in wins]
    yield case(
        "e_three", "e_bonferroni", {"n_favour_B": wins, "n_used": n, "alpha": 0.05},
        {"threshold": 60, "e": es, "reject": [e >= 60 for e in es]}, "integral over the mixture; union bound", CLOSE,
    )  # fmt: skip
    given = [90.0, 30.0, 8.0, 0.4]
    adjusted = [
        min(
            sum(group) / len(group)
            for size in range(4)
            for rest in itertools.combinations([e for i, e in enumerate(given) if i != j], size)
            for group in [(given[j], *rest)]
        )
        for j in range(4)
    ]
    yield case("e_closed_four", "e_closed_testing", {"e": given, "alpha": 0.05},
               {"adjusted_e": adjusted, "reject": [e >= 20 for e in adjusted]}, "all subsets")  # fmt: skip


def _smallest(holds: Any) -> int:
    return next(n for n in itertools.count(1) if holds(n))


def _mixture(k: int, n: int) -> float:
    value, _ = integrate.quad(
        lambda t: 2 / math.pi * math.sin(t) ** (2 * k) * math.cos(t) ** (2 * (n - k)), 0, math.pi / 2, epsabs=1e-14
    )
    return float(2**n * value)


def _win_rates(k: int, n: int, mixture: float) -> list[float]:
    def excess(p: float) -> float:
        return math.log(mixture) - k * math.log(p) - (n - k) * math.log1p(-p) - math.log(20)

    peak = k / n
    edge = 1e-12
    low = 0.0 if k == 0 else optimize.brentq(excess, edge, min(peak, 1 - edge), xtol=1e-14)
    high = 1.0 if k == n else optimize.brentq(excess, max(peak, edge), 1 - edge, xtol=1e-14)
    return [low, high]


def together() -> Iterator[dict[str, Any]]:
    matrices = {
        "three": [[3, 2, 1], [2, 3, -1], [4, 1, 2], [1, 2, 3], [5, 4, 1]],
        "opposite": [[3, -3], [2, -1], [4, -5], [1, -2], [2, -2], [6, -4]],
        "one_null": [[3, 1], [2, -1], [4, 1], [1, -1], [2, 1], [5, -1], [3, 1]],
    }
    for name, matrix in matrices.items():
        raw, single, stepped = _max_t(np.array(matrix, dtype=float))
        yield case(f"joint_{name}", "max_t_sign_flip", {"differences_seed_by_endpoint": matrix},
                   {"raw": raw, "single_step": single, "step_down": stepped},
                   "enumeration of all row flips; Westfall and Young's step-down")  # fmt: skip
    for name, ps in {"four": [0.04, 0.001, 0.2, 0.03], "equal": [0.02, 0.02, 0.02], "one": [0.7]}.items():
        adjusted = multipletests(ps, method="holm")[1]
        yield case(f"holm_{name}", "holm", {"p_values": ps}, {"adjusted": [float(p) for p in adjusted]}, "statsmodels")
    samples = (
        ("inside", [0.0004, -0.0003, 0.0002, 0.0001, -0.0002, 0.0003], 0.002),
        ("outside", MIXED6, 0.002),
        ("at_five", [0.0005, -0.0004, 0.0001, 0.0, 0.0002], 0.001),
    )
    for name, d, margin in samples:
        ps = [float(_one_sided(fractions(d), Fraction(str(margin)), side)) for side in (1, -1)]
        tost = ttost_paired(np.array(d), np.zeros(len(d)), -margin, margin)[0]
        low, high = stats.ttest_1samp(d, 0).confidence_interval(0.90)
        expected = {"tost_p": float(tost), "exact_p": max(ps), "ci90": [float(low), float(high)],
                    "equivalent": max(ps) <= 0.05}  # fmt: skip
        yield case(f"equivalence_{name}", "equivalence", {D: d, "margin": margin, "alpha": 0.05}, expected,
                   "shifted one-sided enumeration in fractions; statsmodels ttost_paired", (1e-7, 1e-12))  # fmt: skip


def _max_t(d: np.ndarray) -> tuple[list[float], list[float], list[float]]:
    def statistic(rows: np.ndarray) -> np.ndarray:
        return np.abs(rows.sum(axis=0)) / np.sqrt((rows**2).sum(axis=0))

    observed = statistic(d)
    null = np.array([statistic(d * np.array(signs)[:, None]) for signs in flips(len(d))])
    near = 1e-9
    raw = [float(np.mean(null[:, j] >= observed[j] - near)) for j in range(d.shape[1])]
    single = [float(np.mean(null.max(axis=1) >= observed[j] - near)) for j in range(d.shape[1])]
    order, stepped, largest = np.argsort(-observed, kind="stable"), [0.0] * d.shape[1], 0.0
    for position, j in enumerate(order):
        rest = null[:, order[position:]].max(axis=1)
        largest = max(largest, float(np.mean(rest >= observed[j] - near)))
        stepped[j] = largest
    return raw, single, stepped


def _one_sided(values: Sequence[Fraction], margin: Fraction, side: int) -> Fraction:
    shifted = [side * v + margin for v in values]
    seen = sum(shifted)
    hits = sum(sum(s * v for s, v in zip(signs, shifted, strict=True)) >= seen for signs in flips(len(shifted)))
    return Fraction(hits, 2 ** len(shifted))


def over_settings() -> Iterator[dict[str, Any]]:
    groups = [[0.004, 0.002, 0.005, 0.003], [0.001, -0.001, 0.002, 0.0015], [0.0, 0.003, 0.001, 0.002]]
    welch = anova_oneway([np.array(g) for g in groups], use_var="unequal", welch_correction=True)
    yield case("welch_three", "heterogeneity_test", {"differences_by_setting": groups},
               {"welch_F": float(welch.statistic), "p_value": float(welch.pvalue), "df": [float(x) for x in welch.df]},
               "statsmodels anova_oneway(use_var='unequal')", (1e-8, 1e-12))  # fmt: skip
    means = [float(np.mean(g)) for g in groups]
    expected = {
        "setting_means": means, "overall": float(np.mean(means)),
        "without": [float(np.mean(means[:i] + means[i + 1 :])) for i in range(3)],
    }  # fmt: skip
    yield case("leave_one_out_three", "leave_one_setting_out", {"differences_by_setting": groups}, expected, "means")
    columns = [fractions(g) for g in groups]
    rows = [sum(row) for row in zip(*columns, strict=True)]
    yield case("pooled_shared", "pooled_sign_flip",
               {"differences_by_setting": groups, "seeds_shared_between_settings": True},
               {"p_value": float(flip_p(rows))}, "enumeration over whole seeds in fractions")  # fmt: skip
    yield case("pooled_distinct", "pooled_sign_flip",
               {"differences_by_setting": groups, "seeds_shared_between_settings": False},
               {"p_value": float(flip_p([x for column in columns for x in column]))},
               "enumeration over all seeds in fractions")  # fmt: skip
    for name, means in {"six": [0.1] * 6, "five_of_seven": [1, 1, 1, 1, 1, -1, -2]}.items():
        n, up = len(means), sum(m > 0 for m in means)
        yield case(f"settings_{name}", "cluster_sign_test", {"setting_means": means},
                   {"n_settings": n, "n_favour_B": up, "p_value": float(binomial_two_sided(up, n))},
                   "binomial tail in fractions")  # fmt: skip
    a, b = {"x": [0.5, 0.5, 0.5], "y": [0.1]}, {"x": [0.6], "y": [0.2, 0.2, 0.2]}
    within = [float(np.mean(b[s]) - np.mean(a[s])) for s in a]
    pooled = np.mean([*b["x"], *b["y"]]) - np.mean([*a["x"], *a["y"]])
    yield case("simpson_two", "simpson_flag", {"scores_A": a, "scores_B": b},
               {"within_setting_difference": within, "pooled_difference": float(pooled), "reversal": True},
               "means")  # fmt: skip
    for name, effects, variances in (("apart", [0.1, 0.5, -0.2, 0.4], [0.01, 0.02, 0.015, 0.01]),
                                     ("alike", [0.10, 0.11, 0.09], [0.02, 0.03, 0.025])):  # fmt: skip
        found = combine_effects(np.array(effects), np.array(variances), method_re="dl")
        k = len(effects)
        weights = 1 / np.array(variances)
        fixed = float(np.sum(weights * effects) / weights.sum())
        q = float(np.sum(weights * (np.array(effects) - fixed) ** 2))
        t = stats.ttest_1samp(effects, 0).confidence_interval(0.95)
        expected = {
            "fixed": fixed, "Q": float(found.q), "Q_p": float(stats.chi2.sf(q, k - 1)), "I2": max(0.0, 1 - (k - 1) / q),
            "tau2_dl": max(0.0, float(found.tau2)), "unweighted_mean": float(np.mean(effects)),
            "unweighted_ci95": [float(t.low), float(t.high)],
        }  # fmt: skip
        yield case(f"meta_{name}", "meta_analysis", {"effects": effects, "variances": variances}, expected,
                   "statsmodels combine_effects, its DL tau2 truncated at 0", (1e-8, 1e-12))  # fmt: skip


def opposed() -> Iterator[dict[str, Any]]:
    scores = ([2.0, -2.0], [3.0, 0.4, -2.5], [10.0, 0.3, -2.2, 1.0], [1.0, 2.0], [-0.5, 0.1, -4.0], [0.0, -3.0, 2.9])
    for number, z in enumerate(scores):
        plus = math.fsum(x * x for x in z if x > 0)
        minus = math.fsum(x * x for x in z if x < 0)
        p = _below_zero(min(plus, minus), len(z) - 1) if min(plus, minus) > 0 else 1.0
        yield case(f"gail_simon_{number}", "gail_simon", {"normal_scores": z},
                   {"q_plus": plus, "q_minus": minus, "p_value": p},
                   "P(sum of squares of the negative ones among k-1 standard normals > min Q), integrated one by one",
                   CLOSE)  # fmt: skip
    rng = np.random.default_rng(20)
    for number, sizes in enumerate(((4, 300), (5, 12), (40, 40, 9))):
        groups = [
            np.round(0.01 * rng.standard_normal((5, 1)) + 0.5 * rng.standard_normal((1, m)) + 0.1
                     * rng.standard_normal((5, m)), 4).tolist()
            for m in sizes
        ]  # fmt: skip
        yield case(f"test_sets_{number}", "crossed_over_test_sets", {"seed_by_example_by_setting": groups},
                   _of_test_sets(groups), "numpy.cov setting by setting; Satterthwaite over all components",
                   (1e-8, 1e-15))  # fmt: skip


def _below_zero(c: float, count: int) -> float:
    """P(sum of min(z, 0)^2 > c) for so many independent standard normals z, by integrating one after the other."""
    if count == 0 or c < 0:
        return float(c < 0)
    beyond = 0.5 * math.erfc(math.sqrt(c / 2))
    if count == 1:
        return beyond
    inner, _ = integrate.quad(
        lambda x: math.exp(-x * x / 2) / math.sqrt(2 * math.pi) * _below_zero(c - x * x, count - 1),
        0,
        math.sqrt(c),
        epsabs=1e-11,
    )
    return 0.5 * _below_zero(c, count - 1) + float(inner) + beyond


def _of_test_sets(groups: Sequence[Sequence[Sequence[float]]]) -> dict[str, float]:
    k, seeds, examples, total = len(groups), [], [], 0.0
    for rows in groups:
        n, m = len(rows), len(rows[0])
        seeds.append((float(np.var(np.mean(rows, axis=1), ddof=1)) / n / k**2, n - 1))
        covariance = np.cov(rows) / m
        examples.append((float(covariance[~np.eye(n, dtype=bool)].mean()) / k**2, m - 1))
    total = sum(v for v, _ in (*seeds, *examples))
    # All seeds are distinct; their own Satterthwaite df first, then the components together: the same sum.
    spread = sum(v**2 / df for v, df in (*seeds, *examples))
    shared = sum(v for v, _ in examples)
    return {
        "total_variance": total, "df": total**2 / spread,
        "example_df": shared**2 / sum(v**2 / df for v, df in examples),
    }  # fmt: skip


def of_examples() -> Iterator[dict[str, Any]]:
    matrix = [[0.2, -0.1, 0.4, 0.3], [0.1, 0.0, 0.5, 0.2], [0.3, -0.2, 0.1, 0.4]]
    x = np.array(matrix)
    n, m = x.shape
    covariance = np.cov(x) / m
    shared = max(0.0, float(covariance[~np.eye(n, dtype=bool)].mean()))
    variance = float(x.mean(axis=1).var(ddof=1)) / n
    yield case("crossed_three", "crossed_interval", {"seed_by_example": matrix},
               {"mean": float(x.mean()), "seed_variance_of_mean": variance, "shared_example_variance": shared,
                "total_variance": variance + shared}, "numpy: covariance of rows over examples")  # fmt: skip
    labels = [0, 1, 1, 2, 3, 3, 4, 5, 5, 6]
    first = [0.1, 0.3, 0.2, 0.25, 0.5, 0.45, 0.6, 0.4, 0.7, 0.65]
    second = [0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.75]
    expected: dict[str, Any] = {}
    for kind, function in (("spearman", stats.spearmanr), ("pearson", stats.pearsonr)):
        one, two = (float(function(labels, side)[0]) for side in (first, second))
        left_out = [
            float(function(np.delete(labels, i), np.delete(second, i))[0])
            - float(function(np.delete(labels, i), np.delete(first, i))[0])
            for i in range(len(labels))
        ]
        spread = np.sum((np.array(left_out) - np.mean(left_out)) ** 2) * (len(labels) - 1) / len(labels)
        expected[kind] = {"A": one, "B": two, "difference": two - one, "jackknife_se": math.sqrt(spread)}
    yield case("one_pair_of_ten", "paired_correlation_difference",
               {"labels": labels, "predictions_A": first, "predictions_B": second}, expected,
               "scipy correlations, delete-one jackknife by hand")  # fmt: skip
    a, b = [0.5, 0.6, 0.7, 0.8], [0.55, 0.6, 0.65, 0.9]
    unpaired = stats.mannwhitneyu(b, a).statistic / 16
    yield case("improvement_four", "probability_of_improvement", {"A": a, "B": b},
               {"paired": (2 + 0.5) / 4, "unpaired": float(unpaired)}, "counted; scipy mannwhitneyu")  # fmt: skip
    yield case("welch_beside_paired", "paired_t_summary_vs_welch", {"A": a, "B": b},
               {"p_paired_t": float(stats.ttest_rel(b, a).pvalue),
                "p_welch": float(stats.ttest_ind(b, a, equal_var=False).pvalue),
                "p_sign_flip": float(flip_p([y - x for x, y in zip(fractions(a), fractions(b), strict=True)]))},
               "scipy; enumeration", (1e-8, 1e-12))  # fmt: skip


def planned() -> Iterator[dict[str, Any]]:
    ns, rates = [6, 7, 9, 15, 30], [0.9, 0.95, 0.8, 0.75, 0.7]
    yield case("sign_power", "power_sign_test", {"n": ns, "prob_B_better": rates, "alpha": 0.05},
               {"power": [_sign_power(n, p) for n, p in zip(ns, rates, strict=True)]}, "binomial sums")  # fmt: skip
    rates = [0.95, 0.85, 0.75]
    first = [_smallest(lambda n, p=p: _sign_power(n, p) >= 0.8) for p in rates]
    yield case("sign_seeds", "seeds_needed", {"prob_B_better": rates, "alpha": 0.05, "power": 0.8}, {"first": first},
               "search over binomial sums")  # fmt: skip
    sizes = [0.6, 0.9, 1.2]
    solver = TTestPower()
    found = [math.ceil(solver.solve_power(effect_size=dz, alpha=0.05, power=0.8) - 1e-9) for dz in sizes]
    yield case("t_seeds", "seeds_needed_t", {"cohen_dz": sizes, "alpha": 0.05, "power": 0.8}, {"n": found},
               "statsmodels TTestPower")  # fmt: skip
    yield case("best_of", "selection_bias", {"k": [3, 5, 10]}, {"expected_max_sd": [_best_of(k) for k in (3, 5, 10)]},
               "integral of the largest of k normals", CLOSE)  # fmt: skip


def _sign_power(n: int, p: float) -> float:
    rejected = [k for k in range(n + 1) if binomial_two_sided(k, n) <= Fraction(1, 20)]
    return float(sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in rejected))


def _best_of(k: int) -> float:
    value, _ = integrate.quad(
        lambda x: x * k * stats.norm.pdf(x) * stats.norm.cdf(x) ** (k - 1), -10, 10, epsabs=1e-12, limit=200
    )
    return float(value)


def of_many_variants() -> Iterator[dict[str, Any]]:
    matrix = [[0.80, 0.81, 0.79], [0.70, 0.72, 0.71], [0.60, 0.63, 0.62], [0.75, 0.74, 0.78]]
    chi2 = stats.friedmanchisquare(*np.array(matrix).T)
    ranks = np.array([stats.rankdata(row) for row in matrix])
    seen, rows, k = ranks.sum(axis=0), len(matrix), 3
    spread = float(((seen - seen.mean()) ** 2).sum())
    orders = list(itertools.permutations(range(1, k + 1)))
    hits = sum(
        float(((np.sum(pick, axis=0) - rows * (k + 1) / 2) ** 2).sum()) >= spread - 1e-9
        for pick in itertools.product(orders, repeat=rows)
    )
    yield case("friedman_four", "friedman", {"seed_by_variant": matrix},
               {"chi2": float(chi2.statistic), "p_chi2": float(chi2.pvalue), "p_exact": hits / len(orders) ** rows},
               "scipy; all orders of every seed")  # fmt: skip
    columns = [fractions(column) for column in zip(*matrix, strict=True)]
    raw = [
        float(flip_p([y - x for x, y in zip(columns[i], columns[j], strict=True)]))
        for i, j in itertools.combinations(range(3), 2)
    ]
    yield case("all_pairs_four", "all_pairs", {"seed_by_variant": matrix},
               {"raw": raw, "holm": [float(p) for p in multipletests(raw, method="holm")[1]]},
               "enumeration in fractions; statsmodels")  # fmt: skip


def judged() -> Iterator[dict[str, Any]]:
    up = [0.003, 0.004, 0.002, 0.005, 0.0035, 0.0025]
    calm = [0.0001, -0.0002, 0.0001, 0.0002, -0.0001, 0.0001]
    for name, inputs, verdict in (
        ("five_up", {D: up[:5]}, "undecided_underpowered"),
        ("six_up", {D: up}, "better_on_this_test_set"),
        ("six_up_beyond", {D: up, "crossed_ci95": [0.001, 0.006]}, "better"),
        ("six_down_beyond", {D: [-x for x in up], "crossed_ci95": [-0.006, -0.001]}, "worse"),
        ("six_up_not_beyond", {D: up, "crossed_ci95": [-0.001, 0.007]}, "better_on_this_test_set"),
        ("calm", {D: calm, "margin": 0.002, "crossed_ci95": [-0.001, 0.001], "crossed_ci90": [-0.0009, 0.0009]},
         "equivalent"),
        ("calm_not_beyond", {D: calm, "margin": 0.002, "crossed_ci95": [-0.003, 0.003],
                             "crossed_ci90": [-0.0025, 0.0025]}, "equivalent_on_this_test_set"),
        ("nothing", {D: [0.0] * 6}, "cannot_decide"),
        ("one", {D: [0.1]}, "cannot_decide"),
    ):  # fmt: skip
        yield case(f"verdict_{name}", "verdict", {"alpha": 0.05, **inputs}, {"verdict": verdict},
                   "the written rules, by hand")  # fmt: skip


def cases() -> list[dict[str, Any]]:
    """All cases, in the order of the file."""
    sources = (one_sample, counted, together, over_settings, opposed, of_examples, planned, of_many_variants, judged)
    return [one for source in sources for one in source()]


def main() -> None:
    """Write the file."""
    FILE.write_text(json.dumps({"cases": cases()}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
