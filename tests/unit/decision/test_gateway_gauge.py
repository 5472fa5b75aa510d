"""The length of a gateway's queue that nothing moves, or that jumps in one scrape."""

from __future__ import annotations

from dataclasses import dataclass, replace

from servingpool.decision.observation import GatewayMetrics, Observation, Unknown

from .test_zero import AFTER, Gated
from .world import POOL, AtOnce


@dataclass
class Queued(AtOnce):
    """Replicas behind a gateway that shows `queue`, and no counter."""

    queue: float = 0.0

    def observation(self) -> Observation:
        return replace(super().observation(), gateway=GatewayMetrics(scraped_at=self.now, queue=self.queue))


def test_a_queue_that_a_gateway_forgot_holds_no_fleet_and_is_told() -> None:
    without, world = Queued(replicas=6), Queued(replicas=6)
    without.run(20.0, 30)
    world.run(20.0, 30)
    world.queue = 40.0
    for _ in range(200):
        expected, found = without.tick(0.0).decision, world.tick(0.0).decision
        assert found.replicas <= expected.replicas + 1
    assert expected.replicas == found.replicas == 1
    assert "40 requests in the gateway's queue since 2023-11-14 22:43 UTC, and none comes or is served" in found.reason
    assert found.figures.longest_wait == 0.0
    world.queue = 41.0
    assert "not believed" not in world.tick(0.0).decision.reason


def test_a_gateway_that_holds_all_requests_while_engines_are_idle_takes_no_fleet_and_is_named() -> None:
    world = Queued(replicas=3)
    world.run(6.0, 30)
    for _ in range(240):
        world.queue += 90.0
        found = world.tick(0.0).decision
        assert 3 <= found.replicas <= 5
    assert found.replicas == 4
    assert "holds 21600 requests, and the Ready replicas have had no work since" in found.reason
    assert found.warning is not None
    assert found.figures.attainment_now == 0.0


def test_a_gateway_that_jams_at_its_cap_while_batches_vary_keeps_the_fleet_and_is_named() -> None:
    world = Queued(replicas=4)
    for tick in range(200):
        jammed = tick - 120
        if jammed == 0:
            standing = world.requested
        world.queue = 100.0 + tick % 2 if jammed >= 0 else 0.0
        for engine in world.engines:
            engine.running = max(0.0, 20.0 - 8.0 * jammed) if jammed > 0 else 20.0 + 10.0 * (tick % 2)
        found = world.tick(20.0 if jammed < 0 else 0.0).decision
    assert found.replicas >= standing
    assert "requests, and the Ready replicas have had no work since" in found.reason
    assert found.figures.attainment_now == 0.0, "of those that wait in it"


def test_a_queue_of_the_same_length_is_believed_while_batches_do_not_vary() -> None:
    world = Queued(replicas=3, queue=40.0, obey=False)
    found = world.run(6.0, 30)[-1].decision
    assert found.figures.queue == 40.0
    assert "not believed" not in found.reason


def test_a_queue_that_is_long_in_one_scrape_orders_nothing() -> None:
    world = Queued(replicas=2, pool=replace(POOL, max_replicas=60))
    world.run(4.0, 30)
    standing = world.requested
    world.queue = 2.0**64 - 1.0
    first = world.tick(4.0).decision
    assert "the gateway's queue: 1.84e+19 requests waiting is more than can have come" in first.reason
    world.queue = 0.0
    assert max(one.decision.replicas for one in world.run(4.0, 10)) <= standing


def test_a_pool_goes_to_zero_and_stays_there_beside_a_queue_that_a_gateway_forgot() -> None:
    world = Gated(holds=True)
    world.run(20.0, 30)
    observe = world.observation

    def forgotten() -> Observation:
        seen = observe()
        told = seen.gateway.queue
        return replace(seen, gateway=replace(seen.gateway, queue=told if isinstance(told, Unknown) else told + 3.0))

    world.observation = forgotten  # type: ignore[method-assign]
    world.run(0.0, AFTER / 60.0 + 10.0)
    assert world.requested == 0
    assert {one.decision.replicas for one in world.run(0.0, 20)} == {0}
    assert world.tick(0.2).decision.replicas >= 1
