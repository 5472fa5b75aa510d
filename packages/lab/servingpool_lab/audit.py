"""What the API server writes down of who sets replicas and statuses, and of autoscalers and pools that come and go."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from servingpool_lab.control_plane import ControlPlane

WRITTEN = (
    ("apps", ["deployments", "deployments/scale"]),
    ("autoscaling", ["horizontalpodautoscalers"]),
    ("keda.sh", ["scaledobjects"]),
    ("servingpool.dev", ["servingpools"]),
)
RULE = {
    "level": "Request",
    "verbs": ["create", "update", "patch", "delete"],
    "resources": [{"group": group, "resources": resources} for group, resources in WRITTEN],
}
STATUS_RULE = {
    # Who and when: with what they say, the statuses of a long run would be its largest file.
    "level": "Metadata",
    "verbs": ["patch"],
    "resources": [{"group": "servingpool.dev", "resources": ["servingpools/status"]}],
}


@dataclass(frozen=True)
class Write:
    """A request that changed something."""

    at: str
    """When it was answered; times of one server sort as they are written."""
    user: str
    verb: str
    resource: str
    name: str
    body: Any

    @property
    def seconds(self) -> float:
        """`at` in Unix time, in seconds."""
        return datetime.fromisoformat(self.at).timestamp()

    @property
    def replicas(self) -> int | None:
        """What it set; None if it set no replicas."""
        if self.resource not in {"deployments", "deployments/scale"}:
            return None
        if isinstance(self.body, list):
            return next((one["value"] for one in self.body if one["op"] in {"replace", "add"}), None)
        replicas: int | None = (self.body or {}).get("spec", {}).get("replicas")
        return replicas


def flags(directory: Path) -> list[str]:
    """Flags of a kube-apiserver that writes it down."""
    head = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"]}
    policy = directory / "audit-policy.yaml"
    policy.write_text(yaml.safe_dump({**head, "rules": [RULE, STATUS_RULE, {"level": "None"}]}))
    return [f"--audit-policy-file={policy}", f"--audit-log-path={directory / 'audit.log'}"]


def writes(plane: ControlPlane, namespace: str) -> list[Write]:
    """All that changed something in a namespace, in the order of the answers."""
    found = []
    for line in (plane.directory / "audit.log").read_text().splitlines():
        event = json.loads(line)
        where = event["objectRef"]
        if where.get("namespace") != namespace or event.get("responseStatus", {}).get("code", 500) >= 400:
            continue
        subresource = f"/{where['subresource']}" if "subresource" in where else ""
        found.append(
            Write(
                at=event["stageTimestamp"],
                user=event["user"]["username"],
                verb=event["verb"],
                resource=where["resource"] + subresource,
                name=where.get("name", ""),
                body=event.get("requestObject"),
            )
        )
    return sorted(found, key=lambda write: write.at)
