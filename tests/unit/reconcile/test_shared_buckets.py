"""Pools that share a Prometheus are read together, and each sees the histogram buckets of its own SLO."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from servingpool.adapters.prometheus.samples import BucketCount, FleetReading, Layout, ReadRequest
from servingpool.decision.observation import Histogram, Observation, ReplicaMetrics, Unknown
from servingpool.loop.backfill import past

from .fake_cluster import FakeCluster, Prometheus

BUCKETS = (0.001, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
LAYOUT = Layout.read(BucketCount("ttft", repr(bound), 4.0) for bound in BUCKETS)
SLOWEST = 2.0
"""Seconds. First tokens come after 0 to 2 s, all equally likely."""
OTHERS = ("300ms", "1500ms", "6s", "30s")


class Shared(Prometheus):
    """Holds only the TTFT buckets that its queries ask for."""

    async def read(self, request: ReadRequest, now: float) -> FleetReading | Unknown:
        reading = await super().read(request, now)
        assert isinstance(reading, FleetReading)
        return replace(reading, samples=self.shown(request))

    def shown(self, request: ReadRequest) -> dict[tuple[str, str], dict[str, ReplicaMetrics]]:
        chosen = tuple(LAYOUT.choose("ttft", request.ttft_bounds))
        return {
            pod: {model: _with_ttft(page, chosen) for model, page in models.items()}
            for pod, models in self.world.samples().items()
        }


def _with_ttft(page: ReplicaMetrics, bounds: tuple[float, ...]) -> ReplicaMetrics:
    ttft = page.time_to_first_token
    assert isinstance(ttft, Histogram)
    counts = tuple(ttft.count * min(1.0, bound / SLOWEST) for bound in bounds)
    told = replace(ttft, bounds=bounds, counts=counts, total=ttft.count * SLOWEST / 2)
    return replace(page, time_to_first_token=told)


@pytest.fixture
def world() -> FakeCluster:
    world = FakeCluster()
    world.prometheus.__class__ = Shared
    world.serve(rate=6.0)
    world.pool()
    return world


def others_come(world: FakeCluster) -> None:
    for number, ttft in enumerate(OTHERS):
        world.serve(f"other-{number}", model=f"other-{number}")
        slo = {"timeToFirstToken": ttft}
        world.pool(f"other-{number}", target=f"other-{number}", model=f"other-{number}", slo=slo)


def histograms(observation: Observation) -> list[tuple[float, ...]]:
    assert isinstance(observation.metrics, tuple)
    found = [page.time_to_first_token for page in observation.metrics]
    return [histogram.bounds for histogram in found if isinstance(histogram, Histogram)]


def ttft(world: FakeCluster) -> Any:
    return world.decision().figures.time_to_first_token


def test_the_slos_of_others_change_nothing_of_what_a_pool_sees(world: FakeCluster) -> None:
    world.step(5)
    alone, figure = histograms(world.observation()), ttft(world)
    others_come(world)
    world.step()
    assert ttft(world) == pytest.approx(figure, rel=0.01)
    assert histograms(world.observation()) == alone


def test_a_pool_sees_its_own_buckets_beside_any_number_of_others(world: FakeCluster) -> None:
    others_come(world)
    world.step()
    assert histograms(world.observation()) == [(0.5, 1.0, 2.5, 5.0, 7.5)] * 2
    world.pool("other-0", target="other-0", model="other-0", slo={"timePerOutputToken": "50ms"})
    world.step()
    assert histograms(world.observation("other-0")) == [()] * 2, "what no SLO bounds has no buckets, whoever else asks"


def test_history_has_the_same_buckets_as_a_present_read(world: FakeCluster) -> None:
    others_come(world)
    world.step()
    ours = world.state().pool
    assert ours is not None
    asked_together = ReadRequest(ttft_bounds=frozenset({0.3, 2.0}))
    assert isinstance(world.prometheus, Shared)
    ((_, look),) = past(ours, [(world.now, world.prometheus.shown(asked_together))])
    assert histograms(look) == histograms(world.observation())
