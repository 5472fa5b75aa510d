"""Targets, pools and pods that are being deleted, and pods that are refused."""

from __future__ import annotations

from ..gpubudget.test_budgets import GPUS, budget, held, status, verdict  # noqa: TID252, tests are no package of an installed name
from .fake_cluster import stamp
from .stories import hungry, serving


def test_a_target_that_is_being_deleted_is_not_scaled() -> None:
    world = hungry()
    world.services["vllm"].ending = True
    world.step(minutes=10)
    assert world.writes.scales == []
    assert world.condition("Ready") == ("False", "TargetEnding")
    assert world.message("Ready") == "Deployment vllm is being deleted, so it is not scaled."


def test_a_pool_that_is_being_deleted_scales_nothing() -> None:
    world = hungry()
    world.store(deletionTimestamp=stamp(world.now), generation=2)
    world.step(minutes=5)
    world.set_replicas("vllm", 12)
    world.step(minutes=5)
    assert world.writes.scales == [], "not even to its max"
    assert world.condition("Ready") == ("False", "PoolEnding")


def test_a_pod_that_should_have_ended_long_ago_holds_no_budget_and_is_named() -> None:
    world = serving(2.0, replicas=3, targets=[{"name": "vllm", "min": 3, "max": 3}])
    budget(world, 3 * GPUS)
    world.step(minutes=5)
    world.drain, world.grace = True, 30
    world.set_replicas("vllm", 2)
    lost = world.draining["vllm"][0]
    world.step()
    assert (world.services["vllm"].replicas, status(world)["held"]) == (2, 3 * GPUS), "it still drains"
    world.step(minutes=1.25)
    assert (world.services["vllm"].replicas, status(world)["held"]) == (3, 3 * GPUS)
    assert held(world) == 4 * GPUS, "the lost pod is still there"
    assert verdict(world, "Counted")[:2] == ("True", "PodsNotEnding")
    assert f"chat/{lost}" in verdict(world, "Counted")[2]
    world.drained("vllm")
    world.step(minutes=1.25)
    assert verdict(world, "Counted")[:2] == ("True", "AllCounted")


def test_refused_pods_are_told_in_the_api_servers_words_and_what_never_came_is_ordered_no_more() -> None:
    world = hungry()
    world.services["vllm"].quota = 2
    world.step(minutes=15)
    ordered = world.services["vllm"].replicas
    assert ordered > 2
    assert world.condition("Ready") == ("False", "FailedCreate")
    assert "exceeded quota: q, requested: pods=1, used: pods=2" in world.message("Ready")
    world.services["vllm"].rate = 0.5
    world.step(minutes=60)
    assert world.services["vllm"].replicas <= 2
    assert world.condition("Ready") == ("True", "SucceededGetScale")


def test_pods_that_have_just_been_ordered_are_waited_for() -> None:
    """A controller makes its pods within seconds; until a start is overdue nothing is taken back."""
    world = hungry()
    world.services["vllm"].quota = 2
    while not world.writes.scales:
        world.step()
    world.services["vllm"].rate = 0.5
    world.step(minutes=1)
    assert [after < before for _, before, after in world.writes.scales] == [False] * len(world.writes.scales)
