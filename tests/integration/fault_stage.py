"""What a fault is played on: two pools of a running operator, clients, and what has to hold whatever breaks.

`steady` needs both of its replicas, all the time. `growing` is told to grow while the fault lasts. After each fault
the stage asserts that nothing was scaled down wrongly, that no order exceeds a max or the budget, and that no request of
a pod that drains was lost.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from servingpool_lab import audit
from servingpool_lab.api_client import ApiError
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from ..pods import is_ready  # noqa: TID252, tests are no package of an installed name
from ..unit.fuzzing import worst  # noqa: TID252
from .beside import Beside
from .fault_proxy import Proxy
from .operators import (
    ACCOUNT,
    ELECTION,
    NAMESPACE,
    PATIENCE,
    Cluster,
    OperatorProcess,
    Service,
    cluster_in,
    deployment,
    settings_on,
)

ROOT = Path(__file__).parents[2]
STEADY, GROWING, GPUS = "steady", "growing", 5
RATE, NEED = 14.0, 2
"""Requests per second of `steady`, and how many of its replicas serve them; it may have no more."""
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
REQUEST, GRACE = 2.0, 4
"""Seconds that a request takes, and that a pod has to end what it serves."""
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/servingpool-operator"


class Clients(Beside):
    """One request a second on each pod that is Ready. A pod that is gone before its requests end has lost them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ends: dict[str, float] = {}
        """When the last request of each pod ends, by the monotonic clock."""
        self.sent, self.lost = 0, list[str]()

    def _run(self) -> None:
        begun: dict[str, float] = {}
        while not self._over.wait(0.2):
            with contextlib.suppress(OSError, ApiError):  # who cannot ask learns nothing
                self._look(begun)

    def _look(self, begun: dict[str, float]) -> None:
        asked = time.monotonic()
        pods = self._cluster.plane.client.items(f"/api/v1/namespaces/{self._cluster.namespace}/pods")
        there = {pod["metadata"]["name"]: pod for pod in pods}
        for name in self._ends.keys() - there.keys():
            if self._ends.pop(name) > asked:
                self.lost.append(name)
        for name, pod in there.items():
            if is_ready(pod) and "deletionTimestamp" not in pod["metadata"] and asked - begun.get(name, 0.0) >= 1.0:
                begun[name], self._ends[name] = asked, asked + REQUEST
                self.sent += 1


@dataclass
class Stage:
    """A running operator that reaches the API server through a proxy."""

    cluster: Cluster
    operator: OperatorProcess
    api: Proxy
    prometheus: Prometheus
    clients: Clients
    directory: Path
    _seen: int = 0
    """Characters of the operator's log from before the fault."""
    _before: float = 0.0

    @property
    def plane(self) -> ControlPlane:
        return self.cluster.plane

    def path(self, name: str) -> str:
        return f"/apis/apps/v1/namespaces/{self.cluster.namespace}/deployments/{name}"

    def order(self, replicas: int) -> None:
        """What `growing` shall have. An API server that hardly answers is asked again."""
        targets = [{"name": GROWING, "min": replicas, "max": replicas}]

        def ordered() -> bool:
            with contextlib.suppress(OSError, ApiError):
                self.plane.client.patch(self.cluster.path(GROWING), {"spec": {"targets": targets}})
                return True
            return False

        wait_for(ordered, f"{GROWING} shall have {replicas}", self)

    def logged(self, text: str) -> bool:
        """Whether the operator has logged it since the fault began."""
        return text in self.operator.log()[self._seen :]

    def since(self, time_: str) -> bool:
        """Whether a time, in whole seconds, is not from before the fault."""
        return datetime.fromisoformat(time_).timestamp() >= int(self._before)

    def begin(self) -> None:
        self.rest()
        self._seen, self._before = len(self.operator.log()), time.time()
        self.clients.sent = 0
        self.clients.lost.clear()

    def rest(self) -> None:
        """Both pools as they are between two faults."""
        self.order(1)
        wait_for(lambda: self.well() and self.sized(1), "the stage is at rest", self)

    def well(self) -> bool:
        """Whether the operator serves both pools.

        One that has ended is started again, as a kubelet does it, and so is one whose probe fails for long.
        """
        self.operator.revive()
        with contextlib.suppress(OSError, ApiError):
            return self.operator.healthy() == 200 and all(
                self.cluster.condition(name, type_)[0] == "True"
                for name in (STEADY, GROWING)
                for type_ in ("Ready", "MetricsAvailable")
            )
        return False

    def sized(self, replicas: int) -> bool:
        """Whether `growing` has these replicas, all of both pools serve, and none drains."""
        with contextlib.suppress(OSError, ApiError):
            return (
                self.cluster.replicas(GROWING) == replicas == len(self.cluster.ready(GROWING))
                and self.cluster.replicas(STEADY) == NEED == len(self.cluster.ready(STEADY))
                and len(self.plane.client.items(f"/api/v1/namespaces/{self.cluster.namespace}/pods")) == replicas + NEED
            )
        return False

    def orders(self) -> list[audit.Write]:
        """What the operator has ordered since the fault began."""
        return [
            write
            for write in audit.writes(self.plane, self.cluster.namespace)
            if write.user == USER and write.replicas is not None and write.seconds >= self._before
        ]

    def forget_orders(self) -> None:
        """From now on they count: what was stored before is gone."""
        self._before = time.time()

    def state(self) -> str:
        told = {name: self.cluster.status(name).get("conditions") for name in (STEADY, GROWING)}
        return f"{yaml.safe_dump(told)}\n{self.operator.process.log_tail()}"

    def held(self) -> None:
        """What has to hold whatever breaks."""
        found = [(write.name, write.replicas) for write in self.orders()]
        # `steady` needs all that it may have, and `growing` was told to grow: each order of another number is wrong.
        assert set(found) <= {(STEADY, NEED), (GROWING, 2)}, found
        assert self.cluster.replicas(STEADY) + self.cluster.replicas(GROWING) <= GPUS
        assert self.clients.lost == [], self.clients.lost


@dataclass(frozen=True)
class Fault:
    """Something that breaks and heals."""

    name: str
    breaks: Callable[[Stage], AbstractContextManager[None]]
    told: Callable[[Stage], object]
    """Whether the operator tells of it."""
    amid: bool = True
    """Whether it is told while the fault lasts; else once it is over."""


def play(stage: Stage, fault: Fault) -> None:
    """Break, grow, heal, recover; then what has to hold is asserted."""
    stage.begin()

    def told() -> bool:
        with contextlib.suppress(OSError, ApiError):
            return bool(fault.told(stage))
        return False

    with fault.breaks(stage):
        stage.order(2)
        if fault.amid:
            wait_for(told, f"{fault.name} is told", stage)
    healed = time.monotonic()
    wait_for(lambda: stage.well() and stage.sized(2), f"{fault.name} is over", stage)
    seconds = time.monotonic() - healed
    if not fault.amid:
        wait_for(told, f"{fault.name} is told", stage)
    stage.held()
    worst(f"seconds until well, after: {fault.name}", seconds)


def wait_for(reached: Callable[[], bool], what: str, stage: Stage) -> None:
    try:
        wait_until(reached, PATIENCE, what)
    except TimeoutError as late:
        raise AssertionError(f"{late}\n{stage.state()}") from None


def served(namespace: str, name: str, replicas: int) -> dict[str, Any]:
    """A Deployment whose pods have a GPU each, and time to end what they serve."""
    made = deployment(namespace, name, replicas)
    pod = made["spec"]["template"]["spec"]
    pod["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    pod["terminationGracePeriodSeconds"] = GRACE
    return made


@contextlib.contextmanager
def staged(cluster: Cluster, prometheus: Prometheus, directory: Path) -> Iterator[Stage]:
    """The two pools with what they need, clients, proxies and an operator, once all is at rest."""
    plane, namespace = cluster.plane, cluster.namespace
    for name, replicas, rate in ((STEADY, NEED, RATE), (GROWING, 1, 2.0)):
        plane.apply(served(namespace, name, replicas))
        cluster.traffic.services[namespace, name] = Service(name, rate)
        cluster.pool(name, targets=[{"name": name, "min": 1, "max": replicas}])
    budget = {"apiVersion": "servingpool.dev/v1alpha1", "kind": "GPUBudget", "metadata": {"name": namespace}}
    chosen = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    plane.apply({**budget, "spec": {"gpus": GPUS, **chosen}})
    with Proxy(plane.url, trust=plane._tls) as api, Clients(cluster) as clients:
        settings = settings_on(prometheus.url, leaderElection=ELECTION)
        settings["backends"] = [{"name": "default", "url": prometheus.url, "staleness": "10s"}]
        operator = OperatorProcess(plane, directory, settings, kubeconfig=through(api, plane, directory))
        stage = Stage(cluster, operator, api, prometheus, clients, directory)
        with operator.running():
            try:
                stage.rest()
                cluster.wait_condition(STEADY, "Calibrating", ("False", "Learned"))
                yield stage
            finally:
                plane.client.delete(f"/apis/servingpool.dev/v1alpha1/gpubudgets/{namespace}")


def through(proxy: Proxy, plane: ControlPlane, directory: Path) -> Path:
    """The operator's kubeconfig, with the proxy as its server."""
    found = yaml.safe_load(plane.service_account_kubeconfig(NAMESPACE, ACCOUNT).read_text())
    found["clusters"][0]["cluster"] = {"server": proxy.url}
    path = directory / "through-the-proxy.kubeconfig"
    path.write_text(yaml.safe_dump(found))
    return path


def stage_in(namespace: str) -> Any:
    """The fixture of a module whose faults are played in this namespace."""

    @pytest.fixture(scope="module")
    def stage(
        control_plane: ControlPlane,
        pod_metrics: dict[tuple[str, str], str],
        prometheus: Prometheus,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Iterator[Stage]:
        with (
            cluster_in(control_plane, pod_metrics, namespace) as cluster,
            staged(cluster, prometheus, tmp_path_factory.mktemp("faults")) as found,
        ):
            yield found

    return stage
