"""Idle, zero, the first requests, serving: behind a real vllm-router that holds requests, and one that refuses them."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .cluster import Cluster, seconds_since
from .engines import APP, PORT, Manifest
from .images import build_router
from .load import Course, LoadGenerator
from .pools import BEHAVIOR, message, status, wait_condition
from .prometheus import PrometheusRelease
from .real_scene import ROUTER, RealScene
from .results import Results
from .scenes import Scene
from .waiting import eventually, throughout

IMAGE = "servingpool-router:e2e"
FIRST = "0.5x20"
"""The first ten requests once there is no replica: requests/s x seconds."""
IDLE = 60.0
"""Seconds of idleAfter, the least that is allowed."""
HOLDS = ("--retry-max-retries=60", "--retry-initial-backoff-ms=2000", "--retry-max-backoff-ms=2000")
"""It tries a request again for two minutes. Its page has a histogram for each number of tries, so they are few."""


@dataclass
class ZeroScene(RealScene):
    """Emulated engines behind the real router, with min 0."""

    image: str = IMAGE
    policy: str = "round_robin"

    def manifests(self) -> list[Manifest]:
        """The router's Service has no port of the node: the load generator is inside the cluster."""
        router = self._router()
        service = next(one for one in router if one["kind"] == "Service")
        service["spec"].pop("type")
        service["spec"]["ports"] = [{"name": "http", "port": PORT, "targetPort": "http"}]
        return [*Scene.manifests(self), *router]

    @property
    def door(self) -> str:
        """Of the router, for the load generator."""
        return f"http://{ROUTER}.{self.name}:{PORT}"


def scene(name: str, options: tuple[str, ...], **gateway: str) -> ZeroScene:
    """One pool and its router."""
    return ZeroScene(
        name,
        "1x60",
        minimum=0,
        initial=1,
        maximum=3,
        router_options=options,
        behavior={**BEHAVIOR, "idleAfter": "1m"},
        spec={"metrics": {"gateway": {"name": "vllm-router", "workload": ROUTER, **gateway}}},
    )


HOLDING = scene("zero-holds", HOLDS, holdsFor="2m")
REFUSING = scene("zero-refuses", ("--disable-retries",), holdsFor="0s")
SCENES = (HOLDING, REFUSING)
NAMESPACES = tuple(one.name for one in SCENES)


def router_python() -> Path:
    """Of an environment with the real vllm-router."""
    from engine_pages.gateways import installed  # noqa: PLC0415, of tools/

    return installed("vllm-router") / "python"


def require() -> None:
    """Skips with the reason where there is no vllm-router."""
    try:
        router_python()
    except (OSError, ImportError, subprocess.CalledProcessError) as lacking:
        pytest.skip(f"no real vllm-router: {lacking}")


def prepare(cluster: Cluster, load: LoadGenerator) -> None:
    """Both pools, and the traffic before they rest."""
    build_router(IMAGE, router_python())
    cluster.load([IMAGE])
    for one in SCENES:
        one.create(cluster)
    for one in SCENES:
        cluster.wait_serving(one.name, one.name)
        cluster.wait_serving(one.name, ROUTER)
        one.course = load.start(one.door, one.name, one.rates, prompt=one.prompt, output=one.output, patience=60)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("which", SCENES, ids=lambda one: one.name)
def test_idle_zero_first_requests_serving(
    which: ZeroScene, cluster: Cluster, load: LoadGenerator, prometheus: PrometheusRelease, results: Results
) -> None:
    """What the first ten clients saw is written before anything is asserted of it."""
    assert which.course is not None
    assert prometheus
    name, before = which.name, load.end(which.course)
    eventually(lambda: cluster.replicas(name, name) == 0, IDLE + 240, f"{name} at 0 replicas")
    why = status(cluster, name, name)["history"][0]["why"]
    wait_condition(cluster, name, name, "MetricsAvailable", ("True", "ScaledToZero"))
    eventually(lambda: not cluster.pods(name, f"{APP}={name}"), 180, f"{name} without pods")
    # A gateway that restarts at zero brings nothing back, and hides nothing.
    cluster.kubectl("rollout", "restart", f"deployment/{ROUTER}", f"--namespace={name}")
    cluster.kubectl("rollout", "status", f"deployment/{ROUTER}", f"--namespace={name}", "--timeout=120s")
    throughout(lambda: cluster.replicas(name, name) == 0, 60, f"{name} stays at 0")
    began = time.monotonic()
    course = load.start(which.door, name, FIRST, prompt=which.prompt, output=which.output, patience=150)
    eventually(lambda: cluster.replicas(name, name) > 0, 60, f"{name} comes back")
    ordered, replicas = seconds_since(began), cluster.replicas(name, name)
    cluster.wait_serving(name, name)
    served = seconds_since(began)
    requests = answered(load, course)
    seen = [f"{one['outcome']} {one['ttft']:.1f} s" if one["ttft"] else str(one["outcome"]) for one in requests]
    results.add(
        scenario=f"to zero and back, {name}",
        to_zero=why,
        first_request_to_order_seconds=ordered,
        first_request_to_ready_seconds=served,
        replicas=replicas,
        first_ten_clients="; ".join(seen),
    )
    assert before["lost"] == 0
    assert "idle for" in why
    assert "at the gateway at 0 replicas" in status(cluster, name, name)["history"][0]["why"]
    good = [one for one in requests if one["outcome"] == "ok"]
    if which is HOLDING:
        assert len(good) == len(requests) >= 10
        wait_condition(cluster, name, name, "ZeroReady", ("True", "HoldsFirstRequest"))
    else:
        assert requests[0]["outcome"] == "http_503"
        wait_condition(cluster, name, name, "ZeroReady", ("False", "FirstRequestFails"))
    assert message(cluster, name, name, "ZeroReady").startswith("At 0 replicas vllm-router/router")


def answered(load: LoadGenerator, course: Course) -> list[dict[str, Any]]:
    """All requests of a course, once the last one has its answer."""
    wanted = course.planned
    eventually(
        lambda: len(found := load.requests(course)) >= wanted and all(one["outcome"] for one in found),
        240,
        "the answers of the first requests",
    )
    return load.requests(course)
