"""Data on kinds with a scale subresource, read from their sources; and the API server's paths and media types.

Any other kind scales too. Its replicas are then its pods, and what a pod asks for is read from the pods themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

Raw = Mapping[str, Any]
Sort = tuple[str, str]
"""API group (empty for core) and kind."""

LEASES = "coordination.k8s.io/v1"
OPERATOR = ("app.kubernetes.io/name", "servingpool-operator")
"""Label of what the chart and deploy/ make, and of each operator's Lease."""
JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

DEPLOYMENT: Sort = ("apps", "Deployment")
STATEFUL_SET: Sort = ("apps", "StatefulSet")
LEADER_WORKER_SET: Sort = ("leaderworkerset.x-k8s.io", "LeaderWorkerSet")
ORDINAL = (STATEFUL_SET, LEADER_WORKER_SET)
"""Kinds whose pods that serve are named by a number, and whose scale-down removes the highest, Ready or not."""

GROUP_LABELS = (
    "leaderworkerset.sigs.k8s.io/group-key",
    "modelserving.volcano.sh/group-name",
    "rbg.workloads.x-k8s.io/role-instance-name",
    "roleset-name",
    "ray.io/cluster",
)
"""Labels that the pods of one replica share, and no other pod of the namespace: of LeaderWorkerSet, of kthena's
ModelServing, of RoleBasedGroup's RoleInstance, of AIBrix's StormService, and of a Ray cluster. The first one that a pod
has counts."""
INDEX_LABELS: Mapping[Sort, str] = {
    ("grove.io", "PodCliqueScalingGroup"): "grove.io/podcliquescalinggroup-replica-index",
    ("grove.io", "PodCliqueSet"): "grove.io/podcliqueset-replica-index",
}
"""The same of kinds whose label is a number: it holds among the pods of one selector. Pods of a Grove PodClique have
these labels too, and each is a replica."""
REVISION_LABELS = (
    "leaderworkerset.sigs.k8s.io/template-revision-hash",
    "modelserving.volcano.sh/revision",
    "storm-service-revision",
    "rollouts-pod-template-hash",
    "controller-revision-hash",
    "pod-template-hash",
)
"""Labels that differ between pods of different templates: two values are a rollout. The first one that a pod has
counts: a LeaderWorkerSet's pods have its own, and one of the StatefulSets that it makes for each group.
`rollouts-pod-template-hash` is Argo Rollouts', `controller-revision-hash` a StatefulSet's and a CloneSet's,
`pod-template-hash` a ReplicaSet's."""
REVISION_ENDINGS = ("template-hash", "revision-hash")
"""Endings of such labels of other kinds, such as Grove's: they count where a pod has none of the above."""
REPLICAS: Mapping[Sort, tuple[str, ...]] = {
    ("production-stack.vllm.ai", "VLLMRuntime"): ("spec", "deploymentConfig", "replicas"),
}
"""Path of the number that the scale subresource of a kind sets, where it is not spec.replicas."""

WORKLOADS = frozenset({DEPLOYMENT, STATEFUL_SET, ("apps", "ReplicaSet"), LEADER_WORKER_SET})
"""Kinds whose replicas the object that controls them sets. Other kinds with a scale subresource that belong to another
object, such as RoleBasedGroupScalingAdapter, are made to be scaled."""
ADAPTERS: Mapping[Sort, str] = {
    ("disaggregatedset.x-k8s.io", "DisaggregatedSet"): "DisaggregatedSetRoleScaler",
    ("workloads.x-k8s.io", "RoleBasedGroup"): "RoleBasedGroupScalingAdapter",
    ("nvidia.com", "DynamoGraphDeployment"): "DynamoGraphDeploymentScalingAdapter",
    ("nvidia.com", "DynamoComponentDeployment"): "DynamoGraphDeploymentScalingAdapter",
}
"""Kind through which others may set replicas, for objects that set the replicas of their workloads."""
SCALABLE_PARENTS = frozenset(
    {
        DEPLOYMENT,
        LEADER_WORKER_SET,
        ("grove.io", "PodClique"),
        ("orchestration.aibrix.ai", "RayClusterFleet"),
        ("orchestration.aibrix.ai", "StormService"),
        ("production-stack.vllm.ai", "VLLMRuntime"),
        ("workload.serving.volcano.sh", "ModelServing"),
    }
)
"""Objects that set the replicas of their workloads, and have a scale subresource themselves."""
KSERVE: Sort = ("serving.kserve.io", "InferenceService")
KSERVE_CLASS, KSERVE_EXTERNAL = "serving.kserve.io/autoscalerClass", "external"
"""Annotation of an InferenceService, and of its Deployment, with which KServe leaves the replicas to others. With
`none` it sets them; by default it makes an HPA."""
PARENT_SETS, FALSE = "servingpool.dev/parent-sets-replicas", "false"
"""Annotation of a target with which its user says that the object above it leaves the replicas to others."""


MOST_PODS = 1000
"""Pods of a replica that are read from templates. Anyone who may create a LeaderWorkerSet may ask for 2 billion."""


def group_of(api_version: str) -> str:
    """The API group of `apps/v1`; empty for core."""
    group, slash, _ = api_version.partition("/")
    return group if slash else ""


def group(sort: Sort, labels: Mapping[str, str]) -> tuple[str, str] | None:
    """Label, with its value, that the pods of one replica have in common; None where each pod is a replica."""
    index = INDEX_LABELS.get(sort)
    names = GROUP_LABELS if index is None else (index,)
    return next(((name, labels[name]) for name in names if name in labels), None)


def ordinal(sort: Sort, name: str, pod: str) -> int | None:
    """The number of this pod, by its name, where the kind of the object `name` removes the highest first."""
    base, _, number = pod.rpartition("-")
    return int(number) if sort in ORDINAL and base == name and number.isdecimal() else None


def in_turn(sort: Sort, raw: Raw) -> bool:
    """Whether the pods start one after another: a StatefulSet's do by default."""
    return sort == STATEFUL_SET and raw.get("spec", {}).get("podManagementPolicy") != "Parallel"


def revision(labels: Mapping[str, str]) -> tuple[str, str] | None:
    """The label that tells a pod's template, with its value; None where no label does."""
    known = next((name for name in REVISION_LABELS if name in labels), None)
    found = known or min((name for name in labels if name.endswith(REVISION_ENDINGS)), default=None)
    return None if found is None else (found, labels[found])


def pod_specs(sort: Sort, raw: Raw) -> list[Raw] | None:
    """Specs of the pods of one replica, by the object's templates, the serving pod first.

    None where the kind's templates are not known, or ask for more than `MOST_PODS`.
    """
    spec: Raw = raw.get("spec", {})
    if sort in {DEPLOYMENT, STATEFUL_SET}:
        return [spec.get("template", {}).get("spec", {})]
    if sort == LEADER_WORKER_SET:
        group: Raw = spec.get("leaderWorkerTemplate", {})
        worker = group.get("workerTemplate", {})
        leader, size = group.get("leaderTemplate") or worker, int(group.get("size", 1))
        if size <= MOST_PODS:
            return [each.get("spec", {}) for each in (leader, *[worker] * (size - 1))]
    return None


def version_of(group: str, version: str) -> str:
    """Group and version as manifests write them, such as `apps/v1`; `v1` of the core group, which is empty."""
    return f"{group}/{version}" if group else version


def base_of(api_version: str) -> str:
    """Path of a group's version, where its resources are listed."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def path_of(api_version: str, plural: str, namespace: str | None = None, name: str | None = None) -> str:
    """Path of an object, of all in a namespace, or of all in the cluster. Names are quoted."""
    within = "" if namespace is None else f"/namespaces/{quote(namespace, safe='')}"
    return f"{base_of(api_version)}{within}/{plural}" + ("" if name is None else f"/{quote(name, safe='')}")


def plural_of(resources: Iterable[Mapping[str, Any]], kind: str) -> str | None:
    """Plural name of a kind, by the resources that an API version lists; None where it does not list the kind."""
    return next((str(one["name"]) for one in resources if one["kind"] == kind and "/" not in one["name"]), None)
