"""Stand-ins for controllers of other projects: they make pods with the labels that theirs have, and fill in the status.

They are no more than that: no rollout, no gang, no recreation of a group. What the labels and selectors are is read from
the projects' sources at the commits of tests/fixtures/crds/README.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from servingpool_lab.api_client import ApiError
from servingpool_lab.control_plane import ControlPlane

from .beside import Beside


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind, and how its controller lays out a replica."""

    api_version: str
    kind: str
    plural: str
    selector: str
    """Of its scale subresource; `{name}` is the object's."""
    pods: tuple[Mapping[str, str], ...]
    """Labels of each pod of a replica; `{name}` and `{index}`, the replica's. The first one serves."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """What the CRD requires besides replicas."""

    def manifest(self, namespace: str, name: str, replicas: int) -> dict[str, Any]:
        meta = {"name": name, "namespace": namespace}
        spec = {**self.spec, "replicas": replicas}
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": meta, "spec": spec}


LWS = "leaderworkerset.sigs.k8s.io"
DS = "disaggregatedset.x-k8s.io"
RBG = "rbg.workloads.x-k8s.io"
ROLE_SCALER = Kind(
    "disaggregatedset.x-k8s.io/v1",
    "DisaggregatedSetRoleScaler",
    "disaggregatedsetrolescalers",
    f"{DS}/name={{name}},{DS}/role=decode,{LWS}/worker-index=0",
    tuple(
        {
            f"{DS}/name": "{name}",
            f"{DS}/role": "decode",
            f"{LWS}/name": "{name}-1",
            f"{LWS}/worker-index": str(worker),
            f"{LWS}/group-index": "{index}",
            f"{LWS}/group-key": "{name}-{index}",
        }
        for worker in range(2)
    ),
)
"""pkg/controllers/disaggregatedset/scaler_manager.go: the leaders of the role's groups."""
SCALING_ADAPTER = Kind(
    "workloads.x-k8s.io/v1alpha2",
    "RoleBasedGroupScalingAdapter",
    "rolebasedgroupscalingadapters",
    f"{RBG}/group-name={{name}},{RBG}/role-name=decode,{RBG}/component-index=0",
    tuple(
        {
            f"{RBG}/group-name": "{name}",
            f"{RBG}/role-name": "decode",
            f"{RBG}/role-instance-name": "{name}-decode-{index}",
            f"{RBG}/component-index": str(component),
        }
        for component in range(2)
    ),
    {"scaleTargetRef": {"name": "group", "role": "decode"}},
)
"""internal/controller/workloads/rolebasedgroupscalingadapter_controller.go: of each RoleInstance the first component."""
SCALING_GROUP = Kind(
    "grove.io/v1alpha1",
    "PodCliqueScalingGroup",
    "podcliquescalinggroups",
    "app.kubernetes.io/part-of=set,grove.io/podcliquescalinggroup={name}",
    tuple(
        {
            "app.kubernetes.io/part-of": "set",
            "grove.io/podcliquescalinggroup": "{name}",
            "grove.io/podcliquescalinggroup-replica-index": "{index}",
            "grove.io/podclique": f"{{name}}-{{index}}-{clique}",
        }
        for clique in ("leader", "worker")
    ),
    {"cliqueNames": ["leader", "worker"]},
)
"""operator/internal/controller/podcliquescalinggroup/reconcilestatus.go: all pods of all cliques."""
STAND_IN = "stand-in.example.com/of"


class StandIn(Beside):
    """Runs for these kinds in one namespace, twice a second."""

    def __init__(self, plane: ControlPlane, namespace: str, kinds: tuple[Kind, ...]) -> None:
        self._plane, self._namespace, self._kinds = plane, namespace, kinds

    def _run(self) -> None:
        while not self._over.wait(0.5):
            for kind in self._kinds:
                with contextlib.suppress(OSError, ApiError):  # the next turn tries again
                    self._reconcile(kind)

    def _reconcile(self, kind: Kind) -> None:
        client = self._plane.client
        path = f"/apis/{kind.api_version}/namespaces/{self._namespace}/{kind.plural}"
        pods = f"/api/v1/namespaces/{self._namespace}/pods"
        for each in client.items(path):
            name, replicas = each["metadata"]["name"], each["spec"]["replicas"]
            there = {
                pod["metadata"]["name"]
                for pod in client.items(f"{pods}?labelSelector={STAND_IN.replace('/', '%2F')}%3D{name}")
                if "deletionTimestamp" not in pod["metadata"]
            }
            wanted = {
                f"{name}-{index}-{number}": _pod(kind, name, index, number)
                for index in range(replicas)
                for number in range(len(kind.pods))
            }
            for gone in there - wanted.keys():
                client.delete(f"{pods}/{gone}")
            for new in wanted.keys() - there:
                client.create(pods, wanted[new])
            status = {"replicas": replicas, "selector": kind.selector.format(name=name)}
            if each.get("status", {}) | status != each.get("status", {}):
                client.patch(f"{path}/{name}/status", {"status": status})


def _pod(kind: Kind, name: str, index: int, number: int) -> dict[str, Any]:
    labels = {key: value.format(name=name, index=index) for key, value in kind.pods[number].items()}
    serves = {"app": name} if number == 0 else {}
    container = {
        "name": "vllm",
        "image": "vllm/vllm-openai:latest",
        "ports": [{"containerPort": 8000}],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{index}-{number}",
            "labels": {STAND_IN: name, **serves, **labels},
            "annotations": {"prometheus.io/scrape": "true"},
        },
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }
