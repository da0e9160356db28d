"""Adding seeds until decided: e-values of the sign test, valid whenever one looks.

E = 2^n B(k + a, n - k + a) / B(a, a) is the likelihood ratio of a Beta(a, a) mixture over P(win) against 1/2: a
non-negative martingale under the null, so P(E ever >= 1/alpha) <= alpha (Ville 1939; Robbins 1970; Ramdas,
Gruenwald, Vovk and Shafer 2023). With m hypotheses each needs m/alpha (union bound), or the closed average of Vovk
and Wang (2021). a = 1/2 is used throughout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from analysis.statistics import closed_forms
from analysis.statistics.closed_forms import JEFFREYS, e_threshold, reached
from analysis.statistics.paired import Floats, sign_test, sign_test_from_counts

SEARCH_LIMIT = 2_000
"""Seeds to look ahead for `seeds_to_go`."""


def _log_beta(a: float, b: float) -> float:
    return float(special.betaln(a, b))


def log_e_value(wins: float, losses: float, a: float = JEFFREYS) -> float:
    """As in `closed_forms`, with scipy's `betaln`."""
    return closed_forms.log_e_value(wins, losses, a, log_beta=_log_beta)


def e_value(wins: float, losses: float, a: float = JEFFREYS) -> float:
    """As in `closed_forms`, with scipy's `betaln`: 1 without seeds; infinite beyond the range of a float."""
    return closed_forms.e_value(wins, losses, a, log_beta=_log_beta)


def one_sided_e_value(wins: float, losses: float, a: float = JEFFREYS) -> float:
    """E against P(win) <= 1/2: the mixture restricted to P(win) > 1/2."""
    log_e = log_e_value(wins, losses, a) + math.log(2)
    share = float(special.betaincc(wins + a, losses + a, 0.5))
    if share == 0:
        return 0.0
    log_e += math.log(share)
    return math.exp(log_e) if log_e < 700 else math.inf


def win_rate_interval(wins: int, losses: int, *, alpha: float = 0.05, a: float = JEFFREYS) -> tuple[float, float]:
    """Confidence sequence for P(win): the rates p against which the mixture has not gathered 1/alpha."""
    n = wins + losses
    base = float(special.betaln(wins + a, losses + a) - special.betaln(a, a)) + math.log(alpha)

    def excess(p: float) -> float:
        return base - float(special.xlogy(wins, p) + special.xlog1py(losses, -p))

    if n == 0:
        return 0.0, 1.0
    centre = wins / n
    low = 0.0 if wins == 0 else float(optimize.brentq(excess, 1e-300, centre, xtol=1e-14))
    high = 1.0 if losses == 0 else float(optimize.brentq(excess, centre, 1 - 1e-16, xtol=1e-14))
    return low, high


@dataclass(frozen=True, kw_only=True)
class ManyE:
    """Several e-values at once."""

    threshold: float
    e: tuple[float, ...]
    reject: tuple[bool, ...]


def e_closed(e: Sequence[float], *, alpha: float) -> ManyE:
    """Closed testing with the arithmetic mean: adjusted e_j = least mean over the subsets that contain j."""
    values = np.asarray(e, dtype=np.float64)
    adjusted = []
    for j, own in enumerate(values):
        others = np.sort(np.delete(values, j))
        means = (own + np.concatenate(([0.0], np.cumsum(others)))) / np.arange(1, values.size + 1)
        adjusted.append(float(means.min()))
    threshold = 1 / alpha
    return ManyE(threshold=threshold, e=tuple(adjusted), reject=tuple(reached(v, threshold) for v in adjusted))


# -- exact error rates ---------------------------------------------------------------------------------------------
def crossing_probability(
    max_n: int, threshold: float, *, p_win: float = 0.5, a: float = JEFFREYS, first_n: int = 1
) -> float:
    """Exact probability of ever seeing E >= threshold within `max_n` untied seeds; looked at after every seed."""
    return _ever(max_n, p_win, first_n, lambda k, n: reached(e_value(k, n - k, a), threshold))


def naive_peeking_probability(max_n: int, alpha: float, *, p_win: float = 0.5, first_n: int = 5) -> float:
    """The same when the fixed-n exact sign test is repeated after every seed from `first_n` on."""
    return _ever(max_n, p_win, first_n, lambda k, n: sign_test_from_counts(k, n) <= alpha)


def mean_seeds_to_decision(max_n: int, threshold: float, *, p_win: float, a: float = JEFFREYS) -> float:
    """Exact mean number of untied seeds used by `stop at E >= threshold, or at max_n`."""
    alive, mean = np.ones(1), 0.0
    for n in range(1, max_n + 1):
        mean += float(alive.sum())
        alive = _step(alive, p_win)
        alive[[k for k in range(n + 1) if reached(e_value(k, n - k, a), threshold)]] = 0.0
    return mean


def _step(alive: Floats, p_win: float) -> Floats:
    grown = np.zeros(alive.size + 1)
    grown[1:] += alive * p_win
    grown[:-1] += alive * (1 - p_win)
    return grown


def _ever(max_n: int, p_win: float, first_n: int, rejects: Callable[[int, int], bool]) -> float:
    """Dynamic programming over (seeds, wins): mass of the paths that were never rejected."""
    alive, crossed = np.ones(1), 0.0
    for n in range(1, max_n + 1):
        alive = _step(alive, p_win)
        if n >= first_n:
            hit = [k for k in range(n + 1) if rejects(k, n)]
            crossed += float(alive[hit].sum())
            alive[hit] = 0.0
    return crossed


# -- the decision --------------------------------------------------------------------------------------------------
Decided = Literal["better", "worse", "equivalent"]


@dataclass(frozen=True, kw_only=True)
class Stream:
    """One primary endpoint of one treatment: what its seeds have shown so far."""

    treatment: str
    endpoint: str
    differences: tuple[float, ...]
    """Treatment minus baseline per complete seed; with several settings, the mean over them (`seed_differences`)."""
    treatment_failures: int = 0
    """Seeds on which only the treatment failed by itself: losses; while there is one it is not better, nor equal."""
    baseline_failures: int = 0


@dataclass(frozen=True, kw_only=True)
class StreamState:
    """Where a stream stands against its threshold."""

    treatment: str
    endpoint: str
    wins: int
    losses: int
    ties: int
    e_value: float
    e_threshold: float
    e_lower: float | None
    """Equivalence: e-value against `difference <= -margin`; None without a margin."""
    e_upper: float | None
    equivalence_threshold: float | None
    decided: Decided | None
    seeds_to_go: int | None
    """Further seeds until decided if the win rate so far went on; 0 when decided, None when it never would be."""


@dataclass(frozen=True, kw_only=True)
class SequentialDecision:
    """Whether the study goes on."""

    stop: bool
    decided: bool
    """False with `stop`: the limit of seeds was reached undecided."""
    why: str
    """One sentence."""
    states: tuple[StreamState, ...]
    seeds_to_go: int | None
    """The most of any undecided treatment."""


@dataclass(frozen=True, kw_only=True)
class SequentialEquivalence:
    """Two one-sided sign e-values on d + margin and margin - d."""

    e_lower: float
    e_upper: float
    threshold: float
    equivalent: bool


def equivalence_e_values(d: ArrayLike, *, margin: float, alpha: float) -> SequentialEquivalence:
    """Equivalence that may stop a sequential study: both e-values at 1/alpha."""
    values = np.asarray(d, dtype=np.float64)
    lower, upper = sign_test(values + margin), sign_test(margin - values)
    e_lower, e_upper = one_sided_e_value(lower.wins, lower.losses), one_sided_e_value(upper.wins, upper.losses)
    threshold = e_threshold(1, alpha)
    both = reached(min(e_lower, e_upper), threshold)
    return SequentialEquivalence(e_lower=e_lower, e_upper=e_upper, threshold=threshold, equivalent=both)


def seeds_to_go(wins: int, losses: int, threshold: float) -> int | None:
    """Further untied seeds until E >= threshold if the win rate so far went on; None: not within 2,000."""
    n = wins + losses
    if n == 0:
        return None
    rate = max(wins, losses) / n
    for more in range(SEARCH_LIMIT + 1):
        if reached(e_value(max(wins, losses) + rate * more, min(wins, losses) + (1 - rate) * more), threshold):
            return more
    return None


def seed_differences(
    treatment: Mapping[tuple[str, int], float], baseline: Mapping[tuple[str, int], float]
) -> tuple[float, ...]:
    """Mean difference over settings for every seed that both variants finished in all settings seen.

    Args:
        treatment: (setting, seed) -> score.
        baseline: The same.
    """
    settings = sorted({setting for setting, _ in treatment} | {setting for setting, _ in baseline})
    seeds = sorted({seed for _, seed in treatment} & {seed for _, seed in baseline})
    out = []
    for seed in seeds:
        keys = [(setting, seed) for setting in settings]
        if all(key in treatment and key in baseline for key in keys):
            out.append(float(np.mean([treatment[key] - baseline[key] for key in keys])))
    return tuple(out)


def stream_state(stream: Stream, *, alpha: float, margin: float | None, hypotheses: int) -> StreamState:
    """Where one stream stands among `hypotheses` primaries x comparisons."""
    test = sign_test(stream.differences, extra_losses=stream.treatment_failures, extra_wins=stream.baseline_failures)
    threshold = e_threshold(hypotheses, alpha)
    e = e_value(test.wins, test.losses)
    margins = None if margin is None else equivalence_e_values(stream.differences, margin=margin, alpha=alpha)
    decided: Decided | None = None
    if reached(e, threshold):
        if test.wins > test.losses and not stream.treatment_failures:
            decided = "better"
        elif test.wins < test.losses and not stream.baseline_failures:
            decided = "worse"
    elif margins is not None and margins.equivalent and not (stream.treatment_failures or stream.baseline_failures):
        decided = "equivalent"
    return StreamState(
        treatment=stream.treatment,
        endpoint=stream.endpoint,
        wins=test.wins,
        losses=test.losses,
        ties=test.ties,
        e_value=e,
        e_threshold=threshold,
        e_lower=None if margins is None else margins.e_lower,
        e_upper=None if margins is None else margins.e_upper,
        equivalence_threshold=None if margins is None else margins.threshold,
        decided=decided,
        seeds_to_go=0 if decided else seeds_to_go(test.wins, test.losses, threshold),
    )


def decide_sequential(
    streams: Sequence[Stream],
    *,
    alpha: float,
    margin: float | None,
    seeds: int,
    max_seeds: int | None,
    refused: Mapping[str, str] | None = None,
) -> SequentialDecision:
    """Stop or go on: the study stops when no comparison is undecided, or at its limit of seeds.

    A comparison is decided when one of its primaries is better or worse, or all are equivalent.

    Args:
        streams: Every primary endpoint of every treatment; their number is m.
        alpha: Error rate of the study.
        margin: Declared margin, or None.
        seeds: Seeds run so far.
        max_seeds: Where the study stops undecided; None: no limit.
        refused: Treatment -> why it cannot be compared, whatever further seeds show; it still counts in m.
    """
    refused = refused or {}
    states = [stream_state(s, alpha=alpha, margin=margin, hypotheses=len(streams)) for s in streams]
    treatments = list(dict.fromkeys(s.treatment for s in states))
    open_treatments, waits, verdicts = [], [], []
    refusals = "".join(f"; {treatment} is refused ({why})" for treatment, why in refused.items())
    for treatment in treatments:
        if treatment in refused:
            continue
        own = [s for s in states if s.treatment == treatment]
        moved = [s for s in own if s.decided in ("better", "worse")]
        if moved:
            verdicts += [f"{treatment} is {s.decided} on {s.endpoint} (E = {s.e_value:.3g})" for s in moved]
        elif all(s.decided == "equivalent" for s in own):
            verdicts.append(f"{treatment} is equivalent within the margin")
        else:
            open_treatments.append(treatment)
            known = [s.seeds_to_go for s in own if s.seeds_to_go is not None]
            waits.append(min(known) if known else None)
    still = ", ".join(open_treatments)
    if not open_treatments:
        why = f"decided after {seeds} seeds: " + "; ".join(verdicts) if verdicts else "there is nothing to compare"
        why += refusals
        return SequentialDecision(stop=True, decided=bool(verdicts), why=why, states=tuple(states), seeds_to_go=0)
    to_go = None if any(w is None for w in waits) else max(w for w in waits if w is not None)
    if max_seeds is not None and seeds >= max_seeds:
        why = f"the limit of {max_seeds} seeds is reached; {still} undecided{refusals}"
        return SequentialDecision(stop=True, decided=False, why=why, states=tuple(states), seeds_to_go=to_go)
    why = f"after {seeds} seeds {still} undecided: E has not reached {states[0].e_threshold:g}{refusals}"
    return SequentialDecision(stop=False, decided=False, why=why, states=tuple(states), seeds_to_go=to_go)


def fewest_more(decision: SequentialDecision) -> int:
    """Further seeds without which the study cannot be decided, however they fall; at least 1 while it is undecided.

    A seed at most doubles an e-value, which bounds equivalence; for a difference the bound is exact.
    """

    def for_difference(state: StreamState) -> int:
        more, high, low = 0, max(state.wins, state.losses), min(state.wins, state.losses)
        while not reached(e_value(high + more, low), state.e_threshold):
            more += 1
        return more

    def for_equivalence(state: StreamState) -> float:
        if state.e_lower is None or state.e_upper is None or state.equivalence_threshold is None:
            return math.inf
        smallest = min(state.e_lower, state.e_upper)
        return math.ceil(math.log2(state.equivalence_threshold / smallest) - 1e-9) if smallest > 0 else math.inf

    needed = []
    for treatment in dict.fromkeys(state.treatment for state in decision.states):
        own = [state for state in decision.states if state.treatment == treatment]
        if any(state.decided in ("better", "worse") for state in own):
            continue
        different = min(for_difference(state) for state in own)
        equivalent = max(0.0 if state.decided == "equivalent" else for_equivalence(state) for state in own)
        needed.append(max(0, int(min(different, equivalent))))
    return max(1, *needed) if needed else 1
