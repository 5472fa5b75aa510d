"""Targets whose pods are numbered: who goes first, and pods that start one after another."""

from __future__ import annotations

from typing import Any

import pytest

from servingpool.adapters.cluster import kinds
from servingpool.api.duration import brief

from . import fake_cluster, test_other_kinds
from .fake_cluster import TICK
from .test_other_kinds import STS, OtherKinds, Resource


class Numbered(OtherKinds):
    """`lost` pods are not made again. In turn: a pod is made once all before it are Ready."""

    lost: tuple[str, ...] = ()
    in_turn = False

    def _show_group(self, service: Any, first: str, created: float, ready: float | None) -> None:
        if first not in self.lost:
            super()._show_group(service, first, created, ready)

    def show(self, name: str) -> None:
        orders = self.services[name].orders
        if self.in_turn:
            self.services[name].orders = orders[:1]
        super().show(name)
        self.services[name].orders = orders

    def serve_on(self) -> None:
        for service in self.services.values() if self.in_turn else ():
            service.orders[1:] = [self.now + TICK] * len(service.orders[1:])
        super().serve_on()


@pytest.fixture(autouse=True)
def _numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (fake_cluster, test_other_kinds):
        monkeypatch.setattr(module, "pod", lambda name, number: f"{name}-{number}")


def numbered(resource: Resource = STS, *, replicas: int, pods: int = 1, fewest: int = 1, lost: Any = ()) -> Numbered:
    cluster = Numbered()
    cluster.lost = lost
    cluster.resource, cluster.pods = resource, pods
    cluster.serve(replicas=replicas, rate=2.0)
    target = {"apiVersion": f"{resource[0]}/{resource[1]}", "kind": resource[2], "name": "vllm", "max": 10}
    cluster.pool(targets=[target | {"min": fewest}])
    return cluster


def in_turn(monkeypatch: pytest.MonkeyPatch) -> Numbered:
    """One replica of a StatefulSet whose pods start one after another."""
    monkeypatch.delitem(test_other_kinds.SPECS[STS], "podManagementPolicy")
    cluster = numbered(replicas=1)
    cluster.in_turn = True
    return cluster


def test_an_order_of_pods_that_start_one_after_another_takes_as_many_cold_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = in_turn(monkeypatch)
    cluster.step(minutes=10)
    assert cluster.status()["lastDecision"]["horizon"] == "2m15s"
    assert cluster.message("Ready") == (
        "StatefulSet vllm can be scaled. "
        "Pods of StatefulSet vllm start one by one: recreate it with podManagementPolicy: Parallel."
    )
    at = cluster.now
    target = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "vllm", "min": 5, "max": 8}
    cluster.pool(targets=[target])
    cluster.step(minutes=1.5)
    assert cluster.message("Ready").endswith(" Further pods wait for vllm-1, which is not Ready.")
    assert cluster.writes.scales == [(("chat", "vllm"), 1, 5)]
    assert cluster.status()["lastDecision"]["horizon"] == "8m15s"
    while len(cluster.services["vllm"].engines) < 5:
        cluster.step()
    took = cluster.now - at
    assert 4 * 100.0 <= took <= 4 * 120.0 + 15.0
    cluster.step()
    assert cluster.status()["lastDecision"]["horizon"] == "1m55s", "as measured: one start, and one interval"


def test_replicas_that_start_one_after_another_are_ready_after_as_many_cold_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = in_turn(monkeypatch)
    cluster.step(minutes=25)
    cluster.services["vllm"].rate = 28.0
    while cluster.condition("SLOMet")[1] != "ReplicasStarting" or not cluster.observation().starting:
        cluster.step()
    part = cluster.decision().parts[0]
    missing, [pod] = part.replicas - part.ready, cluster.observation().starting
    assert missing > 1
    left = brief(missing * part.cold_start - pod.age)
    assert f"{missing} of {part.replicas} replicas are starting, ready in about {left}." in cluster.message("SLOMet")


@pytest.mark.parametrize(
    ("start", "lost", "left"), [(0, (), 4), (0, (0,), 5), (0, (1, 3), 6), (5, (5,), 5), (5, (11,), 4)]
)
def test_a_number_that_no_pod_has_is_a_replica_that_does_not_come(
    start: int, lost: tuple[int, ...], left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(test_other_kinds.SPECS[STS], "ordinals", {"start": start})
    for module in (fake_cluster, test_other_kinds):
        monkeypatch.setattr(module, "pod", lambda name, number: f"{name}-{start + number}")
    cluster = numbered(replicas=7, fewest=4, lost=[f"vllm-{each}" for each in lost])
    names = [f"vllm-{each}" for each in lost if each < start + 6]
    cluster.step()
    assert [one.name for one in cluster.observation().starting] == names
    cluster.step(minutes=60)
    assert cluster.services["vllm"].replicas == left
    assert all(name in str(cluster.status()["lastDecision"]) for name in names)


def test_a_number_without_a_pod_starts_at_first() -> None:
    """As while its pod is evicted."""
    cluster = numbered(replicas=4, fewest=4)
    cluster.step(minutes=5)
    cluster.lost = ("vllm-0",)
    cluster.cache.see_pod(cluster.raws.pop("vllm-0"), gone=True)
    ages = []
    for _ in range(3):
        cluster.step()
        ages += [one.age for one in cluster.observation().starting]
    assert ages == [0.0, TICK, 2.0 * TICK]


def test_a_quota_that_refuses_a_stateful_sets_pods_is_told_in_its_own_words() -> None:
    """Its status does not tell; events do, and older ones of pods that stand by now."""
    cluster = numbered(replicas=1)
    cluster.services["vllm"].quota = 2
    words = 'create Pod vllm-{0} in StatefulSet vllm failed error: pods "vllm-{0}" is forbidden: exceeded quota: q, {1}'
    cluster.events = tuple(
        {"metadata": {}, "message": words.format(pod, which), "lastTimestamp": at}
        for pod, which, at in ((2, "pods=1", "2050-01-02"), (2, "pods=9", "2000-01-01"), (1, "pods=9", "2050-01-03"))
    )
    cluster.step(minutes=25)
    assert cluster.condition("Ready")[1] == "SucceededGetScale"
    cluster.services["vllm"].rate = 60.0
    while cluster.condition("Ready")[1] != "FailedCreate":
        cluster.step()
    said = 'have no pod, because the API server refuses it: pods "vllm-2" is forbidden: exceeded quota: q, pods=1'
    assert all(said in cluster.message(type_) for type_ in ("Ready", "SLOMet"))
    assert "Raise the quota that the message names." in cluster.message("SLOMet")


def test_so_is_a_quota_that_lets_no_pod_come_back() -> None:
    cluster = numbered(replicas=4, fewest=4)
    cluster.step(minutes=5)
    cluster.lost = ("vllm-0",)
    cluster.cache.see_pod(cluster.raws.pop("vllm-0"), gone=True)
    said = "create Pod vllm-{0} in StatefulSet vllm failed error: no more of vllm-{0}"
    cluster.events = tuple({"message": said.format(pod), "lastTimestamp": f"2{pod}50-01-01"} for pod in (0, 1))
    cluster.step(minutes=1)
    told = "1 of 4 replicas have no pod, because the API server refuses it: no more of vllm-0."
    assert cluster.message("Ready").startswith(told)


@pytest.mark.parametrize(
    ("sort", "pod", "number"),
    [
        (kinds.STATEFUL_SET, "vllm-router-0", None),
        (kinds.LEADER_WORKER_SET, "vllm-3", 3),
        (kinds.DEPLOYMENT, "vllm-1", None),
    ],
)
def test_a_number_is_that_of_the_pod_in_its_own_set(sort: kinds.Sort, pod: str, number: int | None) -> None:
    assert kinds.ordinal(sort, "vllm", pod) == number
