from __future__ import annotations

from collections.abc import Callable

import pytest

from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool
from servingpool_simulation.baselines.aibrix import Apa, Kpa

Look = Callable[..., Observation]
Blind = Callable[[int], Observation]


@pytest.mark.parametrize(
    ("usage", "wanted"),
    [
        (0.54, 4),  # within a tenth of 0.5
        (0.60, 5),  # 4 * 1.2 = 4.8
        (0.99, 8),
        (0.40, 4),  # 4 * 0.8 = 3.2, rounded up
        (0.30, 3),  # 4 * 0.6 = 2.4
        (0.02, 2),  # no less than half
    ],
)
def test_apa_multiplies_the_spec(usage: float, wanted: int, look: Look, pool: Pool) -> None:
    assert Apa().decide(look(kv_cache_usage=[usage] * 4), pool, 0.0).replicas == wanted


def test_apa_multiplies_again_while_pods_load(look: Look, pool: Pool) -> None:
    apa = Apa()
    assert apa.decide(look(kv_cache_usage=[0.75] * 2), pool, 0.0).replicas == 3
    assert apa.decide(look(kv_cache_usage=[0.75] * 2, loading=1), pool, 10.0).replicas == 5


def test_apa_takes_a_failed_scrape_for_an_empty_cache(look: Look, blind: Blind, pool: Pool) -> None:
    apa = Apa()
    assert apa.decide(look(kv_cache_usage=[0.5] * 4), pool, 0.0).replicas == 4
    assert apa.decide(blind(4), pool, 10.0).replicas == 2  # the mean of 0.5 and 0 is half of the target


def test_kpa_divides_the_sum(look: Look, pool: Pool) -> None:
    assert Kpa().decide(look(kv_cache_usage=[0.8] * 4), pool, 0.0).replicas == 7  # 3.2 / 0.5
    assert Kpa().decide(look(kv_cache_usage=[0.1] * 8), pool, 0.0).replicas == 4  # 0.8 / 0.5 = 2, no less than half
    assert Kpa().decide(look(kv_cache_usage=[0.52] * 4), pool, 0.0).replicas == 4


def test_kpa_panics_when_the_last_minute_is_twice_the_last_three(look: Look, pool: Pool) -> None:
    kpa = Kpa()
    for tick in range(12):
        assert kpa.decide(look(kv_cache_usage=[0.1] * 2), pool, 10.0 * tick).replicas == 1
    answers = [kpa.decide(look(kv_cache_usage=[0.9] * 2), pool, 10.0 * tick).replicas for tick in range(12, 18)]
    # After k looks at 1.8 the minute's mean is (6 - k) * 0.2 / 6 + k * 1.8 / 6, the three minutes' 12 * 0.2 and
    # k * 1.8 over 12 + k. At k = 3 they are 1.0 and 0.52: ceil(0.52 / 0.5) = 2. At k = 4 they are 1.27 and 0.6: panic,
    # ceil(1.27 / 0.5) = 3.
    assert answers == [1, 1, 2, 3, 4, 4]
