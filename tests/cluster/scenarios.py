"""Clusters of several Ray nodes on one host; each scenario prints what happened as JSON.

They run on a test host of their own (see test_many_nodes): `ray stop`, which they need, ends every Ray it can see.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from mlflow import MlflowClient
from ray.cluster_utils import AutoscalingCluster, Cluster

from sweep.on_ray.ray_backend import RayBackend
from sweep.run.launch import RunOptions
from sweep.run.run_study import run_study
from sweep.study import load_study

STUDY = """
name: many-nodes
trainable: "where_it_ran:train"
matryoshka_dims: [8]
variants: {a: {options: {effect: 0.0}}, b: {options: {effect: 0.05}}}
baseline: a
seeds: 3
"""
WHERE_IT_RAN = """
import os
from dataclasses import replace

from trainables.synthetic import closed_form


def train(spec, report):
    # The node by its raylet: the process of a cell is none of Ray's.
    return replace(closed_form(spec, report), notes=(f"ran on {os.environ['RAY_RAYLET_PID']}",))
"""


def run(more: str, address: str | None = None) -> dict[str, Any]:
    """Run the study on the connected cluster, in the current folder."""
    Path("study.yaml").write_text(STUDY + more)
    Path("where_it_ran.py").write_text(WHERE_IT_RAN)
    began = time.monotonic()
    code = run_study(load_study("study.yaml"), RayBackend(address), RunOptions(tracking_uri=sys.argv[2]))
    seconds = time.monotonic() - began
    client = MlflowClient(sys.argv[2])
    experiment = client.get_experiment_by_name("many-nodes")
    assert experiment is not None
    runs = [
        {"name": run.info.run_name, "status": run.info.status, "where": run.data.tags.get("sweep.notes", "")}
        for run in client.search_runs([experiment.experiment_id])
        if run.data.tags.get("sweep.kind") == "cell"
    ]
    return {"code": code, "seconds": seconds, "runs": runs}


def three_nodes(**of_each: Any) -> tuple[Cluster, list[Any]]:
    """A head that holds no cell, and three nodes that do."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1, **{name: values[i] for name, values in of_each.items()}) for i in range(3)]
    ray.init(address=cluster.address, log_to_driver=False)
    return cluster, nodes


def kinds() -> dict[str, Any]:
    """Three GPU nodes of two kinds."""
    kinds = [{"accelerator_type:A10G": 1.0}, {"accelerator_type:T4": 1.0}, {"accelerator_type:A10G": 1.0}]
    _, nodes = three_nodes(num_gpus=[1, 1, 1], resources=kinds)
    result = run("resources: {cpus: 1, gpus: 1}\noptions: {sleep_s: 0.5}")
    raylets = [str(node.all_processes["raylet"][0].process.pid) for node in nodes]
    return {**result, "a10g": [raylets[0], raylets[2]]}


def removed() -> dict[str, Any]:
    """A node goes in the middle of the sweep: once each of the three runs a cell."""
    cluster, nodes = three_nodes()

    def remove_when_busy() -> None:
        client = MlflowClient(sys.argv[2])
        while True:
            experiment = client.get_experiment_by_name("many-nodes")
            runs = client.search_runs([experiment.experiment_id]) if experiment else []
            cells = [run for run in runs if run.data.tags.get("sweep.kind") == "cell"]
            if len(cells) >= len(nodes):
                break
            time.sleep(0.2)
        cluster.remove_node(nodes[1], allow_graceful=False)

    threading.Thread(target=remove_when_busy, daemon=True).start()
    return run("options: {sleep_s: 8.0}")


def grows() -> dict[str, Any]:
    """A cluster without any node that can hold a cell, whose autoscaler can start some; joined as a job joins it."""
    cluster = AutoscalingCluster(
        head_resources={"CPU": 0},
        worker_node_types={
            "worker": {"resources": {"CPU": 2}, "node_config": {}, "min_workers": 0, "max_workers": 2},
        },
        autoscaler_v2=True,
        idle_timeout_minutes=5,
    )
    cluster.start()
    before = alive()
    result = run("resources: {cpus: 2}", address="auto")
    return {**result, "before": before, "after": alive()}


def alive() -> int:
    """Nodes of the running cluster, asked by a process that joins and leaves."""
    ray.init(address="auto", log_to_driver=False)
    try:
        return sum(node["Alive"] for node in ray.nodes())
    finally:
        ray.shutdown()


SCENARIOS: dict[str, Callable[[], dict[str, Any]]] = {"kinds": kinds, "removed": removed, "grows": grows}

if __name__ == "__main__":
    print("RESULT", json.dumps(SCENARIOS[sys.argv[1]]()), flush=True)
    ray.shutdown()
