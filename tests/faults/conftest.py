"""What the fault suite shares: an undisturbed run to compare with, and the table it prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.harness import CELLS, Bench, Row, Run, Server, a_served_bench, examined

ROWS: list[Row] = []
NOTES: list[str] = []


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Run name -> the run, of a study that nothing happened to."""
    bench = Bench(folder=tmp_path_factory.mktemp("undisturbed"))
    assert bench.run() == 0, bench.launches[-1].output
    runs = {run.name: run for run in bench.runs()}
    assert len(runs) == CELLS
    assert all(run.status == "FINISHED" and len(run.predictions()) == 2 for run in runs.values())
    return runs


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(folder=tmp_path / "bench")
    yield made
    made.end()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "server")
    made.start()
    yield made
    made.kill()


@pytest.fixture
def served(server: Server, tmp_path: Path) -> Iterator[Bench]:
    """A study that is recorded by a server."""
    made = a_served_bench(server, tmp_path / "bench")
    yield made
    made.end()


@pytest.fixture
def check(undisturbed: dict[str, Run]) -> Callable[..., Row]:
    """Assert that a fault left nothing, and keep its line of the table."""

    def examine(bench: Bench, fault: str, *codes: int | str) -> Row:
        row = examined(bench, fault, codes, undisturbed)
        ROWS.append(row)
        return row

    return examine


@pytest.fixture
def note() -> Callable[[str], None]:
    """A figure to print below the table."""
    return NOTES.append


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not ROWS:
        return
    terminalreporter.section("faults")
    terminalreporter.write_line(f"{'fault':<66} {'cells':>5} {'lost':>4} {'doubled':>7} {'attempts':>8}  exit codes")
    for row in ROWS:
        codes = ", ".join(map(str, row.codes))
        line = f"{row.fault:<66} {row.cells:>5} {row.lost:>4} {row.doubled:>7} {row.attempts:>8}  {codes}"
        terminalreporter.write_line(line)
    for line in NOTES:
        terminalreporter.write_line(line)
