"""Several kinds of replicas in one fleet: nothing is lost, one kind is as before, nodes run out and vanish."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import orjson
import pytest

from servingpool.decision.observation import Observation, Ordered
from servingpool.decision.pool import Pool, Slo
from servingpool_simulation import page, traces
from servingpool_simulation.fleet import ColdStart, Phase, Routing
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.kinds import Kind, pool_of
from servingpool_simulation.mix import best_static_mix, simulate_mix, static_mix
from servingpool_simulation.mixed_fleet import MixedFleet, MixedScraper
from servingpool_simulation.policies import Answer, Ours, Schedule, Static
from servingpool_simulation.run import SimulationOptions, simulate
from servingpool_simulation.tables import FINISHED, TURNED_AWAY

H100, L40S = engine_profile("h100-8b-tp1"), engine_profile("l40s-8b-tp1")
SURE = ColdStart(100.0, 0.0)
FAST, SLOW = Kind("h100", H100, 4.0, SURE), Kind("l40s", L40S, 1.0, SURE)
SLO = Slo(2.0, 0.1)
CONV = traces.azure2023_conv()
TEN_MINUTES = CONV.between(0.0, 600.0)
LONG = traces.poisson("long", [4.0], 400.0, prompt=500, output=2000, seed=1)


def a_fleet(*kinds: Kind, parts: tuple[int, ...], trace: traces.Trace = LONG, **options: object) -> MixedFleet:
    fleet = MixedFleet(kinds[0].profile, trace, kinds=kinds, **options)  # type: ignore[arg-type]
    fleet.start_mixed(parts)
    return fleet


def of_kind(fleet: MixedFleet, kind: int, *phases: Phase) -> int:
    return sum(replica.kind == kind for replica in fleet.of(*phases))


def pending(fleet: MixedFleet) -> list[str]:
    return [replica.name for replica in fleet.of(Phase.LOADING) if replica.ready_at == math.inf]


class TestOneKind:
    def test_is_to_the_last_bit_what_a_fleet_of_one_kind_is(self) -> None:
        options = SimulationOptions(initial_replicas=1, seed=3, history=120.0)
        kind = Kind("h100", H100, 4.0, options.cold_start)
        slo = Slo(1.0, 0.04)
        one = simulate(TEN_MINUTES, H100, Pool(slo, 1, kind.most), Ours(), options)
        mix = simulate_mix(TEN_MINUTES, (kind,), Ours(), slo, options, (1,))
        as_one = replace(mix.result, score=replace(mix.result.score, cost=None))
        assert orjson.dumps(as_one.to_dict()) == orjson.dumps(one.to_dict())
        assert np.array_equal(mix.result.outcomes.ended, one.outcomes.ended, equal_nan=True)
        assert mix.dollars == pytest.approx(4.0 * one.score.replica_hours)

    @pytest.mark.parametrize("routing", Routing)
    def test_under_two_names_serves_each_request_as_one_fleet_does(self, routing: Routing) -> None:
        options = SimulationOptions(initial_replicas=4, routing=routing)
        one = simulate(TEN_MINUTES, L40S, Pool(SLO, 1, 8), Static(4), options).outcomes
        kinds = (SLOW, replace(SLOW, name="spot"))
        two = simulate_mix(TEN_MINUTES, kinds, Schedule([(2, 2)]), SLO, options, (2, 2)).result.outcomes
        assert np.array_equal(two.ttft, one.ttft)
        assert np.array_equal(two.ended, one.ended)


class TestSeveralKinds:
    def test_each_runs_at_its_own_step_times(self) -> None:
        trace = traces.Trace("two", np.array([1.0, 1.1]), np.array([500, 500]), np.array([200, 200]), 60.0)
        fleet = a_fleet(FAST, SLOW, parts=(1, 1), trace=trace)
        fleet.advance(60.0)
        fast, slow = fleet.requests.finished - fleet.requests.arrival
        for profile, seconds in ((H100, fast), (L40S, slow)):
            alone = a_fleet(Kind("alone", profile, 1.0), parts=(2,), trace=trace)
            alone.advance(60.0)
            assert seconds == pytest.approx((alone.requests.finished - alone.requests.arrival)[0])
        assert slow > 2.0 * fast

    def test_least_loaded_gives_the_faster_kind_more_and_round_robin_does_not(self) -> None:
        served = {}
        for routing in Routing:
            fleet = a_fleet(FAST, SLOW, parts=(1, 1), trace=TEN_MINUTES, routing=routing)
            fleet.advance(600.0)
            served[routing] = fleet.state.page[[one.row for one in fleet.replicas], page.GENERATION_TOKENS].tolist()
        assert served[Routing.ROUND_ROBIN][0] < 1.2 * served[Routing.ROUND_ROBIN][1]
        assert served[Routing.LEAST_LOADED][0] > 1.5 * served[Routing.LEAST_LOADED][1]

    def test_no_request_is_lost_or_counted_twice_while_nodes_come_and_vanish(self) -> None:
        trace = CONV.between(0.0, 1800.0)
        spot = Kind("spot", H100, 1.0, SURE, supply=((0.0, 3), (700.0, 0), (1200.0, 2)), notice=1.0)
        fleet = a_fleet(replace(FAST, supply=((0.0, 3),)), spot, SLOW, parts=(1, 2, 1), trace=trace)
        random = np.random.default_rng(5)
        for now in np.arange(15.0, 1800.0, 15.0).tolist():
            fleet.advance(now)
            parts = tuple(random.integers((0, 1, 0), 4).tolist())
            if random.random() < 0.2:
                fleet.scale(sum(parts), parts)
            standing = len(fleet.of(Phase.LOADING, Phase.READY, Phase.DRAINING)) - len(pending(fleet))
            assert 0 <= standing == sum(replica.paid_from < math.inf for replica in fleet._alive)
        fleet.scale(3, (2, 0, 1))
        fleet.advance(6000.0)
        q = fleet.requests
        assert set(q.status.tolist()) <= {FINISHED, TURNED_AWAY}
        assert (q.status == TURNED_AWAY).sum() == fleet.lost > 0
        assert fleet.tokens()[0] == q.prompt[~np.isnan(q.first)].sum()
        assert fleet.in_flight() == fleet.queued() == 0

    def test_cost_what_the_replicas_of_each_cost(self) -> None:
        run = static_mix(TEN_MINUTES, (FAST, SLOW), (1, 2), SLO, SimulationOptions())
        assert run.hours == pytest.approx((1 / 6, 2 / 6))
        assert run.dollars == run.result.score.cost == pytest.approx((4.0 + 2.0) / 6)

    def test_count_an_order_for_each_kind_that_a_decision_changes(self) -> None:
        policy = Schedule([(1, 1), (1, 1), (2, 0)])
        run = simulate_mix(TEN_MINUTES, (FAST, SLOW), policy, SLO, SimulationOptions(), (0, 1))
        assert run.orders == 3
        assert [moment.requested for moment in run.course[:4]] == [(1, 1), (1, 1), (2, 0), (2, 0)]

    def test_are_shown_with_their_target_and_what_is_ordered_of_each(self) -> None:
        fleet = a_fleet(FAST, replace(SLOW, supply=((0.0, 2),)), parts=(1, 1), trace=TEN_MINUTES)
        scraper = MixedScraper(fleet, SLO)
        fleet.scale(4, (1, 3))
        scraper.arm(15.0)
        fleet.advance(15.0)
        seen = scraper.observe()
        assert seen.requested == 4
        assert seen.targets == (Ordered("h100", 1), Ordered("l40s", 3))
        assert [replica.target for replica in seen.ready] == ["h100", "l40s"]
        assert [(one.target, one.unschedulable) for one in seen.starting] == [("l40s", False), ("l40s", True)]

    def test_need_parts_from_a_policy(self) -> None:
        with pytest.raises(ValueError, match="0 or more of each of 2 kinds"):
            simulate_mix(TEN_MINUTES, (FAST, SLOW), Static(2), SLO, SimulationOptions())

    def test_make_a_pool_with_targets_and_one_makes_a_pool_without(self) -> None:
        pool = pool_of((replace(FAST, base=2, most=3), SLOW), SLO)
        assert (pool.min_replicas, pool.max_replicas) == (2, 3 + SLOW.most)
        assert [(target.name, target.price, target.base) for target in pool.targets] == [
            ("h100", 4.0, 2),
            ("l40s", 1.0, 0),
        ]
        assert pool_of((FAST,), SLO) == Pool(SLO, 1, FAST.most)


class TestNodes:
    def test_a_pod_without_a_node_waits_unpaid_and_starts_when_one_is_free(self) -> None:
        kind = replace(FAST, supply=((0.0, 2),))
        fleet = a_fleet(kind, SLOW, parts=(2, 0))
        fleet.scale(3, (3, 0))
        fleet.advance(15.0)
        assert pending(fleet) == ["replica-2"]
        assert fleet.dollars(0.0, 15.0) == pytest.approx(4.0 * 2 * 15.0 / 3600.0)
        fleet.scale(2, (2, 0))
        assert pending(fleet) == []
        fleet.advance(30.0)
        assert of_kind(fleet, 0, Phase.READY) == 2

    def test_nodes_that_come_are_given_to_the_oldest_pods_and_cost_a_cold_start(self) -> None:
        fleet = a_fleet(replace(FAST, supply=((0.0, 1), (20.0, 2))), parts=(1,))
        fleet.scale(3)
        fleet.advance(40.0)
        assert pending(fleet) == ["replica-2"]
        (loading,) = [replica for replica in fleet.of(Phase.LOADING) if replica.ready_at < math.inf]
        assert (loading.name, loading.created_at, loading.ready_at) == ("replica-1", 0.0, 120.0)
        fleet.advance(120.0)
        assert of_kind(fleet, 0, Phase.READY) == 2

    def test_a_node_in_use_stays_where_there_is_no_notice(self) -> None:
        fleet = a_fleet(replace(FAST, supply=((0.0, 3), (50.0, 1))), parts=(3,))
        fleet.advance(100.0)
        assert of_kind(fleet, 0, Phase.READY) == 3


class TestSpot:
    SPOT = Kind("spot", H100, 1.0, SURE, supply=((0.0, 2), (200.0, 0), (350.0, 1)), notice=120.0)

    def test_a_vanishing_node_drains_for_two_minutes_and_its_requests_are_lost(self) -> None:
        slow = traces.poisson("slow", [1.0], 400.0, prompt=500, output=20_000, seed=1)
        fleet = a_fleet(self.SPOT, FAST, parts=(2, 1), trace=slow)
        fleet.advance(79.0)
        assert of_kind(fleet, 0, Phase.READY) == 2
        fleet.advance(80.0)
        assert of_kind(fleet, 0, Phase.DRAINING) == 2
        assert pending(fleet) == []
        in_flight = fleet.state.engines.in_flight[[replica.row for replica in fleet.of(Phase.DRAINING)]].sum()
        fleet.advance(199.0)
        assert fleet.lost == 0
        fleet.advance(200.0)
        assert fleet.lost == in_flight > 0
        assert (fleet.requests.finished[fleet.requests.status == TURNED_AWAY] == 200.0).all()
        assert of_kind(fleet, 0, Phase.DRAINING) == 0
        assert len(pending(fleet)) == 2
        assert fleet.hours(0, 0.0, 400.0) == pytest.approx(2 * 200.0 / 3600.0)

    def test_another_pod_is_made_when_the_old_one_is_gone_and_starts_when_a_node_is_back(self) -> None:
        fleet = a_fleet(self.SPOT, FAST, parts=(2, 2))
        fleet.advance(150.0)
        gone = 2 - of_kind(fleet, 0, Phase.DRAINING)
        assert len(pending(fleet)) == gone
        fleet.advance(340.0)
        assert len(pending(fleet)) == 2
        fleet.advance(470.0)
        assert of_kind(fleet, 0, Phase.READY) == 1
        assert fleet.spec == [2, 2]

    def test_an_eviction_makes_the_other_pod_at_once(self) -> None:
        fleet = a_fleet(replace(self.SPOT, evicts=True), FAST, parts=(2, 1))
        fleet.advance(80.0)
        assert of_kind(fleet, 0, Phase.DRAINING) == len(pending(fleet)) == 2

    def test_a_scale_down_meanwhile_is_not_undone(self) -> None:
        fleet = a_fleet(self.SPOT, FAST, parts=(2, 1))
        fleet.advance(90.0)
        fleet.scale(1, (0, 1))
        fleet.advance(400.0)
        assert of_kind(fleet, 0, Phase.LOADING, Phase.READY, Phase.DRAINING) == 0

    def test_the_supply_is_told_from_the_scored_time(self) -> None:
        for history in (0.0, 150.0):
            watching = Watching([(2, 1)])
            simulate_mix(LONG, (self.SPOT, FAST), watching, SLO, SimulationOptions(history=history), (2, 1))
            assert watching.ready[5:7] == [3, 1]  # told 80 s after the first decision, which comes at 0 s


@dataclass(slots=True)
class Watching(Schedule):
    """Notes how many are Ready at each decision."""

    ready: list[int] = field(default_factory=list)

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        self.ready.append(len(observation.ready))
        return Schedule.decide(self, observation, pool, now)


def test_the_best_static_mix_is_the_cheapest_of_all_that_attain() -> None:
    trace, options = CONV.between(600.0, 1200.0), SimulationOptions()
    kinds = (replace(FAST, most=2, price=3.3), replace(SLOW, most=5))
    found = best_static_mix(trace, kinds, SLO, options)
    assert found is not None
    runs = {(a, b): static_mix(trace, kinds, (a, b), SLO, options) for a in range(3) for b in range(6) if a + b}
    assert found[1].dollars == min(run.dollars for run in runs.values() if run.attains)
    assert best_static_mix(trace, (replace(SLOW, most=1),), SLO, options) is None
