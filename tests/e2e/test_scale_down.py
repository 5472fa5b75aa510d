"""Scale-downs by the hundred under load: what their clients notice, with the drain set up, in part, and not at all.

Set up as in the sample, but for a shorter preStop sleep: streams outlast it, so that SIGTERM finds them under way and
`--shutdown-timeout` has something to finish.

`make e2e-drain`. One scale-down is one write to a Deployment's scale that makes it smaller, by one replica; half of
them are the operator's, which chooses the idlest replica, half our own, for which Kubernetes takes the youngest.
"""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import pytest

from .audit import writes
from .cluster import Cluster, seconds_since
from .engines import Engine, engine_manifests
from .load import Course, LoadGenerator
from .pools import condition, message, path, serving_pool, wait_condition
from .prometheus import PrometheusRelease
from .release import ACCOUNT, OperatorRelease
from .results import Results
from .scenes import fresh_namespace
from .waiting import eventually

pytestmark = [pytest.mark.drain, pytest.mark.timeout(3000)]
"""Ten minutes on two idle cores; starting 200 pods is most of it."""

FULL, LESS = 3, 2
"""Replicas before and behind each scale-down."""
RATE = 1.0
OUTPUT = 200
"""Tokens of an answer, about 10 s: three streams are under way on each replica."""
PRE_STOP = 5.0
"""Seconds, the least that DrainReady calls enough: half a stream."""
FILL, PAUSE = 4.0, 2.0
"""Seconds at full size, so that the youngest replica has streams to lose too; and seconds with one less."""
LONGEST = 3600
WHOSE_CHOICE = f"""\
Which choice loses less is not judged. Kubernetes takes the youngest replica, which this test has had for about {FILL:g} s:
it holds least by the test's own making, and in a fleet that stands may be any. The operator takes who had least in
flight at the last scrape, up to 5 s before. Neither replaces the drain."""
OVER = threading.Event()
"""One fleet has failed, or somebody has pressed Ctrl-C: no further rounds."""


@dataclass
class Fleet:
    """A Deployment under steady load that shrinks and grows."""

    name: str
    times: int
    """Scale-downs that it is to go through."""
    by_operator: bool
    drain: bool = True
    shutdown_timeout: bool = True
    """As in `Engine`, both."""
    course: Course | None = field(default=None, init=False)

    @property
    def engine(self) -> Engine:
        return Engine(
            name=self.name,
            namespace=self.name,
            model=self.name,
            replicas=FULL,
            drain=self.drain,
            shutdown_timeout=self.shutdown_timeout,
            pre_stop=PRE_STOP if self.drain else None,
            load_seconds=1,
        )

    def create(self, cluster: Cluster) -> None:
        fresh_namespace(cluster, self.name)
        cluster.gone(path(self.name, self.name))
        cluster.apply(engine_manifests(self.engine))
        if self.by_operator:
            cluster.apply(serving_pool(self.name, self.name, targets=[self._target(FULL)]))

    def begin(self, cluster: Cluster, load: LoadGenerator) -> None:
        self._ready(cluster)
        self.course = load.start(self.engine.url, self.name, f"{RATE:g}x{LONGEST}", prompt=500, output=OUTPUT)

    def shrink_and_grow(self, cluster: Cluster) -> None:
        for _ in range(self.times):
            if OVER.is_set():
                return
            time.sleep(FILL)
            self._order(cluster, LESS)
            time.sleep(PAUSE)
            self._order(cluster, FULL)
            self._ready(cluster)

    def end(self, load: LoadGenerator) -> dict[str, Any]:
        """What the clients saw, when the last answer is there."""
        assert self.course is not None
        return load.end(self.course)

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
WAITING = Fleet("cut-after-pre-stop", times=10, by_operator=False, shutdown_timeout=False)
"""The preStop sleep alone: what it loses, --shutdown-timeout would have saved."""
FLEETS = (*DRAINED, *CUT, WAITING)
NAMESPACES = tuple(fleet.name for fleet in FLEETS)


def prepare(cluster: Cluster, load: LoadGenerator) -> None:
    for fleet in FLEETS:
        fleet.create(cluster)
    for fleet in FLEETS:
        fleet.begin(cluster, load)


def at_once(fleets: list[Fleet], cluster: Cluster) -> None:
    """All their rounds. Where one fails the others end with the round that they are in."""
    OVER.clear()
    with ThreadPoolExecutor(len(fleets)) as pool:
        try:
            for done in as_completed([pool.submit(fleet.shrink_and_grow, cluster) for fleet in fleets]):
                done.result()
        except BaseException:
            OVER.set()
            raise


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
    """Requests in flight on each victim that the operator chose, as of the last scrape, by its log."""
    names = {fleet.name for fleet in fleets}
    return [
        float(busy)
        for line in operator.logs().splitlines()
        if "Chosen for removal, fewest requests in flight" in line and any(f"{name}/{name}" in line for name in names)
        for busy in re.findall(r"\(([\d.]+) in flight\)", line)
    ]


def carried(prometheus: PrometheusRelease, fleets: list[Fleet], seconds: float) -> float:
    """Requests in flight on a replica, on average over these fleets and so many seconds up to now."""
    running = f'vllm:num_requests_running{{namespace=~"{"|".join(fleet.name for fleet in fleets)}"}}[{seconds:.0f}s]'
    found = prometheus.value(f"sum(sum_over_time({running})) / sum(count_over_time({running}))")
    assert found is not None, running
    return found


def test_two_hundred_scale_downs_with_the_drain_set_up_fail_no_request(
    cluster: Cluster, load: LoadGenerator, operator: OperatorRelease, prometheus: PrometheusRelease, results: Results
) -> None:
    started = time.monotonic()
    for fleet in DRAINED:
        if fleet.by_operator:
            wait_condition(cluster, fleet.name, fleet.name, "DrainReady", ("True", "FinishesRequests"))
    at_once(DRAINED, cluster)
    by_operator = [fleet for fleet in DRAINED if fleet.by_operator]
    usual = carried(prometheus, by_operator, time.monotonic() - started)
    found = [fleet.end(load) for fleet in DRAINED]
    total = sum_up(found)
    downs = shrunk(cluster, DRAINED)
    busy = chosen(operator, by_operator)
    results.add(
        scenario="200 scale-downs under load, drain set up",
        outcome=f"{downs} scale-downs audited, {total['lost']} requests failed",
        seconds=seconds_since(started),
        requests=total["requests"],
        lost=total["lost"],
        shortest_median_of_a_stream_s=min(figures["e2e"]["p50"] for figures in found),
        in_flight_on_the_operators_victims_as_of_the_last_scrape=sum(busy),
        on_each_on_average=fmean(busy),
        on_all_replicas_on_average=usual,
    )
    assert downs == sum(fleet.times for fleet in DRAINED) == 200
    # Else the preStop sleep would have sufficed, and nothing been drained.
    assert all(figures["e2e"]["p50"] > PRE_STOP for figures in found)
    assert 0 < fmean(busy) < usual
    assert total["outcomes"] == {"ok": total["requests"]}


def test_without_it_scale_downs_lose_requests_and_the_pool_says_so(
    cluster: Cluster, load: LoadGenerator, operator: OperatorRelease, prometheus: PrometheusRelease, results: Results
) -> None:
    started = time.monotonic()
    [pool] = [fleet.name for fleet in CUT if fleet.by_operator]
    wait_condition(cluster, pool, pool, "DrainReady", ("False", "NoShutdownTimeout"))
    at_once([*CUT, WAITING], cluster)
    by_choice = [fleet for fleet in CUT if fleet.by_operator]
    usual = carried(prometheus, by_choice, time.monotonic() - started)
    busy = chosen(operator, by_choice)
    by_operator, by_kubernetes = [fleet.end(load) for fleet in CUT]
    total, waiting = sum_up([by_operator, by_kubernetes]), sum_up([WAITING.end(load)])
    downs = shrunk(cluster, CUT)
    said = message(cluster, pool, pool, "DrainReady")
    results.add(
        scenario=f"{downs} scale-downs under load, nothing set up",
        outcome=said,
        seconds=seconds_since(started),
        requests=total["requests"],
        lost=total["lost"],
        lost_operator=by_operator["lost"],
        lost_kubernetes=by_kubernetes["lost"],
        in_flight_on_the_operators_victims_on_average=fmean(busy),
        on_all_replicas_on_average=usual,
        **total["outcomes"],
    )
    results.notes.append(WHOSE_CHOICE)
    waiting_downs = shrunk(cluster, [WAITING])
    results.add(
        scenario=f"{waiting_downs} scale-downs under load, preStop sleep without --shutdown-timeout",
        outcome=f"{waiting['lost']} requests failed",
        seconds=seconds_since(started),
        requests=waiting["requests"],
        lost=waiting["lost"],
        **waiting["outcomes"],
    )
    assert downs == sum(fleet.times for fleet in CUT)
    assert waiting_downs == WAITING.times
    assert by_kubernetes["lost"] > 0
    assert fmean(busy) < usual
    assert waiting["lost"] > 0
    assert condition(cluster, pool, pool, "DrainReady") == ("False", "NoShutdownTimeout")
    assert "Scale-down aborts running requests" in said
