"""One real cluster for all tests that need one: bringing it up takes most of a minute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import Network, network, why_no_hosts
from tests.cluster.launch import LiveCluster, live_cluster


def _skip_where_no_hosts() -> None:
    reason = why_no_hosts()
    if reason is not None:
        pytest.skip(f"test hosts: {reason}")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    _skip_where_no_hosts()
    with live_cluster(tmp_path_factory.mktemp("cluster")) as live:
        for file in (Path(__file__).parent / "study").iterdir():
            if file.is_file():
                live.net.laptop.write(f"/root/studies/{file.name}", file.read_text())
        yield live


@pytest.fixture
def one_host(tmp_path: Path) -> Iterator[Network]:
    """A machine alone."""
    _skip_where_no_hosts()
    with network([], tmp_path) as net:
        yield net
