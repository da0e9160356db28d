"""How AnglE reads an embedding as complex numbers, and what truncation does to that.

AnglE takes half of the indices as real parts and half as imaginary parts. `chunked` (the library's) pairs index i
with i + d/2; `interleaved` pairs 2i with 2i + 1. Matryoshka training applies the loss at several sizes d: under
chunking an index changes its partner, and some their role, from size to size; interleaved, none does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Layout = Literal["chunked", "interleaved", "interleaved_swapped"]


@dataclass(frozen=True, kw_only=True)
class IndexRoles:
    """How one index of the embedding is used over all trained sizes."""

    index: int
    real: int
    """At how many sizes it is a real part."""
    imaginary: int
    """At how many sizes it is an imaginary part."""
    partners: tuple[int, ...]
    """The indices it is paired with, ascending."""


def index_pairs(dim: int, layout: Layout) -> tuple[tuple[int, int], ...]:
    """(real, imaginary) index of each complex number at one size.

    Raises:
        ValueError: the size is odd or not positive.
    """
    if dim < 2 or dim % 2:
        raise ValueError(f"dim: {dim} is not valid; AnglE pairs indices, so a size must be even and at least 2")
    half = dim // 2
    if layout == "chunked":
        return tuple((i, i + half) for i in range(half))
    if layout == "interleaved":
        return tuple((2 * i, 2 * i + 1) for i in range(half))
    if layout == "interleaved_swapped":
        return tuple((2 * i + 1, 2 * i) for i in range(half))
    raise ValueError(f"layout: {layout!r} is not valid; one of chunked, interleaved, interleaved_swapped")


def index_roles(dims: Sequence[int], layout: Layout) -> tuple[IndexRoles, ...]:
    """For each index below the largest size: its roles and partners over all sizes.

    Args:
        dims: Sizes at which the loss is computed, each even.
        layout: A layout of AnglE.

    Returns:
        One entry per index, ascending.
    """
    real: dict[int, int] = {}
    imaginary: dict[int, int] = {}
    partners: dict[int, set[int]] = {}
    for dim in dims:
        for r, i in index_pairs(dim, layout):
            real[r] = real.get(r, 0) + 1
            imaginary[i] = imaginary.get(i, 0) + 1
            partners.setdefault(r, set()).add(i)
            partners.setdefault(i, set()).add(r)
    return tuple(
        IndexRoles(
            index=index,
            real=real.get(index, 0),
            imaginary=imaginary.get(index, 0),
            partners=tuple(sorted(partners.get(index, ()))),
        )
        for index in range(max(dims, default=0))
    )
