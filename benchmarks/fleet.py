"""The pools that are measured, and their objects as an API server hands them out. The same for every run."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from servingpool.api.group import API_VERSION, KIND

OBJECTIVES = (("1s", "50ms"), ("2s", "100ms"), ("5s", "100ms"))
"""Three kinds of SLO, so that the buckets around several bounds are read, as in a mixed fleet."""
MOST_REPLICAS = 8
BUDGET = "budget-"
"""Its number follows."""
SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
"""What Kubernetes makes the names of pods of."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One pool, its Deployment and its model, all of one name."""

    index: int
    namespace: str
    name: str

    @property
    def model(self) -> str:
        return self.name


def entries(count: int, per_namespace: int) -> list[Entry]:
    """So many pools, so many of them in each namespace."""
    return [Entry(i, f"team-{i // per_namespace:03d}", f"model-{i:04d}") for i in range(count)]


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod_name(entry: Entry, ordinal: int) -> str:
    """As a ReplicaSet makes it."""
    dice = random.Random(entry.index * 1000 + ordinal)
    return f"{entry.name}-7d4b9c6f58-{''.join(dice.choices(SUFFIX, k=5))}"


def serving_pool(entry: Entry, replicas: int) -> dict[str, Any]:
    """A manifest. The fleet stays near its size: what is measured is the operator, not its taste."""
    ttft, tpot = OBJECTIVES[entry.index % len(OBJECTIVES)]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": entry.name, "namespace": entry.namespace},
        "spec": {
            "model": entry.model,
            "engine": "vllm",
            "mode": "Auto",
            "slo": {"timeToFirstToken": ttft, "timePerOutputToken": tpot, "attainment": 95},
            "targets": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "name": entry.name,
                    "min": replicas,
                    "max": max(MOST_REPLICAS, replicas),
                    "costPerReplicaHour": 2.5,
                }
            ],
            "metrics": {"backend": "default"},
        },
    }


def budget_labels(number: int) -> dict[str, str]:
    """Of pools that share the budget of this number."""
    return {"budget": f"{BUDGET}{number}"}


def gpu_budget(number: int, gpus: int) -> dict[str, Any]:
    """A manifest."""
    selector = {"matchLabels": budget_labels(number)}
    return {"metadata": {"name": f"{BUDGET}{number}"}, "spec": {"gpus": gpus, "poolSelector": selector}}


def deployment(entry: Entry, replicas: int) -> dict[str, Any]:
    labels = {"app": entry.name}
    container = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.32.0",
        "ports": [{"containerPort": 8000}],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": entry.name, "namespace": entry.namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
            },
        },
    }


def replica_set(entry: Entry) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{entry.name}-7d4b9c6f58",
            "namespace": entry.namespace,
            "uid": f"replicaset-{entry.index}",
            "ownerReferences": [_owner("apps/v1", "Deployment", entry.name, f"deployment-{entry.index}")],
        },
    }


def pod(entry: Entry, ordinal: int, *, created_at: float, ready_at: float | None) -> dict[str, Any]:
    """A pod with the fields that one of kube-apiserver has: four conditions, a container's status, its owner."""
    name = pod_name(entry, ordinal)
    since = stamp(created_at if ready_at is None else ready_at)
    ready = "False" if ready_at is None else "True"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "generateName": f"{entry.name}-7d4b9c6f58-",
            "namespace": entry.namespace,
            "uid": f"pod-{entry.index}-{ordinal}",
            "resourceVersion": "1",
            "creationTimestamp": stamp(created_at),
            "labels": {"app": entry.name, "pod-template-hash": "7d4b9c6f58"},
            "ownerReferences": [
                _owner("apps/v1", "ReplicaSet", f"{entry.name}-7d4b9c6f58", f"replicaset-{entry.index}")
            ],
        },
        "spec": deployment(entry, 1)["spec"]["template"]["spec"] | {"nodeName": "gpu-0"},
        "status": {
            "phase": "Running",
            "startTime": stamp(created_at),
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(created_at)},
                {"type": "Initialized", "status": "True", "lastTransitionTime": stamp(created_at)},
                {"type": "ContainersReady", "status": ready, "lastTransitionTime": since},
                {"type": "Ready", "status": ready, "lastTransitionTime": since},
            ],
            "containerStatuses": [{"name": "vllm", "ready": ready_at is not None, "restartCount": 0}],
        },
    }


def stored(manifest: dict[str, Any], kind: str, index: int, at: float) -> dict[str, Any]:
    """A manifest with what the API server adds to it."""
    added = {
        "uid": f"{kind}-{index}",
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": stamp(at),
    }
    return manifest | {"metadata": manifest["metadata"] | added}


def _owner(api_version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}
