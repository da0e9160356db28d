"""How to cut a batch into slices of similar length, by what pays.

A batch is padded to its longest sentence, so most of its computation is padding where lengths differ. Encoding it in
slices sorted by length saves padding and costs one more call each. The cut is planned from lengths and the model's
size alone, never from measured times, so that it is the same on every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

CPU_FLOPS: Final = 40e9
"""Multiply-adds x 2 per second and core in the matrix products of an encoder; a round figure."""
GPU_FLOPS: Final = 40e12
CALL_S: Final = 1.5e-3
"""Fixed seconds of one forward and backward call, besides its layers."""
LAYER_S: Final = 0.9e-3
"""Fixed seconds of one layer, forward and backward."""
FLOPS_PER_PARAMETER: Final = 6
"""Forward (2) and backward (4), per token."""


def overhead_tokens(*, parameters: int, layers: int, threads: int, gpu: bool) -> float:
    """How many tokens could be computed in the time that one more call costs.

    Args:
        parameters: That take part in each token's computation.
        layers: Of the encoder.
        threads: Compute threads of this process.
        gpu: Whether it runs on a GPU.
    """
    per_second = (GPU_FLOPS if gpu else CPU_FLOPS * threads) / (FLOPS_PER_PARAMETER * max(parameters, 1))
    return (CALL_S + layers * LAYER_S) * per_second


def plan_slices(lengths: Sequence[int], overhead: float) -> list[list[int]]:
    """Cut sentences into slices so that padded tokens + overhead x slices is smallest.

    Args:
        lengths: Tokens of each sentence.
        overhead: Cost of one slice, in tokens.

    Returns:
        Indices into `lengths` per slice, each slice longest first, slices longest first.
    """
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    # Only places where the length changes are worth a cut: dynamic programming over the distinct lengths.
    starts = [at for at in range(len(order)) if at == 0 or lengths[order[at]] != lengths[order[at - 1]]]
    ends = [*starts[1:], len(order)]
    best = [0.0]
    cut = [0]
    for last in range(len(starts)):
        choices = [
            best[first] + overhead + lengths[order[starts[first]]] * (ends[last] - starts[first])
            for first in range(last + 1)
        ]
        cheapest = min(range(last + 1), key=choices.__getitem__)
        best.append(choices[cheapest])
        cut.append(cheapest)
    slices = []
    last = len(starts)
    while last > 0:
        first = cut[last]
        slices.append(order[starts[first] : ends[last - 1]])
        last = first
    return slices[::-1]
