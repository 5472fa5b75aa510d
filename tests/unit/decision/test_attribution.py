"""At what load those who are judged now are held to have been."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest

from servingpool.decision.blame import Blame, blame
from servingpool.decision.columns import FIELDS, TTFT_COUNT, TTFT_LOWER, TTFT_SUM, TTFT_UPPER
from servingpool.decision.demand import Demand
from servingpool.decision.intake import Intake
from servingpool.decision.ledger import Ledger
from servingpool.decision.observation import NOT_EXPOSED
from servingpool.decision.past_loads import PastLoads

from .world import ENGINE, POOL

TICK = 15.0
EDGES = (1.0, 1.0, 0.1, 0.1, 1.0, 1.0)
DEMAND = Demand(arrivals=20.0, prompt_tokens=1000.0, steps=1000.0, work_per_request=0.15, queued=0.0)
POOL_OF_FIRST_TOKENS = replace(POOL, slo=replace(POOL.slo, time_per_output_token=None))


class Told(NamedTuple):
    ledger: Ledger
    past: PastLoads


def demand(level: float) -> Demand:
    return replace(DEMAND, arrivals=level / DEMAND.work_per_request)


def told(*ticks: tuple[int, float, float] | None, late: float = 0.0, waited: float = 3.0) -> Told:
    """Ticks of (ready replicas, work, work of the queue over the TTFT bound); `late` of 300 requests waited so long.

    None for one of which it is not known what came.
    """
    sums = [0.0] * FIELDS
    sums[TTFT_COUNT], sums[TTFT_LOWER], sums[TTFT_UPPER] = 300.0, 300.0 - late, 300.0 - late
    sums[TTFT_SUM] = (300.0 - late) * 0.1 + late * waited
    intake = Intake(tuple(sums), TICK, (), (), 0, 1.0, 1.0, 0.0, (), NOT_EXPOSED, None, 1.0, {}, EDGES, TICK, None)
    ledger, past = Ledger.empty(), PastLoads()
    for number, tick in enumerate(ticks):
        ready, work, queue = tick or (1, 0.0, 0.0)
        ledger = ledger.add(now=TICK * (number + 1), span=TICK, ready=ready, intake=intake)
        if tick is not None:
            ledger = ledger.judged(load=(work + queue) / ready, work=work)
            past = past.learn(TICK * (number + 1), work / ready)
    return Told(ledger, past)


def blamed(seen: Told, level: float) -> Blame:
    return blame(POOL_OF_FIRST_TOKENS, ENGINE, demand(level), seen.ledger, seen.past)


def test_without_a_queue_all_met_the_highest_load_of_their_lifetime() -> None:
    assert blamed(told((4, 2.4, 0.0), (4, 2.0, 0.0)), 2.0) == pytest.approx((0.6, 0.6))


def test_who_waits_does_so_for_the_load_that_began_the_queue() -> None:
    # One tick at 1.9 times what two replicas can do; a quarter of an hour later the last of its queue is late.
    drain = [(10, 3.8, float(queue)) for queue in range(100, 40, -1)]
    assert blamed(told((2, 1.0, 0.0), (2, 3.8, 60.0), *drain, late=30.0), 3.8) == pytest.approx((1.9, 0.38))


def test_who_has_waited_for_half_an_hour_did_so_for_the_load_of_then() -> None:
    # When the last of a queue are late, what began it is in no ledger any more; and their answers end later still.
    drain = [(10, 3.8, float(queue)) for queue in range(130, 10, -1)]
    overload = [(2, 3.8, 60.0)] * 20
    assert blamed(told(*overload, *drain, late=30.0, waited=1_900.0), 3.8) == pytest.approx((1.9, 0.38))
    assert blamed(told(*overload, *drain, (10, 3.8, 0.0), late=30.0, waited=1_900.0), 3.8) == pytest.approx((1.9, 0.38))


def test_a_peak_of_long_ago_is_not_what_a_queue_that_never_ends_waits_for() -> None:
    # Half a minute at four times what two replicas can do, and a queue for hours: nobody waits for as long.
    chronic = [(2, 1.74, 60.0)] * 480
    assert blamed(told((2, 8.0, 60.0), (2, 8.0, 60.0), *chronic, late=150.0), 1.74) == pytest.approx((0.87, 0.87))


def test_a_tick_of_which_nothing_is_known_ends_no_queue() -> None:
    drain = [(10, 3.8, float(queue)) for queue in range(100, 40, -1)]
    seen = told((2, 1.0, 0.0), (2, 3.8, 60.0), *drain, None, (10, 3.8, 40.0), late=30.0)
    assert blamed(seen, 3.8).late == pytest.approx(1.9)


def test_a_queue_of_before_is_another_one() -> None:
    # That of the first overload is gone, and for two minutes nobody waited; the present one began at 1.2.
    calm = [(10, 3.8, 0.0)] * 8
    ledger = told((2, 3.8, 60.0), *calm, (10, 12.0, 5.0), (40, 3.8, 50.0), late=30.0)
    assert blamed(ledger, 3.8) == pytest.approx((1.2, 0.095))


def test_a_queue_that_never_ends_is_blamed_on_both_alike() -> None:
    # At max, between 0.8 and 1.1 times what it can do. To call those on time light traffic taught that 0.92 is safe.
    ledger = told(*[(2, 2.2, 60.0), (2, 1.6, 60.0)] * 20, late=150.0)
    assert blamed(ledger, 1.6) == pytest.approx((1.1, 1.1))


def test_slow_first_tokens_below_the_limit_are_blamed_without_the_queue() -> None:
    assert blamed(told((2, 1.8, 0.0), (2, 1.8, 1.0), late=30.0), 1.8) == pytest.approx((0.9, 0.9))


def test_a_fleet_that_doubled_without_an_overload_leaves_all_at_the_load_of_their_lifetime() -> None:
    assert blamed(told((4, 3.6, 0.0), (10, 3.6, 0.0), late=30.0), 3.6) == pytest.approx((0.9, 0.9))


def test_the_last_of_a_queue_are_told_of_when_it_is_gone() -> None:
    assert blamed(told((2, 3.8, 60.0), (10, 3.8, 0.0), late=30.0), 3.8) == pytest.approx((1.9, 0.38))
