from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from servingpool.decision.pool import Pool, Slo
from servingpool_simulation.fleet import ColdStart
from servingpool_simulation.hardware import engine_profile, flat_profile
from servingpool_simulation.offered import offered_load
from servingpool_simulation.oracle import Effort, next_place, oracle
from servingpool_simulation.planning import Price, ordered, plan
from servingpool_simulation.policies import Schedule
from servingpool_simulation.run import SimulationOptions, best_static, simulate
from servingpool_simulation.traces import Trace, poisson

A100 = engine_profile("a100-70b-tp4")
POOL = Pool(Slo(2.0, 0.15), min_replicas=1, max_replicas=8)
PEAK = poisson("a peak", (1.0, 8.0, 1.0), 400.0, prompt=1000, output=150)
LITTLE = Effort(requests=600_000, most_runs=60)

BASE, TOKEN = 0.01, 0.001
LINE = ((0, BASE), (1, BASE), (8192, BASE + 8191 * TOKEN))
PLAIN = flat_profile(BASE, dense=LINE, max_num_batched_tokens=8192, max_model_len=8192)
"""A step of 10 ms and 1 ms for each token beyond the first."""


def test_the_work_of_a_request_is_its_tokens_share_of_the_steps() -> None:
    # 100 prompt tokens of (8191 ms / 8192) each at its arrival, 50 output tokens of 1 ms each over 50 x 0.1 s.
    trace = Trace("one", np.array([20.0]), np.array([100]), np.array([50]), 45.0)
    load = offered_load(trace, PLAIN, Slo(2.0, 0.2), every=15.0) * 15.0
    assert load == pytest.approx([0.0, 100 * 8.191 / 8192 + 0.05, 0.0])


def test_work_that_outlasts_its_bin_is_spread_over_those_that_follow() -> None:
    # 300 output tokens over 300 x 0.1 s from second 10 on: 5 s of 30 s fall into the first bin, 15 s, 10 s.
    trace = Trace("one", np.array([10.0]), np.array([1]), np.array([300]), 60.0)
    load = offered_load(trace, PLAIN, Slo(2.0, 0.2), every=15.0) * 15.0
    assert load[1:] == pytest.approx([0.15, 0.1, 0.0])
    assert load[0] == pytest.approx(0.05 + 8.191 / 8192)


def test_what_cached_prompts_do_not_compute_is_no_work() -> None:
    trace = Trace("one", np.array([0.0]), np.array([100]), np.array([1]), 15.0)
    halved = replace(PLAIN, prefix_cache_hit_rate=0.5)
    full, half = (offered_load(trace, profile, Slo(2.0, 0.2), 15.0).sum() for profile in (PLAIN, halved))
    assert full - half == pytest.approx(50 * 8.191 / 8192 / 15.0)


def test_a_plan_orders_a_cold_start_ahead_and_holds_through_gaps_that_are_shorter_than_one() -> None:
    # 0.5 of a replica, and 1.2 in bins 4 and 6: the gap of one bin costs 1 bin to hold, 2 to load again.
    load = np.array([0.5, 0.5, 0.5, 0.5, 1.2, 0.5, 1.2, 0.5, 0.5])
    found = plan(load, np.full(9, 100.0), Price(knee=0.8, miss=100.0, steepness=60.0), every=15.0, lead=2, most=4)
    assert found.tolist() == [1, 1, 2, 2, 2, 2, 2, 1, 1]


def test_a_plan_gives_up_on_a_burst_whose_misses_are_cheaper_than_a_replica() -> None:
    load = np.array([0.5, 0.5, 0.5, 1.2, 0.5])
    # The burst costs 3 bins of 15 s; its 10 requests are worth 45 s at 4.5 each.
    plans = [
        plan(load, np.full(5, 10.0), Price(knee=0.8, miss=miss, steepness=60.0), every=15.0, lead=2, most=4).tolist()
        for miss in (4.4, 4.6)
    ]
    assert plans == [[1, 1, 1, 1, 1], [1, 2, 2, 2, 1]]


def test_what_serves_is_ordered_by_the_most_of_the_ticks_ahead() -> None:
    assert ordered(np.array([1, 1, 3, 1, 2]), 2).tolist() == [3, 3, 3, 2, 2]


def test_what_just_attains_is_sought_on_a_line_between_what_misses_and_what_attains() -> None:
    # Over by 1 at 0, under by 1 at 2: halfway.
    assert next_place([(0.0, 1.0), (2.0, -1.0)]) == pytest.approx(1.0)
    # Never within 15% of an end.
    assert next_place([(0.0, 0.001), (2.0, -1.0)]) == pytest.approx(0.3)
    # Falling by 0.5 a unit and still 1 over: 1.2 x 2 units on.
    assert next_place([(0.0, 1.5), (1.0, 1.0)]) == pytest.approx(1.0 + 2.4)


def test_the_oracle_attains_with_fewer_replicas_than_the_best_static_fleet_and_repeats() -> None:
    static = best_static(PEAK, A100, POOL)
    assert static is not None
    options = SimulationOptions(initial_replicas=static.score.peak_replicas)
    found, again = (oracle(PEAK, A100, POOL, options, LITTLE) for _ in range(2))
    assert found is not None
    assert again is not None
    assert found.score == again.score
    assert found.score.attainment >= 0.95
    assert found.score.gpu_hours < 0.8 * static.score.gpu_hours


def test_it_pays_cold_starts_as_everybody_does() -> None:
    costs = []
    for mean in (5.0, 200.0):
        options = SimulationOptions(cold_start=ColdStart(mean), initial_replicas=1)
        found = oracle(PEAK, A100, POOL, options, LITTLE)
        assert found is not None
        costs.append(found.score.gpu_hours)
        orders = [size for size in found.series.requested if size > 1]
        assert orders
    assert costs[0] < costs[1]


def test_there_is_no_course_for_an_objective_out_of_reach() -> None:
    pool = Pool(Slo(0.001), 1, 2)
    assert oracle(PEAK.between(0.0, 200.0), A100, pool, SimulationOptions(), Effort(100_000, 60)) is None


def test_a_schedule_is_followed_to_the_letter_and_its_last_size_stays() -> None:
    result = simulate(PEAK.between(0.0, 90.0), A100, POOL, Schedule((2, 3, 1)), SimulationOptions(initial_replicas=1))
    assert result.series.requested == [2, 3, 1, 1, 1, 1]


def test_the_search_sees_the_very_run_that_is_reported() -> None:
    effort = Effort(requests=300_000, most_runs=60)
    found = oracle(PEAK, A100, POOL, SimulationOptions(initial_replicas=3), effort)
    assert found is not None
    again = simulate(PEAK, A100, POOL, Schedule(tuple(found.series.requested)), SimulationOptions(initial_replicas=3))
    assert again.score == found.score
