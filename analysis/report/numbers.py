"""How numbers are written, alike in every format."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.comparing.wording import signed

NONE = "-"


def score(value: float | None) -> str:
    """A score or a spread, four decimals."""
    return NONE if value is None else f"{value:.4f}"


def mean_sd(mean: float | None, sd: float | None) -> str:
    """`0.8123±0.0021`."""
    if mean is None:
        return NONE
    return f"{mean:.4f}" if sd is None else f"{mean:.4f}±{sd:.4f}"


def difference(value: float | None) -> str:
    """A difference, always with its sign; as many decimals as it needs to show one."""
    return NONE if value is None else signed(value)


def size(value: float) -> str:
    """A width or a spread, without a sign."""
    return signed(abs(value)).removeprefix("+")


def p_value(value: float | None) -> str:
    """Four decimals, `<.0001` below."""
    if value is None:
        return NONE
    return "<.0001" if value < 1e-4 else f"{value:.4f}"


def interval(bounds: Sequence[float] | None) -> str:
    """`[+0.0011, +0.0060]`."""
    return NONE if bounds is None else f"[{signed(bounds[0])}, {signed(bounds[1])}]"


def wins(win: int, loss: int, tie: int) -> str:
    """`5/0/0`."""
    return f"{win}/{loss}/{tie}"


def small(value: float | None, digits: int = 3) -> str:
    """A quantity without a unit of its own."""
    return NONE if value is None else f"{value:.{digits}g}"


def verdict(value: str | None) -> str:
    """`undecided_underpowered` -> `undecided (underpowered)`."""
    if value is None:
        return NONE
    special = {"undecided_underpowered": "undecided (underpowered)"}
    return special.get(value, value.replace("_on_this_test_set", " (on this test set)").replace("_", " "))
