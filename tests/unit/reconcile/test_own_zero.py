"""Who set the number, where the API server does not tell: after a scale to 0, and of a manifest without replicas."""

from __future__ import annotations

from typing import Any

import pytest

from servingpool.adapters.cluster.errors import Forbidden, Unanswered
from servingpool.adapters.cluster.objects import FIELD_MANAGER, Workload

from ..gpubudget.test_budgets import GPUS, budget, held  # noqa: TID252, tests are no package of an installed name
from .fake_cluster import FakeCluster
from .replicas_field import ReplicasField
from .role_cluster import GATEWAY, RoleCluster
from .stories import serving

OURS = ("True", "SucceededGetScale")


def taken_to_zero() -> FakeCluster:
    """A pool with min 1 whose budget has no room for a replica."""
    world = serving(8.0)
    budget(world, 2)
    world.step(minutes=5)
    assert (held(world), world.services["vllm"].set_by) == (0, "")
    assert world.condition("Ready") == OURS
    return world


@pytest.mark.parametrize("restarts", [False, True])
def test_a_pool_that_a_budget_took_to_zero_comes_back(restarts: bool) -> None:
    world = taken_to_zero()
    if restarts:
        world.restart()
    budget(world, 8, generation=2)
    world.step(minutes=5)
    assert held(world) == GPUS
    assert world.services["vllm"].set_by == "", "a scale after a 0 is nobody's either"
    assert [one["to"] for one in world.status()["history"]] == [1, 0, 1], "one replica at a time: the need is unknown"
    assert {one["by"] for one in world.status()["history"]} == {FIELD_MANAGER}
    world.set_replicas("vllm", 0)
    world.step(minutes=5)
    assert world.condition("Ready") == ("False", "ScalingDisabled"), "a person's 0 stays"


def test_a_pool_of_roles_that_a_budget_took_to_zero_comes_back_under_a_new_leader() -> None:
    world = RoleCluster()
    world.pool(metrics={"gateway": GATEWAY})
    budget(world, 4)
    world.step(minutes=5)
    assert world.ordered == (0, 0)
    world.restart()
    budget(world, 40, generation=2)
    world.step(minutes=5)
    assert min(world.ordered) >= 1


def test_a_leader_that_died_between_its_zero_and_the_status_has_told_it_before(monkeypatch: pytest.MonkeyPatch) -> None:
    world = serving(8.0, minutes=5)
    scale = world.scale

    async def dies(target: Workload, replicas: int) -> None:
        await scale(target, replicas)
        world.writes.refuse["status"] = Unanswered("the process is gone")

    monkeypatch.setattr(world, "scale", dies)
    budget(world, 2)
    world.step()
    assert held(world) == 0
    monkeypatch.undo()
    del world.writes.refuse["status"]
    world.restart()
    world.step()
    assert world.condition("Ready") == OURS
    budget(world, 8, generation=2)
    world.step(minutes=5)
    assert held(world) == GPUS


def test_a_zero_that_cannot_be_told_before_is_not_ordered() -> None:
    world = serving(8.0, minutes=5)
    world.writes.refuse["status"] = Forbidden("403")
    budget(world, 2)
    world.step(minutes=1)
    assert held(world) > 0
    del world.writes.refuse["status"]
    world.step(minutes=1)
    assert held(world) == 0


def applied(rate: float = 30.0, **spec: Any) -> FakeCluster:
    """A Deployment whose manifest was applied server-side without replicas, as gitops.md advises."""
    world = FakeCluster()
    service = world.serve(rate=rate, replicas=1)
    service.number = ReplicasField(None, "flux", 0.0, applied=True)
    world.show("vllm")
    world.pool(**spec)
    return world


def test_of_a_manifest_without_replicas_our_orders_are_ours_in_the_history() -> None:
    world = applied()
    world.step(minutes=10)
    assert world.services["vllm"].set_by == ""
    assert {one["by"] for one in world.status()["history"]} == {FIELD_MANAGER}
    assert world.condition("Ready")[0] == "True"


def test_of_a_manifest_without_replicas_somebody_who_keeps_scaling_is_told_though_nobody_names_him() -> None:
    world = applied()
    world.step(minutes=3)
    for _ in range(3):
        world.step()
        world.set_replicas("vllm", 1, by="kubectl")
        world.step()
    assert world.services["vllm"].set_by == ""
    assert world.condition("Ready") == ("False", "ReplicasContested")
    assert world.message("Ready").startswith("Another program, which managedFields does not name, keeps resetting")
