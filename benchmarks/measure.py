"""Time and memory of whole commands, as a user waits for them, and the spread over repeats."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

LIBRARIES = ("torch", "transformers", "sentence-transformers", "ray", "mlflow", "optuna")
_SAMPLE_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Command:
    """One process to be measured."""

    arguments: Sequence[str]
    threads: int | None = None
    """OMP_NUM_THREADS; None: as the environment has it."""
    environment: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What it took."""

    seconds: float
    """Wall clock from start to exit."""
    memory_mb: tuple[float, ...]
    """Proportional resident memory of all its processes, MiB, sampled over time."""

    @property
    def peak_mb(self) -> float:
        """The largest sample."""
        return max(self.memory_mb, default=0.0)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Least, median and greatest of repeats."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of one or more values."""
        return cls(low=min(values), median=statistics.median(values), high=max(values))

    def text(self, digits: int = 1) -> str:
        """`median (low-high)`, or the value alone where all are equal."""
        if self.low == self.high:
            return f"{self.median:.{digits}f}"
        return f"{self.median:.{digits}f} ({self.low:.{digits}f}-{self.high:.{digits}f})"


def python(module: str, *arguments: object) -> tuple[str, ...]:
    """The command line of one of our modules."""
    return (sys.executable, "-m", module, *map(str, arguments))


def run(commands: Sequence[Command]) -> Measured:
    """Run commands side by side until all have ended.

    Raises:
        SystemExit: one failed; its last lines are shown.
    """
    with tempfile.TemporaryDirectory() as logs:
        begun = time.perf_counter()
        processes = []
        for index, command in enumerate(commands):
            environment = {**os.environ, **(command.environment or {})}
            if command.threads is not None:
                environment |= {"OMP_NUM_THREADS": str(command.threads), "MKL_NUM_THREADS": str(command.threads)}
            with Path(logs, f"{index}.log").open("wb") as log:
                processes.append(
                    subprocess.Popen(command.arguments, env=environment, stdout=log, stderr=subprocess.STDOUT)
                )
        samples: list[float] = []
        over = threading.Event()
        sampler = threading.Thread(target=_sample, args=([p.pid for p in processes], samples, over), daemon=True)
        sampler.start()
        try:
            codes = [process.wait() for process in processes]
            seconds = time.perf_counter() - begun
        finally:
            over.set()
            sampler.join()
            for process in processes:
                if process.poll() is None:  # we are interrupted; leave nothing running
                    process.terminate()
        for index, code in enumerate(codes):
            if code:
                tail = Path(logs, f"{index}.log").read_text(encoding="utf-8", errors="replace")[-3000:]
                raise SystemExit(f"{' '.join(commands[index].arguments)} ended with {code}:\n{tail}")
    return Measured(seconds=seconds, memory_mb=tuple(samples))


def _sample(pids: Sequence[int], samples: list[float], over: threading.Event) -> None:
    while not over.wait(_SAMPLE_S):
        total = 0
        for pid in pids:
            try:
                root = psutil.Process(pid)
                for process in (root, *root.children(recursive=True)):
                    total += _proportional_bytes(process)
            except psutil.NoSuchProcess:
                continue
        samples.append(total / 2**20)


def _proportional_bytes(process: psutil.Process) -> int:
    try:
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
        return int(process.memory_info().rss)
    except (OSError, psutil.Error):
        return 0


def surroundings() -> str:
    """One line on machine and versions, to stand under every table."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES)
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores of {model}; Python {platform.python_version()}, {versions}"
