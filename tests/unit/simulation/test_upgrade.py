from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from servingpool.decision.pool import Pool, Slo
from servingpool_simulation import page, traces
from servingpool_simulation.fleet import Fleet
from servingpool_simulation.hardware import engine_profile, flat_profile
from servingpool_simulation.policies import Static
from servingpool_simulation.run import SimulationOptions, simulate
from servingpool_simulation.upgrade import Upgrade

TEN_MS = flat_profile(0.01, max_num_seqs=256)
ONE = traces.Trace("one", np.array([0.005]), np.array([100]), np.array([1000]), 30.0)
CROWD = traces.Trace("crowd", np.zeros(40) + 0.005, np.full(40, 160), np.full(40, 1000), 30.0)


def served(trace: traces.Trace, *upgrades: Upgrade, looks: tuple[float, ...] = (60.0,)) -> Fleet:
    fleet = Fleet(TEN_MS, trace, upgrades=upgrades)
    fleet.start_ready(1)
    for at in looks:
        fleet.advance(at)
    return fleet


def running(trace: traces.Trace, upgrade: Upgrade, at: float) -> float:
    fleet = served(trace, upgrade, looks=(at,))
    return float(fleet.state.page[0, page.RUNNING])


def test_steps_after_the_upgrade_take_the_new_time_and_the_one_under_way_the_old() -> None:
    # First token at 0.015; decode step k ends at 0.015 + 0.01 k. At 5.0 the 499th is under way and ends at 5.005.
    # The other 999 - 499 = 500 steps take 20 ms each: 5.005 + 10 = 15.005.
    slower = Upgrade(5.0, TEN_MS.scaled(2.0))
    assert served(ONE).requests.finished[0] == pytest.approx(0.015 + 999 * 0.01)
    assert served(ONE, slower).requests.finished[0] == pytest.approx(15.005)


def test_when_somebody_looks_makes_no_difference() -> None:
    slower = Upgrade(5.0, TEN_MS.scaled(2.0))
    expected = served(ONE, slower).requests.finished[0]
    for looks in ((5.0, 60.0), (4.999, 5.0, 5.001, 60.0), tuple(np.arange(1.0, 61.0))):
        assert served(ONE, slower, looks=looks).requests.finished[0] == expected


def test_upgrades_follow_one_another_and_may_go_back() -> None:
    # 10 ms until 5.005, 20 ms until 7.005 (100 steps), then 999 - 499 - 100 = 400 steps of 10 ms: 11.005.
    fleet = served(ONE, Upgrade(5.0, TEN_MS.scaled(2.0)), Upgrade(7.0, TEN_MS))
    assert fleet.requests.finished[0] == pytest.approx(11.005)


def test_a_smaller_batch_admits_no_more_and_throws_nobody_out() -> None:
    small = Upgrade(1.0, replace(TEN_MS, max_num_seqs=10))
    late = traces.Trace("crowd, then more", np.r_[CROWD.arrival, 2.0, 2.0], np.full(42, 160), np.full(42, 1000), 40.0)
    assert running(late, small, 3.0) == 40
    assert running(late, small, 12.0) == 2  # the 40 left at 10.005, the two waited


def test_a_prefix_cache_that_is_switched_on_supplies_the_prompts_after_it() -> None:
    trace = traces.Trace("two", np.array([0.5, 1.5]), np.array([160, 160]), np.array([2, 2]), 10.0)
    cached = replace(TEN_MS, prefix_cache_hit_rate=0.5)
    fleet = served(trace, Upgrade(1.0, cached))
    assert fleet.requests.cached.tolist() == [0, 80]  # 5 whole blocks of 16


def test_replicas_that_start_after_it_run_the_new_engine() -> None:
    fleet = Fleet(
        TEN_MS, traces.poisson("p", [2.0], 60.0, prompt=100, output=100), upgrades=(Upgrade(1.0, TEN_MS.scaled(2.0)),)
    )
    fleet.start_ready(1)
    fleet.advance(2.0)
    fleet.scale(20)  # more rows than the first allocation has
    fleet.advance(200.0)
    q = fleet.requests[fleet.requests.arrival > 1.0]
    assert (q.finished - q.first).tolist() == pytest.approx([99 * 0.02] * len(q))


def test_in_a_run_it_is_timed_from_the_start_of_the_scored_time() -> None:
    h100 = engine_profile("h100-8b-tp1")
    trace = traces.poisson("p", [4.0], 240.0, prompt=200, output=100)
    options = SimulationOptions(history=60.0, upgrades=(Upgrade(90.0, h100.scaled(2.0)),))
    truth = simulate(trace, h100, Pool(Slo(2.0, 0.1), 1, 4), Static(1), options).outcomes
    early, late = truth.tpot[truth.arrival < 145.0], truth.tpot[truth.arrival > 150.0]
    assert np.median(late) == pytest.approx(2.0 * np.median(early), rel=0.05)
