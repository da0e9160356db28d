"""Machines for cluster tests, made of Linux namespaces: each has its own network, processes, mounts and sshd.

A host sees the real file system, except for a private /tmp, /root, /run and /dev/shm, its own /etc/hosts and
its own name; it has one address, reachable over a bridge that lives on the first machine (the "laptop").
Nothing of it shows outside: no interface, address or listening port, and every process of a host dies with
the host's first process. A private process table matters: `ray stop` kills every Ray process that it can see.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LAPTOP_ADDRESS = "10.77.0.1"
START_TIMEOUT_S = 20.0
TOOLS = ("unshare", "nsenter", "setpriv", "mount", "ip", "sshd", "ssh", "ssh-keygen", "rsync")

_FIRST_PROCESS = """
set -eu
mount --make-rprivate /
keep=$(mktemp -d /var/tmp/host.XXXXXX); mount -t tmpfs tmpfs "$keep"
i=0
for path in {kept}; do i=$((i + 1)); mkdir "$keep/$i"; mount --bind "$path" "$keep/$i"; done
for folder in /tmp /root /run /dev/shm; do mount -t tmpfs -o mode=1777 tmpfs "$folder"; done
chmod 700 /root
i=0
for path in {kept}; do i=$((i + 1)); mkdir -p "$path"; mount --bind "$keep/$i" "$path"; done
umount -l "$keep"; rmdir "$keep"
mkdir -p -m 700 /run/sshd /root/.ssh
printf '%s\\n' {hosts_lines} > /run/hosts; mount --bind /run/hosts /etc/hosts
hostname {name}
ip link set lo up
ssh-keygen -q -t ed25519 -N '' -f /run/host_key
printf '%s\\n' {public_key} > /root/.ssh/authorized_keys
if [ {serves_ssh} = yes ]; then
  {sshd} -f /dev/null -h /run/host_key -o UsePAM=no -o PidFile=none -o MaxStartups=50 \\
    -o PasswordAuthentication=no -o PermitRootLogin=prohibit-password -o Subsystem='sftp internal-sftp'
fi
touch /run/ready
# Adopts and reaps what daemons leave behind, as an init must.
while true; do sleep 1 & wait $! || true; done
"""


class HostError(RuntimeError):
    """A test host did not start, or a command on it failed."""


def why_no_hosts() -> str | None:
    """Why test hosts cannot be made here, or None where they can."""
    missing = [tool for tool in TOOLS if _tool(tool) is None]
    if missing:
        return f"needs {', '.join(missing)} (Debian: openssh-server openssh-client rsync iproute2 util-linux)"
    if os.geteuid() != 0:
        return "needs root, to make namespaces"
    probe = ["unshare", "--net", "--pid", "--fork", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/tmp"]
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        return "needs the right to make namespaces and to mount in them"
    return None


def _tool(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def _kept_paths() -> list[Path]:
    """What a host must still see below the folders that it gets private ones of: the code and its Python."""
    needed = {REPOSITORY, Path(sys.prefix), Path(sys.base_prefix).resolve()}
    hidden = [Path(p) for p in ("/tmp", "/root", "/run", "/dev/shm")]
    return sorted(path for path in needed if any(path.is_relative_to(folder) for folder in hidden))


@dataclass(frozen=True, kw_only=True)
class Host:
    """One machine: `run` works like a login on it, without going through ssh."""

    name: str
    address: str
    pid: int
    """The host's first process, as seen from outside."""
    keeper: subprocess.Popen[bytes] = field(repr=False)

    def command(self, *argv: str, env: Mapping[str, str] | None = None, cwd: str = "/root") -> list[str]:
        """The command line that runs `argv` on this host, with a clean environment."""
        clean = {
            "HOME": "/root",
            "USER": "root",
            "LANG": "C.UTF-8",
            "PATH": f"{Path(sys.prefix)}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": str(REPOSITORY),
        }
        settings = [f"{key}={value}" for key, value in {**clean, **(env or {})}.items()]
        enter = ["nsenter", "--target", str(self.pid), "--all", f"--wdns={cwd}"]
        return [*enter, "env", "--ignore-environment", *settings, *argv]

    def run(
        self,
        *argv: str,
        env: Mapping[str, str] | None = None,
        cwd: str = "/root",
        timeout: float = 60,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end.

        Raises:
            HostError: it ended with another code than 0, and `check` is set.
        """
        done = subprocess.run(
            self.command(*argv, env=env, cwd=cwd), capture_output=True, text=True, timeout=timeout, check=False
        )
        if check and done.returncode != 0:
            raise HostError(f"{self.name}: {shlex.join(argv)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def start(
        self, *argv: str, env: Mapping[str, str] | None = None, cwd: str = "/root", output: Path
    ) -> subprocess.Popen[bytes]:
        """Starts a command and leaves it running; both its outputs go to the file `output`."""
        with output.open("ab") as file:
            return subprocess.Popen(
                self.command(*argv, env=env, cwd=cwd), stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
            )

    def write(self, path: str, text: str, mode: str = "600") -> None:
        """Writes a file of the host's own file system."""
        quoted, folder = shlex.quote(path), shlex.quote(str(Path(path).parent))
        script = f"umask 077; mkdir -p {folder}; cat > {quoted}; chmod {mode} {quoted}"
        subprocess.run(self.command("sh", "-c", script), input=text, text=True, check=True, timeout=30)

    def kill(self) -> None:
        """Pulls the plug: every process of the host ends at once."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.keeper.wait(timeout=10)


@dataclass(frozen=True, kw_only=True)
class Network:
    """The laptop and the hosts around it."""

    laptop: Host
    hosts: Mapping[str, Host]
    private_key: str
    """Path on the laptop of the key that opens all hosts."""

    def set_link(self, host: str, state: str) -> None:
        """Pulls a host's network cable (`down`) or plugs it in again (`up`)."""
        self.laptop.run("ip", "link", "set", f"to-{host}", state)


@contextmanager
def network(names: Sequence[str], scratch: Path) -> Iterator[Network]:
    """A laptop and hosts with these names, at 10.77.0.2, .3, ...; all are gone when the block is left."""
    key = scratch / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public_key = key.with_suffix(".pub").read_text().strip()
    addresses = {"laptop": LAPTOP_ADDRESS} | {name: f"10.77.0.{2 + i}" for i, name in enumerate(names)}
    started: list[Host] = []
    try:
        for name in addresses:
            started.append(_start(name, addresses, public_key, scratch))  # noqa: PERF401 - each must be ended
        laptop, *others = started
        _connect(laptop, others)
        laptop.write("/root/.ssh/id_ed25519", key.read_text())
        yield Network(laptop=laptop, hosts={host.name: host for host in others}, private_key="/root/.ssh/id_ed25519")
    finally:
        for host in started:
            host.kill()


def _start(name: str, addresses: Mapping[str, str], public_key: str, scratch: Path) -> Host:
    script = _FIRST_PROCESS.format(
        kept=shlex.join(map(str, _kept_paths())),
        hosts_lines=shlex.join(["127.0.0.1 localhost", *(f"{address} {host}" for host, address in addresses.items())]),
        name=name,
        public_key=shlex.quote(public_key),
        serves_ssh="no" if name == "laptop" else "yes",
        sshd=_tool("sshd"),
    )
    # The keeper dies with this process, the host with the keeper.
    with (scratch / f"{name}.log").open("wb") as log:
        keeper = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
             "--net", "--ipc", "--uts", "bash", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )  # fmt: skip
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and keeper.poll() is None:
        children = Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children").read_text().split()
        if children and Path(f"/proc/{children[0]}/root/run/ready").exists():
            return Host(name=name, address=addresses[name], pid=int(children[0]), keeper=keeper)
        time.sleep(0.05)
    keeper.kill()
    keeper.wait()
    raise HostError(f"{name} did not start: {(scratch / f'{name}.log').read_text()}")


def _connect(laptop: Host, others: Sequence[Host]) -> None:
    """A bridge on the laptop, and a cable from it to every host."""
    laptop.run("ip", "link", "add", "bridge", "type", "bridge")
    laptop.run("ip", "address", "add", f"{LAPTOP_ADDRESS}/24", "dev", "bridge")
    laptop.run("ip", "link", "set", "bridge", "up")
    for host in others:
        # Run outside of the laptop's process table, so that the other host's process id means what it says.
        cable = f"ip link add to-{host.name} type veth peer name eth0 netns {host.pid}"
        subprocess.run(["nsenter", "--target", str(laptop.pid), "--net", *cable.split()], check=True)
        laptop.run("ip", "link", "set", f"to-{host.name}", "master", "bridge", "up")
        host.run("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
        host.run("ip", "link", "set", "eth0", "up")
        # Ray finds its own address by the route to the internet; nothing is ever sent there.
        host.run("ip", "route", "add", "default", "via", LAPTOP_ADDRESS)
