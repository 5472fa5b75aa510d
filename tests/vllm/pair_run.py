"""A minute of traffic through a prefill and a decode engine, noted by their client and by the operator of both."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from servingpool.adapters.prometheus.backend import PrometheusBackend
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.api.conditions import Condition
from servingpool.api.serving_pool import ServingPool
from servingpool.api.status import Status
from servingpool.decision.learn.memory import Memory
from servingpool.decision.observation import Unknown
from servingpool.decision.observe.columns import Column
from servingpool.decision.observe.counters import diff_counters
from servingpool.decision.roles import DECODE, PREFILL
from servingpool.reconcile.act import NOT_SCALED
from servingpool.reconcile.collect.collected import collect
from servingpool.reconcile.collect.readings import Readings
from servingpool.reconcile.plan.pool_plan import PoolPlan, asked_of, plan_pool
from servingpool.status.builder import build
from servingpool_lab.prometheus import Prometheus

from .client import Answer, Ask, replay
from .engine import MODEL
from .pair import PODS, Handed, Pair
from .run import LOOK_INTERVAL, SETTLED, SHARED_PROMPT, WAIT, words
from .ticks import NAMESPACE, Look, cluster

T = TypeVar("T")
SLO = {"timeToFirstToken": "600ms", "timePerOutputToken": "50ms", "attainment": 81}
"""Of TTFT the prefill engine has 0.5 s, which is a bucket's bound, as 50 ms of TPOT are; each role's share is 90%."""
TARGETS = [{"name": role, "role": role, "min": 1, "max": 4} for role in (PREFILL, DECODE)]
WARM_UP = [Ask(0.2 * number, range(3, 40 + 40 * number), 8) for number in range(3)]
"""The first requests of a pair are slow: both engines say hello to each other, too."""
BURST_AT, BURST, PAUSE = 22.0, 20, 16.0
"""Second of the traffic, requests that come at once, and seconds without others: together both engines take them all."""
ALONE = 150
"""Tokens that somebody has the prefill engine generate: so many that one look sees more than 50, which teach a step time."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick of a pool with both roles."""

    sides: Mapping[str, Look]
    """By role."""
    plan: PoolPlan
    conditions: Mapping[str, Condition]
    """The pool's conditions, by type."""

    def scraped_since(self, since: float) -> bool:
        """Whether both pages are of then (Unix seconds) or later."""
        return all(look.scraped and look.page.scraped_at > since for look in self.sides.values())


class RoleOperator:
    """A pool whose targets are a prefill and a decode engine."""

    def __init__(self, prometheus: str) -> None:
        self._backend = PrometheusBackend(BackendConfig(url=prometheus))
        self._readings = Readings({"default": self._backend})
        self._cache = cluster(PODS)
        self._memories = {role: Memory() for role in PODS}
        self.pool = ServingPool.model_validate(
            {
                "apiVersion": "servingpool.dev/v1alpha1",
                "kind": "ServingPool",
                "metadata": {"name": "pair", "namespace": NAMESPACE, "uid": "pair"},
                "spec": {"model": MODEL, "slo": SLO, "targets": TARGETS},
            }
        )

    async def look(self) -> Tick:
        """Read, collect and decide, as the loop does, and tell it as the status would."""
        now, before = time.time(), self._memories
        await self._readings.read("default", [self.pool], now)
        seen = collect(self.pool, {}, self._cache, self._readings, now)
        assert seen is not None
        plan = plan_pool(seen, None, before, {}, backfilled=True)
        sides = {side.role: side for side in plan.stages}
        self._memories = {role: side.memory for role, side in sides.items()}
        looks = {}
        for role, side in sides.items():
            assert side.seen.selection is not None
            delta = diff_counters(side.seen.observation, asked_of(side.seen, now), before[role].last)
            looks[role] = Look(now, side.seen.selection, side.seen.observation, delta, side.decision.figures)
        status = build(plan, NOT_SCALED, Status(), None, (), None)
        return Tick(looks, plan, {one.type: one for one in status.conditions})

    async def look_while(self, doing: Awaitable[T]) -> tuple[T, list[Tick]]:
        """What that came to, and the ticks until a page has all of it."""
        task, ticks = asyncio.ensure_future(doing), []
        while not task.done():
            await asyncio.sleep(LOOK_INTERVAL)
            ticks.append(await self.look())
        return task.result(), [*ticks, *await self.look_until(time.time() + SETTLED)]

    async def look_until(self, scraped: float) -> list[Tick]:
        """The ticks until there are pages of both that were scraped then (Unix seconds) or later.

        Raises:
            TimeoutError: there are none for a minute.
        """
        ticks: list[Tick] = []
        async with asyncio.timeout(WAIT):
            while not ticks or not ticks[-1].scraped_since(scraped):
                await asyncio.sleep(LOOK_INTERVAL)
                ticks.append(await self.look())
        return ticks

    async def close(self) -> None:
        await self._backend.aclose()


@dataclass(frozen=True, slots=True)
class PairRun:
    """What both sides noted. Both clocks are this machine's."""

    handed: Sequence[Handed]
    ticks: Sequence[Tick]
    """Oldest first: the first before any of `handed` was sent, the last when all had ended."""
    alone: Answer
    """What the prefill engine was then asked for without the decode engine."""
    after: Sequence[Tick]
    """Meanwhile, and in more traffic through both."""
    pages: Mapping[str, str]
    """The engines', by role, after `handed`."""
    texts: Sequence[tuple[str, str]]
    """Texts of the same requests: through both engines, and from one alone."""
    slowest_scrape: float
    """Seconds from a scrape's time stamp to its end, at the most."""

    def looks(self, role: str) -> list[Look]:
        return [tick.sides[role] for tick in self.ticks]

    def total(self, role: str, figure: int) -> float:
        """Increase of one of the figures of `samples`, over all ticks."""
        return sum(look.delta.sums[figure] for look in self.looks(role))

    @property
    def busy(self) -> float:
        """Seconds in which the prefill engine had a request, as the proxy saw it."""
        seconds, until = 0.0, 0.0
        for one in sorted(self.handed, key=lambda one: one.prefill.sent):
            seconds += max(0.0, one.prefill.ended - max(one.prefill.sent, until))
            until = max(until, one.prefill.ended)
        return seconds

    def share(self, meets: Callable[[Handed], bool]) -> float:
        """Share of the requests that meet something."""
        return sum(map(meets, self.handed)) / len(self.handed)

    def summary(self) -> list[str]:
        """What both sides say, in a line a figure."""
        count, last = len(self.handed), self.ticks[-1]
        tokens = self.total(DECODE, Column.ITL_COUNT)
        ttft, tpot = SLO["timeToFirstToken"], SLO["timePerOutputToken"]
        work, later = (work_of_a_prompt(tick) for tick in (last, self.after[-1]))
        pairs = {
            "mean TTFT at the prefill engine": (
                sum(one.prefill.first_token for one in self.handed) / count,
                self.total(PREFILL, Column.TTFT_SUM) / count,
            ),
            "mean TTFT at the decode engine": (
                sum(one.decode.first_token for one in self.handed) / count,
                self.total(DECODE, Column.TTFT_SUM) / count,
            ),
            "mean ITL": (
                sum(one.decode.decoding for one in self.handed) / tokens,
                self.total(DECODE, Column.ITL_SUM) / tokens,
            ),
            "work of a prompt": (self.busy / count, work),
        }
        handover = sorted(one.decode.first_token for one in self.handed)
        met = self.share(lambda one: one.first_token <= 0.6 and one.decode.per_token <= 0.05)
        told = last.plan.decision.figures.attainment
        return [
            f"requests through both: {count}",
            *(
                f"{name}, ms: {1e3 * client:.4g} at the client, {1e3 * read:.4g} as read"
                for name, (client, read) in pairs.items()
            ),
            f"from the prefill engine's reply to the first token, ms: median {1e3 * handover[count // 2]:.0f}, longest {1e3 * handover[-1]:.0f}",
            f"within {ttft} and {tpot}: {met:.1%} of the client's requests, {told} as read",
            f"work of a prompt after the prefill engine answered alone, ms: {1e3 * later:.4g}",
        ]


def work_of_a_prompt(tick: Tick) -> float:
    """Replica-seconds that a request costs the prefill engine, as learned."""
    work = tick.sides[PREFILL].figures.work_per_request
    assert not isinstance(work, Unknown), work
    return work


def traffic(seed: int, seconds: float, burst: int) -> list[Ask]:
    """Calm, a burst that both engines queue, and calm again; a third of the prompts begin alike."""
    luck = random.Random(seed)
    shared, asks, at = words(luck, SHARED_PROMPT), [], 0.0
    while (at := at + luck.expovariate(1.0)) < seconds:
        if not BURST_AT < at < BURST_AT + PAUSE:
            own = words(luck, luck.randint(20, 300))
            asks.append(Ask(at, [*shared, *own] if luck.random() < 1 / 3 else own, luck.randint(16, 60)))
    asks += [Ask(BURST_AT + 0.01 * number, words(luck, 300), luck.randint(60, 80)) for number in range(burst)]
    return sorted(asks, key=lambda ask: ask.at)


async def play(pair: Pair, server: Prometheus) -> PairRun:
    """Send the traffic and look meanwhile."""
    await pair.replay(WARM_UP)
    operator = RoleOperator(server.url)
    *_, first = await operator.look_until(time.time() + SETTLED)
    begin = time.time()
    handed, ticks = await operator.look_while(pair.replay(traffic(0, 60.0, BURST)))
    pages = {PREFILL: pair.prefill.page(), DECODE: pair.decode.page()}
    (alone,), during = await operator.look_while(replay(pair.prefill.url, [Ask(0.0, range(3, 100), ALONE)]))
    _, later = await operator.look_while(pair.replay(traffic(1, 20.0, 0)))
    texts = await pair.texts(WARM_UP)
    await operator.close()
    scrapes = server.query(f"max(max_over_time(scrape_duration_seconds[{time.time() - begin:.0f}s]))")
    slowest = float(scrapes[0]["value"][1])
    return PairRun(handed, [first, *ticks], alone, [*during, *later], pages, texts, slowest)
