from __future__ import annotations

from collections.abc import Callable

from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool
from servingpool_simulation.baselines.wva import Saturation

Look = Callable[..., Observation]
Blind = Callable[[int], Observation]


def test_it_grows_a_sync_after_the_demand_left_its_share_of_the_supply(look: Look, pool: Pool) -> None:
    wva = Saturation(kv_tokens=100_000)
    # Supply 2 * 80,000; demand 2 * 75,000. 150,000 / 0.85 - 160,000 = 16,471 more tokens: one replica of 80,000.
    full = look(kv_cache_usage=(0.75, 0.75), waiting=(0, 0))
    assert [wva.decide(full, pool, 15.0 * tick).replicas for tick in range(2)] == [2, 3]


def test_loading_replicas_are_supply(look: Look, pool: Pool) -> None:
    wva = Saturation(kv_tokens=100_000)
    full = look(kv_cache_usage=(0.75, 0.75), waiting=(0, 0), loading=1)
    assert [wva.decide(full, pool, 15.0 * tick).replicas for tick in range(4)] == [3] * 4


def test_a_queue_teaches_it_what_a_replica_can_serve(look: Look, pool: Pool) -> None:
    wva = Saturation(kv_tokens=100_000)
    lengths = {"first_tokens": (0, 0), "prompt_tokens": (0, 0), "generation_tokens": (0, 0)}
    wva.learn(look(kv_cache_usage=(0.2, 0.2), waiting=(0, 0), finished=(0, 0), **lengths), pool, 0.0)
    lengths = {"first_tokens": (10, 10), "prompt_tokens": (10_000, 10_000), "generation_tokens": (5_000, 5_000)}
    # 20% are in use while 5 or more wait: 20,000 is what it can serve. Of 1,000 + 500 tokens, 10 wait on each:
    # demand 2 * (20,000 + 15,000) / 0.85 - 40,000 = 42,353, which takes 3 of 20,000.
    queued = look(kv_cache_usage=(0.2, 0.2), waiting=(10, 10), finished=(10, 10), **lengths)
    assert [wva.decide(queued, pool, 15.0 * tick).replicas for tick in (1, 2)] == [2, 5]


def test_it_shrinks_after_four_minutes(look: Look, pool: Pool) -> None:
    wva = Saturation(kv_tokens=100_000)
    # Spare 4 * 80,000 - 100,000 / 0.70 = 177,143: two replicas of 80,000. Published at 0 s, read at 15 s, which is
    # when the HPA begins to remember; 240 s later nothing higher is left.
    idle = look(kv_cache_usage=[0.25] * 4, waiting=[0] * 4)
    assert [wva.decide(idle, pool, 15.0 * tick).replicas for tick in range(18)] == [4] * 17 + [2]


def test_it_stands_by_its_last_word_without_metrics(blind: Blind, look: Look, pool: Pool) -> None:
    wva = Saturation(kv_tokens=100_000)
    assert [wva.decide(blind(3), pool, 15.0 * tick).replicas for tick in range(40)] == [3] * 40
