"""Several Ray nodes on one host: kinds are not mixed, a node goes in mid-sweep, a cluster grows from nothing."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.hosts import REPOSITORY, Network

pytestmark = pytest.mark.cluster

MLFLOW = "http://127.0.0.1:5000"
CELLS = sorted(f"{variant}-s{seed}-default" for variant in "ab" for seed in range(3))


@pytest.fixture
def host(one_host: Network, tmp_path: Path) -> Iterator[Network]:
    """A host with an MLflow server, and with the file that Ray's wheel lacks."""
    laptop = one_host.laptop
    ray = importlib.util.find_spec("ray")
    assert ray is not None
    assert ray.origin is not None
    folder = Path(ray.origin).parent / "autoscaler" / "_private" / "fake_multi_node"
    laptop.run("mkdir", "/run/upper", "/run/work", "/root/study")
    layers = f"lowerdir={folder},upperdir=/run/upper,workdir=/run/work"
    laptop.run("mount", "-t", "overlay", "overlay", "-o", layers, str(folder))
    laptop.write(str(folder / "example.yaml"), (Path(__file__).parent / "fake_cloud.yaml").read_text())
    server = laptop.start(
        "mlflow", "server", "--host", "127.0.0.1", "--port", "5000", "--workers", "1", "--serve-artifacts",
        "--backend-store-uri", "sqlite:////root/mlflow.db", "--artifacts-destination", "/root/mlartifacts",
        env={"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}, output=tmp_path / "mlflow.log",
    )  # fmt: skip
    for _ in range(300):
        if laptop.run("curl", "--silent", "--fail", f"{MLFLOW}/health", check=False).returncode == 0:
            break
        time.sleep(0.2)
    yield one_host
    server.kill()
    server.wait(timeout=10)


def play(host: Network, scenario: str) -> dict[str, Any]:
    done = host.laptop.run(
        "python", "-m", "tests.cluster.scenarios", scenario, MLFLOW,
        env={"PYTHONPATH": str(REPOSITORY)}, cwd="/root/study", timeout=240, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    result = json.loads(lines[-1].removeprefix("RESULT "))
    assert isinstance(result, dict)
    assert result["code"] == 0, done.stderr[-4000:]
    finished = [run["name"] for run in result["runs"] if run["status"] == "FINISHED"]
    assert sorted(finished) == CELLS
    assert "RUNNING" not in {run["status"] for run in result["runs"]}
    return {**result, "said": done.stderr}


def test_all_pairs_run_on_one_kind_of_gpu(host: Network) -> None:
    result = play(host, "kinds")
    assert "machines differ; all cells run on A10G" in result["said"]
    where = {run["where"] for run in result["runs"]}
    assert where <= {f'["ran on {raylet}"]' for raylet in result["a10g"]}


def test_a_node_that_goes_costs_an_attempt_and_no_cell(host: Network) -> None:
    result = play(host, "removed")
    assert "KILLED" in {run["status"] for run in result["runs"]}
    assert " lost " in result["said"]


def test_a_cluster_without_a_machine_for_cells_grows_one(host: Network) -> None:
    result = play(host, "grows")
    assert result["before"] == 1
    assert result["after"] > 1
    assert "asking the cluster for one" in result["said"]
