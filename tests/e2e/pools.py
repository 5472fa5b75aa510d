"""Pools: their manifests, and what the operator says of them."""

from __future__ import annotations

import json
from typing import Any

from servingpool.api.group import API_VERSION, KIND

from .cluster import Cluster
from .waiting import eventually

BEHAVIOR = {"calibration": "20s", "coldStart": "20s", "scaleDownWindow": "20s"}
"""Short, for a test cannot wait five minutes before anything may shrink."""


def serving_pool(namespace: str, name: str, **spec: Any) -> dict[str, Any]:
    """A pool of the model and the Deployment of its own name."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": name,
            "slo": {"timeToFirstToken": "2s", "timePerOutputToken": "300ms"},
            "targets": [{"name": name, "min": 1, "max": 4, "gpusPerReplica": 1}],
            "behavior": BEHAVIOR,
            **spec,
        },
    }


def path(namespace: str, name: str) -> str:
    """Of a pool, at the API server."""
    return f"/apis/{API_VERSION}/namespaces/{namespace}/servingpools/{name}"


def status(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    """A pool's status; empty before the operator has judged it."""
    found: dict[str, Any] = cluster.client.get(path(namespace, name)).get("status", {})
    return found


def condition(cluster: Cluster, namespace: str, name: str, type_: str) -> tuple[str, str]:
    """Status and reason; two empty words where it was not judged yet."""
    for one in status(cluster, namespace, name).get("conditions", []):
        if one["type"] == type_:
            return one["status"], one["reason"]
    return "", ""


def message(cluster: Cluster, namespace: str, name: str, type_: str) -> str:
    """What a condition says to people."""
    conditions = status(cluster, namespace, name).get("conditions", [])
    return next((one.get("message", "") for one in conditions if one["type"] == type_), "")


def wait_condition(
    cluster: Cluster, namespace: str, name: str, type_: str, expected: tuple[str, str], seconds: float = 90.0
) -> None:
    """Until a condition has this status and reason."""
    try:
        eventually(
            lambda: condition(cluster, namespace, name, type_) == expected, seconds, f"{name}: {type_} {expected}"
        )
    except AssertionError as late:
        said = json.dumps(status(cluster, namespace, name).get("conditions"), indent=1)
        raise AssertionError(f"{late}; conditions are {said}") from None


def wait_decided(cluster: Cluster, namespace: str, name: str, seconds: float = 90.0) -> dict[str, Any]:
    """The status, once there is a decision."""
    return eventually(
        lambda: found if "lastDecision" in (found := status(cluster, namespace, name)) else {},
        seconds,
        f"{name}: a decision",
    )
