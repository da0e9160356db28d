"""How often does each way of deciding call a variant better, when it is not, and when it is?

    python -m benchmarks.calibration            2,000 studies a design
    python -m benchmarks.calibration --quick    200 studies a design
    python -m benchmarks.calibration --skew     only what the skew warning is said of

Studies are simulated at the level of what one test example adds to a score difference: a part that all seeds share
(the test set), a part of its own for every seed, and a seed effect; five truncation dims move together. Our verdict
is `analysis.comparing.verdict.decide` on the same crossed intervals and joint test as in a report. The other columns
are what people do instead. Rates are over studies; "wrong" is any `better` or `worse` without a population difference.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy import stats

from analysis.comparing.findings import Verdict
from analysis.comparing.verdict import decide
from analysis.statistics.crossed import crossed
from analysis.statistics.paired import SignSource, mean_misleads, sign_flip_test

DIMS = 5
EXAMPLES = 200
CORRELATION = 0.8
"""Between dims, of every part of the difference."""
SEEDS = (5, 6, 8, 10, 20)
RESAMPLES = 1_000
"""Of the percentile bootstrap."""
SKEW = "skewed"


@dataclass(frozen=True, kw_only=True)
class Design:
    """Sizes of the parts, as standard deviations of their contribution to one seed's score difference."""

    name: str
    seed: float
    shared: float
    own: float
    tails: str = "normal"
    """Of the seed effect: normal, heavy (t with 3 df) or skewed (centred lognormal)."""
    effect: float = 0.0
    """Population difference, in the same units."""


NULLS = (
    Design(name="much seed noise, no shared test set", seed=1.0, shared=0.0, own=0.5),
    Design(name="much seed noise, shared test set", seed=1.0, shared=0.5, own=0.5),
    Design(name="little seed noise, shared test set", seed=0.5, shared=1.5, own=0.87),
    Design(name="heavy tails over seeds, shared test set", seed=1.0, shared=0.5, own=0.5, tails="heavy"),
)
SKEWED = (
    Design(name="skewed over seeds, shared test set", seed=1.0, shared=0.5, own=0.5, tails=SKEW),
    Design(name="skewed over seeds, no shared test set", seed=1.0, shared=0.0, own=0.1, tails=SKEW),
)
PLANTED = (
    Design(name="effect 2, little test-set noise", seed=1.0, shared=0.3, own=0.5, effect=2.0),
    Design(name="effect 1, little test-set noise", seed=1.0, shared=0.3, own=0.5, effect=1.0),
    Design(name="effect 2, much test-set noise", seed=0.5, shared=1.5, own=0.87, effect=2.0),
)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Shares of studies."""

    claimed: float
    """`better` or `worse`."""
    on_test_set: float
    """`better_on_this_test_set` or `worse_on_this_test_set`."""
    five_agree: float
    """All of the first five seeds agree in sign, at the largest dim."""
    t_five: float
    """Paired t test on the first five seeds, at the largest dim."""
    t_any_dim: float
    """Paired t test on all seeds, at any dim."""
    bootstrap: float
    """Percentile bootstrap over all seeds excludes 0, at the largest dim."""


def _together(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Standard normals of shape (*shape, DIMS), correlated over dims."""
    common = rng.standard_normal((*shape, 1))
    return math.sqrt(CORRELATION) * common + math.sqrt(1 - CORRELATION) * rng.standard_normal((*shape, DIMS))


def _seed_effects(design: Design, n: int, rng: np.random.Generator) -> np.ndarray:
    """(n, DIMS) with mean 0 and sd 1."""
    z = _together(rng, n)
    if design.tails == "heavy":
        return np.asarray(z / np.sqrt(rng.chisquare(3, size=(n, 1)) / 3) / math.sqrt(3))
    if design.tails == SKEW:
        return np.asarray((np.exp(z) - math.exp(0.5)) / math.sqrt((math.e - 1) * math.e))
    return z


def simulate(design: Design, n: int, studies: int, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Score differences (n, DIMS) and influence values (n, EXAMPLES, DIMS), study by study."""
    scale = math.sqrt(EXAMPLES)
    for _ in range(studies):
        shared = design.shared * scale * _together(rng, EXAMPLES)
        own = design.own * scale * _together(rng, n, EXAMPLES)
        parts = shared[None] + own
        means = parts.mean(axis=1)
        yield design.effect + design.seed * _seed_effects(design, n, rng) + means, parts - means[:, None]


def verdict_of(d: np.ndarray, influence: np.ndarray, signs: SignSource) -> Verdict:
    """As a report decides it, with every dim primary.

    Crossed intervals are computed where the verdict depends on them: where the joint test has found something.
    """
    without = decide(d, alpha=0.05, rng=signs)
    if not without.endswith("on_this_test_set"):
        return without
    found = [crossed(d[:, j], influence[:, :, j]) for j in range(d.shape[1])]
    intervals = [c.interval(0.95, hypotheses=d.shape[1]) if c else None for c in found]
    return decide(d, alpha=0.05, crossed_ci95=intervals, rng=signs)


def measure(design: Design, n: int, studies: int, rng: np.random.Generator) -> Rates:
    """Rates of every way of deciding."""
    signs = SignSource(rng)
    verdicts: list[Verdict] = []
    differences = np.empty((studies, n, DIMS))
    for i, (d, influence) in enumerate(simulate(design, n, studies, rng)):
        differences[i] = d
        verdicts.append(verdict_of(d, influence, signs))
    largest = differences[:, :, -1]
    five = largest[:, :5]
    drawn = rng.integers(0, n, size=(RESAMPLES, n)) + n * np.arange(RESAMPLES)[:, None]
    shares = np.bincount(drawn.ravel(), minlength=n * RESAMPLES).reshape(RESAMPLES, n) / n
    low_high = np.percentile(largest @ shares.T, [2.5, 97.5], axis=1).T
    return Rates(
        claimed=float(np.mean([v in ("better", "worse") for v in verdicts])),
        on_test_set=float(np.mean([v.endswith("on_this_test_set") for v in verdicts])),
        five_agree=float(np.mean((five > 0).all(axis=1) | (five < 0).all(axis=1))),
        t_five=float(np.mean(stats.ttest_1samp(five, 0, axis=1).pvalue <= 0.05)),
        t_any_dim=float(np.mean(np.any(stats.ttest_1samp(differences, 0, axis=1).pvalue <= 0.05, axis=1))),
        bootstrap=float(np.mean((low_high[:, 0] > 0) | (low_high[:, 1] < 0))),
    )


COLUMNS = ("better/worse", "..._on_this_test_set", "5/5 agree", "t, n = 5", "t, any dim", "bootstrap")


def table(title: str, designs: tuple[Design, ...], studies: int, rng: np.random.Generator) -> None:
    """Print one block of designs as Markdown."""
    print(f"\n## {title}\n", flush=True)
    print("| design | seeds | " + " | ".join(COLUMNS) + " |")
    print("|---|---:|" + "---:|" * len(COLUMNS))
    for design in designs:
        for n in SEEDS:
            r = measure(design, n, studies, rng)
            cells = (r.claimed, r.on_test_set, r.five_agree, r.t_five, r.t_any_dim, r.bootstrap)
            print(f"| {design.name} | {n} | " + " | ".join(f"{100 * v:.1f}%" for v in cells) + " |", flush=True)


def _nine_to_one(rng: np.random.Generator, n: int) -> np.ndarray:
    """Wins nine seeds of ten by 1 and loses the tenth by 9: a mean of zero."""
    return np.where(rng.random(n) < 0.9, 1.0, -9.0) + 0.01 * rng.standard_normal(n)


DRAWN: dict[str, tuple[bool, Callable[[np.random.Generator, int], np.ndarray]]] = {
    "lognormal, mean 0": (True, lambda rng, n: rng.lognormal(size=n) - math.exp(0.5)),
    "wins 90% by 1, loses 10% by 9": (True, _nine_to_one),
    "normal, mean 1 sd": (False, lambda rng, n: rng.standard_normal(n) + 1),
    "t with 3 df, mean 1": (False, lambda rng, n: rng.standard_t(3, n) + 1),
}
"""Design -> whether a claim would be wrong, and its differences over seeds."""


def skew_table(studies: int, rng: np.random.Generator) -> None:
    """Print how often the sign flip claims a difference, and of how many claims the report warns."""
    print("\n## The skew warning\n", flush=True)
    print("| differences over seeds | seeds | a claim is | claims | of these warned of |")
    print("|---|---:|---|---:|---:|")
    for name, (null, draw) in DRAWN.items():
        for n in (6, 8, 10, 12):
            claims = warned = 0
            for _ in range(studies):
                d = draw(rng, n)
                p = sign_flip_test(d).p_value
                if p <= 0.05:
                    claims += 1
                    warned += mean_misleads(d, p_value=p, alpha=0.05)
            share = f"{100 * warned / claims:.0f}%" if claims else "-"
            kind = "wrong" if null else "right"
            print(f"| {name} | {n} | {kind} | {100 * claims / studies:.1f}% | {share} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="200 studies a design instead of 2,000")
    parser.add_argument("--skew", action="store_true", help="only the skew warning")
    parser.add_argument("--seed", type=int, default=1, help="of the simulation")
    arguments = parser.parse_args()
    studies = 200 if arguments.quick else 2_000
    rng = np.random.default_rng(arguments.seed)
    started = time.perf_counter()
    error = 100 * math.sqrt(0.05 * 0.95 / studies)
    print(f"{studies:,} simulated studies a design, {DIMS} dims, {EXAMPLES} test examples, seed {arguments.seed}.")
    print(f"Monte Carlo standard error at 5%: {error:.1f} points.")
    if not arguments.skew:
        verdict_tables(studies, rng)
    skew_table(studies, rng)
    print(f"\n{time.perf_counter() - started:.0f} s.")


def verdict_tables(studies: int, rng: np.random.Generator) -> None:
    """Print the rates of our verdict and of other ways to decide."""
    table("No population difference, symmetric: wrong claims", NULLS, studies, rng)
    table("No mean difference, skewed over seeds (a report warns of skewness): wrong claims", SKEWED, studies, rng)
    table("A planted difference: claims that it is there", PLANTED, studies, rng)


if __name__ == "__main__":
    main()
