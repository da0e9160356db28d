"""What a number of seeds can show at all, in closed form. Standard library only, so that `sweep plan` starts at once.

    >>> p_floor(5), seeds_for_sign_test(0.05)
    (0.0625, 6)
    >>> round(e_value(6, 0), 1), seeds_for_e_value(e_threshold(1, 0.05))
    (14.4, 7)

The e-value takes the logarithm of the beta function as an argument: scipy's `betaln` and the one here differ in the
last bits, and what a report records must not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

Alternative = Literal["two-sided", "greater", "less"]
LogBeta = Callable[[float, float], float]
"""(a, b) -> ln B(a, b)."""

JEFFREYS = 0.5
"""Both parameters of the beta mixture."""
_MOST_SEEDS = 10_000


def p_floor(n_used: int, alternative: Alternative = "two-sided") -> float:
    """Smallest p that `n_used` untied seeds can give: min(1, 2^(1-n)) two-sided, 2^-n one-sided."""
    return min(1.0, 2.0 ** (1 - n_used)) if alternative == "two-sided" else 2.0**-n_used


def seeds_for_sign_test(alpha: float, tests: int = 1) -> int:
    """Fewest untied seeds whose floor, 2^(1-n), reaches alpha after Holm's first step over `tests` tests.

    Exact: alpha / tests = m 2^e with 1/2 <= m < 1, so 2^(1-n) is at most that from n = 2 - e on.
    """
    return max(1, 2 - math.frexp(alpha / max(tests, 1))[1])


def log_beta(a: float, b: float) -> float:
    """ln B(a, b)."""
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def log_e_value(wins: float, losses: float, a: float = JEFFREYS, *, log_beta: LogBeta = log_beta) -> float:
    """Natural logarithm of E = 2^n B(wins + a, losses + a) / B(a, a), n = wins + losses untied seeds."""
    return (wins + losses) * math.log(2) + (log_beta(wins + a, losses + a) - log_beta(a, a))


def e_value(wins: float, losses: float, a: float = JEFFREYS, *, log_beta: LogBeta = log_beta) -> float:
    """E for `wins` and `losses` untied seeds; 1 without any; infinite beyond the range of a float."""
    log_e = log_e_value(wins, losses, a, log_beta=log_beta)
    return math.exp(log_e) if log_e < 700 else math.inf


def e_threshold(hypotheses: int, alpha: float) -> float:
    """What E must reach among m hypotheses: m / alpha (union bound)."""
    return max(hypotheses, 1) / alpha


def reached(e: float, threshold: float) -> bool:
    """E >= threshold, with room for rounding in the last digits."""
    return e >= threshold * (1 - 1e-12)


def seeds_for_e_value(threshold: float) -> int:
    """Fewest untied seeds that reach the threshold when all agree."""
    return next(n for n in range(1, _MOST_SEEDS) if reached(e_value(n, 0), threshold))
