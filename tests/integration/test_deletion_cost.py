"""Deletion costs on a real API server, and what its ReplicaSet controller makes of them."""

from __future__ import annotations

from typing import Any

import pytest

from servingpool.adapters.cluster import objects
from servingpool.adapters.cluster.client import Cluster
from servingpool.adapters.cluster.errors import Conflict
from servingpool.adapters.cluster.objects import DELETION_COST, DeletionCost, Pod
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.kwok import LOAD_SECONDS_ANNOTATION
from servingpool_lab.processes import wait_until

from .operators import PATIENCE, deployment


class Fleet:
    """A Deployment of six."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane, self.namespace = plane, namespace
        plane.apply(deployment(namespace, "vllm", 6))
        wait_until(lambda: sum(pod.ready_since is not None for pod in self.pods().values()) == 6, PATIENCE, "six serve")

    def pods(self) -> dict[str, Pod]:
        """Those that are not going, by name, as the operator keeps them."""
        found = [objects.pod(raw) for raw in self.plane.client.items(f"/api/v1/namespaces/{self.namespace}/pods")]
        return {pod.name: pod for pod in found if pod is not None and not pod.going}

    def annotate(self, name: str, cost: str) -> None:
        """As somebody else."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}?fieldManager=somebody"
        self.plane.client.patch(path, {"metadata": {"annotations": {DELETION_COST: cost}}})

    def scale(self, replicas: int) -> None:
        self.plane.client.patch(
            f"/apis/apps/v1/namespaces/{self.namespace}/deployments/vllm/scale", {"spec": {"replicas": replicas}}
        )
        wait_until(lambda: len(self.pods()) == replicas, PATIENCE, f"{replicas} are left")


@pytest.fixture
def fleet(control_plane: ControlPlane, namespace: str) -> Fleet:
    return Fleet(control_plane, namespace)


async def test_kubernetes_removes_exactly_the_marked_pods(fleet: Fleet, connection: Cluster) -> None:
    """Three of six, by chance once in twenty times."""
    pods = fleet.pods()
    chosen = sorted(pods)[::2]
    for name in chosen:
        await connection.set_deletion_cost((fleet.namespace, name), pods[name].uid, -1)
    assert {name for name, pod in fleet.pods().items() if pod.cost == DeletionCost(-1, ours=True)} == set(chosen)
    fleet.scale(3)
    assert set(fleet.pods()) == set(pods) - set(chosen)


async def test_a_removed_mark_is_gone(fleet: Fleet, connection: Cluster) -> None:
    name, pod = next(iter(fleet.pods().items()))
    await connection.set_deletion_cost((fleet.namespace, name), pod.uid, -1)
    await connection.set_deletion_cost((fleet.namespace, name), pod.uid, -2)
    assert fleet.pods()[name].cost == DeletionCost(-2, ours=True)
    await connection.set_deletion_cost((fleet.namespace, name), pod.uid, None)
    await connection.set_deletion_cost((fleet.namespace, name), pod.uid, None)
    assert fleet.pods()[name].cost is None
    assert fleet.plane.client.get(f"/api/v1/namespaces/{fleet.namespace}/pods/{name}")["metadata"]["annotations"]


async def test_a_foreign_deletion_cost_is_neither_overwritten_nor_removed(fleet: Fleet, connection: Cluster) -> None:
    first, second = list(fleet.pods().values())[:2]
    fleet.annotate(first.name, "100")
    with pytest.raises(Conflict, match="set the deletion cost of Pod"):
        await connection.set_deletion_cost((fleet.namespace, first.name), first.uid, -1)
    await connection.set_deletion_cost((fleet.namespace, first.name), first.uid, None)
    assert fleet.pods()[first.name].cost == DeletionCost(100, ours=False)
    # Ours at first, then changed by somebody: theirs from then on.
    await connection.set_deletion_cost((fleet.namespace, second.name), second.uid, -1)
    fleet.annotate(second.name, "7")
    assert fleet.pods()[second.name].cost == DeletionCost(7, ours=False)
    await connection.set_deletion_cost((fleet.namespace, second.name), second.uid, None)
    assert fleet.pods()[second.name].cost == DeletionCost(7, ours=False)


async def test_a_pod_that_is_gone_or_of_another_uid_is_not_made_anew(fleet: Fleet, connection: Cluster) -> None:
    for name in ("vllm-gone", next(iter(fleet.pods()))):
        with pytest.raises(Conflict):
            await connection.set_deletion_cost((fleet.namespace, name), "00000000-0000-0000-0000-000000000000", -1)
    costs: list[Any] = [pod.cost for pod in fleet.pods().values()]
    assert costs == [None] * 6


async def test_in_a_rollout_each_revision_loses_its_marked_pods_first(fleet: Fleet, connection: Cluster) -> None:
    """How many each of them gives up is the Deployment controller's to say, so our choice may be more or fewer."""
    old = fleet.pods()
    workload = f"/apis/apps/v1/namespaces/{fleet.namespace}/deployments/vllm"
    loading = {"metadata": {"annotations": {LOAD_SECONDS_ANNOTATION: "600"}}}
    fleet.plane.client.patch(workload, {"spec": {"template": loading}})
    wait_until(
        lambda: len(fleet.pods()) == 8, PATIENCE, "two more stand, and one of the old is gone"
    )  # 25% of six each
    standing = fleet.pods().keys() & old.keys()
    chosen = set(sorted(standing)[:2])
    for name in chosen:
        await connection.set_deletion_cost((fleet.namespace, name), old[name].uid, -1)
    fleet.plane.client.patch(f"{workload}/scale", {"spec": {"replicas": 3}})
    wait_until(lambda: len(fleet.pods()) == 4, PATIENCE, "three, and one more for the rollout")
    gone = standing - fleet.pods().keys()
    assert gone
    assert gone <= chosen or chosen <= gone
