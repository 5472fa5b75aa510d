"""The load that the requests counted now have met."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from servingpool.decision.engine import Rates
from servingpool.decision.learn.miss_curve import LoadAttribution, attribute_load
from servingpool.decision.observation import Bucket
from servingpool.decision.observe.columns import Column
from servingpool.decision.observe.latency import Misses
from servingpool.decision.observe.samples import Buckets
from servingpool.decision.observe.window import Demand, SampleWindow

from .world import ENGINE, POOL, counted

TICK = 15.0
BUCKETS = Buckets(Bucket(1.0, 1.0), Bucket(0.1, 0.1), Bucket(1.0, 1.0))
DEMAND = Demand(arrivals=20.0, prompt=1000.0, steps=1000.0, work_per_request=ENGINE.work(1000.0, 1000.0), queued=0.0)
POOL_OF_FIRST_TOKENS = replace(POOL, slo=replace(POOL.slo, time_per_output_token=None))


def demand(level: float) -> Demand:
    return DEMAND._replace(arrivals=level / DEMAND.work_per_request)


def rates(level: float) -> Rates:
    return demand(level).rates


def history(*ticks: tuple[int, float, float] | None, late: float = 0.0, waited: float = 3.0) -> SampleWindow:
    """Ticks of (ready replicas, work, work of the queue over the TTFT bound); `late` of 300 requests waited so long.

    None for a tick of which the demand is not known.
    """
    within = 300.0 - late
    sums = {Column.BEGUN: 300.0, Column.TTFT_COUNT: 300.0, Column.TTFT_LOWER: within, Column.TTFT_UPPER: within}
    delta = counted(sums | {Column.TTFT_SUM: within * 0.1 + late * waited}, BUCKETS, tick=TICK)
    window = SampleWindow()
    for number, tick in enumerate(ticks):
        ready, work, queue = tick or (1, 0.0, 0.0)
        window = window.add(now=TICK * (number + 1), span=TICK, ready=ready, delta=delta)
        if tick is not None:
            window = window.noted(Misses(0.0, 0.0), demand=rates(work), offered=rates(work + queue))
    return window


def attributed(seen: SampleWindow, level: float) -> LoadAttribution:
    return attribute_load(POOL_OF_FIRST_TOKENS, ENGINE, demand(level), seen)


def test_late_requests_of_a_queue_are_attributed_to_the_load_that_began_it() -> None:
    # One tick at 1.9 times what two replicas can do; a quarter of an hour later the last of its queue is late.
    drain = [(10, 3.8, float(queue)) for queue in range(100, 40, -1)]
    assert attributed(history((2, 1.0, 0.0), (2, 3.8, 60.0), *drain, late=30.0), 3.8) == pytest.approx((1.9, 0.38))


def test_nobody_knows_the_load_that_requests_met_which_waited_longer_than_the_window() -> None:
    # When the last of a queue are late, the load that began it has left the window; and their answers end later still.
    drain = [(10, 3.8, float(queue)) for queue in range(130, 10, -1)]
    for after in ([], [(10, 3.8, 0.0)]):
        seen = history(*[(2, 3.8, 60.0)] * 20, *drain, *after, late=30.0, waited=1_900.0)
        assert attributed(seen, 3.8) == (math.inf, math.inf)


def test_a_peak_of_long_ago_does_not_explain_a_queue_that_never_ends() -> None:
    # Half a minute at four times what two replicas can do, and a queue for hours: no request waits for as long.
    chronic = [(2, 1.74, 60.0)] * 480
    assert attributed(history((2, 8.0, 60.0), (2, 8.0, 60.0), *chronic, late=150.0), 1.74) == pytest.approx(
        (0.87, 0.87)
    )


def test_an_earlier_queue_that_is_gone_does_not_count() -> None:
    # That of the first overload is gone, and for two minutes no request waited; the present one began at 1.2.
    calm = [(10, 3.8, 0.0)] * 8
    seen = history((2, 3.8, 60.0), *calm, (10, 12.0, 5.0), (40, 3.8, 50.0), late=30.0)
    assert attributed(seen, 3.8) == pytest.approx((1.2, 0.095))


def test_under_a_queue_that_never_ends_late_and_on_time_are_attributed_alike() -> None:
    # At max, between 0.8 and 1.1 times what it can do. When those on time counted as light traffic, a load of 0.92 was learned to be safe.
    seen = history(*[(2, 2.2, 60.0), (2, 1.6, 60.0)] * 20, late=150.0)
    assert attributed(seen, 1.6) == pytest.approx((1.1, 1.1))


def test_late_first_tokens_below_a_load_of_1_are_attributed_without_the_queue() -> None:
    assert attributed(history((2, 1.8, 0.0), (2, 1.8, 1.0), late=30.0), 1.8) == pytest.approx((0.9, 0.9))


@pytest.mark.parametrize("before", [0.5, 3.8])
def test_answers_that_end_once_nothing_comes_have_met_no_load(before: float) -> None:
    """An SLO for tokens alone: minutes after the last first token, how long a request takes is not known any more."""
    seen = history((1, before, 0.0), (1, before, 0.0), (1, 0.0, 0.0))
    seen.rows[:, : Column.SPAN] = 0.0
    pool = replace(POOL, slo=replace(POOL.slo, time_to_first_token=None))
    nothing = DEMAND._replace(arrivals=0.0, prompt=0.0, steps=0.0, work_per_request=0.0)
    assert attribute_load(pool, ENGINE, nothing, SampleWindow(seen.rows)) == (0.0, 0.0)
