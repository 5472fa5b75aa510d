"""What SIGTERM does to the requests of a real vLLM, and what an engine without statistics looks like."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from dataclasses import dataclass

import aiohttp
import pytest

from servingpool.adapters.prometheus.diagnosis import Cause
from servingpool.decision.observation import Unknown
from servingpool_lab.processes import http_ready, wait_until
from servingpool_lab.prometheus import Prometheus

from .client import Answer, Ask, End, replay
from .engine import MAX_NUM_SEQS, MODEL, StartVllm, Vllm
from .notes import Note
from .run import SLOS, WAIT, words
from .ticks import POD, Operator, Watch

pytestmark = pytest.mark.timeout(1800)  # the first test of a machine installs vLLM

UNDER_WAY = MAX_NUM_SEQS + 2
"""Requests when SIGTERM comes: a full batch, and two that wait."""
OUTPUT = 200
"""Tokens of each: some seconds at the least, two batches one after the other."""
SHUTDOWN_TIMEOUT = 120
"""Seconds: two batches on a machine that has much else to do."""
GRACE = 20.0
"""Seconds from SIGTERM to SIGKILL. Without a shutdown timeout 0.32 can leave its streams open, without a word, and
then waits for them to close: for ever."""
SCRAPES = 5


def asks() -> list[Ask]:
    luck = random.Random(2)
    return [Ask(0.0, words(luck, 30), OUTPUT) for _ in range(UNDER_WAY)]


@dataclass(frozen=True)
class Stopped:
    """What SIGTERM did."""

    at: float
    """Unix time of the signal."""
    answers: list[Answer]
    """To the requests under way. A fast engine may have ended some before the signal."""
    late: Answer
    """To a stream asked for half a second later."""
    late_tokens: int | None
    """Of a reply in one piece, asked for then; None where it was no success."""
    healthy: bool
    """What /health said then."""
    exited: bool
    """By itself, within the grace period."""

    @property
    def end(self) -> str:
        """In words."""
        return "the engine exited by itself" if self.exited else "the engine had to be killed"


async def terminate(vllm: Vllm, grace: float) -> Stopped:
    """SIGTERM amid requests, and SIGKILL `grace` seconds later, as the kubelet does."""
    sending = asyncio.create_task(replay(vllm.url, asks()))
    await asyncio.sleep(1.5)
    assert not sending.done()
    assert vllm.process.pid is not None
    at = time.time()
    os.kill(vllm.process.pid, signal.SIGTERM)
    await asyncio.sleep(0.5)
    healthy = await asyncio.to_thread(http_ready(f"{vllm.url}/health"))
    late = asyncio.create_task(replay(vllm.url, [Ask(0.0, words(random.Random(3), 10), 2)]))
    late_tokens = asyncio.create_task(_tokens(vllm))
    exited = await asyncio.to_thread(_exits, vllm, grace)
    vllm.process.kill()
    return Stopped(at, await sending, (await late)[0], await late_tokens, healthy, exited)


async def _tokens(vllm: Vllm) -> int | None:
    """Output tokens of a completion that is not streamed; None where it fails."""
    body = {"model": MODEL, "prompt": [5, 6, 7], "max_tokens": 2}
    try:
        async with aiohttp.ClientSession() as session, session.post(f"{vllm.url}/v1/completions", json=body) as reply:
            return int((await reply.json())["usage"]["completion_tokens"]) if reply.ok else None
    except aiohttp.ClientError:
        return None


def _exits(vllm: Vllm, seconds: float) -> bool:
    try:
        wait_until(lambda: not vllm.process.running, seconds, "exit")
    except TimeoutError:
        return False
    return True


def scrapes(prometheus: Prometheus) -> float:
    """How many of the engine's pages were read; a Prometheus that has just started has not read one yet."""
    return sum(float(one["value"][1]) for one in prometheus.query('sum_over_time(up{pod!=""}[10m])'))


async def test_without_statistics_nothing_is_known_and_sigterm_cuts_what_is_under_way(
    start_vllm: StartVllm, watch: Watch, note: Note
) -> None:
    with start_vllm("--disable-log-stats") as vllm, watch({POD: vllm}) as prometheus:
        await replay(vllm.url, [Ask(0.0, range(3, 40), 8)])
        await asyncio.to_thread(wait_until, lambda: scrapes(prometheus) >= SCRAPES, WAIT, f"{SCRAPES} scrapes")
        operator = Operator(prometheus.url, *SLOS)
        look, *_ = await operator.look()
        await operator.aclose()
        assert look.selection.missing[POD].cause is not Cause.OTHER_MODEL
        assert look.delta.coverage == 0.0
        assert isinstance(look.figures.arrivals, Unknown)

        stopped = await terminate(vllm, GRACE)
        told = sum(answer.status >= 500 for answer in stopped.answers)
        note(f"SIGTERM without --shutdown-timeout: of {UNDER_WAY} streams under way {told} were told, {stopped.end}")
        assert {answer.end for answer in stopped.answers if answer.ended > stopped.at} <= {End.CUT, End.REFUSED}
        assert stopped.late.end is not End.WHOLE


async def test_with_a_shutdown_timeout_all_that_is_under_way_ends_well(start_vllm: StartVllm, note: Note) -> None:
    with start_vllm("--shutdown-timeout", str(SHUTDOWN_TIMEOUT)) as vllm:
        stopped = await terminate(vllm, SHUTDOWN_TIMEOUT)
        whole = sum(answer.end is End.WHOLE for answer in stopped.answers)
        note(f"SIGTERM with --shutdown-timeout: of {UNDER_WAY} streams under way {whole} ended well, {stopped.end}")
        assert whole == UNDER_WAY
        assert all(len(answer.times) == OUTPUT for answer in stopped.answers)
        assert stopped.exited
        # Nothing tells a Service, a probe or a client's library that this engine takes nothing more: a new request gets
        # HTTP 200 and no token. Hence the preStop sleep.
        assert stopped.healthy
        assert (stopped.late.end, stopped.late.status, stopped.late_tokens) == (End.REFUSED, 200, 0)
