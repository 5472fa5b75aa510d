"""Scale-downs by the hundred under load: what their clients notice, with the sample's drain set-up and without.

`make e2e-drain`. One scale-down is one write to a Deployment's scale that makes it smaller, by one replica; half of
them are the operator's, which chooses the idlest replica, half our own, for which Kubernetes takes the youngest.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from .audit import writes
from .cluster import Cluster, seconds_since
from .engines import Engine, engine_manifests
from .load import Course, LoadGenerator
from .pools import condition, message, path, serving_pool, wait_condition
from .release import ACCOUNT, OperatorRelease
from .results import Results
from .waiting import eventually

pytestmark = [pytest.mark.drain, pytest.mark.timeout(3000)]
"""Ten minutes on two idle cores; starting 200 pods is most of it."""

FULL, LESS = 3, 2
"""Replicas before and behind each scale-down."""
RATE = 1.0
OUTPUT = 80
"""Tokens of an answer, about 5 s: two streams are under way on each replica."""
FILL, PAUSE = 4.0, 2.0
"""Seconds at full size, so that the youngest replica has streams to lose too; and seconds with one less."""
LONGEST = 3600


@dataclass
class Fleet:
    """A Deployment under steady load that shrinks and grows."""

    name: str
    times: int
    """Scale-downs that it is to go through."""
    by_operator: bool
    drain: bool = True
    course: Course | None = field(default=None, init=False)

    @property
    def engine(self) -> Engine:
        return Engine(
            name=self.name,
            namespace=self.name,
            model=self.name,
            replicas=FULL,
            drain=self.drain,
            load_seconds=1,
        )

    def create(self, cluster: Cluster) -> None:
        cluster.namespace(self.name)
        cluster.gone(path(self.name, self.name))
        cluster.apply(engine_manifests(self.engine))
        if self.by_operator:
            cluster.apply(serving_pool(self.name, self.name, targets=[self._target(FULL)]))

    def begin(self, cluster: Cluster, load: LoadGenerator) -> None:
        self._ready(cluster)
        self.course = load.start(self.engine.url, self.name, f"{RATE:g}x{LONGEST}", prompt=500, output=OUTPUT)

    def shrink_and_grow(self, cluster: Cluster) -> None:
        for _ in range(self.times):
            time.sleep(FILL)
            self._order(cluster, LESS)
            time.sleep(PAUSE)
            self._order(cluster, FULL)
            self._ready(cluster)

    def end(self, load: LoadGenerator) -> dict[str, Any]:
        """What the clients saw, when the last answer is there."""
        assert self.course is not None
        load.stop(self.course)
        course = self.course
        return eventually(
            lambda: found if (found := load.summary(course))["finished"] else {},
            120,
            f"the last answers of {self.name}",
        )

    def _order(self, cluster: Cluster, replicas: int) -> None:
        if self.by_operator:
            cluster.client.patch(path(self.name, self.name), {"spec": {"targets": [self._target(replicas)]}})
            eventually(lambda: cluster.replicas(self.name, self.name) == replicas, 180, f"{self.name} at {replicas}")
        else:
            scale = f"/apis/apps/v1/namespaces/{self.name}/deployments/{self.name}/scale"
            cluster.client.patch(scale, {"spec": {"replicas": replicas}})

    def _ready(self, cluster: Cluster) -> None:
        eventually(lambda: cluster.ready(self.name, self.name) == FULL, 240, f"{self.name} at {FULL} ready")

    def _target(self, replicas: int) -> dict[str, Any]:
        return {"name": self.name, "min": replicas, "max": replicas, "gpusPerReplica": 1}


DRAINED = [
    Fleet("drained-operator-0", times=50, by_operator=True),
    Fleet("drained-operator-1", times=50, by_operator=True),
    Fleet("drained-kubernetes-0", times=50, by_operator=False),
    Fleet("drained-kubernetes-1", times=50, by_operator=False),
]
CUT = [
    Fleet("cut-operator", times=10, by_operator=True, drain=False),
    Fleet("cut-kubernetes", times=10, by_operator=False, drain=False),
]
NAMESPACES = tuple(fleet.name for fleet in (*DRAINED, *CUT))


def prepare(cluster: Cluster, load: LoadGenerator) -> None:
    for fleet in (*DRAINED, *CUT):
        fleet.create(cluster)
    for fleet in (*DRAINED, *CUT):
        fleet.begin(cluster, load)


def at_once(fleets: list[Fleet], cluster: Cluster) -> None:
    with ThreadPoolExecutor(len(fleets)) as pool:
        for done in [pool.submit(fleet.shrink_and_grow, cluster) for fleet in fleets]:
            done.result()


def shrunk(cluster: Cluster, fleets: list[Fleet]) -> int:
    """Scale-downs by one, as the API server has seen them."""
    by_operator, ours = writes(cluster, ACCOUNT), writes(cluster, "kubernetes-admin")
    return sum(
        (write.namespace, write.resource, write.code, write.replicas) == (fleet.name, "deployments/scale", 200, LESS)
        for fleet in fleets
        for write in (by_operator if fleet.by_operator else ours)
    )


def sum_up(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Over several fleets."""
    outcomes: dict[str, int] = {}
    for figures in found:
        for outcome, count in figures["outcomes"].items():
            outcomes[outcome] = outcomes.get(outcome, 0) + count
    return {
        "requests": sum(figures["requests"] for figures in found),
        "lost": sum(figures["lost"] for figures in found),
        "outcomes": outcomes,
    }


def chosen(operator: OperatorRelease, fleets: list[Fleet]) -> list[float]:
    """Requests in flight on each victim that the operator chose, by its log."""
    names = {fleet.name for fleet in fleets}
    return [
        float(busy)
        for line in operator.logs().splitlines()
        if "least in flight, so to be removed" in line and any(f"{name}/{name}" in line for name in names)
        for busy in re.findall(r"\(([\d.]+) in flight\)", line)
    ]


def test_two_hundred_scale_downs_with_the_drain_set_up_fail_no_request(
    cluster: Cluster, load: LoadGenerator, operator: OperatorRelease, results: Results
) -> None:
    started = time.monotonic()
    for fleet in DRAINED:
        if fleet.by_operator:
            wait_condition(cluster, fleet.name, fleet.name, "DrainReady", ("True", "FinishesRequests"))
    at_once(DRAINED, cluster)
    total = sum_up([fleet.end(load) for fleet in DRAINED])
    downs = shrunk(cluster, DRAINED)
    busy = chosen(operator, DRAINED)
    results.add(
        scenario="200 scale-downs under load, drain set up",
        outcome=f"{downs} scale-downs audited, {total['lost']} requests failed",
        seconds=seconds_since(started),
        requests=total["requests"],
        lost=total["lost"],
        in_flight_on_the_operators_victims=sum(busy),
    )
    assert downs == sum(fleet.times for fleet in DRAINED) == 200
    assert total["outcomes"] == {"ok": total["requests"]}


def test_without_it_scale_downs_lose_requests_and_the_pool_says_so(
    cluster: Cluster, load: LoadGenerator, operator: OperatorRelease, results: Results
) -> None:
    started = time.monotonic()
    [pool] = [fleet.name for fleet in CUT if fleet.by_operator]
    wait_condition(cluster, pool, pool, "DrainReady", ("False", "NoShutdownTimeout"))
    at_once(CUT, cluster)
    by_fleet = {fleet.name: sum_up([fleet.end(load)]) for fleet in CUT}
    total = sum_up(list(by_fleet.values()))
    downs = shrunk(cluster, CUT)
    said = message(cluster, pool, pool, "DrainReady")
    results.add(
        scenario=f"{downs} scale-downs under load, nothing set up",
        outcome=said,
        seconds=seconds_since(started),
        requests=total["requests"],
        lost=total["lost"],
        **{f"lost_{'operator' if fleet.by_operator else 'kubernetes'}": by_fleet[fleet.name]["lost"] for fleet in CUT},
        **total["outcomes"],
    )
    assert downs == sum(fleet.times for fleet in CUT)
    assert total["lost"] > 0
    assert condition(cluster, pool, pool, "DrainReady") == ("False", "NoShutdownTimeout")
    assert "cut what is in flight" in said
