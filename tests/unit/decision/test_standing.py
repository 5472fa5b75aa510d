"""Gauges that nothing moves: left behind by aborted requests, or of an engine that hangs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import pytest

from servingpool.catalogue.limits import LimitName
from servingpool.decision.decide import Outcome
from servingpool.decision.observation import Observation, ReplicaMetrics, Unknown
from servingpool.decision.pool import Pool, Slo

from ..reconcile.kept import kept  # noqa: TID252, tests are no package of an installed name
from .world import ENGINE, POOL, AtOnce, World, applied

ABORTED = Pool(Slo(time_to_first_token=2.5, time_per_output_token=0.1), min_replicas=1, max_replicas=12)


@dataclass
class Left(AtOnce):
    """Replicas of which the first shows `shown` for ever: requests running and waiting."""

    shown: tuple[float, float] | None = None
    hung: bool = False
    """The first one serves nothing either."""

    def observation(self) -> Observation:
        seen = super().observation()
        if self.shown is None or isinstance(seen.metrics, Unknown):
            return seen
        running, waiting = self.shown
        pages = [replace(one, running=running, waiting=waiting) if self.first(one) else one for one in seen.metrics]
        return replace(seen, metrics=tuple(pages))

    def first(self, page: ReplicaMetrics) -> bool:
        return page.replica == "vllm-1"

    def serve_all(self, minutes: float) -> list[Outcome]:
        return self.run(32.0, minutes, prompt=800.0, output=200.0)


def served() -> Left:
    """After an hour of traffic."""

    def begun() -> Left:
        world = Left(pool=ABORTED, replicas=8)
        world.serve_all(60)
        return world

    return kept("left behind", begun)


@cache
def without() -> list[int]:
    """Replicas in the hour and a half after the traffic, where it leaves nothing behind."""
    return [outcome.decision.replicas for outcome in served().run(0.0, 90)]


@pytest.mark.parametrize("waiting", [0.0, 1.0, 15.0])
def test_what_aborted_requests_left_behind_costs_one_replica_at_most_and_is_told(waiting: float) -> None:
    world = served()
    world.shown = (106.0, waiting)
    for expected in without():
        found = world.tick(0.0)
        assert found.decision.replicas <= expected + 1
    assert expected == 1
    assert "no progress at vllm-1 (" in found.decision.reason
    assert f"({106.0 + waiting:.0f} requests since 2023-11-14 23:13 UTC)" in found.decision.reason
    assert [one.replica for one in found.decision.standing] == ["vllm-1"]
    assert found.decision.figures.longest_wait == 0.0
    assert LimitName.REQUESTS_WAIT not in applied(found)


@pytest.mark.parametrize("parked", [3.0, 30.0])
def test_what_is_parked_beside_requests_that_begin_at_once_is_no_demand_and_is_named(parked: float) -> None:
    world = Left(pool=ABORTED, replicas=1)
    world.run(0.5, 15, prompt=800.0, output=200.0)
    world.shown = (2.0, parked)
    found = world.run(0.5, 60, prompt=800.0, output=200.0)
    assert {one.decision.replicas for one in found} == {1}
    assert found[-1].decision.figures.attainment == pytest.approx(1.0)
    assert all(f"vllm-1: {parked:.0f} requests in its queue since" in one.decision.reason for one in found[4:])


def test_a_queue_of_one_length_for_which_requests_wait_is_demand() -> None:
    world = World(replicas=1, obey=False)
    world.run(2.0, 15)
    world.engines[0].waiting = 100.0
    assert [one.decision.figures.queue for one in world.run(0.97 / ENGINE.work(1000.0, 200.0), 10)] == pytest.approx(
        [100.0] * 40
    )


def test_a_queue_that_nothing_moves_orders_one_replica_in_a_young_pool_without_traffic() -> None:
    world = Left(pool=ABORTED, replicas=3)
    world.run(4.0, 6)
    world.shown = (0.0, 15.0)
    assert max(world.tick(0.0).decision.replicas for _ in range(120)) <= 4


def test_beside_an_engine_that_hangs_the_others_load_is_served_and_it_is_made_up_for() -> None:
    class Hangs(Left):
        def tick(self, rate: float, **mix: float) -> Outcome:
            first = self.engines[0]
            before = (first.requests, first.output, first.prompt, first.decode_steps, first.decode_seconds)
            outcome = super().tick(rate, **mix)
            if self.hung:
                first.requests, first.output, first.prompt, first.decode_steps, first.decode_seconds = before
            return outcome

    world = Hangs(pool=replace(ABORTED, max_replicas=20), replicas=8, obey=False)
    usual = world.serve_all(60)[-1].decision
    world.hung, world.shown = True, (106.0, 15.0)
    last = world.serve_all(30)[-1].decision
    assert f"such gauges are not believed, so {last.need:.0f} are needed in all" in last.reason
    assert last.replicas <= usual.replicas + 1
    assert last.figures.arrivals == pytest.approx(28.0, rel=0.05), "the others' rate, and none of the one that hangs"


def test_the_gauges_of_an_engine_that_counts_again_are_believed_again() -> None:
    world = Left(pool=ABORTED, replicas=3, obey=False)
    world.serve_all(30)
    world.shown = (106.0, 15.0)
    world.run(0.0, 10)
    world.shown = (106.0, 400.0)
    assert world.tick(0.0).decision.standing, "what the router sends is no progress"
    found = world.tick(1.0)
    assert found.decision.standing == ()
    assert found.decision.figures.queue == pytest.approx(400.0)


@pytest.mark.parametrize(("bound", "minutes"), [(2.5, 2.0), (600.0, 9.0)])
def test_an_engine_that_computes_a_long_prompt_while_a_request_waits_does_not_hang(
    bound: float, minutes: float
) -> None:
    world = Left(pool=replace(ABORTED, slo=replace(ABORTED.slo, time_to_first_token=bound)), replicas=3, obey=False)
    before = world.serve_all(30)[-1].decision.replicas
    world.shown = (1.0, 1.0)
    found = world.run(0.0, minutes)
    assert all(one.decision.standing == () and one.decision.replicas <= before for one in found)


def test_the_last_replica_stays_while_what_it_shows_is_not_believed() -> None:
    pool = replace(POOL, min_replicas=0, idle_after=600.0, gateway="router")
    world = Left(pool=pool, replicas=1)
    world.run(4.0, 30)
    world.shown = (3.0, 0.0)
    assert world.run(0.0, 60)[-1].decision.replicas >= 1


@pytest.mark.parametrize("interval", [2.0, 15.0])
def test_a_pool_without_a_request_is_idle_after_twenty_minutes_however_short_the_interval(interval: float) -> None:
    world = Left(pool=ABORTED, replicas=2)
    world.serve_all(10)
    found = [world.tick(0.0, seconds=interval) for _ in range(int(1230.0 / interval))]
    assert "no request in the last 20 minutes" in found[-1].decision.reason
