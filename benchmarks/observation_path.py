"""Files that one observation enters from the Prometheus query to the scale patch.

Run it with `python benchmarks/observation_path.py`. One pool is read from the stand-in Prometheus by the operator's own
adapter and scaled by its own client. Two ticks are traced: one that scales up and one that scales down. A file of the
operator counts if one of its functions runs from the query to the patch. Files that run only after the patch, to report
it, are listed separately.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING, Any, Self, cast

import orjson
from fake_cluster import FakeCluster
from fleet import entries
from prometheus_process import StandInPrometheus

import servingpool
from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.client import Cluster
from servingpool.adapters.cluster.devices import ClaimTemplates
from servingpool.adapters.cluster.scale import TargetReader
from servingpool.adapters.prometheus.backend import PrometheusBackend
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.gpubudget.budgets import Budgets
from servingpool.gpubudget.report import BudgetReporter
from servingpool.loop.backfill import Backfill
from servingpool.loop.reconciler import All, Reconciler
from servingpool.reconcile.act import Actor
from servingpool.reconcile.collect.readings import Readings
from servingpool.status.report import Reporter

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

PACKAGE = Path(servingpool.__file__).parent
BEGIN, INTERVAL = 1_790_000_000.0, 15.0
PODS, SLOTS = 2, 8
UP, DOWN = 3.0, 0.3
"""Traffic, as a multiple of the usual."""
QUERY = ("adapters/prometheus/backend.py", "read")
"""The function that begins the path."""
SETTLING = 12
"""Ticks before the traced ones."""
MOST_FILES = 67
"""Limit on the files from query to patch: `make lint` fails above it. Who lowers the figure lowers the limit."""
LONGEST = 240
"""Ticks until the fleet must have been scaled: an hour."""


class Trace:
    """The files that one tick enters, in order: from the query to the patch, and after it."""

    def __init__(self) -> None:
        self.path: dict[str, None] = {}
        self.report: dict[str, None] = {}
        self.patched = False

    def call(self, frame: FrameType) -> None:
        """A function is called."""
        code = frame.f_code
        if code.co_name == "<module>" or not code.co_filename.startswith(str(PACKAGE)):
            return
        name = str(Path(code.co_filename).relative_to(PACKAGE))
        if not self.path and (name, code.co_name) != QUERY:
            return
        if not self.patched:
            self.path[name] = None
        elif name not in self.path:
            self.report[name] = None


class Session(contextlib.AbstractAsyncContextManager["Session"]):
    """aiohttp's session and its answer, as far as the operator uses them, without an API server."""

    status, reason = 200, "OK"

    def __init__(self, world: FakeCluster) -> None:
        self._world = world
        self.trace = Trace()

    def request(self, _method: str, url: URL, *, data: bytes | None, **_: Any) -> Self:
        self._asked = url.path, data
        return self

    async def __aenter__(self) -> Self:
        path, data = self._asked
        if path.endswith("/scale"):
            self.trace.patched = True
            namespace, _plural, name = path.split("/")[-4:-1]
            current, replicas = (step["value"] for step in orjson.loads(data or b""))
            await self._world.set_replicas((namespace, name), current, replicas)
            self._answer = {"spec": {"replicas": replicas}}
        else:
            self._answer = {}
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def read(self) -> bytes:
        return orjson.dumps(self._answer)


class Run:
    """The operator without kopf over one pool."""

    def __init__(self, prometheus: StandInPrometheus) -> None:
        cache = ClusterCache()
        self._world = FakeCluster(cache, entries(1, 1), PODS, BEGIN)
        self._world.list_all()
        self._api, self._prometheus = Session(self._world), prometheus
        backends = {"default": PrometheusBackend(BackendConfig(url=prometheus.url))}
        self._backends, self._now = backends, BEGIN
        cluster = Cluster(cast("aiohttp.ClientSession", self._api), "http://cluster")
        targets = TargetReader(cluster, cache, time.monotonic)
        self._loop = Reconciler(
            targets,
            Readings(backends),
            Backfill(backends, history=3600.0),
            Actor(cluster, cache, deletion_costs=True),
            Reporter(cluster, cache),
            share=All(lambda: True),
            interval=INTERVAL,
            budgets=BudgetReporter(Budgets(targets, ClaimTemplates(cluster)), cluster),
        )

    async def settle(self) -> None:
        """Read the history, open connections and look up buckets: later ticks do not."""
        for _ in range(SETTLING):
            await self._tick(1.0)

    async def until(self, share: float, *, up: bool) -> Trace:
        """Let this traffic come until the fleet is scaled. The trace of the tick that did it."""
        for _ in range(LONGEST):
            before = self._world.pods
            trace = await self._tick(share)
            if trace.patched and (self._world.pods > before) == up:
                return trace
        raise AssertionError(f"the fleet was not scaled within {LONGEST} ticks")

    async def _tick(self, share: float) -> Trace:
        self._now += INTERVAL
        self._prometheus.advance(self._now, self._world.advance(self._now), share)
        self._api.trace = trace = Trace()
        with tracing(trace):
            await self._loop.tick(self._now)
        return trace

    async def close(self) -> None:
        await asyncio.gather(*(backend.aclose() for backend in self._backends.values()))


CURRENT: list[Trace] = []
"""What `_profile` tells of calls; a thread keeps the profile function that it began with, so that is one for all."""


@contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    """Trace every call, of the adapter's threads too."""
    CURRENT.append(trace)
    sys.setprofile(_profile)
    try:
        yield
    finally:
        sys.setprofile(None)
        CURRENT.clear()


def _profile(frame: FrameType, event: str, _: object) -> None:
    if event == "call":
        for trace in CURRENT:
            trace.call(frame)


def show(title: str, trace: Trace) -> None:
    core = [name for name in trace.path if name.startswith("decision/")]
    around = len(trace.path) - len(core)
    print(f"{title}: {len(trace.path)} files, {len(core)} in the decision core and {around} around it")
    for name in trace.path:
        print(f"    {name}")
    print(f"  after the patch, {len(trace.report)} more: {', '.join(trace.report)}")


async def measure() -> None:
    with (
        TemporaryDirectory() as logs,
        StandInPrometheus(
            Path(logs), pools=1, replicas=PODS, slots=SLOTS, per_namespace=1, seed=1, begin=BEGIN
        ) as prometheus,
    ):
        run = Run(prometheus)
        await run.settle()
        up, down = await run.until(UP, up=True), await run.until(DOWN, up=False)
        await run.close()
    show("scale-up", up)
    show("scale-down", down)
    both = len(up.path | down.path)
    print(f"both together: {both} files")
    if both > MOST_FILES:
        sys.exit(f"Above the limit of {MOST_FILES} files, which may only fall")


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    threading.setprofile(_profile)
    asyncio.run(measure())
