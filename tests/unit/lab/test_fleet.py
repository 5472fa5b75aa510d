from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from servingpool.decision.pool import Pool, Slo
from servingpool_lab.emulator.fleet import EmulatedFleet, Phase
from servingpool_lab.emulator.ledger import Fate
from servingpool_lab.emulator.replay import Arrival, replay
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.policies import Static
from servingpool_simulation.run import SimulationOptions, simulate
from servingpool_simulation.traces import azure2023_conv, poisson

SLO = Slo(time_to_first_token=2.0, time_per_output_token=0.15)
PROFILE = engine_profile("a100-70b-tp4")


def fleet(*arrivals: Arrival) -> EmulatedFleet:
    made = EmulatedFleet(PROFILE, SLO)
    made.open(iter(arrivals))
    return made


def steady(count: int, every: float = 1.0, prompt: int = 500, output: int = 50) -> list[Arrival]:
    return [Arrival((k + 1) * every, prompt, output) for k in range(count)]


def test_requests_wait_at_the_front_door_while_nobody_is_ready_and_the_wait_is_theirs() -> None:
    world = fleet(Arrival(1.0, 500, 10))
    world.order("a", 0.0)
    world.advance(30.0)
    assert (world.front_door, world.waiting, world.in_flight) == (1, 1, 1)

    world.serve("a", 60.0)
    world.advance(70.0)

    assert world.front_door == 0
    assert world.ledger.fates[Fate.FINISHED] == 1
    assert world.ledger.attained == 0
    ttft, _ = world.ledger.latest(world.now)
    assert ttft is not None
    assert 59.0 < ttft < 60.0


def test_the_least_loaded_replica_gets_the_next_request_and_ties_take_turns() -> None:
    world = fleet(*steady(40, every=0.01))
    for name in ("a", "b", "c", "d"):
        world.serve(name, 0.0)
    world.advance(0.41)
    assert [len(world.replica(name).requests) for name in ("a", "b", "c", "d")] == [10, 10, 10, 10]  # type: ignore[union-attr]


def test_a_replica_that_is_cut_off_loses_what_it_had_and_that_is_a_miss() -> None:
    world = fleet(Arrival(1.0, 500, 2000), Arrival(2.0, 500, 2000))
    world.serve("a", 0.0)
    world.drain("a", 5.0)
    world.advance(10.0)
    assert world.leavers() == []
    world.remove("a", 10.0)
    assert world.ledger.fates[Fate.LOST] == world.ledger.ended == 2
    assert world.ledger.attainment == 0.0
    assert world.in_flight == 0


def test_a_replica_that_fails_its_probe_keeps_its_requests_and_comes_back_with_its_counters() -> None:
    world = fleet(*steady(30))
    world.serve("a", 0.0)
    world.serve("b", 0.0)
    world.advance(10.5)
    tokens = world.metrics("b").counters["generation_tokens"]  # type: ignore[union-attr]
    world.suspend("b", 10.5)
    world.advance(20.0)
    assert world.count(Phase.UNREADY) == 1
    assert world.replica("b").drained  # type: ignore[union-attr]
    world.serve("b", 20.0)
    world.advance(40.0)
    assert world.metrics("b").counters["generation_tokens"] > tokens  # type: ignore[union-attr]
    assert world.ledger.fates[Fate.FINISHED] == 30


def test_every_arrival_is_accounted_for() -> None:
    world = fleet(*steady(200, every=0.2))
    world.serve("a", 5.0)
    world.order("b", 6.0)
    world.serve("b", 12.0)
    world.drain("a", 20.0)
    world.remove("a", 21.0)
    world.advance(41.0)
    assert world.ledger.arrived == 200 == world.ledger.ended + world.in_flight


def test_how_often_time_is_looked_at_changes_nothing() -> None:
    trace = poisson("steady", [3.0], 120.0, prompt=800, output=150, seed=3)

    def run(step: float) -> tuple[int, float | None, tuple[float, float]]:
        world = fleet()
        world.serve("a", 0.0)
        world.serve("b", 0.0)
        world.open(replay(trace, 0.0))
        for moment in np.arange(step, 120.0 + step / 2, step):
            world.advance(float(moment))
        return world.ledger.ended, world.ledger.attainment, world.tokens()

    assert run(0.25) == run(7.5) == run(120.0)


def test_tokens_of_replicas_that_are_gone_are_kept() -> None:
    world = fleet(*steady(5))
    world.serve("a", 0.0)
    world.advance(30.0)
    before = world.tokens()
    world.remove("a", 30.0)
    assert world.tokens() == before == (2500.0, 250.0)


def test_a_static_fleet_attains_what_the_simulator_says() -> None:
    trace = azure2023_conv().between(1200.0, 1500.0)
    world = fleet(*islice(replay(trace, 0.0), len(trace)))
    for name in ("a", "b", "c"):
        world.serve(name, 0.0)
    world.advance(900.0)
    simulated = simulate(trace, PROFILE, Pool(SLO, 1, 8), Static(3), SimulationOptions(initial_replicas=3)).score
    assert world.ledger.ended == simulated.requests == len(trace)
    assert world.ledger.attainment == pytest.approx(simulated.attainment, abs=0.005)
    assert world.replica_seconds == pytest.approx(3 * 900.0)
