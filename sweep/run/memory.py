"""The memory of a cell's process: what it may have, what it has, and a limit on it."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

USABLE: Final = 0.9
"""Share of a machine's memory that its cells may have in all."""


def memory_share(cells: int) -> int | None:
    """Bytes that each of so many cells may allocate on this machine or in this container; None where unknown."""
    try:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            whole = min(whole, int(Path(file).read_text(encoding="ascii")))
    return int(whole * USABLE / cells)


def status_bytes(pid: str, name: str) -> int:
    """A number of /proc/PID/status, such as `RssAnon`, memory that is the process's own; 0 where there is none."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return 0


def limit_memory(memory: int) -> None:
    """Let this process fail where it allocates so many bytes more than it has now, in the line that does."""
    if sys.platform == "linux":
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = memory + status_bytes("self", "VmData")
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def shown_bytes(number: float) -> str:
    """Such as `8.0 GiB`."""
    return f"{number / 2**30:.1f} GiB" if number >= 2**30 else f"{number / 2**20:.0f} MiB"
