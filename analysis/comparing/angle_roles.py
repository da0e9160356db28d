"""Which part of a complex number each embedding index serves as, under AnglE's layouts. Pure arithmetic.

AnglE reads an embedding of D numbers as D/2 complex ones. `chunked` pairs index i (real) with i + D/2
(imaginary); `interleaved` pairs 2i with 2i + 1; `interleaved_swapped` the same with the parts exchanged. Under
Matryoshka training the same index is used at several D, and under `chunked` its part then changes with D.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from analysis.results.model import CellRecord
from analysis.schema import ANGLE_LAYOUTS


@dataclass(frozen=True, kw_only=True)
class RoleBand:
    """Indices of one range that all serve in the same way."""

    first: int
    last: int
    real: int
    """At how many of the dims each index of the range is a real part."""
    imaginary: int
    partners: int
    """How many different partners an index of the range has over the dims."""


@dataclass(frozen=True, kw_only=True)
class LayoutRoles:
    """All indices under one layout, in bands."""

    layout: str
    variants: tuple[str, ...]
    bands: tuple[RoleBand, ...]
    keep_role: int
    """How many indices serve as one part only, at every dim that uses them."""


@dataclass(frozen=True, kw_only=True)
class AngleRoles:
    """The role table of a study's AnglE layouts."""

    dims: tuple[int, ...]
    layouts: tuple[LayoutRoles, ...]


def role(layout: str, index: int, dim: int) -> tuple[str, int]:
    """Part (`real` or `imaginary`) and partner of an index when the embedding is cut to `dim`.

    Raises:
        ValueError: an unknown layout, an odd dim, an index outside the dim.
    """
    if layout not in ANGLE_LAYOUTS or dim % 2 or not 0 <= index < dim:
        raise ValueError(f"no role for layout {layout!r}, index {index}, dim {dim}")
    if layout == "chunked":
        half = dim // 2
        return ("real", index + half) if index < half else ("imaginary", index - half)
    even = index % 2 == 0
    real = even if layout == "interleaved" else not even
    return "real" if real else "imaginary", index + 1 if even else index - 1


def role_counts(layout: str, dims: Iterable[int]) -> list[tuple[int, int, int]]:
    """Per index: times real, times imaginary, number of different partners, over the dims that use it."""
    sizes = sorted(dims)
    out = []
    for index in range(sizes[-1] if sizes else 0):
        roles = [role(layout, index, dim) for dim in sizes if index < dim]
        real = sum(part == "real" for part, _ in roles)
        out.append((real, len(roles) - real, len({partner for _, partner in roles})))
    return out


def bands(layout: str, dims: Iterable[int]) -> tuple[RoleBand, ...]:
    """Runs of indices with the same roles. Under the interleaved layouts even and odd indices alternate: there a run
    is one of index pairs, and its even indices are counted."""
    counts = role_counts(layout, dims)
    step = 1 if layout == "chunked" else 2
    out: list[RoleBand] = []
    for index in range(0, len(counts), step):
        real, imaginary, partners = counts[index]
        last = out[-1] if out else None
        if last is not None and (last.real, last.imaginary, last.partners) == (real, imaginary, partners):
            out[-1] = RoleBand(
                first=last.first, last=index + step - 1, real=real, imaginary=imaginary, partners=partners
            )
        else:
            out.append(RoleBand(first=index, last=index + step - 1, real=real, imaginary=imaginary, partners=partners))
    return tuple(out)


def angle_roles(cells: Iterable[CellRecord]) -> AngleRoles | None:
    """The role table for the AnglE layouts among the cells; None when no variant uses AnglE."""
    layouts: dict[str, dict[str, None]] = {}
    dims: tuple[int, ...] = ()
    for cell in cells:
        found = cell.fields.get("trained_dims", cell.fields.get("matryoshka_dims"))
        sizes = tuple(d for d in found if isinstance(d, int) and d % 2 == 0) if isinstance(found, list | tuple) else ()
        for layout in _layouts(cell):
            if sizes:
                layouts.setdefault(layout, {})[cell.variant] = None
                dims = sizes if len(sizes) > len(dims) else dims
    if not layouts:
        return None
    rows = []
    for layout in ANGLE_LAYOUTS:
        if layout in layouts:
            counts = role_counts(layout, dims)
            rows.append(
                LayoutRoles(
                    layout=layout,
                    variants=tuple(layouts[layout]),
                    bands=bands(layout, dims),
                    keep_role=sum(not (real and imaginary) for real, imaginary, _ in counts),
                )
            )
    return AngleRoles(dims=dims, layouts=tuple(rows))


def _layouts(cell: CellRecord) -> list[str]:
    loss = cell.fields.get("loss")
    if loss == "angle":
        return [str(cell.fields.get("loss.layout") or "chunked")]
    if isinstance(loss, list | tuple):
        terms = [term for term in loss if isinstance(term, dict) and term.get("name") == "angle"]
        return [str(term.get("layout") or "chunked") for term in terms]
    return []
