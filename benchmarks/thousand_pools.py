"""A thousand pools of four pods: CPU per tick, memory, queries and writes of the operator's own code.

`python benchmarks/thousand_pools.py --help` tells the options; README.md beside it, what is real and what is not.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import logging
import math
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import real_cluster
from fake_cluster import FakeCluster
from fleet import MOST_REPLICAS, entries
from measuring import Meter, Sample, rss, summary
from prometheus_process import StandInPrometheus
from reporting import show, write

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.devices import ClaimTemplates
from servingpool.adapters.cluster.scale import TargetReader
from servingpool.adapters.cluster.shard_lease import winner
from servingpool.adapters.prometheus.backend import PrometheusBackend
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.api.serving_pool import Metadata, ServingPool
from servingpool.api.status import Status
from servingpool.cli.assembly import GC_THRESHOLDS
from servingpool.decision.decide import decide_stages
from servingpool.decision.learn.forecast import FORECASTS_KEPT as KEPT
from servingpool.decision.params import REMEMBERED
from servingpool.gpubudget.budgets import Budgets
from servingpool.gpubudget.report import BudgetReporter
from servingpool.loop.backfill import Backfill, PendingPool
from servingpool.loop.reconciler import All, Reconciler, Tick
from servingpool.loop.shards import Shards
from servingpool.reconcile.act import Actor, ScaleOutcome
from servingpool.reconcile.collect.readings import Readings
from servingpool.reconcile.collect.targets import Owners
from servingpool.reconcile.keep.state import PoolState
from servingpool.reconcile.plan.pool_plan import PoolPlan, ScaleAction
from servingpool.status.builder import build
from servingpool.status.report import Reporter

BEGIN = 1_790_000_000.0
INTERVAL = 15.0
SEED = 1
DAY = 86_400.0
SETTLING = 12
"""Ticks before the measured ones, in which windows fill (75 s) and scale-ups end (60 s)."""


class Bench:
    """The operator without kopf, against a counting world and a stand-in Prometheus."""

    def __init__(
        self,
        world: FakeCluster,
        cache: ClusterCache,
        prometheus: StandInPrometheus,
        backend: PrometheusBackend,
        options: argparse.Namespace,
    ) -> None:
        self.world, self._prometheus, self._meter = world, prometheus, Meter()
        self.now = BEGIN
        targets = TargetReader(world, cache, time.monotonic)
        several = options.members > 1
        share = Shards(_Member(options.members), "", lambda: self.now) if several else All(lambda: True)
        self._reporter = _MeteredReporter(self._meter, world, cache)
        self._reconciler = Reconciler(
            targets,
            _MeteredReadings(self._meter, backend),
            _MeteredBackfill(self._meter, backend, options.history),
            _MeteredActor(self._meter, world, cache),
            self._reporter,
            share=share,
            interval=INTERVAL,
            budgets=_MeteredBudgetReporter(self._meter, _MeteredBudgets(self._meter, targets, world), world),
        )

    @property
    def owned(self) -> int:
        """Pools of this operator."""
        return len(self._reconciler.states)

    async def tick(self, share: float = 1.0) -> Sample:
        """Time moves on by one interval, and the operator has its turn. Only the turn is measured."""
        self.now += INTERVAL
        self._prometheus.advance(self.now, self.world.advance(self.now), share)
        sent, writes = self._prometheus.sent(), dict(self.world.writes)
        with (
            patch("servingpool.reconcile.plan.pool_plan.decide_stages", self._meter.timed("decide", decide_stages)),
            patch("servingpool.loop.reconciler.build", self._meter.timed("status", build)),
        ):
            cpu, wall = time.process_time(), time.perf_counter()
            done: Tick = await self._reconciler.tick(self.now)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        assert done.failed == 0, "a pool's turn failed: the log above says why"
        now_sent = self._prometheus.sent()
        return Sample(
            cpu=cpu,
            wall=wall,
            parts=self._meter.take(cpu),
            rss=rss(),
            queries=now_sent["queries"] - sent["queries"],
            received=now_sent["bytes"] - sent["bytes"],
            compressed=now_sent["compressed_bytes"] - sent["compressed_bytes"],
            writes={kind: count - writes[kind] for kind, count in self.world.writes.items()},
            decided=done.decided,
            scaled=done.scaled,
            pods=self.world.pods,
        )

    def a_day_on(self) -> None:
        """As if all pools had been seen for a day: the most that is remembered of each, and its penalty kept for long.

        Their own minutes, again and again; taught from a real past this would take 0.6 ms of CPU for each half minute.
        """
        random = Random(SEED)
        for state in self._reconciler.states.values():
            profile = state.memory.profile
            pairs = profile.forecast.pairs
            remembered = np.tile(pairs, (math.ceil(KEPT / max(1, len(pairs))), 1, 1))[-KEPT:]
            seen = replace(profile, forecast=replace(profile.forecast, pairs=remembered, seen=DAY))
            until = self.now + random.uniform(0.0, REMEMBERED / 60.0)
            state.taught(replace(state.memory, profile=seen, penalty_until=until))

    async def ticks(self, count: int, share: float = 1.0) -> list[Sample]:
        return [await self.tick(share) for _ in range(count)]


class _Member:
    """The first of several operators that all live: its share is what the real hash gives it."""

    leading = True

    def __init__(self, members: int) -> None:
        self._view = tuple(f"member-{number}" for number in range(members))

    def owns(self, group: str) -> bool:
        return winner(group, self._view) == self._view[0]

    holds = owns

    def join(self) -> None:
        """It has."""


class _MeteredReadings(Readings):
    def __init__(self, meter: Meter, backend: PrometheusBackend) -> None:
        super().__init__({backend.config.name: backend})
        self._meter = meter

    async def read(self, backend: str, pools: Sequence[ServingPool], now: float) -> tuple[int, int]:
        with self._meter.part("read"):
            return await super().read(backend, pools, now)


class _MeteredBackfill(Backfill):
    def __init__(self, meter: Meter, backend: PrometheusBackend, history: float) -> None:
        super().__init__({backend.config.name: backend}, history=history)
        self._meter = meter

    async def run(self, backend: str, fresh: Sequence[PendingPool], now: float) -> None:
        with self._meter.part("history"):
            await super().run(backend, fresh, now)


class _MeteredActor(Actor):
    def __init__(self, meter: Meter, world: FakeCluster, cache: ClusterCache) -> None:
        super().__init__(world, cache, deletion_costs=True)
        self._meter = meter

    async def act(
        self, plan: PoolPlan, state: PoolState, unchanged: Callable[[], bool], admitted: Callable[[ScaleAction], bool]
    ) -> ScaleOutcome | None:
        with self._meter.part("write"):
            return await super().act(plan, state, unchanged, admitted)


class _MeteredReporter(Reporter):
    def __init__(self, meter: Meter, world: FakeCluster, cache: ClusterCache) -> None:
        super().__init__(world, cache)
        self._meter = meter

    async def announce(self, plan: PoolPlan, outcome: ScaleOutcome, state: PoolState) -> None:
        with self._meter.part("write"):
            await super().announce(plan, outcome, state)

    async def tell(self, pool: Metadata, state: PoolState, status: Status, now: float, may: Callable[[], bool]) -> None:
        with self._meter.part("write"):
            await super().tell(pool, state, status, now, may)


class _MeteredBudgets(Budgets):
    def __init__(self, meter: Meter, targets: TargetReader, world: FakeCluster) -> None:
        super().__init__(targets, ClaimTemplates(world))
        self._meter = meter

    def apply(self, plans: Sequence[PoolPlan], owned: Owners, now: float) -> list[PoolPlan | None]:
        with self._meter.part("budgets"):
            return super().apply(plans, owned, now)

    def settle(self, now: float, owns: Callable[[str], bool] = lambda _: True) -> None:
        with self._meter.part("budgets"):
            super().settle(now, owns)


class _MeteredBudgetReporter(BudgetReporter):
    def __init__(self, meter: Meter, budgets: Budgets, world: FakeCluster) -> None:
        super().__init__(budgets, world)
        self._meter = meter

    async def report(self, now: float, owns: Callable[[str], bool]) -> None:
        with self._meter.part("budgets"):
            await super().report(now, owns)


async def measure(options: argparse.Namespace) -> dict[str, object]:
    """First ticks with history, then steady traffic, the same to pools seen for a day, then none."""
    every, cache = entries(options.pools, options.per_namespace), ClusterCache()
    world = FakeCluster(cache, every, options.pods, BEGIN, budgets=options.budgets)
    settings = {
        "pools": options.pools,
        "replicas": options.pods,
        "slots": max(MOST_REPLICAS, options.pods),
        "per_namespace": options.per_namespace,
    }
    with TemporaryDirectory() as logs, StandInPrometheus(Path(logs), **settings, seed=SEED, begin=BEGIN) as prometheus:
        backend = PrometheusBackend(BackendConfig(url=prometheus.url, timeout="60s"))
        empty, began = rss(), time.process_time()
        world.list_all()
        listed = time.process_time() - began
        bench = Bench(world, cache, prometheus, backend, options)
        first = [await bench.tick()]
        while first[-1].decided < bench.owned or not bench.owned:  # a share is known after some seconds
            first.append(await bench.tick())
        await bench.ticks(SETTLING)
        profile = cProfile.Profile() if options.profile else None
        steady = await bench.ticks(options.ticks)
        bench.a_day_on()
        await bench.ticks(SETTLING)
        if profile is not None:
            profile.enable()
        a_day_on = await bench.ticks(options.ticks)
        if profile is not None:
            profile.disable()
            profile.dump_stats(options.profile)
        await bench.ticks(SETTLING, share=0.0)
        idle = await bench.ticks(options.ticks, share=0.0)
        await backend.aclose()
    return {
        "pools": options.pools,
        "pools_per_namespace": options.per_namespace,
        "seconds_of_history": options.history,
        **({"members": options.members, "pools_of_this_member": bench.owned} if options.members > 1 else {}),
        "rss_mib_before_the_first_list": round(empty, 1),
        "cpu_seconds_first_lists": round(listed, 3),
        "ticks_until_all_are_warm": len(first),
        "first_tick": summary(first[:1]),
        "warming": summary(first),
        "steady": summary(steady),
        "a_day_on": summary(a_day_on),
        "idle": summary(idle),
    }


def as_in_the_image() -> None:
    """Begin again with the memory settings of the operator's image, for they are read when a process starts."""
    image = Path(__file__).parents[1] / "deploy" / "Dockerfile"
    wanted = dict(re.findall(r"(MALLOC_\w+)=(\d+)", image.read_text(encoding="utf-8")))
    if not wanted.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | wanted)


def main() -> None:
    as_in_the_image()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pools", type=int, default=1000, help="default: %(default)s")
    parser.add_argument("--pods", type=int, default=4, help="pods of each pool at first; default: %(default)s")
    parser.add_argument("--per-namespace", type=int, default=10, help="pools in a namespace; default: %(default)s")
    parser.add_argument("--budgets", type=int, default=0, help="GPUBudgets that the pools share; default: none")
    parser.add_argument("--members", type=int, default=1, help="operators that share the pools; one is measured")
    parser.add_argument("--history", type=float, default=7200.0, help="seconds read of each pool; default: %(default)s")
    parser.add_argument("--ticks", type=int, default=16, help="ticks measured of each kind; default: %(default)s")
    parser.add_argument("--profile", type=Path, help="write cProfile's statistics of the steady ticks, a day on, here")
    parser.add_argument("--real", action="store_true", help="on a real API server; takes about 15 minutes")
    parser.add_argument("--interval", type=float, default=15.0, help="seconds, of --real; default: %(default)s")
    parser.add_argument("--no-results", action="store_true", help="write neither figures nor page")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    if options.real:
        with TemporaryDirectory() as directory:
            size = {
                "pools": options.pools,
                "pods": options.pods,
                "per_namespace": options.per_namespace,
                "ticks": options.ticks,
            }
            found = real_cluster.measure(Path(directory), **size, interval=options.interval)
    else:
        gc.set_threshold(*GC_THRESHOLDS)
        found = asyncio.run(measure(options))
    name = f"{options.pools} pools"
    name += f" under {options.budgets} GPU budgets" if options.budgets else ""
    name += f" on {options.members} members" if options.members > 1 else ""
    name += ", real API server" if options.real else ""
    show(name, found)
    if not options.no_results:
        write(name, found)


if __name__ == "__main__":
    main()
