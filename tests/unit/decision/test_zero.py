"""To zero and back, on virtual time: a gateway with a counter before engines that come and go."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from servingpool.catalogue.limits import LimitName
from servingpool.decision.decide import Outcome, decide
from servingpool.decision.learn.memory import Memory
from servingpool.decision.observation import Absent, GatewayMetrics, Observation, Reading, Unknown
from servingpool.decision.pool import Pool, Window

from ..reconcile.kept import kept  # noqa: TID252, tests are no package of an installed name
from .world import POOL, START, World, applied, restored

AFTER = 900.0
ZERO = replace(POOL, min_replicas=0, idle_after=AFTER, gateway="router/router")
GONE = Absent("Prometheus has no series of a gateway router in namespace chat")
DOWN = Unknown("Prometheus did not answer")


@dataclass
class Gated(World):
    """A world behind a gateway that counts every request that comes, and rejects or holds those that meet no engine."""

    pool: Pool = field(default_factory=lambda: ZERO)
    counted: float = 0.0
    held: float = 0.0
    holds: bool = False
    told: Unknown | None = None
    """Instead of its series."""
    vanishes: bool = False
    """Its series are there only while an engine is."""
    rate: float = 0.0
    lacking: Unknown | None = None
    """Instead of the engines' running requests."""
    stays: float = 0.0
    """Requests that still run in each engine when none comes any more."""

    def observation(self) -> Observation:
        told: Reading = self.counted if self.told is None else self.told
        if self.vanishes and not self.engines:
            told = GONE
        queue: Reading = self.held if not isinstance(told, Unknown) and self.holds else replace(GatewayMetrics()).queue
        for engine in self.engines:
            engine.running = self.stays if self.rate == 0.0 else 10.0
        gateway = GatewayMetrics(self.now, queue=queue, arrivals=told, at_zero=told)
        seen = replace(super().observation(), gateway=gateway)
        if self.lacking is None or isinstance(seen.metrics, Unknown):
            return seen
        return replace(seen, metrics=tuple(replace(one, running=self.lacking) for one in seen.metrics))

    def tick(self, rate: float, *, seconds: float = 15.0, prompt: float = 1000.0, output: float = 200.0) -> Outcome:
        self.counted += rate * seconds
        if self.holds and not self.engines:
            self.held += rate * seconds
        elif self.engines:
            self.held = 0.0
        self.rate = rate
        return super().tick(rate, seconds=seconds, prompt=prompt, output=output)


def served(rate: float, minutes: float, **given: Any) -> Gated:
    """After so many minutes at so many requests/s."""

    def begun() -> Gated:
        world = Gated(**given)
        world.run(rate, minutes)
        return world

    return kept(f"gated {rate} {minutes} {given}", begun)


def asleep(**given: Any) -> Gated:
    """A busy hour, and after it none."""

    def begun() -> Gated:
        world = served(20.0, 60, **given)
        world.run(0.0, 14)
        while world.requested:
            world.tick(0.0)
        assert world.now < START + 80 * 60.0
        return world

    return kept(f"asleep {given}", begun)


def told(outcome: Outcome) -> str:
    return outcome.decision.reason


def test_goes_to_zero_once_no_request_came_for_idle_after_and_says_so():
    world = served(20.0, 60)
    before = world.requested
    assert before > 1
    outcomes = world.run(0.0, 30)
    first = next(i for i, each in enumerate(outcomes) if each.decision.replicas == 0)
    assert first + 1 == pytest.approx(AFTER / 15.0, abs=1.0), "idleAfter after the last request, no sooner and no later"
    assert all(each.decision.replicas >= 1 for each in outcomes[:first])
    assert told(outcomes[first]).endswith("-> 0: idle for 15 min")
    assert outcomes[first].decision.need == 0.0
    assert told(outcomes[-1]).startswith("hold 0: no request at the gateway for ")


def test_a_pool_with_min_1_never_goes_to_zero_whatever_its_gateway_says():
    world = served(20.0, 30, pool=replace(POOL, gateway="router/router"))
    world.run(0.0, 60)
    assert world.requested == 1
    assert world.memory.demand is None


@pytest.mark.parametrize("told", [DOWN, GONE, Unknown("the gateway's pods are the pool's own")])
def test_unknown_demand_is_never_idle(told: Unknown):
    world = served(20.0, 30)
    world.told = told
    outcome = world.run(0.0, 90)[-1]
    assert world.requested == 1
    assert LimitName.DEMAND_UNKNOWN in applied(outcome)
    assert told.reason in outcome.decision.reason


def test_a_lost_scrape_delays_it_by_itself_only():
    world = served(20.0, 30)
    world.run(0.0, 12)
    world.told = DOWN
    world.run(0.0, 1)
    world.told = None
    world.run(0.0, 3)
    assert world.requested == 0


def test_the_last_replica_stays_while_a_request_runs_that_came_long_ago():
    world = served(20.0, 30)
    world.stays = 1.0
    world.run(0.0, 90)
    assert world.requested >= 1
    world.stays = 0.0
    world.run(0.0, 16)
    assert world.requested == 0


def test_wakes_in_one_tick_to_what_a_busy_hour_needs():
    world = served(20.0, 60)
    usual = world.requested
    world.run(0.0, 8 * 60)
    assert world.requested == 0
    outcome = world.tick(2.0 / 15.0)
    assert usual - 1 <= outcome.decision.replicas <= usual + 1, "not 1, also after a night in which windows emptied"
    assert told(outcome).startswith(f"scale up 0 -> {outcome.decision.replicas}: requests that arrived")
    assert ": 2" in told(outcome)
    held = world.run(20.0, 1.5)
    assert all(each.decision.replicas >= outcome.decision.replicas for each in held), "until one is ready"


def test_wakes_on_a_queue_that_is_there_although_nothing_was_counted():
    world = asleep(holds=True)
    world.held = 3.0
    outcome = world.tick(0.0)
    assert outcome.decision.replicas >= 1
    assert "holds at 0 replicas: 3" in told(outcome)


def test_with_nothing_learned_it_wakes_to_one_replica_and_says_why():
    world = served(0.0, 16, replicas=1)
    outcome = world.tick(1.0)
    assert outcome.decision.replicas == 1
    assert "not learned yet" in told(outcome)


def test_a_schedule_brings_replicas_one_cold_start_before_its_window():
    world = asleep()
    opens = world.now + 1800.0
    world.pool = replace(world.pool, windows=(Window("day", opens, opens + 3600.0, 2, None),))
    ordered = next(world.now for each in world.run(0.0, 40) if each.decision.replicas == 2 and world.requested == 2)
    assert world.requested == 2
    assert len(world.engines) == 2
    serving = max(engine.ready_at for engine in world.engines)
    assert opens - 60.0 <= serving <= opens + 15.0, ordered - opens


def test_what_vanished_is_known_after_a_restart_and_forgotten_with_another_gateway_or_min():
    world = asleep(vanishes=True)
    world.run(0.0, 30)
    assert world.requested == 1
    world.memory = Memory(restored(world.memory).profile)
    world.run(0.0, 60)
    assert world.requested == 1
    kept, now = world.memory, world.now
    world.pool, world.vanishes = replace(ZERO, gateway="epp/epp"), False
    world.run(0.0, 20)
    assert world.requested == 0
    world = Gated(replicas=1, memory=kept, now=now)
    world.run(0.0, 20)
    assert world.requested == 1
    world.pool = POOL
    world.tick(0.0)
    world.pool = ZERO
    world.run(0.0, 20)
    assert world.requested == 0


def test_a_gateway_that_was_away_at_zero_and_came_back_is_trusted_again():
    world = asleep()
    world.told = GONE
    world.run(0.0, 4)
    assert world.requested == 1
    world.told = None
    world.run(0.0, 20)
    assert world.memory.profile.vanished is None
    assert world.requested == 0


def test_an_outage_of_prometheus_at_zero_brings_one_replica_and_is_forgotten_after_it():
    world = asleep()
    world.told, world.blind = DOWN, True
    quiet = world.run(0.0, 2)
    assert {each.decision.replicas for each in quiet} == {0}, "for as long as it says"
    assert "after 180 s 1 replica is started" in told(quiet[-1])
    world.run(0.0, 60)
    assert world.requested == 1
    world.told, world.blind = None, False
    world.run(0.0, 17)
    assert world.memory.profile.vanished is None
    assert world.requested == 0


def test_an_operator_that_restarts_at_zero_stays_there_and_wakes_on_the_next_request():
    world = asleep()
    world.memory = Memory(restored(world.memory).profile)
    world.now += 120.0
    assert {each.decision.replicas for each in world.run(0.0, 30)} == {0}
    assert world.tick(1.0 / 15.0).decision.replicas > 1


def test_a_fleet_that_loads_after_a_request_is_not_taken_away_again_before_it_served():
    world = served(20.0, 60, cold_start=1500.0)
    world.run(0.0, 60)
    assert world.requested == 0
    woken = world.tick(1.0 / 15.0).decision.replicas
    outcomes = world.run(0.0, 24)
    assert {each.decision.replicas for each in outcomes} == {woken}
    assert len(world.engines) == 0


def test_requests_that_arrive_at_zero_count_as_late_ones():
    world = asleep()
    world.tick(10.0 / 15.0)
    world.tick(0.0)
    late = sum(one.late for one in world.memory.score_of_last_hour(world.now))
    assert late >= 10.0
    attained = world.tick(0.0).decision.figures.attainment
    assert not isinstance(attained, Unknown)
    assert attained < 1.0


def test_the_time_without_a_request_is_a_figure():
    figures = served(20.0, 30).run(0.0, 5)[-1].decision.figures
    assert figures.idle_for == pytest.approx(300.0, abs=15.0)
    assert isinstance(World().tick(1.0).decision.figures.idle_for, Unknown)


@pytest.mark.parametrize("seed", range(16))
def test_whatever_comes_it_sleeps_on_proof_only_and_wakes_in_the_tick_of_a_request(seed: int):
    """An hour of requests, gaps, outages, series that are gone and operators that restart, in random turn."""
    random = np.random.default_rng(seed)
    holds, idle_after = bool(random.integers(2)), float(random.choice([60.0, 300.0]))
    world = served(8.0, 8, holds=holds, pool=replace(ZERO, idle_after=idle_after))
    quiet_since, asked = world.now, False
    for _ in range(60):
        rate = float(random.choice([0.0, 0.0, 0.0, 0.0, 0.0, 1.0 / 15.0, 5.0]))
        told = random.choice(np.array([None, None, None, None, None, None, DOWN, GONE], dtype=object))
        if random.random() < 0.03:
            world.memory = Memory(restored(world.memory).profile)
            quiet_since, asked = world.now, False
        for _ in range(int(random.integers(1, 12))):
            before, world.told = world.requested, told
            # Without a count to compare with, as after a restart, only what is held shows.
            counted = world.memory.demand is not None and world.memory.demand.known_at is not None
            outcome = world.tick(rate)
            hidden = told is not None
            quiet_since = world.now if rate > 0.0 else quiet_since
            asked = asked or (rate > 0.0 and before == 0 and (counted or world.holds))
            down = before > 0 and world.requested == 0
            assert not (down and (hidden or world.now - quiet_since < world.pool.idle_after - 15.0)), told
            if asked and not hidden:
                assert world.requested > 0, outcome.decision.reason
            asked = asked and world.requested == 0
            assert 0 <= world.requested <= world.pool.max_replicas


def test_another_gateway_has_to_show_for_itself_that_no_request_comes():
    world = served(20.0, 60)
    world.run(0.0, 14)
    world.pool, world.counted = replace(ZERO, gateway="epp/epp"), 0.0
    outcomes = world.run(0.0, 20)
    assert [each.decision.replicas for each in outcomes].index(0) == pytest.approx(60, abs=1)


def test_a_request_that_came_while_nothing_was_applied_brings_nothing_hours_later():
    world = asleep()
    world.obey = False
    assert world.tick(1.0 / 15.0).decision.replicas > 0, "as in Paused: computed, and not applied"
    assert world.run(0.0, 10)[-1].decision.replicas > 0
    assert world.run(0.0, 10)[-1].decision.replicas == 0, "who asked waits no more"
    world.obey = True
    assert {each.decision.replicas for each in world.run(0.0, 60)} == {0}
    assert ": 1" in told(world.tick(1.0 / 15.0)), "the former is not counted again"


def test_a_figure_that_the_engines_do_not_export_is_named():
    world = served(20.0, 30, lacking=Unknown("the engine does not expose it"))
    world.run(0.0, 60)
    assert world.requested >= 1
    assert world.memory.demand is not None
    assert world.memory.demand.unknown == "requests at the engines: the engine does not expose it"


def test_why_a_replica_stays_that_never_had_a_request():
    world = Gated(replicas=1)
    assert "the last replica stays: the last request was 5 min ago; it goes after 15 min" in told(
        world.run(0.0, 5.25)[-1]
    )
    world.told = GONE
    assert f"the last replica stays: demand is unknown ({GONE.reason})" in told(world.run(0.0, 40)[-1])


def test_a_fleet_that_a_person_sets_to_0_stays_there_also_before_its_pods_go():
    world = served(20.0, 10, replicas=1)
    world.run(0.0, 5)
    seen = replace(world.observation(), requested=0)
    assert decide(seen, world.pool, world.memory, world.now + 15.0).decision.replicas == 0
    world.scale(0)
    assert {each.decision.replicas for each in world.run(0.0, 5)} == {0}
