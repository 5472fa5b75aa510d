"""What the core does in the situations that wake people up."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

import numpy as np
import pytest

from servingpool.catalogue.limits import LimitName
from servingpool.decision.decide import decide, learn
from servingpool.decision.decision import Verdict
from servingpool.decision.learn.error_budget import ErrorBudget
from servingpool.decision.learn.memory import Memory
from servingpool.decision.learn.miss_curve import posterior
from servingpool.decision.observation import Histogram, ReplicaMetrics, Unknown
from servingpool.decision.observe.columns import DEMAND, OFFERED, Column
from servingpool.decision.params import DEFAULT, REMEMBERED, Params
from servingpool.decision.pool import Slo

from ..reconcile.kept import kept  # noqa: TID252, tests are no package of an installed name
from .world import ENGINE, POOL, Engine, World, applied, plain, restored


def test_the_first_observation_holds_and_says_that_the_need_is_unknown():
    outcome = World(replicas=3).tick(5.0)
    assert outcome.decision.replicas == 3
    assert outcome.decision.verdict is Verdict.HOLD
    assert isinstance(outcome.decision.need, Unknown)
    assert "unknown" in outcome.decision.reason


def test_grows_when_load_rises_and_shrinks_when_it_is_gone():
    world = World(replicas=2)
    world.run(8.0, 20)
    before = world.requested
    world.run(45.0, 15)
    grown = world.requested
    world.run(1.0, 120)
    assert before < grown
    # A surge of an hour ago may come again, and part of the fleet is kept for it.
    assert world.requested < grown
    world.run(1.0, 60)
    assert world.requested == 1


def test_never_scales_down_while_blind_however_long():
    world = World(replicas=4)
    world.run(30.0, 20)
    before, world.blind = world.requested, True
    outcomes = world.run(0.0, 60)
    assert {outcome.decision.replicas for outcome in outcomes} == {before}
    assert all("Prometheus did not answer" in outcome.decision.reason for outcome in outcomes)


def test_partial_metrics_still_allow_growth():
    world = World(replicas=3)
    world.run(10.0, 15)
    world.lost = {world.engines[0].name}
    outcomes = world.run(60.0, 10)
    assert max(outcome.decision.replicas for outcome in outcomes) > 3


def test_partial_metrics_stop_a_scale_down_and_say_so():
    world = World(replicas=6, obey=False)
    world.run(2.0, 15)
    world.lost = {world.engines[0].name}
    outcome = world.tick(2.0)
    assert outcome.decision.replicas == 6
    assert LimitName.PARTIAL in applied(outcome)


def test_nothing_is_removed_while_calibrating_even_where_fewer_would_do():
    world = World(replicas=6, pool=replace(POOL, params=Params(calibration=1800.0)))
    outcomes = world.run(1.0, 28)
    assert all(outcome.decision.replicas == 6 for outcome in outcomes)
    assert LimitName.CALIBRATING in applied(outcomes[-1])
    assert outcomes[-1].decision.calibrating
    assert min(outcome.decision.replicas for outcome in world.run(1.0, 60)) < 6


def test_rollout_removes_nothing():
    world = World(replicas=6, rollout=True)
    outcomes = world.run(1.0, 20)
    assert all(outcome.decision.replicas == 6 for outcome in outcomes)
    assert LimitName.ROLLOUT in applied(outcomes[-1])


def test_unschedulable_replicas_stop_further_orders():
    world = World(replicas=2, unschedulable=True)
    world.run(10.0, 10)
    first = world.run(80.0, 4)
    assert not any(LimitName.UNSCHEDULABLE in applied(outcome) for outcome in first)
    outcomes = world.run(80.0, 30)
    stuck = [outcome for outcome in outcomes if LimitName.UNSCHEDULABLE in applied(outcome)]
    assert stuck
    assert f"scale-up stops at {stuck[-1].decision.replicas}: " in stuck[-1].decision.reason
    assert all(outcome.decision.replicas == world.requested for outcome in stuck)


def test_scale_down_waits_for_its_window():
    world = World(replicas=4)
    world.run(45.0, 15)
    high = world.requested
    first_minute = world.run(5.0, 1)
    assert all(outcome.decision.replicas >= high for outcome in first_minute)
    world.run(5.0, 20)
    assert world.requested < high


def test_a_fleet_that_loses_a_replica_from_time_to_time_is_planned_with_the_rest():
    world = World(replicas=3, obey=False)
    for crashed in (True, False, True, False, True):
        world.run(20.0, 27)
        world.away = [world.engines.pop()]
        assert "vllm-3 served and is not Ready" in world.run(20.0, 3)[-1].decision.reason
        back = world.away.pop()
        world.engines.append(Engine(back.name, world.now) if crashed else replace(back, ready_at=world.now))
        assert world.run(20.0, 3)[-1].decision.figures.arrivals == pytest.approx(20.0, rel=0.1), "none counts twice"
    decision = world.run(20.0, 5)[-1].decision
    assert decision.figures.burst == pytest.approx(1.5 * 20.0 * ENGINE.work(1000.0, 200.0), rel=0.05), "as two of three"


def test_deciding_twice_at_the_same_time_changes_nothing():
    world = World(replicas=2, obey=False)
    world.run(12.0, 12)
    first = world.tick(12.0)
    again = decide(world.observation(), world.pool, first.memory, world.now)
    assert again == first
    assert plain(again.memory) == plain(first.memory)


def test_the_next_observation_is_compared_with_what_the_last_decision_predicted():
    world = World(replicas=3)
    world.run(12.0, 12)
    first = world.tick(12.0).memory
    step = first.profile.engine.fit.solve(DEFAULT)
    assert step is not None
    believed = posterior(first.profile.curve, world.pool, step)
    assert first.predicted_by is not None
    assert np.array_equal(first.predicted_by.miss, believed.miss)
    # Twice the traffic: 24 x (0.00007 x 1000 + 0.00008 x 200) = 2.06 busy replicas on three, of which 0.2% were late.
    second = world.tick(24.0, seconds=15.0).memory
    known = second.step_time(world.pool)
    assert known is not None
    level = known.work(*second.window.rows[-1, DEMAND].tolist())
    predicted = min(1.0, float(believed.cost(np.array([level / 3.0]))[0]))
    window = second.window.last(600.0)
    weight = 24.0 * 15.0 / (window.sums[Column.TTFT_COUNT] * 15.0 / window.seconds)
    expected = first.profile.calibration.update(predicted=predicted, observed=0.002, weight=weight, elapsed=15.0)
    found = second.profile.calibration
    assert (found.predicted, found.observed) == pytest.approx((expected.predicted, expected.observed), rel=1e-3)
    assert found != first.profile.calibration


def test_a_prediction_that_was_not_kept_is_found_again_from_the_rest():
    world = World(replicas=3)
    world.run(12.0, 12)
    resumed = replace(restored(world.tick(12.0).memory), predicted_by=None)
    live = world.tick(24.0).memory
    again = decide(world.observation(), world.pool, resumed, world.now).memory
    assert plain(again) == plain(live)
    assert again.profile.calibration != resumed.profile.calibration


def test_a_memory_that_was_pickled_decides_the_same():
    world = World(replicas=2)
    world.run(12.0, 12)
    copy = restored(world.memory)
    assert plain(copy) == plain(world.memory)
    world.now += 15.0
    first, second = (decide(world.observation(), world.pool, one, world.now) for one in (copy, world.memory))
    assert first.decision == second.decision
    assert plain(first.memory) == plain(second.memory)


def test_replicas_that_turn_ready_do_not_raise_the_demand():
    world = World(replicas=3)
    world.run(20.0, 60)
    previous = world.memory
    world.tick(20.0)
    usual = world.memory.profile.forecast.mean.steps
    for engine in world.engines:
        engine.serve(20.0 / len(world.engines), 15.0, 1000.0, 200.0)
    world.now += 15.0
    world.engines += [world._engine(world.now - 1.0) for _ in range(7)]
    memory = decide(world.observation(), world.pool, world.memory, world.now).memory
    row, before = memory.window.rows[-1], world.memory.window.rows[-1]
    assert row[DEMAND][1] == pytest.approx(usual, rel=0.3), "not twice of it"
    load, then = (each[OFFERED][1] / each[Column.READY] for each in (row, before))
    assert load == pytest.approx(then, rel=0.3), "nor is the load a third: the old replicas carried it"
    sums = [each.profile.calibration.predicted for each in (previous, world.memory, memory)]
    last, this = (now - before * math.exp(-15.0 / REMEMBERED) for before, now in pairwise(sums))
    assert this == pytest.approx(last, rel=0.4)


def test_history_teaches_the_same_as_live_ticks():
    live, past = World(replicas=3, obey=False), World(replicas=3, obey=False)
    live.run(20.0, 20)
    memory = Memory()
    for _ in range(80):
        for engine in past.engines:
            engine.serve(20.0 / 3, 15.0, 1000.0, 200.0)
        past.now += 15.0
        memory = learn(past.observation(), past.pool, memory, past.now)
    assert memory.profile.engine.fit == live.memory.profile.engine.fit
    assert memory.profile.curve == live.memory.profile.curve


def test_the_budget_does_not_wind_up_in_recommend():
    world = World(replicas=1, pool=replace(POOL, in_charge=False), obey=False)
    world.run(45.0, 30)
    assert world.memory.profile.budget == ErrorBudget()


def test_misses_of_days_turn_the_plan_unless_pods_are_unschedulable():
    turned = {}
    for stuck in (False, True):
        world = World(replicas=2, unschedulable=stuck, pool=replace(POOL, max_replicas=40))
        world.run(5.0, 40)
        assert world.memory.profile.budget.slow < 0.0, "nothing is missed"
        before = world.memory.profile.budget.slow
        world.scale(3)
        world.run(60.0, 60)
        turned[stuck] = world.memory.profile.budget.slow - before
    assert turned[False] > 0.3
    assert turned[True] <= 0.01  # a part of what was saved is forgotten


def test_editing_the_slo_does_not_shrink_the_fleet():
    def begun() -> World:
        world = World(replicas=4)
        world.run(35.0, 20)
        return world

    for slo in (Slo(1.0, 0.1), Slo(5.0, 0.1), Slo(None, 0.1), Slo(2.0, 0.15), Slo(2.0, 0.1, 0.97)):
        world = kept("stories, 35 requests/s", begun)
        before = world.requested
        world.pool = replace(POOL, slo=slo)
        assert world.memory.profile.budget != ErrorBudget()
        first = world.tick(35.0)
        assert abs(first.memory.profile.budget.slow) < 20 * 15.0 / 3600.0, "of the new SLO's first tick only"
        outcomes = [first, *world.run(35.0, 30)]
        assert min(outcome.decision.replicas for outcome in outcomes) >= min(before, 4) - 1
        assert max(engine.waiting for engine in world.engines) < 50


def test_a_new_slo_drops_the_misses_of_the_old_one():
    world = World(replicas=4, obey=False)
    world.run(35.0, 20)
    engine, curve = world.memory.profile.engine.fit, world.memory.profile.curve
    world.pool = replace(POOL, slo=Slo(0.5, 0.1))
    world.tick(35.0)
    assert sum(world.memory.profile.curve.requests) < 0.1 * sum(curve.requests)
    assert world.memory.profile.engine.fit.windows >= engine.windows - 1


def test_no_ready_replica_is_no_sign_of_no_demand():
    world = World(replicas=4)
    world.run(25.0, 20)
    before = world.requested
    gone, world.engines = world.engines, []
    world.ordered = [world.now] * before
    for outcome in world.run(25.0, 1.5):
        assert outcome.decision.replicas == before
        assert "no replica is ready" in outcome.decision.reason
    assert gone


def test_time_without_metrics_is_no_calibration():
    world = World(replicas=6, blind=True)
    world.run(2.0, 10)
    world.blind = False
    outcomes = world.run(2.0, 4)
    assert all(outcome.decision.replicas == 6 for outcome in outcomes)


def test_a_clock_that_is_set_back_empties_the_windows():
    world = World(replicas=2)
    world.run(10.0, 20)
    world.now -= 1800.0
    outcomes = world.run(60.0, 10)
    assert max(outcome.decision.replicas for outcome in outcomes) > 2
    judged = sum(requests for _, requests, _ in world.memory.score)
    assert judged <= 60.0 * 600.0, "nor are ten minutes added to the hour of before"


def test_every_decision_gives_a_reason_with_figures():
    world = World(replicas=2)
    for outcome in world.run(20.0, 10)[8:]:
        assert "requests/s" in outcome.decision.reason
        assert "(cold start) traffic should keep" in outcome.decision.reason
        assert outcome.decision.reason.startswith(("hold", "scale up", "scale down"))


def test_holds_its_size_when_a_burst_ends_before_a_replica_could_load():
    world = World(replicas=3, pool=replace(POOL, max_replicas=30))
    world.run(10.0, 20)
    sizes = []
    for _ in range(14):  # bursts of 45 s, each ten minutes; a cold start takes 100 s
        during, after = world.run(40.0, 0.75), world.run(10.0, 9.25)
        sizes.append({outcome.decision.replicas for outcome in during + after})
    # What a replica could not be loaded for in time is no reason to order one: once that is learned, nothing moves.
    assert all(len(size) == 1 for size in sizes[8:])
    assert len(set.union(*sizes[8:])) == 1


def test_keeps_the_initial_fleet_until_enough_was_observed():
    world = World(replicas=6)
    early = world.run(10.0, 20)
    assert min(outcome.decision.replicas for outcome in early) == 6
    world.run(10.0, 100)
    assert world.requested < 6


def test_steps_are_met_with_spare_replicas_after_the_first():
    world = World(replicas=2, pool=replace(POOL, max_replicas=30))
    world.run(5.0, 30)
    spare, missed = [], []
    for _ in range(3):  # 40 requests/s keep 3.4 replicas busy
        spare.append(world.requested)
        before = sum(engine.waiting for engine in world.engines)
        queues = []
        for _ in range(80):
            world.tick(40.0)
            queues.append(sum(engine.waiting for engine in world.engines))
        missed.append(max(queues) - before)
        world.run(5.0, 20)
    assert spare[1] > spare[0]
    assert spare[2] > spare[0]
    assert missed[0] > 100
    assert missed[1:] == [0.0, 0.0]


def test_an_slo_below_the_step_time_warns_and_does_not_run_to_max():
    world = World(replicas=3, pool=replace(POOL, max_replicas=40, slo=Slo(2.0, 0.010)))
    outcomes = world.run(12.0, 30)
    assert max(outcome.decision.replicas for outcome in outcomes) < 40
    assert world.requested < 8
    # The engine takes 16 ms.
    assert "Time per output token 10 ms cannot be held at any fleet size" in str(outcomes[-1].decision.warning)
    assert "even an idle engine takes 16 ms" in str(outcomes[-1].decision.warning)


def test_a_max_that_is_too_small_is_the_last_limit_and_leaves_the_raw_need():
    world = World(replicas=2, pool=replace(POOL, max_replicas=3))
    calm = world.run(8.0, 20)
    assert float(str(calm[-1].decision.need)) <= 3.0
    short = world.run(80.0, 20)  # 6.9 replicas kept busy
    assert float(str(short[-1].decision.need)) > 6.9
    assert short[-1].decision.limits[-1].reason == "max is 3"
    assert short[-1].decision.replicas == 3


def test_a_large_fleet_is_not_moved_by_a_replica_or_two():
    world = World(replicas=300, pool=replace(POOL, max_replicas=600), obey=False)
    need = world.run(2000.0, 10)[-1].decision.need
    assert not isinstance(need, Unknown)
    for missing, moved in ((1, False), (2, False), (-2, False), (math.ceil(0.03 * need), True)):
        observed = replace(world.observation(), requested=int(need) - missing)
        outcome = decide(observed, world.pool, world.memory, world.now)
        assert outcome.decision.need == need
        assert (outcome.decision.verdict is not Verdict.HOLD) == moved
        assert bool(applied(outcome)) != moved


def mean_fleet(world: World, random: np.random.Generator, minutes: int, *, spread: float) -> float:
    """Of the last hour, at 60 requests/s that differ from tick to tick by so much of them."""
    loads = 60.0 * np.exp(random.normal(-(spread**2) / 2.0, spread, size=4 * minutes))
    return fmean([world.tick(load).decision.replicas for load in loads.tolist()][-4 * 60 :])


def test_an_outage_does_not_enlarge_the_fleet_all_day():
    # Ten minutes in which every request misses, as after a broken gateway. The fleet grows meanwhile, and leaves such
    # misses at every load that it passes: good hours at a light load must speak against those at heavier ones.
    random, world = np.random.default_rng(1), World(replicas=3, pool=replace(POOL, max_replicas=40))
    before = mean_fleet(world, random, 120, spread=0.1)
    world.failing = True
    mean_fleet(world, random, 10, spread=0.1)
    # This fleet was seen full once, so its knee is known better, and ten minutes move it by one replica.
    assert world.requested > 1.1 * before, "it looks like too few replicas, and is answered as that"
    world.failing = False
    assert mean_fleet(world, random, 120, spread=0.1) < 1.5 * before


def test_unequal_replicas_do_not_bend_the_step_time():
    # Two replicas are given a queue that they work off for minutes, while those ordered for it are half empty.
    world = World(replicas=2, pool=replace(POOL, max_replicas=40))
    world.run(12.0, 30)
    differ = 0
    for _ in range(4 * 10):
        world.tick(60.0)
        waiting = [engine.waiting for engine in world.engines]
        differ += max(waiting) > 100.0 and min(waiting) == 0.0
        step = world.memory.profile.engine.fit.solve(DEFAULT)
        assert step.base == pytest.approx(ENGINE.base, rel=0.05)
        assert step.work(1000.0, 200.0) == pytest.approx(ENGINE.work(1000.0, 200.0), rel=0.05)
    assert differ > 8


def test_traffic_that_stops_for_half_an_hour_and_returns_does_not_double_the_fleet():
    random, world = np.random.default_rng(1), World(replicas=4, pool=replace(POOL, max_replicas=40))
    before = mean_fleet(world, random, 60, spread=0.15)
    world.run(0.0, 30)
    assert world.requested <= 3
    # It was 2.8 times: the queue of the return was taken for a slow engine.
    assert mean_fleet(world, random, 60, spread=0.15) < 1.75 * before


def test_a_penalty_is_kept_for_about_two_minutes_and_pools_go_out_of_step():
    kept = []
    for load in (10.0, 11.0):
        world = World(replicas=3)
        world.run(load, 40)
        profile = world.memory.profile
        day_old = replace(profile, forecast=replace(profile.forecast, seen=86400.0))
        world.memory = replace(world.memory, profile=day_old, penalty=None)
        until = [world.tick(load).memory.penalty_until - world.now for _ in range(60)]
        assert all(0.0 < left <= 150.0 for left in until)
        found = [left for before, left in pairwise(until) if left > before]
        assert len(found) >= 5
        assert all(90.0 <= left for left in found)
        kept.append(tuple(found))
    assert kept[0] != kept[1], "a thousand pools that began together do not search in the same tick for ever"


def test_nothing_is_removed_while_a_quota_refuses_the_pods_that_were_ordered() -> None:
    world = World(replicas=6, obey=False)
    world.run(2.0, 15)
    observation = replace(world.observation(), requested=8)
    decision = decide(observation, POOL, world.memory, world.now + 15.0).decision
    assert decision.replicas == 8
    assert "scale-down blocked: only 6 of 8 replicas exist so far" in [limit.reason for limit in decision.limits]


def test_an_unknown_engine_under_a_flood_is_given_about_twice_its_fleet_until_its_speed_is_known() -> None:
    world = World(replicas=2, pool=replace(POOL, max_replicas=100), obey=False)
    outcomes = world.run(400.0, 1)
    limited = [outcome for outcome in outcomes if LimitName.LEARNING_STEP in applied(outcome)]
    assert limited
    assert {outcome.decision.replicas for outcome in limited} == {4}
    assert not outcomes[-1].memory.profile.engine.fit.known
    assert LimitName.LEARNING_STEP not in applied(world.run(400.0, 10)[-1])


@dataclass
class OtherBuckets(Engine):
    """3% of its requests take longer than 10 s, where the TTFT histogram of an older version ends."""

    last: tuple[float, ...] = ()

    def page(self, now: float) -> ReplicaMetrics:
        counts = (0.97 * self.requests, *(self.requests for _ in self.last))
        ttft = Histogram((10.0, *self.last), counts, self.first_token_seconds, self.requests)
        return replace(super().page(now), time_to_first_token=ttft)


def test_a_pool_is_scaled_through_an_upgrade_that_changes_the_histogram_buckets() -> None:
    world = World(replicas=3, pool=replace(POOL, slo=replace(POOL.slo, time_to_first_token=20.0)), obey=False)
    world.engines = [OtherBuckets(f"old-{number}", world.now) for number in range(3)]
    world.run(6.0, 30)
    for number in range(3):  # pod by pod
        world.engines[number] = OtherBuckets(f"new-{number}", world.now, last=(20.0, 40.0))
        outcomes = world.run(6.0, 10)
        assert not any(isinstance(outcome.decision.figures.attainment, Unknown) for outcome in outcomes)
    assert max(outcome.decision.replicas for outcome in world.run(60.0, 20)) > 3


@pytest.mark.parametrize("ahead", [-600.0, 600.0])
def test_a_queue_blocks_scale_downs_however_far_prometheus_and_the_operator_differ_in_time(ahead: float) -> None:
    world, memory = World(replicas=8, obey=False), Memory()
    for tick in range(120):
        if tick >= 60:
            world.engines[0].waiting = 800.0  # it never drains
        world.tick(2.0)
        decision, memory = decide(world.observation(), POOL, memory, world.now + ahead)
    assert decision.figures.longest_wait > 30.0
    assert decision.replicas >= 8
