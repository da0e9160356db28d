"""A real cluster on test hosts: `ray up` of clusters/onprem.yaml over SSH, and the laptop's way to it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess, Popen
from typing import Any

import yaml

from tests.cluster.hosts import REPOSITORY, Host, HostError, Network, network

DASHBOARD, MLFLOW = "http://localhost:8265", "http://localhost:5000"
"""As the laptop sees them, at the ends of its tunnel."""
WORKERS = ("worker1", "worker2")
UP_TIMEOUT_S = 240.0
_TOKEN = {"RAY_AUTH_MODE": "token"}

_COUNT = """
import json, ray
ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
print(json.dumps([n["NodeManagerAddress"] for n in ray.nodes() if n["Alive"]]))
"""


def derived_config(net: Network) -> dict[str, Any]:
    """The shipped clusters/onprem.yaml with the machines, the key and the setup commands of the test hosts.

    Everything else is as shipped. The setup is replaced because the hosts see this checkout's environment, and there
    is no package index to install from.
    """
    config: dict[str, Any] = yaml.safe_load((REPOSITORY / "clusters" / "onprem.yaml").read_text())
    config["provider"]["head_ip"] = net.hosts["head"].address
    config["provider"]["worker_ips"] = [net.hosts[name].address for name in WORKERS]
    config["auth"] = {"ssh_user": "root", "ssh_private_key": net.private_key}
    config["setup_commands"] = [f"ln -sfn {sys.prefix} ~/pairsweep/.venv"]
    return config


_WATCH = """
import json, sys, time, ray
ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
last = None
while True:
    alive = sorted(n["NodeManagerAddress"] for n in ray.nodes() if n["Alive"])
    if alive != last:
        print("ALIVE", json.dumps([time.time(), alive]), flush=True)
        last = alive
    time.sleep(0.1)
"""


@dataclass(frozen=True, kw_only=True)
class LiveCluster:
    """A head and two workers, up, with the laptop's tunnel to the head."""

    net: Network
    scratch: Path

    @property
    def head(self) -> Host:
        return self.net.hosts["head"]

    def nodes(self) -> list[str]:
        """Addresses of the machines that Ray counts as alive."""
        done = self.head.run("python", "-c", _COUNT, env=_TOKEN, timeout=60)
        return sorted(json.loads(done.stdout.splitlines()[-1]))

    @contextmanager
    def watched(self, output: Path) -> Iterator[Callable[[str], float | None]]:
        """A watch on the head; gives a function: address -> when (`time.time()`) it stopped counting as alive."""
        watch = self.head.start("python", "-c", _WATCH, env=_TOKEN, output=output)

        def lost_at(address: str) -> float | None:
            lines = [line for line in output.read_text().splitlines() if line.startswith("ALIVE ")]
            changes = [json.loads(line.removeprefix("ALIVE ")) for line in lines]
            return next((when for when, alive in changes if alive and address not in alive), None)

        try:
            for _ in range(300):
                if "ALIVE" in output.read_text():
                    break
                time.sleep(0.2)
            yield lost_at
        finally:
            watch.kill()
            watch.wait(timeout=10)

    def sweep(
        self, *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 180
    ) -> CompletedProcess[str]:
        """`sweep ...` on the laptop."""
        return self._command("sweep.cli", *arguments, env=env, timeout=timeout)

    def analysis(self, *arguments: str, timeout: float = 120) -> CompletedProcess[str]:
        """`analysis ...` on the laptop."""
        return self._command("analysis.cli", *arguments, env=None, timeout=timeout)

    def _command(
        self, module: str, *arguments: str, env: Mapping[str, str] | None, timeout: float
    ) -> CompletedProcess[str]:
        return self.net.laptop.run("python", "-m", module, *arguments, env=env, timeout=timeout, check=False)

    def start_sweep(self, *arguments: str, output: Path) -> Popen[bytes]:
        """`sweep ...` on the laptop, left running."""
        return self.net.laptop.start("python", "-m", "sweep.cli", *arguments, output=output)

    def states(self, study: str) -> dict[str, str]:
        """Cell's run name -> state, as `sweep status` on the laptop shows it through the tunnel."""
        done = self.sweep("status", study, "--json", "--tracking-uri", MLFLOW)
        if done.returncode != 0:
            raise HostError(done.stderr)
        cells = json.loads(done.stdout)["cells"]
        return {f"{cell['variant']}-s{cell['seed']}-{cell['setting']}": cell["state"] for cell in cells}


@contextmanager
def live_cluster(scratch: Path) -> Iterator[LiveCluster]:
    """`ray up` from the laptop until all three machines are in; everything is gone when the block is left."""
    with network(["head", *WORKERS], scratch) as net:
        cluster = LiveCluster(net=net, scratch=scratch)
        net.laptop.run("ray", "get-auth-token", "--generate")
        net.laptop.write("/root/cluster.yaml", yaml.safe_dump(derived_config(net), sort_keys=False))
        net.laptop.run(
            "ray", "up", "--yes", "--no-config-cache", "/root/cluster.yaml", cwd=str(REPOSITORY), timeout=200
        )
        # `ray up` ends well once the head is up; whether the workers came is to be seen.
        deadline = time.monotonic() + UP_TIMEOUT_S
        while (nodes := cluster.nodes()) != sorted(host.address for host in net.hosts.values()):
            if time.monotonic() > deadline:
                log = cluster.head.run("sh", "-c", "tail -n 40 /tmp/ray/session_latest/logs/monitor.*", check=False)
                raise HostError(f"after {UP_TIMEOUT_S:.0f} s only {nodes} are in\n{log.stdout}")
            time.sleep(2)
        tunnel = net.laptop.start(*tunnel_command(net), output=scratch / "tunnel.log")
        try:
            _wait_for_tunnel(net)
            yield cluster
        finally:
            tunnel.terminate()
            tunnel.wait(timeout=10)


def tunnel_command(net: Network) -> list[str]:
    """The one SSH command of docs/cluster.md that brings the dashboard and MLflow to the laptop."""
    options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-i", net.private_key]
    forwards = ["-L", "8265:localhost:8265", "-L", "5000:localhost:5000"]
    return ["ssh", "-N", *options, *forwards, f"root@{net.hosts['head'].address}"]


def _wait_for_tunnel(net: Network) -> None:
    for _ in range(100):
        if net.laptop.run("curl", "--silent", "--fail", f"{MLFLOW}/health", check=False).returncode == 0:
            return
        time.sleep(0.2)
    raise HostError("the tunnel did not come up")
