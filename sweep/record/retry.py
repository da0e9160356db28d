"""Waiting for what may come back: a bound, a growing pause, and which errors are worth waiting for."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from sweep.console import one_line
from sweep.errors import TrackingError, TrackingUnavailable

ENV_TRACKING_WAIT: Final = "SWEEP_TRACKING_WAIT_S"
DEFAULT_TRACKING_WAIT_S: Final = 300.0
"""Longest wait for a tracking server in the middle of a sweep; a training is worth more than five minutes."""
START_WAIT_S: Final = 20.0
"""Longest wait at the start of a command, where a mistyped address is likelier than an outage."""

_T = TypeVar("_T")


def tracking_wait_s() -> float:
    """Seconds to wait for the tracking store, from the environment or the default.

    Raises:
        TrackingError: the environment variable is not a number of seconds.
    """
    text = os.environ.get(ENV_TRACKING_WAIT)
    if text is None:
        return DEFAULT_TRACKING_WAIT_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise TrackingError(f"{ENV_TRACKING_WAIT}: {text!r} is not valid; expected seconds, such as 300")
    return seconds


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """A pause that doubles from `first_s` up to `most_s`, a little different each time so that workers spread."""

    first_s: float = 0.25
    most_s: float = 10.0

    def pause_s(self, failures: int) -> float:
        """Seconds to pause after that many failures in a row (1 is the first)."""
        return min(self.most_s, self.first_s * 2.0 ** min(failures - 1, 30)) * random.uniform(0.75, 1.0)


def patiently(
    call: Callable[[int], _T],
    *,
    worth_waiting: Callable[[Exception], bool],
    bound_s: float,
    what: str,
    on_wait: Callable[[str], None] = lambda line: None,
    backoff: Backoff = Backoff(),
) -> _T:
    """Call until it succeeds, its error is not worth waiting for, or the bound has passed.

    Args:
        call: Gets the number of failures so far, so that a repeated call can first look whether the earlier one
            had succeeded after all.
        worth_waiting: Whether an error may go away by itself.
        bound_s: Seconds from the first failure.
        what: What is waited for, for the message.
        on_wait: Gets one line at the first failure.
        backoff: Pauses between calls.

    Raises:
        TrackingUnavailable: the bound has passed.
        Exception: the call's own, when it is not worth waiting for.
    """
    failures, give_up = 0, 0.0
    while True:
        try:
            return call(failures)
        except Exception as error:
            if not worth_waiting(error):
                raise
            now = time.monotonic()
            if not failures:
                give_up = now + bound_s
                on_wait(f"{what}: {one_line(error)}; waiting up to {bound_s:.0f} s")
            failures += 1
            pause = backoff.pause_s(failures)
            if now + pause > give_up:
                raise TrackingUnavailable(f"{what}: not back within {bound_s:.0f} s ({one_line(error)})") from error
            time.sleep(pause)
