"""How a target of any kind is found and read; tests/unit/reconcile/test_other_kinds.py has what the loop makes of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from servingpool.adapters.cluster import kinds, objects, scale
from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.errors import NotFound
from servingpool.adapters.cluster.objects import Parent, Setter, TargetKey
from servingpool.adapters.cluster.scale import (
    DISCOVERED_FOR,
    KEPT_FOR,
    Discovery,
    Fault,
    TargetReader,
    Unscalable,
    known_sort,
    read_target,
)

LWS = {"name": "leaderworkersets", "singularName": "leaderworkerset", "shortNames": ["lws"], "kind": "LeaderWorkerSet"}
RESOURCES: dict[str, Any] = {
    "/apis/leaderworkerset.x-k8s.io/v1": [
        LWS | {"namespaced": True},
        {"name": "leaderworkersets/status", "kind": "LeaderWorkerSet", "namespaced": True},
        {"name": "leaderworkersets/scale", "kind": "Scale", "namespaced": True},
    ],
    "/apis/example.com/v1": [{"name": "fleets", "kind": "Fleet", "namespaced": True}],
    "/api/v1": [{"name": "pods", "singularName": "pod", "shortNames": ["po"], "kind": "Pod", "namespaced": True}],
}


class Api:
    """Answers discovery, and what it is given."""

    def __init__(self, **objects: Any) -> None:
        self.asked: list[str] = []
        self.objects = objects

    async def get(self, path: str, **_: str) -> dict[str, Any]:
        self.asked.append(path)
        if path == "/apis":
            names = ("leaderworkerset.x-k8s.io/v1", "example.com/v1")
            groups = [{"name": each.partition("/")[0], "preferredVersion": {"groupVersion": each}} for each in names]
            return {"groups": groups}
        if path in RESOURCES:
            return {"resources": RESOURCES[path]}
        last = path.rpartition("/")[2]
        if last not in self.objects:
            raise NotFound(path)
        found: dict[str, Any] = self.objects[last]
        return found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("deployment", ("apps/v1", "Deployment")),
        ("sts", ("apps/v1", "StatefulSet")),
        ("lws", ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")),
        ("leaderworkersets", ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")),
        ("LeaderWorkerSet.leaderworkerset.x-k8s.io", ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")),
        ("fleet.example.com", ("example.com/v1", "Fleet")),
        ("fleet.leaderworkerset.x-k8s.io", None),
        ("horse", None),
    ],
)
async def test_a_kind_is_found_by_the_names_that_kubectl_takes(name: str, expected: tuple[str, str] | None) -> None:
    discovery = Discovery(Api(), lambda: 0.0)
    if expected is None:
        with pytest.raises(Unscalable) as found:
            await discovery.find(name)
        assert found.value.fault is Fault.UNKNOWN_KIND
    else:
        assert await discovery.find(name) == expected


async def test_a_pod_is_a_kind_that_cannot_be_scaled() -> None:
    discovery = Discovery(Api(), lambda: 0.0)
    assert await discovery.find("po") == ("v1", "Pod")
    with pytest.raises(Unscalable) as found:
        await discovery.resource("v1", "Pod")
    assert found.value.fault is Fault.NO_SCALE


def test_without_a_cluster_the_built_in_kinds_are_known() -> None:
    assert known_sort("sts") == ("apps", "StatefulSet")
    assert known_sort("deployments.apps") == ("apps", "Deployment")
    assert known_sort("lws") == ("", "lws")


async def test_discovery_is_asked_once_a_minute_for_all_kinds_of_a_version() -> None:
    api, clock = Api(), [0.0]
    discovery = Discovery(api, lambda: clock[0])
    for _ in range(3):
        await discovery.resource("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
    assert len(api.asked) == 1
    clock[0] = DISCOVERED_FOR
    await discovery.resource("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
    assert len(api.asked) == 2


async def test_an_object_that_has_not_changed_is_not_read_again() -> None:
    key = TargetKey("chat", "vllm", "LeaderWorkerSet", "leaderworkerset.x-k8s.io")
    meta: dict[str, Any] = {"uid": "u", "resourceVersion": "7", "generation": 3}
    scale: dict[str, Any] = {"metadata": meta, "spec": {"replicas": 2}, "status": {"replicas": 2, "selector": "a=b"}}
    gpus = {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}, "args": ["--max-num-seqs=64"]}]}}
    raw = {"metadata": meta, "spec": {"leaderWorkerTemplate": {"size": 3, "workerTemplate": gpus}}}
    api = Api(scale=scale, vllm=raw)
    discovery = Discovery(api, lambda: 0.0)
    held = await read_target(api, discovery, key, "leaderworkerset.x-k8s.io/v1")
    assert (held[1].gpus, held[1].size, held[1].batch_limit, held[1].generation) == (24, 3, 64.0, 3)
    scale["spec"]["replicas"] = 5
    again = await read_target(api, discovery, key, "leaderworkerset.x-k8s.io/v1", held)
    assert again[1].replicas == 5
    assert [path for path in api.asked if path.endswith("/vllm")] == [api.asked[2]]
    meta["resourceVersion"] = "8"
    await read_target(api, discovery, key, "leaderworkerset.x-k8s.io/v1", again)
    assert len([path for path in api.asked if path.endswith("/vllm")]) == 2


def test_a_group_of_two_billion_pods_does_not_fill_the_memory() -> None:
    raw = {"spec": {"leaderWorkerTemplate": {"size": 2**31 - 1, "workerTemplate": {"spec": {}}}}}
    assert kinds.pod_specs(kinds.LEADER_WORKER_SET, raw) is None


async def test_a_target_that_is_not_read_in_time_is_not_believed_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    key = TargetKey("chat", "vllm", "LeaderWorkerSet", "leaderworkerset.x-k8s.io")
    meta = {"uid": "u", "resourceVersion": "7"}
    read: dict[str, Any] = {"metadata": meta, "spec": {"replicas": 2}, "status": {"replicas": 2, "selector": "a=b"}}
    api, clock, wanted = Api(scale=read, vllm={"metadata": meta}), [0.0], {key: "leaderworkerset.x-k8s.io/v1"}
    targets = TargetReader(api, ClusterCache(), lambda: clock[0])
    await targets.read(wanted)
    assert targets.cache.workload(key) is not None

    async def silent(*_: str, **__: str) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(api, "get", silent)
    monkeypatch.setattr(scale, "LONGEST_READING", 0.01)
    clock[0] = KEPT_FOR - 1.0
    await targets.read(wanted)
    assert targets.cache.workload(key) is not None
    clock[0] = KEPT_FOR
    await targets.read(wanted)
    assert targets.cache.workload(key) is None
    assert targets.fault(key).fault is Fault.FAILED


@pytest.mark.parametrize(
    ("annotations", "parent"),
    [
        ({}, Parent(("serving.kserve.io", "InferenceService"), "llama")),
        ({"serving.kserve.io/autoscalerClass": "none"}, Parent(("serving.kserve.io", "InferenceService"), "llama")),
        ({"serving.kserve.io/autoscalerClass": "external"}, None),
    ],
)
def test_kserve_leaves_the_replicas_of_its_deployment_to_others_by_an_annotation(
    annotations: dict[str, str], parent: Parent | None
) -> None:
    owner = {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "name": "llama", "controller": True}
    meta = {"namespace": "chat", "name": "vllm", "uid": "d", "ownerReferences": [owner], "annotations": annotations}
    assert objects.workload({"metadata": meta}).parent == parent


@pytest.mark.parametrize(("value", "left"), [("false", True), ("true", False)])
def test_a_parent_of_any_kind_may_be_said_to_leave_the_replicas_to_others(value: str, left: bool) -> None:
    owner = {"apiVersion": "example.com/v1", "kind": "Model", "name": "llama", "controller": True}
    marked = {"annotations": {"servingpool.dev/parent-sets-replicas": value}, "ownerReferences": [owner]}
    meta = {"namespace": "chat", "name": "vllm", "uid": "d", **marked}
    assert (objects.workload({"metadata": meta}).parent is None) == left


def test_an_owner_that_does_not_control_sets_no_replicas() -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "llama"}
    meta = {"namespace": "chat", "name": "vllm", "uid": "d", "ownerReferences": [owner]}
    assert objects.workload({"metadata": meta}).parent is None


def test_who_set_the_replicas_is_read_where_the_kind_keeps_them() -> None:
    key = TargetKey("chat", "vllm", "VLLMRuntime", "production-stack.vllm.ai")
    fields: dict[str, Any] = {"f:spec": {"f:deploymentConfig": {"f:replicas": {}}}}
    manager = {"manager": "argocd", "time": "2026-01-01T00:00:00Z", "fieldsV1": fields}
    raw = {"metadata": {"uid": "v", "managedFields": [manager]}}
    assert objects.target(key, raw, (), replicas=1).set_by == Setter("argocd", "2026-01-01T00:00:00Z")


LWS_VERSION = "leaderworkerset.x-k8s.io/v1"


def lws(namespace: str, name: str) -> TargetKey:
    return TargetKey(namespace, name, "LeaderWorkerSet", "leaderworkerset.x-k8s.io")


class Slow:
    """An API server that answers so many requests a reading, and then no more: as a slow one does within a deadline."""

    def __init__(self, most: int) -> None:
        self.most, self.left, self.asked = most, most, Counter[str]()

    async def get(self, path: str, **_: str) -> dict[str, Any]:
        if path in RESOURCES:
            return {"resources": RESOURCES[path]}
        namespace, name = path.split("/")[5], path.removesuffix("/scale").rpartition("/")[2]
        self.asked[f"{namespace}/{name}"] += 1
        self.left -= 1
        if self.left < 0:
            await asyncio.Event().wait()
        if name.startswith("none"):
            raise NotFound(path)
        meta = {"uid": name, "resourceVersion": "7"}
        return {"metadata": meta, "spec": {"replicas": 2}, "status": {"replicas": 2, "selector": "a=b"}}


async def test_a_tenant_with_thousands_of_unreadable_targets_waits_for_himself(monkeypatch: pytest.MonkeyPatch) -> None:
    """S6: 12,000 targets that do not exist kept another tenant's from being read at all."""
    monkeypatch.setattr(scale, "LONGEST_READING", 0.01)
    api, clock = Slow(100), [0.0]
    targets = TargetReader(api, ClusterCache(), lambda: clock[0])
    victim = lws("tenant-b", "vllm")
    wanted = {lws("tenant-a", f"none-{n:05}"): LWS_VERSION for n in range(2_000)} | {victim: LWS_VERSION}
    await targets.read(wanted)
    assert targets.cache.workload(victim) is not None
    seen = api.asked["tenant-b/vllm"]
    for _ in range(3):
        clock[0] += 15.0
        api.left = api.most
        await targets.read(wanted)
        assert api.asked["tenant-b/vllm"] > seen
        seen = api.asked["tenant-b/vllm"]
    # Those that were not reached come before those that were: nobody is asked twice while others wait.
    assert max(count for name, count in api.asked.items() if name.startswith("tenant-a")) == 1


async def test_targets_that_cannot_be_scaled_are_asked_for_again_less_and_less_often() -> None:
    api, clock, key = Slow(10_000), [0.0], lws("chat", "none")
    targets = TargetReader(api, ClusterCache(), lambda: clock[0])
    for _ in range(40):  # ten minutes
        await targets.read({key: LWS_VERSION})
        clock[0] += 15.0
    assert targets.fault(key).fault is Fault.NO_TARGET
    assert 10 <= api.asked["chat/none"] <= 13
    # Of another version of the API, or named anew, it is asked for at once.
    before = api.asked["chat/none"]
    targets.forget({})
    await targets.read({key: LWS_VERSION})
    assert api.asked["chat/none"] == before + 1


async def test_a_failure_keeps_no_frames() -> None:
    """S6: 150 KB for each target, as the exception was kept with its traceback."""
    targets, key = TargetReader(Slow(10), ClusterCache(), lambda: 0.0), lws("chat", "none")
    await targets.read({key: LWS_VERSION})
    fault = targets.fault(key)
    assert (fault.__traceback__, fault.__context__, fault.__cause__) == (None, None, None)
