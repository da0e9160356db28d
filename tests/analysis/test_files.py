"""Files that are there whole or not at all."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from analysis.files import write_atomically, written_atomically


def test_a_file_takes_its_place_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.bin"
    with written_atomically(path) as temporary:
        temporary.write_bytes(b"first ")
        with temporary.open("ab") as more:
            more.write(b"second")
        assert not path.exists()
    assert path.read_bytes() == b"first second"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    write_atomically(path, b"old")

    def fail() -> None:
        with written_atomically(path) as temporary:
            temporary.write_bytes(b"half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
