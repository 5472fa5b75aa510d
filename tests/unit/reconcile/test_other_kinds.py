"""Targets of other kinds than Deployment: read through their scale subresource, whatever they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from servingpool.adapters.cluster.errors import Forbidden, NotFound, Unanswered
from servingpool.adapters.cluster.objects import Workload

from .fake_cluster import FakeCluster, Service, pod, stamp

LWS = ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets")
STS = ("apps", "v1", "StatefulSet", "statefulsets")
STORM = ("orchestration.aibrix.ai", "v1alpha1", "StormService", "stormservices")
OTHER = ("example.com", "v1", "Fleet", "fleets")
Resource = tuple[str, str, str, str]
"""Group, version, kind, plural."""
GPUS = {"containers": [{"name": "vllm", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}
SPECS: dict[Resource, dict[str, Any]] = {
    STS: {"podManagementPolicy": "Parallel", "template": {"spec": GPUS}},
    LWS: {"leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": GPUS}}},
}


class OtherKinds(FakeCluster):
    """Its services are objects of `resource`, each replica of which is `pods` pods."""

    resource: Resource = STS
    pods = 1
    label = "leaderworkerset.sigs.k8s.io/group-key"
    serving = 1
    """Pods of a replica that answer scrapes."""
    hides: Exception | None = None
    """What the API server answers to any read."""
    selector = "app={name}"
    discovered = True
    scalable = True
    owner: dict[str, Any] | None = None
    worker_ready = True
    events: tuple[dict[str, Any], ...] = ()

    def show(self, name: str) -> None:
        service = self.services[name]
        for engine in service.engines:
            self._show_group(service, engine.name, engine.ready_at - 100.0, engine.ready_at)
        for number, created in enumerate(service.orders):
            self._show_group(service, pod(name, service.next + number), created, None)

    def _show_group(self, service: Service, first: str, created: float, ready: float | None) -> None:
        for number in range(self.pods):
            name = first if number == 0 else f"{first}-{number}"
            labels = {} if number and self.selector.endswith("leader=yes") else {"app": service.name, "leader": "yes"}
            if self.pods > 1 and self.label:
                labels[self.label] = first
            up = ready is not None and (number == 0 or self.worker_ready)
            at = stamp(created if ready is None else ready)
            condition = {"type": "Ready", "status": str(up), "lastTransitionTime": at}
            meta = {"namespace": "chat", "name": name, "uid": name, "creationTimestamp": stamp(created)}
            raw = {"metadata": meta | {"labels": labels}, "status": {"conditions": [condition]}, "spec": GPUS}
            self.raws[name] = raw
            self.cache.see_pod(raw, gone=False)

    @property
    def raws(self) -> dict[str, Any]:
        """Of its pods, as the API server lists them."""
        found: dict[str, Any] = self.__dict__.setdefault("_raws", {})
        return found

    def set_replicas(self, name: str, replicas: int, by: str = "kubectl") -> None:
        super().set_replicas(name, replicas, by)
        before = self.raws.copy()
        self.raws.clear()
        self.show(name)
        for gone in before.keys() - self.raws.keys():
            self.cache.see_pod(before[gone], gone=True)

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        group, version, kind, plural = self.resource
        if path == f"/apis/{group}/{version}" and self.discovered:
            scale = [{"name": f"{plural}/scale", "kind": "Scale", "namespaced": True}] if self.scalable else []
            return {"resources": [{"name": plural, "kind": kind, "namespaced": True}, *scale]}
        if self.hides is not None:
            raise self.hides
        if path.endswith("/pods"):
            return {"items": list(self.raws.values())}
        if path.endswith("/events"):
            return {"items": self.events}
        name = path.removesuffix("/scale").rpartition("/")[2]
        base = f"/apis/{group}/{version}/namespaces/chat/{plural}/{name}"
        if path not in {base, f"{base}/scale"} or name not in self.services:
            raise NotFound(f"Cannot read {path}: 404 Not Found")
        service = self.services[name]
        replicas = service.replicas
        meta: dict[str, Any] = {
            "namespace": "chat",
            "name": name,
            "uid": f"o-{name}",
            "generation": service.number.generation,
        }
        meta["resourceVersion"] = f"{service.number.generation}-{len(service.engines)}"
        if path.endswith("/scale"):
            selector = self.selector.format(name=name)
            return {
                "metadata": meta,
                "spec": service.number.scale_spec(),
                "status": {"replicas": len(self.raws) // self.pods, "selector": selector},
            }
        meta["managedFields"] = service.number.managed_fields()
        meta["ownerReferences"] = [self.owner] if self.owner is not None else []
        return {"metadata": meta, "spec": {"replicas": replicas, **SPECS.get(self.resource, {})}}

    async def scale(self, target: Workload, replicas: int) -> None:
        group, version, kind, plural = self.resource
        assert (target.resource, target.key.kind) == ((group, version, plural), kind)
        await super().scale(target, replicas)

    def samples(self) -> Any:
        found = super().samples()
        for (namespace, name), models in tuple(found.items()):
            for number in range(1, self.serving):
                other = f"{name}-{number}"
                found[namespace, other] = {model: replace(one, replica=other) for model, one in models.items()}
        return found


def world(resource: Resource = STS, *, pods: int = 1, rate: float = 2.0, **given: Any) -> OtherKinds:
    cluster = OtherKinds()
    for name, value in given.items():
        setattr(cluster, name, value)
    cluster.resource, cluster.pods = resource, pods
    cluster.serve(replicas=2, rate=rate)
    group, version, kind, _ = resource
    target = {"apiVersion": f"{group}/{version}", "kind": kind, "name": "vllm", "min": 1, "max": 10}
    cluster.pool(targets=[target])
    return cluster


@pytest.mark.parametrize("selected", [{}, {"selector": "app={name},leader=yes"}], ids=["all", "the leader alone"])
def test_a_group_is_ready_once_all_its_pods_are(selected: dict[str, Any]) -> None:
    cluster = world(LWS, pods=2, worker_ready=False, **selected)
    cluster.step()
    assert cluster.condition("MetricsAvailable") == ("Unknown", "NoReadyReplicas")
    cluster.worker_ready = True
    cluster.step()
    assert cluster.condition("MetricsAvailable") == ("True", "ValidMetrics")
    assert cluster.status()["readyReplicas"] == 2


def test_a_group_in_which_several_pods_serve_has_their_sums() -> None:
    one, two = world(STORM, pods=1), world(STORM, pods=2, serving=2, label="roleset-name")
    for cluster in (one, two):
        cluster.step(minutes=2)
    rates: list[Any] = [cluster.status()["throughput"]["generationTokensPerSecond"] for cluster in (one, two)]
    assert rates[1] == pytest.approx(2 * rates[0])


def test_a_group_of_which_one_pod_is_not_scraped_is_unknown_not_half() -> None:
    cluster = world(STORM, pods=2, serving=2, label="roleset-name")
    cluster.step(minutes=2)
    whole = cluster.samples

    def partly() -> Any:
        found = whole()
        del found["chat", f"{cluster.services['vllm'].engines[0].name}-1"]
        return found

    cluster.samples = partly  # type: ignore[method-assign]
    cluster.step(minutes=1)
    assert cluster.condition("MetricsAvailable") == ("True", "PartialMetrics")


@pytest.mark.parametrize(
    ("given", "reason", "message"),
    [
        ({"discovered": False}, "UnknownKind", "The API server has no kind Fleet of example.com/v1."),
        ({"scalable": False}, "NoScaleSubresource", "Fleet of example.com/v1 has no scale subresource"),
        ({"hides": Forbidden("403")}, "ForbiddenGetScale", "Add Fleet of example.com/v1 to the chart's extraTargets"),
        ({"hides": NotFound("404")}, "TargetNotFound", "Fleet vllm does not exist in namespace chat."),
        ({"hides": Unanswered("Cannot read it: 500")}, "FailedGetScale", "The scale of Fleet vllm cannot be read"),
        ({"selector": ""}, "InvalidSelector", "its status.selector is missing"),
        ({"hides": KeyError("metadata")}, "FailedGetScale", "its fields are not as expected (KeyError)"),
    ],
)
def test_what_cannot_be_scaled_says_why_and_other_pools_go_on(given: Any, reason: str, message: str) -> None:
    cluster = world(OTHER, rate=25.0, **given)
    FakeCluster.serve(cluster, "other", rate=25.0)
    FakeCluster.show(cluster, "other")
    cluster.pool("second", target="other", created=cluster.now + 1)
    cluster.step()
    assert cluster.condition("Ready") == ("False", reason)
    assert message in cluster.message("Ready")
    assert cluster.condition("Ready", "second") == ("True", "SucceededGetScale")


@pytest.mark.parametrize(("mode", "beside"), [("Auto", 1.0), ("Recommend", 1.0), ("Recommend", -1.0)])
def test_a_pool_that_names_a_version_that_there_is_not_stops_no_other_pool(mode: str, beside: float) -> None:
    cluster = world(rate=25.0)
    target = {"apiVersion": "apps/v2", "kind": "StatefulSet", "name": "vllm", "min": 1, "max": 10}
    for name in ("a", "z"):
        cluster.pool(name, created=cluster.now + beside, targets=[target], mode=mode)
    cluster.step(minutes=8)
    assert cluster.condition("Ready") == ("True", "SucceededGetScale")
    assert cluster.writes.scales


def test_a_target_is_decided_on_as_last_read_while_the_api_server_does_not_answer() -> None:
    cluster = world()
    cluster.step(minutes=2)
    cluster.hides = Unanswered("Cannot read it: the API server did not answer")
    cluster.step(minutes=1)
    assert cluster.condition("Ready") == ("True", "SucceededGetScale")
    cluster.step(minutes=3)
    assert cluster.condition("Ready") == ("False", "FailedGetScale")
    cluster.hides = None
    cluster.step()
    assert cluster.condition("Ready") == ("True", "SucceededGetScale")


def test_several_pods_a_replica_of_a_kind_that_nobody_knows_are_not_guessed_at() -> None:
    cluster = world(OTHER, pods=2, label="")
    cluster.step()
    assert cluster.condition("Ready") == ("False", "PodsNotGrouped")
    assert "has 4 pods for 2 replicas" in cluster.message("Ready")


@pytest.mark.parametrize(
    ("owner", "says"),
    [
        (("serving.kserve.io/v1beta1", "InferenceService"), "serving.kserve.io/autoscalerClass: external on it"),
        (("nvidia.com/v1alpha1", "DynamoGraphDeployment"), "Name its DynamoGraphDeploymentScalingAdapter"),
        (("workload.serving.volcano.sh/v1alpha1", "ModelServing"), "Name it in spec.targets[] instead"),
        (("apps.nvidia.com/v1alpha1", "NIMService"), "Set the replicas there"),
    ],
)
def test_the_child_of_another_controller_is_left_alone_and_told_what_to_do(owner: tuple[str, str], says: str) -> None:
    reference = {"apiVersion": owner[0], "kind": owner[1], "name": "llama", "uid": "p", "controller": True}
    cluster = world(rate=25.0, owner=reference)
    cluster.step(minutes=20)
    assert cluster.writes.scales == []
    assert cluster.condition("Ready") == ("False", "OwnedByParent")
    assert cluster.message("Ready").startswith(f"{owner[1]} 'llama' sets the replicas of StatefulSet vllm. ")
    assert says in cluster.message("Ready")


def test_an_adapter_that_belongs_to_its_workload_is_scaled() -> None:
    reference = {"apiVersion": "example.com/v1", "kind": "Group", "name": "llama", "uid": "p", "controller": True}
    cluster = world(OTHER, owner=reference)
    cluster.step()
    assert cluster.condition("Ready") == ("True", "SucceededGetScale")


@pytest.mark.parametrize(("kind", "reason"), [("StatefulSet", "OwnedByHPA"), ("Deployment", "SucceededGetScale")])
def test_an_autoscaler_counts_for_the_kind_that_it_names(kind: str, reason: str) -> None:
    cluster = world()
    cluster.autoscaler("HorizontalPodAutoscaler", of=kind)
    cluster.step()
    assert cluster.condition("Ready")[1] == reason


def test_the_same_name_of_another_kind_is_another_target() -> None:
    cluster = world()
    cluster.pool("second", created=cluster.now + 1)
    cluster.step()
    assert cluster.condition("Ready") == ("True", "SucceededGetScale")
    assert cluster.condition("Ready", "second") == ("False", "TargetNotFound")


def test_a_target_that_no_pool_names_any_more_is_read_no_more() -> None:
    cluster = world()
    cluster.step()
    cluster.delete()
    cluster.step()
    asked: list[str] = []

    async def get(path: str, **_: str) -> dict[str, Any]:
        asked.append(path)
        raise NotFound(path)

    cluster.get = get  # type: ignore[method-assign]
    cluster.step()
    assert asked == []
