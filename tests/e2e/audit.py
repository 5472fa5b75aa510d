"""What the API server wrote down of who changed whose replicas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .cluster import AUDIT_LOG, Cluster

SCALES = ("deployments/scale", "statefulsets/scale")
OK = 200


@dataclass(frozen=True)
class Write:
    """One request that was to change something."""

    user: str
    verb: str
    resource: str
    """With its subresource: `deployments/scale`."""
    namespace: str
    name: str
    code: int
    """HTTP status of the answer."""
    replicas: int | None
    """Asked for, on a scale."""


def writes(cluster: Cluster, user: str) -> list[Write]:
    """Every write of `user` since the cluster was made."""
    return [write for write in _read(cluster) if write.user == user]


def scales(cluster: Cluster, user: str, namespace: str) -> list[Write]:
    """What `user` wrote to the scale of any workload there, refused or not."""
    return [one for one in writes(cluster, user) if one.namespace == namespace and one.resource in SCALES]


def _read(cluster: Cluster) -> Iterator[Write]:
    # Rotated files too, the oldest first.
    text = cluster.node("sh", "-c", f"cat $(ls -tr {AUDIT_LOG.removesuffix('.log')}*.log)")
    for line in text.splitlines():
        event = json.loads(line)
        where = event["objectRef"]
        subresource = f"/{where['subresource']}" if "subresource" in where else ""
        yield Write(
            user=event["user"]["username"],
            verb=event["verb"],
            resource=where["resource"] + subresource,
            namespace=where.get("namespace", ""),
            name=where.get("name", ""),
            code=event.get("responseStatus", {}).get("code", 0),
            replicas=_replicas(event.get("requestObject")),
        )


def _replicas(body: Any) -> int | None:
    """Of a Scale, or of a JSON patch of one."""
    if isinstance(body, list):
        asked = [step["value"] for step in body if step["op"] != "test" and step["path"] == "/spec/replicas"]
        return asked[-1] if asked else None
    replicas: int | None = (body or {}).get("spec", {}).get("replicas")
    return replicas
