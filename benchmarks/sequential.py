"""What adding seeds until decided costs and errs, beside a fixed number of seeds: `python -m benchmarks.sequential`.

Exact by dynamic programming for one primary endpoint; several correlated endpoints by simulation.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.statistics.closed_forms import e_threshold, reached
from analysis.statistics.power import power_sign_test, seeds_needed
from analysis.statistics.sequential import (
    crossing_probability,
    e_value,
    mean_seeds_to_decision,
    naive_peeking_probability,
)

WIN_RATES = (0.8, 0.9, 0.95, 1.0)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seeds that a sequential study takes when the treatment wins a seed with probability `p_win`."""

    p_win: float
    mean_seeds: float
    """To a decision, or to the limit."""
    power: float
    """Probability of a decision within the limit."""
    fixed_same_power: int | None
    """Seeds of the fixed-n exact sign test with at least that power."""
    fixed_80: int | None
    """Seeds of the fixed-n exact sign test with 80% power."""


def cost(p_win: float, *, max_seeds: int, hypotheses: int = 1, alpha: float = 0.05) -> Cost:
    """Exact cost of the rule for one endpoint among `hypotheses`; the fixed design gets Bonferroni's alpha too."""
    threshold = e_threshold(hypotheses, alpha)
    power = crossing_probability(max_seeds, threshold, p_win=p_win)
    share = alpha / hypotheses
    reaches = (n for n in range(1, 10 * max_seeds) if power_sign_test(n, p_win, alpha=share) >= power * (1 - 1e-12))
    return Cost(
        p_win=p_win,
        mean_seeds=mean_seeds_to_decision(max_seeds, threshold, p_win=p_win),
        power=power,
        fixed_same_power=next(reaches, None),
        fixed_80=seeds_needed(p_win, alpha=share, power=0.8).first,
    )


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """Share of null studies in which any endpoint was ever called different."""

    correlation: float
    rate: float
    standard_error: float


def family_error(
    *, endpoints: int, correlation: float, max_seeds: int, studies: int, alpha: float, rng: np.random.Generator
) -> Simulated:
    """False-positive rate of the rule over several endpoints whose differences are normal, mean 0, equicorrelated.

    Args:
        endpoints: Number of primaries, m; each needs E >= m / alpha.
        correlation: Between the differences of two endpoints of a seed.
        max_seeds: Looked at after every seed up to here.
        studies: How many are simulated.
        alpha: Error rate of the rule.
        rng: Source of the draws.
    """
    threshold = e_threshold(endpoints, alpha)
    shared = rng.standard_normal((studies, max_seeds, 1))
    own = rng.standard_normal((studies, max_seeds, endpoints))
    wins = np.cumsum(np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own > 0, axis=1)
    crossed = np.zeros(studies, dtype=bool)
    for n in range(1, max_seeds + 1):
        rejects = np.array([reached(e_value(k, n - k), threshold) for k in range(n + 1)])
        crossed |= rejects[wins[:, n - 1, :]].any(axis=1)
    rate = float(crossed.mean())
    return Simulated(correlation=correlation, rate=rate, standard_error=float(np.sqrt(rate * (1 - rate) / studies)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-seeds", type=int, default=50, help="limit of the sequential study (default 50)")
    parser.add_argument("--alpha", type=float, default=0.05)
    parser.add_argument("--studies", type=int, default=20_000, help="simulated studies for several endpoints")
    parser.add_argument("--seed", type=int, default=0, help="of the simulation")
    given = parser.parse_args(arguments)
    limit, alpha = given.max_seeds, given.alpha

    print(f"False positives within {limit} seeds, no effect, alpha = {alpha:g} (exact)")
    for endpoints in (1, 4):
        rate = crossing_probability(limit, e_threshold(endpoints, alpha))
        print(f"  e-value rule, one endpoint of m = {endpoints}:              {rate:.4f}")
    print(f"  repeating the fixed-n sign test from 5 seeds on:   {naive_peeking_probability(limit, alpha):.4f}")

    print(f"\nFalse positives over m = 4 correlated endpoints ({given.studies} simulated studies)")
    rng = np.random.default_rng(given.seed)
    for correlation in (0.0, 0.5, 0.9, 0.99):
        got = family_error(
            endpoints=4, correlation=correlation, max_seeds=limit, studies=given.studies, alpha=alpha, rng=rng
        )
        print(f"  correlation {got.correlation:4.2f}: {got.rate:.4f} +- {got.standard_error:.4f}")

    for endpoints in (1, 4):
        print(f"\nSeeds to a decision, m = {endpoints}, limit {limit} (exact)")
        print("  P(win)  mean seeds  decided  fixed n of equal power  fixed n of 80% power")
        for p_win in WIN_RATES:
            one = cost(p_win, max_seeds=limit, hypotheses=endpoints, alpha=alpha)
            print(
                f"  {one.p_win:5.2f}  {one.mean_seeds:10.1f}  {one.power:6.1%}  {one.fixed_same_power or '-':>22}"
                f"  {one.fixed_80 or '-':>20}"
            )


if __name__ == "__main__":
    main()
