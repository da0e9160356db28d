"""Machines that vanish from a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.faults.harness import START_S, Bench, Launch, Row

pytestmark = pytest.mark.faults
Check = Callable[..., Row]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head that holds no cell, and two machines that hold one each."""
    from ray.cluster_utils import Cluster

    quick = {
        "health_check_initial_delay_ms": 1000,
        "health_check_period_ms": 1000,
        "health_check_timeout_ms": 1000,
        "health_check_failure_threshold": 3,
    }
    made = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0,
            "object_store_memory": 100 * 1024 * 1024,
            "_system_config": quick,
            "include_dashboard": False,
        },
    )
    made.machines = [made.add_node(num_cpus=1, object_store_memory=100 * 1024 * 1024) for _ in range(2)]
    made.wait_for_nodes()
    yield made
    made.shutdown()


def test_every_machine_removed_twice(served: Bench, cluster: Any, check: Check) -> None:
    """With --retries 1: what goes with its machine, as spot machines go, does not use it up."""
    served.write({**served.study, "options": {"sleep_s": 5.0}})
    launch = served.start("--retries", "1", "--address", cluster.address)
    for times in (1, 2):
        _wait(lambda times=times: _attempts(served, launch, times) == 2)
        time.sleep(1)  # Ray has heard by now on which machine each of them is
        for machine in cluster.machines:
            cluster.remove_node(machine, allow_graceful=False)
        cluster.machines = [cluster.add_node(num_cpus=1, object_store_memory=100 * 1024 * 1024) for _ in range(2)]
    assert launch.wait() == 0, launch.output
    lost = [line for line in launch.output.splitlines() if "; again in" in line]
    assert len(lost) >= 4, launch.output
    assert all("its machine is gone; again in" in line for line in lost), launch.output
    row = check(served, "every machine of a cluster removed, twice, --retries 1", 0)
    assert row.attempts == row.cells + len(lost)
    # A cell that lost two machines: its third attempt is one more than a retry that counted would have left.
    assert max(run.tags["sweep.attempt"] for run in served.runs() if run.status == "FINISHED") == "3"


def _attempts(bench: Bench, launch: Launch, times: int) -> int:
    """How many cells are in their attempt of that number now."""
    assert launch.process.poll() is None, launch.output
    return sum(run.status == "RUNNING" and run.tags["sweep.attempt"] == str(times) for run in bench.runs())


def _wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_S
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_database_file_on_two_machines_is_refused(bench: Bench, cluster: Any) -> None:
    launch = bench.start("--address", cluster.address)
    assert launch.wait() == 2, launch.output
    assert "--tracking-uri http://HEAD:5000" in launch.output
    assert "Traceback" not in launch.output
    assert bench.runs() == []
