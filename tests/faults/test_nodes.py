"""Machines that vanish from a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.faults.harness import Bench, Row

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


def test_a_node_removed_in_the_middle(served: Bench, cluster: Any, check: Check) -> None:
    launch = served.start("--address", cluster.address)
    launch.wait_for("finished")
    cluster.remove_node(cluster.machines[0], allow_graceful=False)
    assert launch.wait() == 0, launch.output
    row = check(served, "a Ray node removed", 0)
    assert row.attempts > row.cells, "no cell ran on the node when it was removed"


def test_a_database_file_on_two_machines_is_refused(bench: Bench, cluster: Any) -> None:
    launch = bench.start("--address", cluster.address)
    assert launch.wait() == 2, launch.output
    assert "--tracking-uri http://HEAD:5000" in launch.output
    assert "Traceback" not in launch.output
    assert bench.runs() == []
