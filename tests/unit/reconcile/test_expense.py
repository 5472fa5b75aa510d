"""What a pool costs here, what its traffic would cost at a hosted price, and where the two are equal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from servingpool.api.serving_pool import ServingPool
from servingpool.decision.figures import Figures
from servingpool.decision.observation import Observation, Unknown
from servingpool.reconcile.config import Price
from servingpool.reconcile.plan.expense import Expense, expense_of

from .fake_cluster import FakeCluster

ACME = Price(input=0.5, output=1.5, noted=date(2026, 11, 1))
TARGET: Mapping[str, Any] = {"name": "vllm", "min": 2, "max": 2}


def world(*, cost: float | None = 12.0, compare_to: str | None = "acme", mode: str = "Auto") -> FakeCluster:
    """Two replicas at 6 requests/s of 1000 prompt and 200 output tokens."""
    found = FakeCluster(prices={"acme": ACME})
    found.serve(rate=6.0)
    target = dict(TARGET) if cost is None else {**TARGET, "costPerReplicaHour": cost}
    compared: dict[str, Any] = {} if compare_to is None else {"compareTo": compare_to}
    found.pool(targets=[target], mode=mode, **compared)
    found.step(minutes=8)
    return found


def warnings(of: FakeCluster) -> list[str]:
    found: list[str] = of.status()["lastDecision"].get("warnings", [])
    return found


def test_the_status_compares_the_fleet_with_the_price_of_its_traffic() -> None:
    status = world().status()
    cost, rate = status["cost"], status["throughput"]["generationTokensPerSecond"]
    prompts = status["throughput"]["promptTokensPerSecond"]
    assert (cost["dollarsPerHour"], cost["comparedTo"], cost["noted"]) == (24.0, "acme", "2026-11-01")
    there = 3600e-6 * (0.5 * prompts + 1.5 * rate)
    assert cost["comparedDollarsPerHour"] == pytest.approx(there, abs=0.01)
    assert cost["breakEvenTokensPerSecond"] == pytest.approx(rate * 24.0 / there, rel=1e-3)
    load = status["lastDecision"]["load"]
    assert cost["breakEvenLoad"] == pytest.approx(load * 24.0 / there, rel=1e-2)
    assert status["throughput"]["tokensPerDollar"] == pytest.approx(rate * 3600 / 24.0, rel=1e-3)


def test_a_price_that_is_unknown_is_told_and_the_pool_is_scaled_on() -> None:
    found = FakeCluster(prices={"acme": ACME, "other": ACME})
    found.serve(rate=30.0)
    found.pool(compareTo="akme")
    found.step(minutes=5)
    assert found.writes.scales, "the load of ten replicas on two"
    assert found.condition("Ready")[0] == "True"
    said = "spec.compareTo 'akme' is unknown, so nothing is compared; known prices: acme, other. "
    assert said + "Scaling is not affected." in warnings(found)
    assert "cost" not in found.status()


def test_a_price_that_is_added_is_told_at_once_after_the_restart() -> None:
    found = world(compare_to="new")
    assert "known prices: acme." in warnings(found)[0]
    found.prices = {"acme": ACME, "new": ACME}
    found.restart()
    found.step()
    assert found.status()["cost"]["comparedTo"] == "new"
    assert warnings(found) == []


def test_a_replica_without_a_cost_makes_the_cost_here_unknown_not_zero() -> None:
    found = world(cost=None)
    cost = found.status()["cost"]
    assert cost.keys() == {"comparedTo", "noted", "comparedDollarsPerHour"}
    assert warnings(found) == [
        "The cost here is unknown: set targets[0].costPerReplicaHour. Scaling is not affected.",
    ]


def test_without_a_cost_and_a_price_nothing_is_told_of_money() -> None:
    found = world(cost=None, compare_to=None)
    assert "cost" not in found.status()
    assert "tokensPerDollar" not in found.status()["throughput"]
    assert warnings(found) == []


def test_starting_replicas_cost_as_soon_as_they_have_a_node() -> None:
    found = world(compare_to=None, mode="Paused")
    found.services["vllm"].unschedulable = True
    found.set_replicas("vllm", 3)
    found.step()
    assert found.plan().expense.dollars == 24.0
    found.services["vllm"].unschedulable = False
    found.show("vllm")
    found.step()
    assert found.plan().expense.dollars == 36.0


Seen = tuple[ServingPool, Observation, Figures]


def inputs(of: FakeCluster) -> Seen:
    """Of the last decision."""
    pool = of.state().pool
    assert pool is not None
    return pool, of.observation(), of.decision().figures


def told(pool: ServingPool, observation: Observation, figures: Figures) -> Expense:
    return expense_of(pool, observation, figures, {"vllm": 4}, {"acme": ACME}, 0.0)


@pytest.mark.parametrize("lost", ["generation_rate", "prompt_rate"])
def test_a_rate_that_is_unknown_makes_the_comparison_unknown_and_not_the_cost_here(lost: str) -> None:
    pool, observation, figures = inputs(world())
    silent = Unknown("no scrape for 2 minutes")
    unknown: dict[str, Any] = {lost: silent}
    expense = told(pool, observation, replace(figures, **unknown))
    assert (expense.compared, expense.break_even, expense.break_even_load) == (silent, silent, silent)
    assert expense.dollars == 24.0


def test_an_idle_pool_costs_here_and_nothing_there_and_has_no_mix_to_break_even_at() -> None:
    pool, observation, figures = inputs(world())
    expense = told(pool, observation, replace(figures, generation_rate=0.0, prompt_rate=0.0))
    assert (expense.dollars, expense.compared) == (24.0, 0.0)
    idle = Unknown("fewer than 1 output tokens per second")
    assert (expense.break_even, expense.per_million, expense.per_dollar) == (idle, idle, idle)
