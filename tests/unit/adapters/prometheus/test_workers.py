"""Who gets a thread, and until when it is worth it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from servingpool.adapters.prometheus import BackendConfig, MetricsUnavailable
from servingpool.adapters.prometheus import workers as workers_module
from servingpool.adapters.prometheus.client import PrometheusClient
from servingpool.adapters.prometheus.errors import Unsent
from servingpool.adapters.prometheus.workers import Workers


@pytest.fixture
def workers() -> Iterator[Workers]:
    """One thread, and a second for all that is asked at once."""
    opened = Workers(BackendConfig.model_validate({"url": "http://prometheus:9090", "timeout": "1s", "concurrency": 1}))
    yield opened
    opened.close()


def busy(_: PrometheusClient, __: float, seconds: float) -> str:
    time.sleep(seconds)
    return "done"


async def test_jobs_run_in_the_order_of_the_calls_whatever_is_awaited_first(workers: Workers) -> None:
    order: list[int] = []
    deadline = workers.deadline()
    jobs = [workers.run(deadline, lambda *_, number=number: order.append(number)) for number in range(5)]
    for job in reversed(jobs):
        await job
    assert order == [0, 1, 2, 3, 4]


async def test_what_others_keep_waiting_to_the_end_is_not_sent(workers: Workers) -> None:
    deadline = workers.deadline()
    first, second = workers.run(deadline, busy, 0.95), workers.run(deadline, busy, 0.0)
    assert await first == "done"
    with pytest.raises(Unsent, match="had other queries to answer for 1 s"):
        await second


async def test_what_has_a_third_of_its_time_left_is_sent(workers: Workers) -> None:
    deadline = workers.deadline()
    first, second = workers.run(deadline, busy, 0.6), workers.run(deadline, busy, 0.0)
    assert await asyncio.gather(first, second) == ["done", "done"]


async def test_what_comes_behind_a_slow_look_up_of_its_own_is_sent(workers: Workers) -> None:
    """Nobody else had anything to do with it."""
    assert await workers.run(time.monotonic() + 0.09, busy, 0.0) == "done"


async def test_behind_its_own_deadline_it_is_late(workers: Workers) -> None:
    with pytest.raises(MetricsUnavailable, match="did not answer within 1 s") as caught:
        await workers.run(time.monotonic() - 0.01, busy, 0.0)
    assert not isinstance(caught.value, Unsent)


async def test_what_hangs_beyond_its_deadline_is_late_and_what_waits_behind_it_unsent(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that stalls behind its headers held both threads; all others were late too, and lost their turn."""
    monkeypatch.setattr(workers_module, "GRACE", 0.05)
    deadline = time.monotonic() + 0.1
    jobs = [workers.run(deadline, busy, 0.5) for _ in range(3)]
    answers = await asyncio.gather(*jobs, return_exceptions=True)
    assert [type(answer) for answer in answers] == [MetricsUnavailable, Unsent, Unsent]
