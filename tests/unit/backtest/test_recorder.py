from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from servingpool.adapters.prometheus.samples import PodSamples, ReadRequest
from servingpool.decision.observation import Histogram, ReplicaMetrics, Unknown
from servingpool.recording.format import Chunk, RecordingError
from servingpool.recording.recorder import SERIES_PER_POD, Pace, record

from .histories import header_of

USUAL = Pace()


@dataclass
class FakePrometheus:
    """Has a scrape of each pod every 15 s, and takes half a second to answer."""

    pods: Sequence[str] = ("llama-7d8f9c5b6d-bcdfg", "llama-7d8f9c5b6d-hjklm")
    failures: int = 0
    now: float = 0.0
    asked: list[tuple[float, float]] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)

    async def history(
        self,
        request: ReadRequest,
        *,
        start: float,
        end: float,
        step: float,
        namespaces: Sequence[str],
        most_samples: int,
    ) -> Sequence[tuple[float, PodSamples]] | Unknown:
        self.asked.append((start, end))
        self.now += 0.5
        if self.failures:
            self.failures -= 1
            return Unknown("Prometheus backend 'default' did not answer within 10 s")
        steps = round((end - start) / step) + 1
        return [(at, self.at(at)) for at in (start + step * index for index in range(steps))]

    def at(self, at: float) -> PodSamples:
        ttft = Histogram((1.0,), (at,), at, at)
        others = {("other", "llama-7d8f9c5b6d-bcdfg"): {"llama": ReplicaMetrics("stranger", at)}}
        own = {("chat", pod): {"llama": ReplicaMetrics(pod, at, time_to_first_token=ttft)} for pod in self.pods}
        return {**own, **others}

    async def line(self, query: str, times: tuple[float, float, float]) -> Sequence[tuple[float, float]] | Unknown:
        return [(times[0], float(len(self.pods) if "spec_replicas" in query else len(query)))]

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def record(self, begin: float, end: float, since: float, pace: Pace = USUAL) -> list[Chunk]:
        header = header_of(begin, end).model_copy(update={"backlog": "sum"})
        return [one async for one in record(self, header, since, pace, self.sleep, lambda: self.now)]


async def test_chunks_cover_the_time_once_and_hold_the_targets_pods_alone() -> None:
    prometheus = FakePrometheus()
    chunks = await prometheus.record(0.0, 86_400.0, 0.0)
    assert chunks[0].begin == 0.0
    assert [one.end for one in chunks[:-1]] == [one.begin for one in chunks[1:]]
    assert chunks[-1].end == 86_400.0
    times = sorted(at for one in chunks for each in one.scrapes for at in each.at.tolist())
    assert times == sorted([15.0 * index for index in range(1, 5761)] * 2)
    assert {each.pod for one in chunks for each in one.scrapes} == set(prometheus.pods)
    assert {(one.begin, one.requested, one.backlog) for one in chunks[:1]} == {(0.0, ((0.0, 2.0),), ((0.0, 3.0),))}


async def test_no_query_asks_for_more_samples_than_stated_and_each_is_followed_by_a_rest() -> None:
    prometheus, pace = FakePrometheus(), Pace(samples=20_000, pause=0.1)
    await prometheus.record(0.0, 86_400.0, 0.0, pace)
    for start, end in prometheus.asked[1:]:
        assert (end - start) / 15.0 * len(prometheus.pods) * SERIES_PER_POD <= pace.samples
    assert prometheus.slept == [0.5] * (len(prometheus.asked) - 1)


async def test_a_failed_stretch_is_asked_for_again_half_as_long() -> None:
    prometheus = FakePrometheus(failures=2)
    chunks = await prometheus.record(0.0, 3600.0, 0.0)
    first, second, third = (end for _, end in prometheus.asked[:3])
    assert (first, second, third) == (900.0, 450.0, 225.0)
    assert chunks[0].begin == 0.0


async def test_a_server_that_stays_away_ends_it_and_says_how_to_go_on() -> None:
    with pytest.raises(RecordingError, match=r"did not answer within 10 s\. Run the same command again"):
        await FakePrometheus(failures=99).record(0.0, 3600.0, 0.0)


async def test_it_goes_on_from_where_it_stopped() -> None:
    prometheus = FakePrometheus()
    chunks = await prometheus.record(0.0, 3600.0, 1800.0)
    assert (chunks[0].begin, prometheus.asked[0][0]) == (1800.0, 1815.0)
