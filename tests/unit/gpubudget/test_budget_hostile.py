"""What one tenant of a GPUBudget can do to others, through the whole loop on virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from ..reconcile.fake_cluster import FakeCluster  # noqa: TID252, tests are no package of an installed name
from ..reconcile.kept import kept  # noqa: TID252
from .test_budgets import budget, status, verdict


def victim(rate: float = 8.0, *, floor: int = 0, least: int = 3) -> FakeCluster:
    """A pool at its min of three replicas under a budget of 16 GPUs."""

    def begun() -> FakeCluster:
        world = FakeCluster()
        world.serve("victim", replicas=least, rate=rate)
        world.pool("victim", target="victim", targets=[{"name": "victim", "min": least, "max": 9}])
        floors = [{"namespace": "chat", "pool": "victim", "gpus": floor}] if floor else []
        budget(world, 16, floors=floors)
        world.step(minutes=5)
        return world

    return kept(f"victim {rate} {floor} {least}", begun)


def hog(world: FakeCluster, mode: str, replicas: int = 4, **spec: Any) -> None:
    """Pods that no node can take."""
    world.serve("hog", replicas=0, rate=0.0)
    world.services["hog"].unschedulable = True
    world.set_replicas("hog", replicas)
    world.pool("hog", target="hog", mode=mode, **spec)


@pytest.mark.parametrize(("mode", "floor", "known"), [("Paused", 0, True), ("Recommend", 8, True), ("Auto", 8, False)])
def test_pods_that_find_no_node_take_nothing_from_others(mode: str, floor: int, *, known: bool) -> None:
    world = victim(floor=floor)
    if not known:
        world.prometheus.silent = "it is away"
    before = len(world.writes.scales)
    hog(world, mode, 99, priority=9, targets=[{"name": "hog", "min": 50, "max": 99}])
    world.step(minutes=20)
    assert [one for one in world.writes.scales[before:] if one[0][1] == "victim"] == []
    assert world.services["victim"].replicas == 3


def test_a_pool_that_others_pods_hold_back_comes_up_to_its_floor_and_min_once_they_are_seen_to_find_no_node() -> None:
    world = victim(floor=12)
    hog(world, "Paused", 99)
    world.set_replicas("victim", 1)
    world.step(minutes=5)
    assert world.services["victim"].replicas == 3
    world.services["victim"].rate = 60.0
    world.step(minutes=20)
    assert world.services["victim"].replicas == 3, "more would be GPUs that are ordered already"
    assert "waits for GPUs of chat/hog" in world.message("ScalingLimited", "victim")


@pytest.mark.parametrize(("mode", "replicas"), [("Paused", 1), ("Auto", 0)])
def test_a_pool_whose_gpus_are_unknown_freezes_nobody_else(mode: str, replicas: int) -> None:
    world = victim(rate=1.0, least=1)
    world.serve("hog", replicas=replicas, rate=0.0)
    world.claims["hog"] = [{"name": "g", "resourceClaimName": "none"}]
    world.show("hog")
    world.pool("hog", target="hog", mode=mode)
    world.services["victim"].rate = 60.0
    world.step(minutes=20)
    assert world.services["victim"].replicas == 4 - replicas
    assert status(world)["held"] == 16
    assert verdict(world, "Counted")[:2] == ("False", "NotCounted")


def test_pods_that_ask_for_no_gpu_hold_none_whatever_their_pool_says() -> None:
    world = victim(rate=1.0, least=1)
    world.serve("hog", replicas=1, rate=0.0)
    world.claims["hog"] = []
    world.pool("hog", mode="Recommend", targets=[{"name": "hog", "max": 9, "gpusPerReplica": 1024}])
    world.services["victim"].rate = 60.0
    world.step(minutes=20)
    assert (world.services["victim"].replicas, status(world)["held"]) == (4, 16)


def test_a_pool_whose_target_may_not_be_read_freezes_nobody_else() -> None:
    world = victim(rate=60.0, least=1)
    target = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "nothing", "max": 2}
    world.pool("hog", targets=[target])
    world.step(minutes=20)
    assert world.services["victim"].replicas == 4


@pytest.mark.parametrize("generation", [-1, -(2**31), {"a": None}, "1", None])
def test_a_budget_whose_generation_is_damaged_ends_no_tick(generation: Any) -> None:
    world = victim()
    budget(world, 16, generation=generation)
    assert [world.step().failed for _ in range(3)] == [0, 0, 0]


def test_replicas_whose_pods_a_quota_refuses_hold_nothing() -> None:
    world = victim(rate=1.0, least=1)
    world.serve("hog", replicas=0, rate=0.0).quota = 0
    world.set_replicas("hog", 99)
    world.pool("hog", priority=9, mode="Paused", targets=[{"name": "hog", "min": 50, "max": 99}])
    world.services["victim"].rate = 60.0
    world.step(minutes=10)
    assert world.services["victim"].replicas == 4
    assert status(world)["held"] == 16
