"""A minute of traffic, noted on both sides: by the client that sent it, and by the operator, which reads Prometheus."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from servingpool.adapters.prometheus.samples import PodSamples
from servingpool.decision.observation import Unknown
from servingpool.decision.observe.columns import Column
from servingpool.reconcile.collect.readings import requests_for
from servingpool_lab.prometheus import Prometheus

from .client import Answer, Ask, End, replay
from .engine import SPECIAL, VOCABULARY, Vllm
from .ticks import NAMESPACE, SCRAPE_INTERVAL, Look, Operator

LOOK_INTERVAL = 3.0
"""Seconds between two ticks; the operator's own 15 s would see a minute four times."""
SLOS = (
    # Bounds that are a bucket's, and bounds that cut one in two (.25 to .5 s, 10 to 25 ms).
    {"timeToFirstToken": "500ms", "timePerOutputToken": "25ms", "attainment": 90},
    {"timeToFirstToken": "400ms", "timePerOutputToken": "18ms", "attainment": 60},
)
SETTLED = 1.0
"""Seconds after the last token from which on a page has all of it."""
WARM_UP = [Ask(0.0, range(3, 40), 8), Ask(0.1, range(3, 400), 8)]
"""The first requests of an engine are slow: they are not among those compared."""
WAIT = 60.0
"""Seconds to wait for a scrape at most."""
SHARED_PROMPT = 256
"""Tokens that a third of the prompts begin with: two blocks of the CPU's KV cache, which has 128 tokens in each."""


@dataclass(frozen=True, slots=True)
class Run:
    """What both sides noted. Both clocks are this machine's."""

    answers: Sequence[Answer]
    looks: Sequence[Sequence[Look]]
    """By SLO, oldest first: the first before any of `answers` was sent, the last when all had ended."""
    operator: Operator
    history: Sequence[tuple[float, PodSamples]]
    """The pages that Prometheus remembers, one a scrape."""
    page: str
    """The engine's, at the end."""
    slowest_scrape: float
    """Seconds from a scrape's time stamp to its end, at the most."""

    @property
    def served(self) -> list[Answer]:
        """Answers to requests that the engine took in."""
        return [answer for answer in self.answers if answer.end is not End.REFUSED]

    def total(self, figure: int, slo: int = 0) -> float:
        """Increase of one of the figures of `samples`, over all looks."""
        return sum(look.delta.sums[figure] for look in self.looks[slo])

    def summary(self) -> list[str]:
        """Both sides, in a line a figure."""
        served, count = self.served, max(len(self.served), 1)
        steps = max(sum(len(a.times) - 1 for a in served), 1)
        pairs = {
            "requests": (len(served), self.total(Column.TTFT_COUNT)),
            "requests refused": (len(self.answers) - len(served), self.total(Column.REJECTED)),
            "prompt tokens": (sum(a.prompt_tokens for a in served), self.total(Column.PROMPTS)),
            "cached prompt tokens": (sum(a.cached_tokens for a in served), self.total(Column.CACHED)),
            "output tokens": (sum(len(a.times) for a in served), self.total(Column.GENERATED)),
            "mean TTFT, ms": (
                1e3 * sum(a.first_token for a in served) / count,
                1e3 * self.total(Column.TTFT_SUM) / count,
            ),
            "mean ITL, ms": (
                1e3 * sum(a.decoding for a in served) / steps,
                1e3 * self.total(Column.ITL_SUM) / max(self.total(Column.ITL_COUNT), 1.0),
            ),
        }
        return [f"{name}: {client:.6g} at the client, {read:.6g} as read" for name, (client, read) in pairs.items()]


def traffic(seed: int = 0) -> list[Ask]:
    """Calm, a burst that queues and is partly turned away, calm again."""
    luck = random.Random(seed)
    shared = words(luck, SHARED_PROMPT)
    asks = []
    for begin, end in ((0.0, 25.0), (50.0, 75.0)):
        at = begin + luck.expovariate(1.2)
        while at < end:
            own = words(luck, luck.randint(20, 300))
            prompt = [*shared, *own] if luck.random() < 1 / 3 else own
            asks.append(Ask(at, prompt, luck.randint(16, 60)))
            at += luck.expovariate(1.2)
    asks += [Ask(25.0 + 0.01 * number, words(luck, 60), luck.randint(60, 100)) for number in range(30)]
    return sorted(asks, key=lambda ask: ask.at)


async def play(vllm: Vllm, server: Prometheus) -> Run:
    """Send the traffic and look meanwhile."""
    prometheus = server.url
    await replay(vllm.url, WARM_UP)
    await scraped_since(prometheus, time.time() + SETTLED)
    operator = Operator(prometheus, *SLOS)
    begin = time.time()
    looks = [await operator.look()]
    sending = asyncio.create_task(replay(vllm.url, traffic()))
    while not sending.done():
        await asyncio.sleep(LOOK_INTERVAL)  # not less: the operator learns nothing from two looks within a second
        looks.append(await operator.look())
    await scraped_since(prometheus, time.time() + LOOK_INTERVAL)
    looks.append(await operator.look())
    (request,) = requests_for(operator.pools).values()
    history = await operator.backend.history(
        request, start=begin, end=time.time(), step=SCRAPE_INTERVAL, namespaces=[NAMESPACE]
    )
    assert not isinstance(history, Unknown), history
    await operator.aclose()
    (scrapes,) = server.query(f"max_over_time(scrape_duration_seconds[{time.time() - begin:.0f}s])")
    slowest = float(scrapes["value"][1])
    by_pool = [list(column) for column in zip(*looks, strict=True)]
    return Run(sending.result(), by_pool, operator, history, vllm.page(), slowest)


async def scraped_since(prometheus: str, since: float) -> None:
    """Wait for a page that was scraped then or later (Unix seconds).

    Raises:
        TimeoutError: there is none for a minute.
    """
    operator = Operator(prometheus, *SLOS)
    async with asyncio.timeout(WAIT):
        while True:
            (look, *_) = await operator.look()
            if look.scraped and look.page.scraped_at > since:
                return await operator.aclose()
            await asyncio.sleep(0.2)


def words(luck: random.Random, number: int) -> list[int]:
    """A prompt of so many tokens."""
    return [luck.randrange(len(SPECIAL), VOCABULARY) for _ in range(number)]
