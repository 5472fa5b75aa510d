from __future__ import annotations

import pytest

from servingpool.decision.observation import Histogram, Observation, Replica, ReplicaMetrics
from servingpool.decision.pool import Pool, Slo
from servingpool.decision.unknown import Unknown
from servingpool.simulation.rivals import HpaOnRunning, LlmdSloAware, average_value, histogram_quantile

POOL = Pool(Slo(2.0, 0.1), min_replicas=1, max_replicas=20)
READY = tuple(Replica(f"r{k}", 600.0, 500.0) for k in range(30))


def running(*counts: float, loading: int = 0) -> Observation:
    return Observation(
        requested=len(counts) + loading,
        ready=READY[: len(counts)],
        metrics=tuple(ReplicaMetrics(f"r{k}", 0.0, running=count) for k, count in enumerate(counts)),
    )


@pytest.mark.parametrize(
    ("value", "target", "replicas", "wanted"),
    [
        (109, 10, 10, 10),  # within a tenth: hold
        (112, 10, 10, 12),
        (91, 10, 10, 10),
        (89, 10, 10, 9),
        (0, 10, 10, 0),
        (100, 10, 0, 0),  # 0 replicas means paused
    ],
)
def test_hpa_average_value(value: float, target: float, replicas: int, wanted: int) -> None:
    assert average_value(value, target, replicas) == wanted


def test_hpa_credits_loading_pods_so_it_orders_only_once() -> None:
    hpa = HpaOnRunning(10)
    assert hpa.decide(running(20, 20), POOL, 0.0).replicas == 4
    assert hpa.decide(running(20, 20, loading=2), POOL, 15.0).replicas == 4


def test_hpa_at_most_doubles_and_always_may_reach_four() -> None:
    assert HpaOnRunning(10).decide(running(500), POOL, 0.0).replicas == 4
    assert HpaOnRunning(10).decide(running(*[100] * 6), POOL, 0.0).replicas == 12


def test_hpa_scales_down_to_the_highest_of_five_minutes() -> None:
    hpa = HpaOnRunning(10)
    now = 0.0
    answers = []
    for load in (40, 40, *[10] * 22):
        answers.append(hpa.decide(running(*[load / 4] * 4), POOL, now).replicas)
        now += 15.0
    # The load fell at 30 s; the last recommendation of 4 was made at 15 s and counts for 300 s.
    assert answers == [4] * 22 + [1] * 2


def test_hpa_holds_without_metrics() -> None:
    blind = Observation(requested=5, ready=READY[:5], metrics=Unknown("prometheus is down"))
    answer = HpaOnRunning(10).decide(blind, POOL, 0.0)
    assert (answer.replicas, answer.reason) == (5, "hold: prometheus is down")


def test_histogram_quantile_is_promqls() -> None:
    assert histogram_quantile(0.9, (1.0, 2.0), [80.0, 100.0], 100.0) == pytest.approx(1.5)
    assert histogram_quantile(0.9, (1.0, 2.0), [10.0, 20.0], 100.0) == 2.0
    assert histogram_quantile(0.9, (1.0,), [0.0], 0.0) == 0.0


def latencies(n: int, tick: int, ttft: float, *, loading: int = 0) -> Observation:
    """Every replica answers 10 requests a tick, all of them with this TTFT."""
    bounds = (0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0)
    total = 10.0 * (tick + 1)
    counts = tuple(total if ttft <= bound else 0.0 for bound in bounds)
    fast = Histogram((0.01, 0.1), (total, total), total * 0.01, total)
    pages = tuple(
        ReplicaMetrics(
            f"r{k}", 0.0, time_to_first_token=Histogram(bounds, counts, 0.0, total), time_per_output_token=fast
        )
        for k in range(n)
    )
    return Observation(requested=n + loading, ready=READY[:n], metrics=pages)


def run(policy: LlmdSloAware, ready: int, ttft: float, ticks: range, *, loading: int = 0) -> list[int]:
    """What it orders at each tick; nothing that it orders gets ready, what it gives up is gone."""
    requested, orders = ready + loading, []
    for tick in ticks:
        serving = min(ready, requested)
        look = latencies(serving, tick, ttft, loading=requested - serving)
        requested = policy.decide(look, POOL, 15.0 * tick).replicas
        orders.append(requested)
    return orders


def test_slo_aware_grows_by_its_formula_after_30_seconds() -> None:
    # P90 of the bucket (1, 2.5] is 2.35 s, over a bound of 2 s: 1.175. 4 + ceil(4 * (1.175 / 0.55 - 1)) = 9,
    # of which its behaviour lets 4 pods through in a minute.
    answers = run(LlmdSloAware(), 4, 2.0, range(10))
    assert answers == [4, 4, 4, 5, 6, 8, 8, 9, 9, 9]


def test_slo_aware_credits_loading_pods() -> None:
    # 1.175 * (4/9) is below 0.55, so nothing more is ordered while 5 of 9 load.
    assert run(LlmdSloAware(), 4, 2.0, range(8), loading=5)[-1] == 9


def test_slo_aware_shrinks_by_one_every_two_minutes_after_three() -> None:
    answers = run(LlmdSloAware(), 6, 0.1, range(24))
    assert answers == [6] * 13 + [5] * 8 + [4] * 3


def test_slo_aware_takes_lost_scrapes_for_idleness() -> None:
    policy = LlmdSloAware()
    run(policy, 6, 1.0, range(10))
    blind = Observation(requested=6, ready=READY[:6], metrics=Unknown("prometheus is down"))
    answers = [policy.decide(blind, POOL, 15.0 * tick).replicas for tick in range(10, 30)]
    assert min(answers) < 6
