"""Ray as the scheduler of a study (see `sweep.run.backend`). Imports ray only once machines are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sweep.run.backend import Session, SessionRequest, Workload
from sweep.run.preflight import check_resources

if TYPE_CHECKING:
    from sweep.on_ray.machines import Pin
    from sweep.on_ray.session import RayNodes


class RayBackend:
    """A Ray of this process's own, an existing cluster's, or one that the caller has already joined."""

    name = "Ray"

    def __init__(self, address: str | None = None) -> None:
        """Prepare.

        Args:
            address: Of a cluster, or `auto`; None: RAY_ADDRESS where it is set, else this machine.
        """
        self._address = address

    @contextmanager
    def session(self, request: SessionRequest) -> Iterator[Session]:
        """Join or start Ray, and leave it as it was found.

        Raises:
            ClusterError: no cluster at the address.
        """
        from sweep.on_ray.session import warm_session

        with warm_session(request, address=self._address) as nodes:
            yield _RaySession(request, nodes)

    def slots(self, *, cpus: int, gpus: float) -> int:
        """How many cells of that size the connected Ray can run at once; else how many this machine has room for."""
        from sweep.on_ray.trials import slots_now

        return slots_now(cpus, gpus)


class _RaySession:
    """The Ray of one launch."""

    def __init__(self, request: SessionRequest, nodes: RayNodes) -> None:
        self._request, self._nodes = request, nodes
        self._pin: Pin | None = None

    @property
    def machines(self) -> int:
        return len(self._nodes.resources)

    def check_machines(self, recorded: Sequence[str], say: Callable[[str], None]) -> None:
        """Every machine of a cluster; of this machine alone only whether it can hold a cell."""
        from sweep.on_ray.machines import check_nodes

        study = self._request.study
        if not self._nodes.shared:
            check_resources(study, self._nodes.resources)
            return
        self._pin = check_nodes(
            self._request.tracking.uri, cpus=study.resources.cpus, gpus=study.resources.gpus, recorded=recorded, say=say
        )

    def train(self, work: Workload) -> None:
        from sweep.on_ray.machines import Pin
        from sweep.on_ray.trials import TrialSweep

        resources = self._request.study.resources
        TrialSweep(
            work=work,
            cpus=resources.cpus,
            gpus=resources.gpus,
            scratch=self._request.scratch / "tune",
            pin=self._pin or Pin(),
        ).run()
