from __future__ import annotations

from collections.abc import Callable

from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool, Slo
from servingpool_simulation.baselines.keda import ProductionStack

Look = Callable[..., Observation]
Blind = Callable[[int], Observation]


def test_it_adds_one_pod_a_minute_however_long_the_queue(look: Look, pool: Pool) -> None:
    keda, current, orders = ProductionStack(), 2, []
    for tick in range(9):
        current = keda.decide(look(waiting=[50] * current), pool, 15.0 * tick).replicas
        orders.append(current)
    assert orders == [3] * 4 + [4] * 4 + [5]


def test_it_takes_one_pod_a_minute_after_five_minutes_of_a_short_queue(look: Look, pool: Pool) -> None:
    keda, current, orders = ProductionStack(), 4, []
    for tick in range(26):
        current = keda.decide(look(waiting=[0] * current, running=[30] * current), pool, 15.0 * tick).replicas
        orders.append(current)
    assert orders == [4] * 20 + [3] * 4 + [2] * 2


def test_it_takes_lost_metrics_for_an_empty_queue(look: Look, blind: Blind, pool: Pool) -> None:
    keda = ProductionStack()
    keda.decide(look(waiting=(30, 30)), pool, 0.0)
    assert [keda.decide(blind(2), pool, 15.0 * tick).replicas for tick in range(1, 21)] == [2] * 19 + [1]


def test_it_goes_to_zero_while_requests_run_and_nothing_wakes_it(look: Look) -> None:
    keda, pool = ProductionStack(), Pool(Slo(2.0), min_replicas=0, max_replicas=4)
    seen = look(waiting=(0,), running=(30,))
    assert [keda.decide(seen, pool, 15.0 * tick).replicas for tick in range(25)] == [1] * 24 + [0]  # 360 s
    assert keda.decide(Observation(requested=0), pool, 400.0).replicas == 0
