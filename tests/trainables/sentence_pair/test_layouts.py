from __future__ import annotations

import pytest

from trainables.sentence_pair.layouts import index_pairs, index_roles


def test_interleaved_keeps_role_and_partner_at_every_size() -> None:
    dims = (4, 8, 16)
    for role in index_roles(dims, "interleaved"):
        sizes = sum(role.index < dim for dim in dims)
        assert len(role.partners) == 1
        assert role.partners == (role.index ^ 1,)
        assert (role.real, role.imaginary) == ((sizes, 0) if role.index % 2 == 0 else (0, sizes))


def test_swapped_exchanges_the_roles() -> None:
    plain, swapped = (index_roles((4, 8), layout) for layout in ("interleaved", "interleaved_swapped"))
    assert [(one.imaginary, one.real) for one in plain] == [(one.real, one.imaginary) for one in swapped]


def test_chunked_changes_roles_and_partners() -> None:
    roles = index_roles((4, 8, 16), "chunked")
    # Index 2: imaginary at 4 (with 0), real at 8 (with 6) and at 16 (with 10).
    assert (roles[2].real, roles[2].imaginary, roles[2].partners) == (2, 1, (0, 6, 10))
    assert any(role.real and role.imaginary for role in roles)
    assert (roles[15].real, roles[15].imaginary, roles[15].partners) == (0, 1, (7,))


@pytest.mark.parametrize("layout", ["chunked", "interleaved", "interleaved_swapped"])
def test_every_index_is_used_once_per_size(layout: str) -> None:
    used = [index for pair in index_pairs(10, layout) for index in pair]  # type: ignore[arg-type]
    assert sorted(used) == list(range(10))


def test_odd_size() -> None:
    with pytest.raises(ValueError, match="dim: 7 is not valid"):
        index_pairs(7, "chunked")
