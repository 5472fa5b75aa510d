from __future__ import annotations

from collections.abc import Callable

from servingpool.decision.observation import Observation, Unknown
from servingpool.decision.pool import Pool
from servingpool_simulation.baselines.knative import Kpa

Look = Callable[..., Observation]


def course(kpa: Kpa, pool: Pool, look: Look, ticks: range, in_flight: float, ready: int) -> list[int]:
    seen = look(running=[in_flight / ready] * ready, waiting=[0] * ready)
    return [kpa.decide(seen, pool, kpa.every * tick).replicas for tick in ticks]


def test_after_a_start_it_does_not_go_down_for_a_minute(look: Look, pool: Pool) -> None:
    # It starts in panic at 4; 70 in flight over 70 want 1, and half of 4 ready at once is as far as it goes.
    assert course(Kpa(), pool, look, range(40), 70.0, ready=4) == [4] * 31 + [2] * 9


def test_twice_the_ready_pods_in_six_seconds_is_panic(look: Look, pool: Pool) -> None:
    kpa = Kpa()
    assert course(kpa, pool, look, range(40), 140.0, ready=2)[-1] == 2
    # 700 in flight: the six seconds' mean is (140 + 140 + 700) / 3 = 327, then 513, then 700.
    # 5 of 2 ready is panic; the running maximum grows to 8 and 10.
    assert course(kpa, pool, look, range(40, 44), 700.0, ready=2) == [5, 8, 10, 10]
    # The panic ends 60 s after its last tick at 86 s; the minute's mean is then 140 again, but for half the ready pods.
    after = course(kpa, pool, look, range(44, 80), 140.0, ready=10)
    assert after[:30] == [10] * 30
    assert after[-1] == 5


def test_pods_that_it_does_not_reach_count_as_the_mean_of_the_others(look: Look, pool: Pool) -> None:
    kpa, seen = Kpa(), look(running=(60, 80, 0), waiting=(10, 10, 0))
    assert not isinstance(seen.metrics, Unknown)
    partly = Observation(seen.requested, seen.ready, metrics=seen.metrics[:2])
    # (70 + 90) / 2 pods * 3 ready = 240 over 70.
    assert kpa.decide(partly, pool, 0.0).replicas == 4


def test_it_holds_without_metrics(pool: Pool, blind: Callable[[int], Observation]) -> None:
    assert Kpa().decide(blind(3), pool, 0.0).replicas == 3
