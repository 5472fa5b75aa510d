"""Many pools and namespaces at once, where some cannot be written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.errors import Forbidden
from servingpool.adapters.cluster.objects import DELETION_COST, FIELD_MANAGER, Key, Pod
from servingpool.reconcile import deletion_cost
from servingpool.reconcile.deletion_cost import Marker, Victims


class Pods:
    """An API server that hangs in some namespaces and refuses in others."""

    def __init__(self, *, hang: Sequence[str] = (), refuse: Sequence[str] = ()) -> None:
        self.hang, self.refuse = hang, refuse
        self.asked: list[str] = []
        """Namespaces."""
        self.written: list[str] = []

    async def set_deletion_cost(self, pod: Key, uid: str, cost: int | None) -> None:
        self.asked.append(pod[0])
        await asyncio.sleep(60.0 if pod[0] in self.hang else 0.0)
        if pod[0] in self.refuse:
            raise Forbidden(f"Cannot set the deletion cost of Pod {'/'.join(pod)}: 403 Forbidden")
        self.written.append(pod[0])


def marker(pods: Pods, cache: ClusterCache | None = None) -> Marker:
    return Marker(pods, cache or ClusterCache(), lambda: None)


def victims(count: int) -> Victims:
    pods = tuple(Pod(f"p-{n}", f"p-{n}", "rs", 0.0, 0.0, unschedulable=False, going=False) for n in range(count))
    return Victims(pods, pods)


def left_by_a_crash(*namespaces: str) -> ClusterCache:
    """A pod in each that bears our cost, and whose Deployment is gone."""
    cache = ClusterCache()
    fields: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{DELETION_COST}": {}}}}
    for number, namespace in enumerate(namespaces):
        meta: dict[str, Any] = {
            "namespace": namespace,
            "name": "p",
            "uid": f"p-{number}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"kind": "ReplicaSet", "uid": f"rs-{number}", "controller": True}],
            "annotations": {DELETION_COST: "-1"},
            "managedFields": [{"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": fields}],
        }
        cache.see_pod({"metadata": meta}, gone=False)
    return cache


async def test_what_is_forbidden_in_one_namespace_is_not_in_another_that_shrinks_at_the_same_moment() -> None:
    pods = Pods(refuse=["closed"])
    writer = marker(pods)
    await asyncio.gather(writer.mark("closed", victims(3)), writer.mark("open", victims(3)))
    assert pods.written == ["open"] * 3
    assert pods.asked.count("closed") == 1
    assert writer.forbidden == {"closed"}
    pods.refuse = []
    await writer.mark("closed", victims(3))
    assert pods.written.count("closed") == 3, "the right has come"
    assert writer.forbidden == set()


async def test_a_namespace_that_hangs_does_not_keep_the_costs_of_others_standing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A webhook on pods that does not answer: the first in the row would have used the whole time up, at every tick."""
    monkeypatch.setattr(deletion_cost, "LONGEST_CLEARING", 0.05)
    pods = Pods(hang=["hung"])
    await marker(pods, left_by_a_crash("hung", "a", "b")).sweep(lambda: True)
    assert pods.written == ["a", "b"]


async def test_who_loses_the_lead_amid_a_sweep_clears_nothing_more() -> None:
    """The next leader marks by then, under the same name: a late clear would take its mark away."""
    many = [f"n-{number}" for number in range(3 * deletion_cost.CLEARED_AT_ONCE)]
    pods = Pods()
    await marker(pods, left_by_a_crash(*many)).sweep(lambda: not pods.written)
    assert len(pods.asked) == deletion_cost.CLEARED_AT_ONCE, "those under way"
