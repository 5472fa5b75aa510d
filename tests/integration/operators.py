"""What the stories of the whole operator are told with: a fleet that answers scrapes, and operator processes."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import sys
import time
import urllib.error
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml
from prometheus_client.parser import text_string_to_metric_families

from servingpool.adapters.cluster import objects
from servingpool.api.group import API_VERSION, KIND
from servingpool_lab.api_client import ApiError
from servingpool_lab.control_plane import ControlPlane, free_ports
from servingpool_lab.processes import SupervisedProcess, http_ready, open_local, wait_until

from ..pods import is_ready  # noqa: TID252, tests are no package of an installed name
from .beside import Beside
from .stand_in_engine import USUAL, Engine, Shape

ROOT = Path(__file__).parents[2]
NAMESPACE, ACCOUNT = "servingpool-system", "servingpool-operator"
PATIENCE = 240.0
"""Seconds after which a wait for one step is given up. It ends a test that hangs, and is no promise: what takes 5 s on a
quiet machine took 60 s beside two builds."""
ANSWERS = 30.0
"""Seconds that an operator has to answer a probe or a scrape of the test."""


@dataclass
class Service:
    """A Deployment's model and the requests per second that its pods share."""

    model: str
    rate: float
    running: dict[str, float] = field(default_factory=dict)
    """Pods that tell another number of running requests than their rate makes."""
    beside: tuple[str, ...] = ()
    """Other Deployments whose pods share the requests."""
    shape: Shape = USUAL


@dataclass
class Traffic(Beside):
    """Serves requests on every pod, and writes its page, four times a second. Which pods there are it asks once."""

    plane: ControlPlane
    pages: dict[tuple[str, str], str]
    services: dict[tuple[str, str], Service] = field(default_factory=dict)
    """By namespace and Deployment."""
    engines: dict[tuple[str, str], Engine] = field(default_factory=dict)

    def _run(self) -> None:
        ready: dict[tuple[str, str], list[str]] = {}
        last = time.monotonic()
        for turn in itertools.count():
            if self._over.wait(0.25):
                return
            elapsed, last = time.monotonic() - last, time.monotonic()
            services = tuple(self.services.items())
            if turn % 4 == 0:
                with contextlib.suppress(OSError, ApiError):  # the API server is down; requests go on
                    ready = self._ready({namespace for (namespace, _), _ in services})
            for (namespace, name), service in services:
                serving = [pod for one in (name, *service.beside) for pod in ready.get((namespace, one), [])]
                for pod in serving:
                    engine = self.engines.setdefault((namespace, pod), Engine(service.shape))
                    engine.serve(service.rate / len(serving), elapsed)
                    self.pages[namespace, pod] = engine.page(service.model, service.running.get(pod))

    def _ready(self, namespaces: set[str]) -> dict[tuple[str, str], list[str]]:
        """Names of the pods that are Ready, by namespace and label app."""
        found: dict[tuple[str, str], list[str]] = {}
        for pod in (pod for one in namespaces for pod in self.plane.client.items(f"/api/v1/namespaces/{one}/pods")):
            if is_ready(pod):
                metadata = pod["metadata"]
                app = metadata.get("labels", {}).get("app", "")
                found.setdefault((metadata["namespace"], app), []).append(metadata["name"])
        return found


@contextlib.contextmanager
def prometheus(program: str | Path, configuration: dict[str, Any], directory: Path) -> Iterator[str]:
    """A Prometheus with this configuration, while the context lasts; gives its URL."""
    (directory / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    process = SupervisedProcess(
        "prometheus",
        [
            program,
            f"--config.file={directory / 'prometheus.yaml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address={url.removeprefix('http://')}",
        ],
        directory / "prometheus.log",
        ready=http_ready(f"{url}/-/ready"),
    )
    process.start()
    try:
        process.wait_ready()
        yield url
    finally:
        process.stop()


def deployment(namespace: str, name: str, replicas: int) -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "vllm", "image": "vllm/vllm-openai:latest", "ports": [{"containerPort": 8000}]}
    template = {
        "metadata": {"labels": labels, "annotations": {"prometheus.io/scrape": "true"}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def serving_pool(namespace: str, name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": name,
            "slo": {"timeToFirstToken": "2s", "timePerOutputToken": "100ms"},
            "targets": [{"name": name, "min": 1, "max": 8}],
            "behavior": {"calibration": "5s", "coldStart": "2s", "scaleDownWindow": "5s"},
            **spec,
        },
    }


@dataclass
class Cluster:
    """One namespace of a control plane, as stories look at it."""

    plane: ControlPlane
    traffic: Traffic
    namespace: str

    def serve(self, name: str, *, replicas: int = 1, rate: float = 0.0) -> None:
        """A Deployment under traffic."""
        self.plane.apply(deployment(self.namespace, name, replicas))
        self.traffic.services[self.namespace, name] = Service(name, rate)

    def load(self, name: str, rate: float) -> None:
        self.traffic.services[self.namespace, name].rate = rate

    def pool(self, name: str, **spec: Any) -> None:
        self.plane.apply(serving_pool(self.namespace, name, **spec))

    def found(self, name: str) -> dict[str, Any]:
        return self.plane.client.get(self.path(name))

    def path(self, name: str) -> str:
        return f"/apis/{API_VERSION}/namespaces/{self.namespace}/servingpools/{name}"

    def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self.found(name).get("status", {})
        return status

    def condition(self, name: str, type_: str) -> tuple[str, str]:
        """Status and reason; two empty words where it was not judged yet."""
        for one in self.status(name).get("conditions", []):
            if one["type"] == type_:
                return one["status"], one["reason"]
        return "", ""

    def told(self, name: str, type_: str) -> str:
        """A condition's message; empty where it was not judged yet."""
        return next((c["message"] for c in self.status(name).get("conditions", []) if c["type"] == type_), "")

    def wait_condition(self, name: str, type_: str, expected: tuple[str, str], seconds: float = PATIENCE) -> None:
        try:
            wait_until(lambda: self.condition(name, type_) == expected, seconds, f"{name}: {type_} {expected}")
        except TimeoutError as late:
            raise AssertionError(f"{late}; it is {json.dumps(self.status(name), indent=1)}") from None

    def replicas(self, name: str) -> int:
        return int(self._deployment(name)["spec"]["replicas"])

    def changes(self, name: str) -> int:
        """How often a Deployment's spec was changed since it was made."""
        return int(self._deployment(name)["metadata"]["generation"]) - 1

    def _deployment(self, name: str) -> dict[str, Any]:
        return self.plane.client.get(f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{name}")

    def pods(self, name: str) -> dict[str, dict[str, Any]]:
        """By name, those that are not going."""
        found = self.plane.client.items(f"/api/v1/namespaces/{self.namespace}/pods?labelSelector=app%3D{name}")
        return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}

    def ready(self, name: str) -> list[str]:
        """Names of the pods that are Ready, and not going."""
        return [pod for pod, found in self.pods(name).items() if is_ready(found)]

    def events(self, name: str, reason: str) -> list[dict[str, Any]]:
        return [
            event
            for event in self.plane.client.items(f"/api/v1/namespaces/{self.namespace}/events")
            if (event["involvedObject"]["name"], event["reason"]) == (name, reason)
        ]

    def wait_event(self, name: str, reason: str, seconds: float = PATIENCE) -> None:
        """That there is one: it is posted behind the status that it tells of."""
        wait_until(lambda: self.events(name, reason) != [], seconds, f"{name}: an event {reason}")


def ready_pods(plane: ControlPlane, namespace: str, count: int) -> list[str]:
    """The names of all that are Ready, once there are so many."""

    def ready() -> list[str]:
        found = [objects.pod(raw) for raw in plane.client.items(f"/api/v1/namespaces/{namespace}/pods")]
        return sorted(pod.name for pod in found if pod is not None and pod.ready_since is not None)

    wait_until(lambda: len(ready()) == count, PATIENCE, f"{count} serve")
    return ready()


def install(plane: ControlPlane, namespace: str) -> None:
    """What a cluster has before the operator starts: CRD, the operator's namespace and rights, and a namespace."""
    plane.apply(ROOT / "crds")
    for manifest in ("namespace.yaml", "rbac.yaml", "admissionpolicy.yaml"):
        plane.apply(ROOT / "deploy" / manifest)
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})


@contextlib.contextmanager
def cluster_in(plane: ControlPlane, pages: dict[tuple[str, str], str], namespace: str) -> Iterator[Cluster]:
    """A namespace under traffic, in a cluster in which the operator may start. It is deleted at the end."""
    install(plane, namespace)
    with Traffic(plane, pages) as traffic:
        yield Cluster(plane, traffic, namespace)
    plane.client.delete(f"/api/v1/namespaces/{namespace}")


PROBED = 10.0
"""Seconds for which the probe fails before the operator is started again."""
ELECTION = {"duration": "6s", "deadline": "4s", "retry": "500ms"}
"""After a leader's end another one leads within seconds."""


def settings_on(url: str, **more: Any) -> dict[str, Any]:
    """An operator's on the Prometheus at this URL: a tick a second, and no election but where it is given."""
    backends = [{"name": "default", "url": url, "staleness": "10s"}]
    return {"interval": "1s", "backends": backends, "leaderElection": {"enabled": False}, **more}


class OperatorProcess:
    """`servingpool run` under its own service account's rights. `hurried`: see hurried.py."""

    def __init__(
        self,
        plane: ControlPlane,
        directory: Path,
        settings: dict[str, Any],
        *,
        name: str = "operator",
        kubeconfig: Path | None = None,
        hurried: bool = False,
    ) -> None:
        self.health_port, self.metrics_port = free_ports(2)
        directory.mkdir(parents=True, exist_ok=True)
        config = directory / f"{name}.yaml"
        config.write_text(json.dumps({"healthPort": self.health_port, "metricsPort": self.metrics_port, **settings}))
        kubeconfig = kubeconfig or plane.service_account_kubeconfig(NAMESPACE, ACCOUNT)
        program = [Path(__file__).with_name("hurried.py")] if hurried else ["-m", "servingpool.cli.main"]
        # Its metrics are served a moment after its probe.
        pages = (f"{self.health_port}/healthz", f"{self.metrics_port}/metrics")
        answers = [http_ready(f"http://127.0.0.1:{page}") for page in pages]
        self.process = SupervisedProcess(
            name,
            [sys.executable, *program, "run", f"--config={config}", f"--kubeconfig={kubeconfig}", "--log-format=text"],
            directory / f"{name}.log",
            ready=lambda: all(probe() for probe in answers),
            environment={**os.environ, "PYTHONUNBUFFERED": "1"},
            stop_timeout_seconds=30.0,
        )
        self._unwell_since = math.inf
        """By the monotonic clock."""
        self.restarts: list[str] = []
        """How each process ended that `revive` has replaced."""

    def start(self) -> Self:
        self.process.start().wait_ready()
        return self

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        """Started, and stopped at the end."""
        self.start()
        try:
            yield self
        finally:
            self.process.stop()

    def healthy(self) -> int:
        """The status that a kubelet's probe sees."""
        try:
            with open_local(f"http://127.0.0.1:{self.health_port}/healthz", ANSWERS):
                return 200
        except urllib.error.HTTPError as error:
            return error.code

    def revive(self) -> None:
        """Start it again once it has ended. End it once its probe has said for long that it is unwell."""
        if not self.process.running:
            self.restarts.append(f"exit {self.process.exit_code}")
            self.process.start()
        unwell = False
        with contextlib.suppress(OSError):
            unwell = self.healthy() != 200
        self._unwell_since = min(self._unwell_since, time.monotonic()) if unwell else math.inf
        if time.monotonic() - self._unwell_since > PROBED:
            self._unwell_since = math.inf
            self.process.stop()

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        with open_local(f"http://127.0.0.1:{self.metrics_port}/metrics", ANSWERS) as response:
            page = response.read().decode()
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                yield sample.name, sample.labels, sample.value

    def figure(self, name: str, **labels: str) -> float | None:
        """The sum of the samples of that name; None where there is none."""
        found = [v for n, carried, v in self.samples() if n == name and labels.items() <= carried.items()]
        return sum(found) if found else None

    def ticks(self) -> float:
        """How often it has looked at all pools since its start."""
        return self.figure("servingpool_tick_duration_seconds_count") or 0.0

    def wait_ticks(self, count: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        """So many ticks more, with a look of the test's own several times in each."""
        last = self.ticks() + count

        def over() -> bool:
            meanwhile()
            return self.ticks() >= last

        wait_until(over, PATIENCE, f"{count} ticks more", interval_seconds=0.25)

    def log(self) -> str:
        return self.process.log_file.read_text()
