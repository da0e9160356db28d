"""Send a study to a cluster as a Ray job: ship it, follow it, end as it ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import secrets
import shlex
import socket
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from analysis.showing import hide_credentials, shown_uri
from sweep.errors import ClusterError
from sweep.on_ray.shipping import Shipment, shipment_of
from sweep.study import Study

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

PROBE_TIMEOUT_S: Final = 10.0
MIN_RAY: Final = (2, 60)
LOST_CLUSTER_S: Final = 120.0
"""Longest time without an answer before following a job is given up; the job itself goes on."""
FAILED, INTERRUPTED = 1, 130
_ADDRESS_VARIABLES: Final = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")
_EXPECTED: Final = "expected http://HOST:8265, the cluster's dashboard, usually at the end of an SSH tunnel"


def submit_study(
    study: Study,
    *,
    address: str,
    wait: bool = True,
    run_options: Sequence[str] = (),
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> int:
    """Run a study on a cluster. A study that was submitted before continues with the cells that are missing.

    Args:
        study: The study; see `sweep.on_ray.shipping` for what of it is sent.
        address: The cluster's dashboard, such as http://localhost:8265.
        wait: Show the job's output and wait for its end; else print the job's id and return.
        run_options: Further options of `sweep run` on the cluster.
        say: Gets what is to be told besides the job's output.

    Returns:
        The exit code: that of `sweep run` on the cluster; 0 without `wait`; 130 when following was interrupted.

    Raises:
        ClusterError: nothing to ship to, or not this.
    """
    _check_shown(run_options)
    shipment = shipment_of(study)
    address = _checked_address(address)
    headers = _token_header()
    _check_cluster(address, headers)
    client = _client(address, headers)
    job = _job_id(study.name)
    _submit(client, job, study, shipment, run_options)
    say(f"job {job}: {len(shipment.files)} files of the study, {shipment.size / 1024:.0f} kB with the program")
    if shipment.left_out:
        say(f"not shipped, since they look like secrets: {', '.join(shipment.left_out)}")
    if not wait:
        print(job)
        return 0
    try:
        return _follow(client, job, say)
    except KeyboardInterrupt:
        say(f"job {job} goes on; `ray job stop --address {address} {job}` would end it")
        return INTERRUPTED


def _check_shown(run_options: Sequence[str]) -> None:
    """Refuse what a job's command must not hold: everybody who sees the cluster's dashboard sees it."""
    for option in run_options:
        if hide_credentials(option) != option:
            raise ClusterError(
                f"--tracking-uri: {shown_uri(option)}: give it without user and password: a job's command is shown on "
                "the dashboard; export MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD before `ray start`"
            )


def _checked_address(address: str) -> str:
    full = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(full)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname)
        port = parts.port
    except ValueError:
        valid, port = False, None
    if not valid:
        raise ClusterError(f"--address: {address!r} is not valid; {_EXPECTED}")
    return f"{parts.scheme}://{parts.netloc}" + ("" if port or parts.scheme == "https" else ":8265")


def read_token() -> str | None:
    """The cluster's token, where Ray looks for it: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token."""
    token = os.environ.get("RAY_AUTH_TOKEN", "").strip()
    if token:
        return token
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _token_header() -> dict[str, str]:
    token = read_token()
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def _check_cluster(address: str, headers: dict[str, str]) -> None:
    """A cluster that answers, accepts the token and can run this; asked with a bound on time, unlike Ray's client."""
    version = _ask(address, "/api/version", headers, "")
    try:
        ray = str(json.loads(version)["ray_version"])
        numbers = tuple(int(part) for part in ray.split(".")[:2])
    except (ValueError, KeyError, TypeError):
        raise ClusterError(f"{address} answers, but not as a Ray dashboard; {_EXPECTED}") from None
    if numbers < MIN_RAY:
        raise ClusterError(f"{address}: the cluster runs Ray {ray}; needed is {'.'.join(map(str, MIN_RAY))} or newer")
    _ask(address, "/api/jobs/", headers, ray)


def _ask(address: str, path: str, headers: dict[str, str], ray: str) -> bytes:
    request = urllib.request.Request(address + path, headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=PROBE_TIMEOUT_S) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 401:
            raise ClusterError(
                f"{address}: the cluster asks for a token and none was found here; put the cluster's "
                "(`ray get-auth-token` on its head) into ~/.ray/auth_token or RAY_AUTH_TOKEN"
            ) from None
        if error.code == 403:
            raise ClusterError(
                f"{address}: the cluster refuses this token; it has another one than ~/.ray/auth_token or "
                "RAY_AUTH_TOKEN here (`ray get-auth-token` on its head shows it)"
            ) from None
        what = f"Ray {ray} there answers {path} with" if ray else "but not as a Ray dashboard:"
        raise ClusterError(f"{address} answers, {what} HTTP {error.code}; {_EXPECTED}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        timed_out = isinstance(reason, (TimeoutError, socket.timeout))
        why = f"no answer within {PROBE_TIMEOUT_S:.0f} s" if timed_out else str(getattr(reason, "strerror", reason))
        raise ClusterError(f"no cluster answers at {address} ({why}); {_EXPECTED}") from None


@contextmanager
def _without_ray_address() -> Iterator[None]:
    """Ray's client lets RAY_ADDRESS override the address that it is given."""
    kept = {name: os.environ.pop(name) for name in _ADDRESS_VARIABLES if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


def _client(address: str, headers: dict[str, str]) -> JobSubmissionClient:
    from ray.job_submission import JobSubmissionClient

    logging.getLogger("ray").setLevel(logging.WARNING)
    logging.getLogger("ray.dashboard.modules.dashboard_sdk").setLevel(logging.WARNING)
    logging.getLogger("ray.dashboard.modules.job.sdk").setLevel(logging.CRITICAL)
    with _without_ray_address():
        return JobSubmissionClient(address, headers=dict(headers))


def _job_id(study: str) -> str:
    """Readable, sorted by time, and unique."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", study).strip("-")[:40] or "study"
    return f"sweep-{name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def job_command(study_file: str, run_options: Sequence[str]) -> str:
    """The job's shell command: `sweep run` on the head, with the tracking server that the head knows.

    Ray tells a job by RAY_ADDRESS which cluster it runs on.
    """
    run = shlex.join(["python", "-m", "sweep.cli", "run", study_file, *run_options])
    if any(option.split("=")[0] == "--tracking-uri" for option in run_options):
        return f"exec {run}"
    missing = "error: the head has no MLFLOW_TRACKING_URI; export it before `ray start --head`, as cluster.yaml does"
    return f'test -n "$MLFLOW_TRACKING_URI" || {{ echo {shlex.quote(missing)} >&2; exit 2; }}; exec {run}'


def _submit(
    client: JobSubmissionClient, job: str, study: Study, shipment: Shipment, run_options: Sequence[str]
) -> None:
    with tempfile.TemporaryDirectory(prefix="sweep-ship-") as folder:
        shipment.write(Path(folder))
        try:
            client.submit_job(
                submission_id=job,
                entrypoint=job_command(shipment.study_file, run_options),
                runtime_env={"working_dir": folder, "env_vars": {"PYTHONUNBUFFERED": "1"}},
                metadata={"study": study.name, "submitted_from": socket.gethostname()},
            )
        except (RuntimeError, OSError) as error:
            raise ClusterError(f"the cluster did not take the job: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _follow(client: JobSubmissionClient, job: str, say: Callable[[str], None]) -> int:
    """Show the job's output until its end.

    Returns:
        The exit code of the job's command.
    """
    shown = 0
    answered = time.monotonic()
    while True:
        try:
            shown = asyncio.run(_tail(client, job, shown))
            info = client.get_job_info(job)
            answered = time.monotonic()
        except (RuntimeError, OSError) as error:
            if time.monotonic() - answered > LOST_CLUSTER_S:
                raise ClusterError(
                    f"the cluster no longer answers ({_first_line(error)}); job {job} may go on there, and the same "
                    "command continues the study"
                ) from None
            time.sleep(2)
            continue
        if info.status.is_terminal():
            break
        time.sleep(0.5)
    if info.driver_exit_code is not None and info.driver_exit_code >= 0:
        code = int(info.driver_exit_code)
    else:
        code = 0 if info.status == "SUCCEEDED" else FAILED
    if code == 0 and info.status != "SUCCEEDED":
        code = FAILED
    if code:
        say(f"job {job} {info.status.lower()} with exit code {code}")
        if info.driver_exit_code is None or info.driver_exit_code < 0 or info.status == "STOPPED":
            say(f"{_first_line(RuntimeError(info.message or ''))}; the same command continues the study")
    return code


async def _tail(client: JobSubmissionClient, job: str, shown: int) -> int:
    """Print what the job wrote beyond the first `shown` characters; the stream starts at the beginning each time."""
    seen = 0
    async for chunk in client.tail_job_logs(job):
        seen += len(chunk)
        if seen > shown:
            sys.stdout.write(chunk[-(seen - shown) :])
            sys.stdout.flush()
            shown = seen
    return shown
