from __future__ import annotations

from collections.abc import Callable

import pytest

from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool
from servingpool_simulation.baselines.dynamo import LoadPlanner, SlaPlanner, forecast
from servingpool_simulation.baselines.measured import StepModel
from servingpool_simulation.hardware import engine_profile

Look = Callable[..., Observation]
Blind = Callable[[int], Observation]


def test_load_adds_one_worker_when_one_has_more_than_its_cache_holds(look: Look, pool: Pool) -> None:
    planner = LoadPlanner(kv_tokens=100_000)
    planner.learn(look(first_tokens=(0, 0), prompt_tokens=(0, 0)), pool, 0.0)
    seen = {"first_tokens": (5, 5), "prompt_tokens": (10_000, 10_000), "kv_cache_usage": (0.9, 0.5)}
    # Prompts of 2,000: 6 of them waiting are 12% of the cache.
    assert planner.decide(look(waiting=(4, 0), **seen), pool, 5.0).replicas == 2  # 0.98
    assert planner.decide(look(waiting=(6, 0), **seen), pool, 10.0).replicas == 3  # 1.02


def test_load_takes_one_worker_when_all_have_little_and_waits_while_one_loads(look: Look, pool: Pool) -> None:
    planner = LoadPlanner(kv_tokens=100_000)
    assert planner.decide(look(kv_cache_usage=(0.5, 0.59), waiting=(0, 0)), pool, 0.0).replicas == 1
    assert planner.decide(look(kv_cache_usage=(0.5, 0.61), waiting=(0, 0)), pool, 5.0).replicas == 2
    assert planner.decide(look(kv_cache_usage=(1.0, 1.0), waiting=(9, 9), loading=1), pool, 10.0).replicas == 3


def test_both_hold_without_metrics(blind: Blind, pool: Pool) -> None:
    for planner in (LoadPlanner(100_000), SlaPlanner(StepModel(engine_profile("h100-8b-tp1")))):
        assert planner.decide(blind(3), pool, 0.0).replicas == 3


def test_the_forecast_carries_changes_on_by_a_fitted_factor() -> None:
    assert forecast([7.0]) == 7.0
    assert forecast([1.0, 2.0, 4.0, 8.0]) == 8.0  # four values are too few
    # Changes 8, 4, 2, 1: each is half of the one before, so the next is 0.5.
    assert forecast([0.0, 8.0, 12.0, 14.0, 15.0]) == pytest.approx(15.5)
    assert forecast([3.0] * 6) == 3.0


def test_sla_orders_what_the_forecast_needs_by_the_profile(look: Look, pool: Pool) -> None:
    model = StepModel(engine_profile("h100-8b-tp1"))
    planner = SlaPlanner(model)
    none = {"first_tokens": (0, 0), "prompt_tokens": (0, 0), "generation_tokens": (0, 0), "finished": (0, 0)}
    assert planner.decide(look(waiting=(0, 0), **none), pool, 0.0).reason == "hold: no traffic was seen"
    # In 180 s each of 2 workers answers 4,500 requests of 1,000 tokens with 100, and 450 more wait: 55 requests/s.
    some = {
        "first_tokens": (4_500, 4_500),
        "prompt_tokens": (4_500_000, 4_500_000),
        "generation_tokens": (450_000, 450_000),
        "finished": (4_500, 4_500),
    }
    answer = planner.decide(look(waiting=(450, 450), at=180.0, **some), pool, 180.0)
    each = model.capacity(pool.slo, 1_000.0, 100.0)
    assert answer.reason.startswith("55.00 requests/s of 1000 and 100 tokens")
    assert answer.replicas == -(-55 // each)
