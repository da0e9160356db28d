"""A cluster that `ray up` made over SSH: submit, watch, lose machines, read the report.

The tests share one cluster and run in this order; the last ones break it.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.launch import DASHBOARD, MLFLOW, LiveCluster

pytestmark = pytest.mark.cluster

STUDY = "/root/studies/study.yaml"
CELLS = {f"{variant}-s{seed}-default" for variant in "ab" for seed in range(6)}
ANSWERING = {
    # What answers a request without the token, by process name; docs/cluster.md names each.
    "sshd", "mlflow", "metrics",
}  # fmt: skip
_ASK = """
import json, sys, urllib.error, urllib.request
def ask(port):
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{port}{sys.argv[2]}", timeout=5).status
    except urllib.error.HTTPError as error:
        return error.code
    except Exception as error:
        return type(error).__name__
print(json.dumps({port: ask(port) for port in json.loads(sys.argv[1])}))
"""
_GRPC = """
import json, sys, grpc
from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc, node_manager_pb2, node_manager_pb2_grpc
from ray.core.generated import ray_client_pb2, ray_client_pb2_grpc
def code(call):
    try:
        call(timeout=10)
        return "answered"
    except grpc.RpcError as error:
        return error.code().name
def gcs(channel, **options):
    stub = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel)
    return stub.GetAllNodeInfo(gcs_service_pb2.GetAllNodeInfoRequest(), **options)
def raylet(channel, **options):
    stub = node_manager_pb2_grpc.NodeManagerServiceStub(channel)
    return stub.GetNodeStats(node_manager_pb2.GetNodeStatsRequest(), **options)
def client(channel, **options):
    stub = ray_client_pb2_grpc.RayletDriverStub(channel)
    return stub.ClusterInfo(ray_client_pb2.ClusterInfoRequest(type=0), **options)
calls = {"gcs": gcs, "raylet": raylet, "client": client}
metadata = [("authorization", "Bearer " + sys.argv[2])] if sys.argv[2] else []
found = {}
for name, address in json.loads(sys.argv[1]).items():
    with grpc.insecure_channel(address) as channel:
        found[name] = code(lambda **options: calls[name](channel, metadata=metadata, **options))
print(json.dumps(found))
"""


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> float:
    """Seconds until it holds."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            pytest.fail(f"after {seconds:.0f} s: {what}")
        time.sleep(0.5)
    return time.monotonic() - began


def write_study(cluster: LiveCluster, name: str, *, sleep_s: float) -> str:
    path = f"/root/studies/{name}.yaml"
    text = (Path(__file__).parent / "study" / "study.yaml").read_text()
    text = re.sub(r"^name: .*$", f"name: {name}", text, flags=re.MULTILINE)
    cluster.net.laptop.write(path, text.replace("sleep_s: 3.0", f"sleep_s: {sleep_s}"))
    return path


def runs(cluster: LiveCluster, study: str) -> list[dict[str, str]]:
    """Every cell run of a study: name, status, machine."""
    script = (
        "import json, sys; from mlflow import MlflowClient; client = MlflowClient(sys.argv[1])\n"
        "experiment = client.get_experiment_by_name(sys.argv[2])\n"
        "found = client.search_runs([experiment.experiment_id]) if experiment else []\n"
        "print(json.dumps([{'name': r.info.run_name, 'status': r.info.status, 'kind': r.data.tags.get('sweep.kind'),"
        " 'where': r.data.tags.get('sweep.notes', '')} for r in found]))"
    )
    done = cluster.net.laptop.run("python", "-c", script, MLFLOW, study, timeout=90)
    found: list[dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return [run for run in found if run["kind"] == "cell"]


def assert_each_cell_finished_once(cluster: LiveCluster, study: str) -> None:
    every = runs(cluster, study)
    finished = [run["name"] for run in every if run["status"] == "FINISHED"]
    assert sorted(finished) == sorted(CELLS)
    assert [run for run in every if run["status"] == "RUNNING"] == []


def test_ray_up_brings_three_machines(cluster: LiveCluster) -> None:
    assert cluster.nodes() == ["10.77.0.2", "10.77.0.3", "10.77.0.4"]


def test_ports_refuse_whoever_has_no_token(cluster: LiveCluster) -> None:
    listening = cluster.head.run("ss", "--listening", "--tcp", "--numeric", "--processes", "--no-header").stdout
    ports: dict[int, str] = {}
    for line in listening.splitlines():
        fields = line.split()
        process = re.search(r'\("([^"]+)",pid=(\d+)', line)
        assert process, line
        command = cluster.head.run("cat", f"/proc/{process[2]}/cmdline").stdout.replace("\0", " ")
        ports[int(fields[3].rpartition(":")[2])] = command if process[1].startswith("python") else process[1]
    assert {22, 5000, 6379, 8265, 10001} <= set(ports)

    asked = cluster.head.run("python", "-c", _ASK, json.dumps(sorted(ports)), "/metrics", timeout=120)
    answers = {int(port): answer for port, answer in json.loads(asked.stdout).items()}
    jobs = cluster.head.run("python", "-c", _ASK, json.dumps(sorted(ports)), "/api/jobs/", timeout=120)
    job_answers = {int(port): answer for port, answer in json.loads(jobs.stdout).items()}
    assert job_answers[8265] == 401
    open_ports = {port: ports[port] for port in ports if 200 in (answers[port], job_answers[port])}
    for port, process in open_ports.items():
        what = "mlflow" if "mlflow" in process else "metrics" if answers[port] == 200 else process
        assert what in ANSWERING, f"port {port} ({process}) answers without the token and is not documented"

    raylets = [port for port, process in ports.items() if process == "raylet" and port not in open_ports]
    token = cluster.net.laptop.run("cat", "/root/.ray/auth_token").stdout.strip()

    def asked_with(given: str, raylet: int) -> dict[str, str]:
        targets = {"gcs": "127.0.0.1:6379", "client": "127.0.0.1:10001", "raylet": f"127.0.0.1:{raylet}"}
        done = cluster.head.run("python", "-c", _GRPC, json.dumps(targets), given, timeout=60)
        codes: dict[str, str] = json.loads(done.stdout)
        return codes

    # A raylet listens on one port for control and on another for objects; only the first knows the request.
    (control,) = [port for port in raylets if asked_with(token, port)["raylet"] == "answered"]
    assert asked_with(token, control)["gcs"] == "answered"
    for wrong in ("", "f" * len(token)):
        assert set(asked_with(wrong, control).values()) == {"UNAUTHENTICATED"}


@pytest.mark.parametrize(
    ("address", "env", "said"),
    [
        ("http://localhost:9", {}, "no cluster answers at http://localhost:9"),
        ("ray://localhost:10001", {}, "'ray://localhost:10001' is not valid"),
        (MLFLOW, {}, "answers, but not as a Ray dashboard"),
        (DASHBOARD, {"RAY_AUTH_TOKEN": "0" * 32}, "refuses this token"),
        (DASHBOARD, {"RAY_AUTH_TOKEN_PATH": "/nowhere"}, "asks for a token and none was found"),
    ],
    ids=["no-cluster", "client-address", "another-server", "wrong-token", "no-token"],
)
def test_a_wrong_address_or_token_is_one_line(
    cluster: LiveCluster, address: str, env: dict[str, str], said: str
) -> None:
    done = cluster.sweep("submit", STUDY, "--address", address, env=env)
    assert done.returncode == 2, done
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert said in done.stderr


def test_a_machine_without_disk_or_with_a_refused_name_is_named_before_training(cluster: LiveCluster) -> None:
    worker = cluster.net.hosts["worker2"]
    worker.run("sh", "-c", "mkdir -p /root/.cache && mount -t tmpfs -o size=8m tmpfs /root/.cache")
    try:
        done = cluster.sweep("submit", STUDY, "--address", DASHBOARD)
    finally:
        worker.run("umount", "/root/.cache")
    assert done.returncode == 2, done
    assert "worker2 (10.77.0.4): disk: /root/.cache has 8 MiB free" in done.stdout
    assert "Traceback" not in done.stdout

    refused = ["--tracking-uri", "http://head:5000"]  # the server was told of the address, not of this name
    done = cluster.sweep("submit", STUDY, "--address", DASHBOARD, *refused)
    assert done.returncode == 2, done
    assert "refuses the host name" in done.stdout
    assert "Traceback" not in done.stdout
    assert runs(cluster, "on-three-machines") == []


def test_a_study_runs_on_all_machines_and_the_report_comes_through_the_tunnel(cluster: LiveCluster) -> None:
    cluster.net.laptop.write("/root/studies/.env", "PASSWORD=1")
    cluster.net.laptop.write("/root/studies/my_secrets.py", "PASSWORD = 1")
    done = cluster.sweep("submit", STUDY, "--address", DASHBOARD)
    assert done.returncode == 0, done
    assert "12 of 12 cells finished" in done.stdout
    (left_out,) = [line for line in done.stderr.splitlines() if "not shipped, since they look like secrets: " in line]
    assert "my_secrets.py" in left_out
    assert set(cluster.states(STUDY).values()) == {"finished"}
    assert_each_cell_finished_once(cluster, "on-three-machines")
    where = {run["where"] for run in runs(cluster, "on-three-machines")}
    assert where == {f'["ran on {name}"]' for name in ("head", "worker1", "worker2")}
    shipped = cluster.head.run("find", "/tmp/ray", "-name", ".env", "-o", "-name", "*secrets*").stdout
    assert shipped == ""

    report = cluster.analysis("report", STUDY, "--tracking-uri", MLFLOW, "--format", "json")
    assert report.returncode == 0, report
    (comparison,) = json.loads(report.stdout)["comparisons"]
    assert {endpoint["n_pairs"] for endpoint in comparison["endpoints"]} == {6}
    assert comparison["dropped"] == []


def test_a_driver_that_is_killed_continues_on_the_next_submit(cluster: LiveCluster, tmp_path: Path) -> None:
    study = write_study(cluster, "killed-driver", sleep_s=4.0)
    output = tmp_path / "submit.log"
    submit = cluster.start_sweep("submit", study, "--address", DASHBOARD, output=output)
    wait_until(lambda: " finished " in output.read_text(), 120, "no cell finished")
    cluster.head.run("pkill", "--signal", "KILL", "--full", "sweep.cli run submitted_study")
    assert submit.wait(timeout=60) not in (0, 2)

    done = cluster.sweep("submit", study, "--address", DASHBOARD)
    assert done.returncode == 0, done
    assert_each_cell_finished_once(cluster, "killed-driver")


def test_no_wait_prints_the_job_and_a_failed_cell_fails_the_job(cluster: LiveCluster) -> None:
    study = write_study(cluster, "failing", sleep_s=0.1)
    text = cluster.net.laptop.run("cat", study).stdout.replace("examples: 50", "examples: 50, fail_on_seeds: [3]")
    cluster.net.laptop.write(study, text)
    done = cluster.sweep("submit", study, "--address", DASHBOARD, "--no-wait")
    assert done.returncode == 0, done
    job = done.stdout.strip()
    assert re.fullmatch(r"sweep-failing-\d{8}-\d{6}-[0-9a-f]{4}", job)

    def status() -> str:
        token = cluster.net.laptop.run("cat", "/root/.ray/auth_token").stdout.strip()
        header = f"Authorization: Bearer {token}"
        shown = cluster.net.laptop.run("curl", "--silent", "--header", header, f"{DASHBOARD}/api/jobs/{job}").stdout
        return str(json.loads(shown)["status"])

    wait_until(lambda: status() in ("FAILED", "SUCCEEDED"), 120, "the job did not end")
    assert status() == "FAILED"
    assert sorted(cluster.states(study).values()) == ["failed"] * 2 + ["finished"] * 10

    again = cluster.sweep("submit", study, "--address", DASHBOARD)
    assert again.returncode == 1, again
    assert "failed: a-s3-default" in again.stdout


def test_two_machines_lost_and_every_cell_finished_once(cluster: LiveCluster, tmp_path: Path) -> None:
    study = write_study(cluster, "lost-machines", sleep_s=6.0)
    output = tmp_path / "submit.log"
    submit = cluster.start_sweep("submit", study, "--address", DASHBOARD, output=output)
    wait_until(lambda: " finished " in output.read_text(), 120, "no cell finished")

    with cluster.watched(tmp_path / "watch.log") as lost_at:
        cut = time.time()
        cluster.net.set_link("worker1", "down")
        wait_until(lambda: lost_at("10.77.0.3") is not None, 30, "the cut-off machine still counts as alive")
        killed = time.time()
        cluster.net.hosts["worker2"].kill()
        wait_until(lambda: lost_at("10.77.0.4") is not None, 30, "the dead machine still counts as alive")
        for address, since in (("10.77.0.3", cut), ("10.77.0.4", killed)):
            when = lost_at(address)
            assert when is not None
            assert when - since < 10, f"{address} was missed after {when - since:.1f} s"

    try:
        assert submit.wait(timeout=180) == 0, output.read_text()
    except subprocess.TimeoutExpired:
        pytest.fail(output.read_text())
    assert_each_cell_finished_once(cluster, "lost-machines")
    assert "its worker died" in output.read_text() or " lost " in output.read_text()


def test_ray_down_ends_the_head(cluster: LiveCluster) -> None:
    done = cluster.net.laptop.run("ray", "down", "--yes", "/root/cluster.yaml", timeout=120, check=False)
    assert done.returncode == 0, done
    given_up = time.monotonic() + 60  # `ray down` returns while `ray stop` still ends the last processes
    while "gcs_server" in cluster.head.run("ps", "-e").stdout:
        assert time.monotonic() < given_up, cluster.head.run("ps", "-e").stdout
        time.sleep(0.5)
