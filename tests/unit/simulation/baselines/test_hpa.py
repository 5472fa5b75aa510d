from __future__ import annotations

from collections.abc import Callable

import pytest

from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool, Slo
from servingpool_simulation.baselines import hpa
from servingpool_simulation.baselines.behavior import Configured, Limit
from servingpool_simulation.baselines.rules import average_value, object_value, pods_average

Look = Callable[..., Observation]
Blind = Callable[[int], Observation]


@pytest.mark.parametrize(
    ("value", "target", "replicas", "wanted"),
    [
        (109, 10, 10, 10),  # within a tenth: hold
        (112, 10, 10, 12),
        (91, 10, 10, 10),
        (89, 10, 10, 9),
        (0, 10, 10, 0),
        (100, 10, 0, 0),
    ],
)
def test_average_value_divides_the_sum_by_the_target(value: float, target: float, replicas: int, wanted: int) -> None:
    assert average_value(value, target, replicas) == wanted


@pytest.mark.parametrize(
    ("value", "replicas", "ready", "wanted"),
    [
        (1.09, 6, 4, 6),  # within a tenth: hold
        (2.0, 6, 4, 8),  # ratio 2 times 4 ready pods
        (0.5, 6, 4, 2),
        (0.0, 6, 4, 0),
    ],
)
def test_object_value_multiplies_the_ready_pods(value: float, replicas: int, ready: int, wanted: int) -> None:
    assert object_value(value, 1.0, replicas, ready) == wanted


@pytest.mark.parametrize(
    ("values", "missing", "replicas", "wanted"),
    [
        ([150, 150], 0, 2, 3),  # 1.5 * 2
        ([105, 105], 0, 2, 2),  # within a tenth
        ([150, 150], 2, 4, 4),  # missing pods count 0: 300 / 4 pods = 75 turns the direction round, hold
        ([300, 300], 1, 3, 6),  # 600 / 3 pods = 2 times the target
        ([20, 20], 2, 4, 3),  # missing pods count 100: 240 / 4 = 0.6 times 4 pods = 2.4
        ([], 3, 3, 3),
    ],
)
def test_a_pods_metric_is_filled_against_its_direction(
    values: list[float], missing: int, replicas: int, wanted: int
) -> None:
    assert pods_average(values, missing, 100.0, replicas) == wanted


def test_it_credits_loading_pods_so_it_orders_only_once(look: Look, pool: Pool) -> None:
    policy = hpa.on_running(10)
    assert policy.decide(look(running=(20, 20)), pool, 0.0).replicas == 4
    assert policy.decide(look(running=(20, 20), loading=2), pool, 15.0).replicas == 4


def test_it_at_most_doubles_and_always_may_reach_four(look: Look, pool: Pool) -> None:
    assert hpa.on_running(10).decide(look(running=(500,)), pool, 0.0).replicas == 4
    assert hpa.on_running(10).decide(look(running=[100] * 6), pool, 0.0).replicas == 12


def test_it_scales_down_to_the_highest_of_five_minutes(look: Look, pool: Pool) -> None:
    policy = hpa.on_running(10)
    loads = (40, 40, *[10] * 22)
    answers = [policy.decide(look(running=[n / 4] * 4), pool, 15.0 * k).replicas for k, n in enumerate(loads)]
    # The load fell at 30 s; the last recommendation of 4 was made at 15 s and counts for 300 s.
    assert answers == [4] * 22 + [1] * 2


def test_it_holds_without_metrics_and_at_zero_it_is_paused(blind: Blind, pool: Pool) -> None:
    answer = hpa.on_running(10).decide(blind(5), pool, 0.0)
    assert (answer.replicas, answer.reason) == (5, "hold: prometheus is down")
    assert hpa.on_running(10).decide(blind(0), pool, 0.0).replicas == 0


def test_it_never_goes_to_zero(look: Look) -> None:
    policy, pool = hpa.on_running(10), Pool(Slo(2.0), min_replicas=0, max_replicas=5)
    assert [policy.decide(look(running=(0,)), pool, 15.0 * k).replicas for k in range(30)] == [1] * 30


def test_on_waiting_in_all_grows_with_every_request_in_the_queue(look: Look, pool: Pool) -> None:
    # 3 waiting over 1 in all: 3 times the 2 ready pods, loading or not.
    assert hpa.on_waiting().decide(look(waiting=(2, 1)), pool, 0.0).replicas == 4  # at most max(2 * 2, 4)
    assert hpa.on_waiting().decide(look(waiting=(2, 1), loading=2), pool, 0.0).replicas == 6


def test_on_waiting_each_divides_them(look: Look, pool: Pool) -> None:
    assert hpa.on_waiting_each().decide(look(waiting=(6, 4)), pool, 0.0).replicas == 4  # 10 / 3


def test_on_tokens_takes_rates_of_the_last_minute(look: Look, pool: Pool) -> None:
    policy = hpa.on_tokens(100.0)
    first = policy.decide(look(generation_tokens=(0, 5_000)), pool, 0.0)
    assert (first.replicas, first.reason) == (2, "hold: no replica shows a rate of generation tokens")
    # 2250 tokens in 15 s are 150/s each, 1.5 times the target.
    assert policy.decide(look(generation_tokens=(2_250, 7_250), at=15.0), pool, 15.0).replicas == 3


def test_while_one_of_two_metrics_fails_nothing_goes_down(look: Look, pool: Pool) -> None:
    metrics = (hpa.SumPerReplica("running", 10.0), hpa.SumPerReplica("kv_cache_usage", 0.5))
    down = [hpa.Hpa("two", metrics).decide(look(running=(1, 1, 1)), pool, 400.0 * k).replicas for k in range(2)]
    assert down == [3, 3]
    assert hpa.Hpa("two", metrics).decide(look(running=(20, 20, 20)), pool, 0.0).replicas == 6


def test_the_largest_of_the_limits_on_speed_counts_and_each_has_its_period(pool: Pool) -> None:
    behavior = Configured(up=(Limit(60.0, pods=4), Limit(60.0, percent=50)))
    # From 6, 4 pods are more than 50%; from the 10 of a minute ago, 50% are more than 4.
    current, orders = 6, []
    for tick in range(6):
        current = behavior.order(20, current, pool, 15.0 * tick)
        orders.append(current)
    assert orders == [10, 10, 10, 10, 15, 15]


def test_a_window_on_the_way_up_waits_for_the_lowest_wish(pool: Pool) -> None:
    behavior = Configured(up_window=30.0)
    assert [behavior.order(8, 4, pool, 15.0 * tick) for tick in range(4)] == [4, 4, 8, 8]
