from __future__ import annotations

import time

import pytest

from sweep.console import one_line
from sweep.errors import TrackingError, TrackingUnavailable
from sweep.record.retry import Backoff, patiently, tracking_wait_s

QUICK = Backoff(first_s=0.01, most_s=0.02)


def test_waits_for_what_comes_back_and_says_so_once() -> None:
    said: list[str] = []
    seen: list[int] = []

    def call(failures: int) -> str:
        seen.append(failures)
        if failures < 3:
            raise OSError("away")
        return "here"

    got = patiently(call, worth_waiting=lambda e: True, bound_s=5, what="store", on_wait=said.append, backoff=QUICK)
    assert (got, seen) == ("here", [0, 1, 2, 3])
    assert said == ["store: OSError: away; waiting up to 5 s"]


def test_gives_up_within_the_bound() -> None:
    def call(failures: int) -> None:
        raise OSError("away")

    began = time.monotonic()
    with pytest.raises(TrackingUnavailable, match="not back within 0 s"):
        patiently(call, worth_waiting=lambda e: True, bound_s=0.2, what="store", backoff=QUICK)
    assert time.monotonic() - began < 1.0


def test_a_refusal_is_not_waited_for() -> None:
    calls = []

    def call(failures: int) -> None:
        calls.append(failures)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        patiently(call, worth_waiting=lambda e: isinstance(e, OSError), bound_s=60, what="store")
    assert calls == [0]


def test_pauses_double_up_to_a_bound() -> None:
    backoff = Backoff(first_s=1, most_s=8)
    for failures, most in ((1, 1), (2, 2), (3, 4), (4, 8), (5, 8), (1000, 8)):
        assert 0.75 * most <= backoff.pause_s(failures) <= most


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
def test_a_wrong_bound_is_named(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEP_TRACKING_WAIT_S", text)
    with pytest.raises(TrackingError, match=f"SWEEP_TRACKING_WAIT_S: '{text}' is not valid"):
        tracking_wait_s()


def test_one_line_is_one_line() -> None:
    assert one_line(ValueError("a\n  b")) == "ValueError: a b"
    assert len(one_line(ValueError("x" * 5000))) == 300
