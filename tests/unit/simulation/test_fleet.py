from __future__ import annotations

import numpy as np
import pytest

from servingpool_simulation import page, traces
from servingpool_simulation.fleet import ColdStart, Fleet, Phase, Routing
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.tables import FINISHED, TURNED_AWAY

H100 = engine_profile("h100-8b-tp1")
STEADY = traces.poisson("steady", [4.0], 400.0, prompt=500, output=100, seed=1)
SLOW_LOAD = ColdStart(mean=100.0, jitter=0.0)


def a_fleet(trace: traces.Trace = STEADY, *, cold_start: ColdStart = SLOW_LOAD, **options: object) -> Fleet:
    return Fleet(H100, trace, cold_start, **options)  # type: ignore[arg-type]


def test_replicas_are_paid_for_while_they_load_and_while_they_drain() -> None:
    fleet = a_fleet(traces.poisson("long", [1.0], 20.0, prompt=500, output=2000))
    fleet.start_ready(1)
    fleet.scale(2)
    fleet.advance(50.0)
    assert fleet.paid_for(0.0, 50.0) == 100.0  # one serves, one loads
    fleet.scale(1)
    assert fleet.paid_for(0.0, 50.0) == 100.0
    fleet.advance(60.0)
    assert fleet.paid_for(50.0, 60.0) == 10.0  # what only loaded is let go at once


def test_a_draining_replica_finishes_what_it_has_and_is_then_released() -> None:
    trace = traces.Trace("one", np.array([1.0, 1.1]), np.array([500, 500]), np.array([2000, 2000]), 30.0)
    fleet = a_fleet(trace)
    fleet.start_ready(2)
    fleet.advance(2.0)
    fleet.scale(1)
    fleet.advance(30.0)
    (victim,) = [replica for replica in fleet.replicas if replica.phase is Phase.GONE]
    assert (fleet.requests.status == FINISHED).all()
    assert victim.released_at in fleet.requests.finished
    assert fleet.paid_for(0.0, 30.0) == pytest.approx(30.0 + victim.released_at)


def test_what_a_pod_has_not_finished_after_its_grace_period_is_lost() -> None:
    trace = traces.Trace("one", np.array([1.0, 1.1]), np.array([500, 500]), np.array([2000, 4000]), 60.0)
    fleet = a_fleet(trace, grace=5.0)
    fleet.start_ready(2)
    fleet.advance(2.0)
    fleet.scale(1)
    for tick in range(3, 61):
        fleet.advance(float(tick))
    (killed,) = [replica for replica in fleet.replicas if replica.phase is Phase.GONE]
    assert killed.released_at == 7.0, "5 s after 2 s"
    assert sorted(fleet.requests.status) == sorted([FINISHED, TURNED_AWAY])
    assert fleet.lost == 1


def test_a_draining_replica_gets_no_new_request() -> None:
    fleet = a_fleet(traces.poisson("long", [4.0], 60.0, prompt=500, output=2000))
    fleet.start_ready(2)
    fleet.advance(10.0)
    fleet.scale(1)
    fleet.advance(11.0)
    (draining,) = fleet.of(Phase.DRAINING)
    before = fleet.state.page[draining.row, page.PROMPT_TOKENS]
    fleet.advance(20.0)
    assert draining.phase is Phase.DRAINING
    assert fleet.state.page[draining.row, page.PROMPT_TOKENS] == before
    fleet.advance(60.0)
    assert draining.phase is Phase.GONE


def test_those_that_load_go_first_and_then_the_youngest() -> None:
    fleet = a_fleet()
    fleet.start_ready(2)
    fleet.scale(3)
    fleet.advance(150.0)
    fleet.scale(5)
    fleet.advance(160.0)
    fleet.scale(4)
    assert [r.name for r in fleet.of(Phase.LOADING)] == ["replica-3"]
    fleet.scale(2)
    assert [r.name for r in fleet.of(Phase.READY)] == ["replica-0", "replica-1"]
    assert [r.name for r in fleet.of(Phase.DRAINING)] == ["replica-2"]


def test_cold_starts_vary_by_seed_and_not_by_what_happened_before() -> None:
    cold_start = ColdStart(mean=100.0, jitter=0.25)
    drawn = [cold_start.draw(seed=3, ordinal=k) for k in range(200)]
    assert 75 <= min(drawn) < 85
    assert 115 < max(drawn) <= 125
    assert drawn[7] == cold_start.draw(seed=3, ordinal=7) != cold_start.draw(seed=4, ordinal=7)


def test_requests_wait_at_the_front_door_until_a_replica_is_ready_and_that_counts() -> None:
    fleet = a_fleet()
    fleet.scale(1)
    fleet.advance(99.0)
    assert fleet.front_door == fleet.arrived == fleet.in_flight() > 300
    fleet.advance(400.0)
    assert fleet.front_door == 0
    q = fleet.requests
    early = q.arrival < 90
    assert ((q.first - q.arrival)[early] > 10).all()
    # The engine itself knows nothing of the front door.
    assert (q.received[early] == 100.0).all()


def test_round_robin_takes_turns_and_least_loaded_evens_out() -> None:
    lengths = np.where(np.arange(60) % 2, 3000, 10)
    trace = traces.Trace("odd ones are long", np.linspace(0.0, 29.5, 60), np.full(60, 100), lengths, 100.0)

    def in_flight(routing: Routing) -> list[int]:
        fleet = a_fleet(trace, routing=routing)
        fleet.start_ready(2)
        fleet.advance(29.9)
        return fleet.state.engines.in_flight[:2].tolist()  # type: ignore[no-any-return]

    assert max(in_flight(Routing.ROUND_ROBIN)) >= 25
    assert max(in_flight(Routing.LEAST_LOADED)) - min(in_flight(Routing.LEAST_LOADED)) <= 1


def test_every_request_of_the_trace_is_accounted_for_whatever_the_fleet_does() -> None:
    fleet = a_fleet()
    fleet.start_ready(1)
    random = np.random.default_rng(0)
    for now in range(10, 400, 10):
        fleet.advance(float(now))
        assert fleet.arrived == fleet.in_flight() + int((fleet.requests.status == FINISHED).sum())
        fleet.scale(int(random.integers(0, 6)))
    fleet.scale(1)
    fleet.advance(1000.0)
    assert (fleet.requests.status == FINISHED).all()
    assert fleet.tokens() == (fleet.requests.prompt.sum(), fleet.requests.output.sum())


def test_a_row_that_is_used_again_starts_with_an_empty_page() -> None:
    fleet = a_fleet(cold_start=ColdStart(mean=5.0, jitter=0.0))
    fleet.start_ready(2)
    fleet.advance(50.0)
    fleet.scale(1)
    fleet.advance(60.0)
    gone = fleet.replicas[1]
    fleet.scale(9)
    fleet.advance(66.0)
    (heir,) = [r for r in fleet.of(Phase.READY) if r.row == gone.row]
    assert heir.ready_at == 65.0
    assert fleet.state.page[heir.row, page.GENERATION_TOKENS] < 4000


def test_without_a_replica_the_gateway_holds_requests_for_a_while_and_turns_them_away_then() -> None:
    trace = traces.Trace("three", np.array([1.0, 50.0, 90.0]), np.array([500] * 3), np.array([20] * 3), 200.0)
    fleet = a_fleet(trace, holds_for=60.0)
    fleet.advance(10.0)
    fleet.scale(1)  # ready at 110 s
    fleet.advance(200.0)
    assert fleet.requests.status.tolist() == [TURNED_AWAY, TURNED_AWAY, FINISHED]
    assert fleet.requests.finished[:2].tolist() == [61.0, 110.0]
    assert fleet.requests.first[2] > 110.0
