"""Who gets a thread, and until when it is worth it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from servingpool.adapters.prometheus import workers as workers_module
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.http_client import Excess, MetricsUnavailable, PrometheusClient, Unsent
from servingpool.adapters.prometheus.workers import Workers


class Clock:
    """The time that jobs take, with nobody waiting for it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.all_are_asked = threading.Event()

    def busy(self, _: PrometheusClient, __: float, seconds: float) -> str:
        self.all_are_asked.wait()
        self.now += seconds
        return "done"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(workers_module, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


@pytest.fixture
def workers(clock: Clock) -> Iterator[Workers]:
    """One thread, and a second for all that is asked at once."""
    opened = Workers(BackendConfig.model_validate({"url": "http://prometheus:9090", "timeout": "1s", "concurrency": 1}))
    yield opened
    opened.close()


async def test_jobs_run_in_the_order_of_the_calls_whatever_is_awaited_first(workers: Workers) -> None:
    order: list[int] = []
    deadline = workers.deadline()
    jobs = [workers.run(deadline, lambda *_, number=number: order.append(number)) for number in range(5)]
    for job in reversed(jobs):
        await job
    assert order == [0, 1, 2, 3, 4]


async def test_a_query_that_waits_too_long_is_not_sent(workers: Workers, clock: Clock) -> None:
    deadline = workers.deadline()
    first, second = workers.run(deadline, clock.busy, 0.95), workers.run(deadline, clock.busy, 0.0)
    clock.all_are_asked.set()
    assert await first == "done"
    with pytest.raises(Unsent, match="was busy with other queries for 1 s"):
        await second


async def test_a_query_with_a_third_of_its_time_left_is_sent(workers: Workers, clock: Clock) -> None:
    deadline = workers.deadline()
    first, second = workers.run(deadline, clock.busy, 0.6), workers.run(deadline, clock.busy, 0.0)
    clock.all_are_asked.set()
    assert await asyncio.gather(first, second) == ["done", "done"]


async def test_a_query_after_its_own_slow_lookup_is_sent(workers: Workers, clock: Clock) -> None:
    """Nobody else had anything to do with it."""
    clock.all_are_asked.set()
    assert await workers.run(clock.now + 0.09, clock.busy, 0.0) == "done"


async def test_a_query_is_late_after_its_own_deadline(workers: Workers, clock: Clock) -> None:
    with pytest.raises(MetricsUnavailable, match="did not answer within 1 s") as caught:
        await workers.run(clock.now - 0.01, clock.busy, 0.0)
    assert not isinstance(caught.value, Unsent)


async def test_a_query_that_hangs_is_late_and_those_queued_after_it_are_unsent(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that stalls behind its headers held both threads; all others were late too, and lost their turn."""
    monkeypatch.setattr(workers_module, "GRACE", 0.05)
    began, stop = threading.Event(), threading.Event()

    def hang(_: PrometheusClient, __: float) -> None:
        began.set()
        stop.wait()

    deadline = workers.deadline() - 0.9
    jobs = [workers.run(deadline, hang) for _ in range(3)]
    await asyncio.to_thread(began.wait)
    answers = await asyncio.gather(*jobs, return_exceptions=True)
    stop.set()
    assert [type(answer) for answer in answers] == [Excess, Unsent, Unsent]
