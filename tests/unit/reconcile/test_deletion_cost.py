"""Who goes when a fleet shrinks, and the costs that tell Kubernetes so."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.errors import Forbidden
from servingpool.adapters.cluster.objects import (
    DELETION_COST,
    FIELD_MANAGER,
    LOWEST_COST,
    DeletionCost,
    Key,
    Owner,
    Pod,
)
from servingpool.decision.observation import Observation, ReplicaMetrics, Unknown
from servingpool.reconcile import act
from servingpool.reconcile.act import Marker, Victims, choose, in_flight

OLD, YOUNG = 1000.0, 2000.0
OURS, THEIRS = True, False


REPLICA_SET = Owner("rs-1", "ReplicaSet", "rs-1")


def pod(name: str, created: float = OLD, cost: tuple[int, bool] | None = None, *, ready: bool = True) -> Pod:
    return Pod(
        name=name,
        uid=name,
        owner=REPLICA_SET,
        created_at=created,
        ready_since=created + 100.0 if ready else None,
        going=False,
        cost=None if cost is None else DeletionCost(*cost),
    )


def names(pods: tuple[Pod, ...]) -> list[str]:
    return [each.name for each in pods]


def as_kubernetes(pods: list[Pod], victims: Victims, replicas: int) -> set[str]:
    """Who goes by the ReplicaSet controller's ranking, once the marks are written; equals as they lie worst for us."""
    marked, cleared = set(names(victims.marks)), set(names(victims.clears))

    def rank(each: Pod) -> tuple[bool, int, bool]:
        cost = 0 if each.cost is None or each.name in cleared else each.cost.value
        cost = victims.cost if each.name in marked else cost
        return each.ready_since is not None, cost, each in victims.pods

    return {each.name for each in sorted(pods, key=rank)[: max(0, len(pods) - replicas)]}


def test_a_replica_with_unknown_load_does_not_count_as_idle() -> None:
    pods = [pod("dark", YOUNG), pod("busy"), pod("calm")]
    assert names(choose(pods, {"busy": 200.0, "calm": 1.0}, 1).pods) == ["calm", "busy"]


def test_at_equal_costs_our_pods_are_removed_first() -> None:
    pods = [pod("zero", cost=(0, THEIRS)), pod("busy")]
    assert names(choose(pods, {"zero": 0.0, "busy": 9.0}, 1).marks) == ["busy"]


def test_a_cost_stays_one_that_kubernetes_can_read() -> None:
    pods = [pod("lowest", cost=(LOWEST_COST, OURS)), pod("idle"), pod("busy")]
    assert choose(pods, {"lowest": 9.0, "idle": 0.0, "busy": 5.0}, 2).cost == LOWEST_COST


def test_load_is_running_plus_waiting_and_unknown_if_one_is_missing() -> None:
    pages = (
        ReplicaMetrics("a", 0.0, running=3.0, waiting=2.0),
        ReplicaMetrics("b", 0.0, running=3.0),
        ReplicaMetrics("c", 0.0, waiting=0.0),
    )
    assert in_flight(Observation(requested=3, metrics=pages)) == {"a": 5.0}
    assert in_flight(Observation(requested=3, metrics=Unknown("down"))) == {}


COSTS = st.none() | st.tuples(st.integers(-3, 3), st.booleans())
FLEETS = st.lists(
    st.tuples(st.sampled_from([OLD, YOUNG]), COSTS, st.booleans(), st.none() | st.integers(0, 4)), max_size=8
)


@given(FLEETS, st.integers(0, 9))
def test_never_more_than_are_removed_and_kubernetes_takes_the_same(fleet: list[object], replicas: int) -> None:
    pods, busy = build(fleet)
    victims = choose(pods, busy, replicas)
    assert len(victims.pods) == max(0, len(pods) - replicas)
    assert set(victims.marks) <= set(victims.pods)
    assert all(each.cost is None or each.cost.ours for each in victims.marks), "nothing of others is written over"
    goes = as_kubernetes(pods, victims, replicas)
    chosen = set(names(victims.pods))
    theirs = {each.name for each in pods if each.cost is not None and not each.cost.ours}
    unready = {each.name for each in pods if each.ready_since is None}
    # Between pods of the same foreign cost, and between pods that are not Ready, the choice is not ours.
    assert goes - theirs - unready == chosen - theirs - unready
    assert len((goes & theirs) - unready) == len((chosen & theirs) - unready)


@given(FLEETS, st.integers(0, 9))
def test_never_a_busier_one_before_an_idler_one(fleet: list[object], replicas: int) -> None:
    pods, busy = build(fleet)
    victims = choose(pods, busy, replicas)
    free = [each for each in pods if each.ready_since is not None and (each.cost is None or each.cost.ours)]
    gone = [busy.get(each.name, math.inf) for each in free if each in victims.pods]
    stays = [busy.get(each.name, math.inf) for each in free if each not in victims.pods]
    assert not gone or not stays or max(gone) <= min(stays)


def build(fleet: list[Any]) -> tuple[list[Pod], dict[str, float]]:
    pods: list[Pod] = []
    busy: dict[str, float] = {}
    for number, (created, cost, ready, work) in enumerate(fleet):
        pods.append(pod(f"p-{number}", created, cost, ready=ready))
        if work is not None:
            busy[f"p-{number}"] = float(work)
    return pods, busy


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
    return Marker(pods, cache or ClusterCache(), {"cost": 0})


def to_mark(count: int) -> Victims:
    pods = tuple(Pod(f"p-{n}", f"p-{n}", REPLICA_SET, 0.0, 0.0, going=False) for n in range(count))
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


async def test_a_missing_right_in_one_namespace_does_not_affect_another() -> None:
    pods = Pods(refuse=["closed"])
    writer = marker(pods)
    await asyncio.gather(writer.mark("closed", to_mark(3)), writer.mark("open", to_mark(3)))
    assert pods.written == ["open"] * 3
    assert pods.asked.count("closed") == 1
    assert writer.forbidden == {"closed"}
    pods.refuse = []
    await writer.mark("closed", to_mark(3))
    assert pods.written.count("closed") == 3, "the right has come"
    assert writer.forbidden == set()


async def test_a_namespace_that_hangs_does_not_delay_the_marks_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A webhook on pods that does not answer: the first in the row would have used the whole time up, at every tick."""
    monkeypatch.setattr(act, "LONGEST_CLEARING", 0.05)
    pods = Pods(hang=["hung"])
    await marker(pods, left_by_a_crash("hung", "a", "b")).sweep(lambda _: True)
    assert pods.written == ["a", "b"]


async def test_a_leader_deposed_in_a_sweep_removes_no_more_marks() -> None:
    """The next leader marks by then, under the same name: a late clear would take its mark away."""
    many = [f"n-{number}" for number in range(3 * act.CLEARED_AT_ONCE)]
    pods = Pods()
    await marker(pods, left_by_a_crash(*many)).sweep(lambda _: not pods.written)
    assert len(pods.asked) == act.CLEARED_AT_ONCE, "those under way"
