"""What stands around a Deployment, read once: its pods, who scales it, the nodes it runs on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from servingpool.adapters.cluster import objects
from servingpool.adapters.cluster.autoscaling import AUTOSCALERS, made_by_keda
from servingpool.adapters.cluster.client import Cluster
from servingpool.adapters.cluster.errors import ClusterError, NotFound
from servingpool.adapters.cluster.objects import Key, Pod, Raw, Workload


@dataclass(frozen=True, slots=True)
class Survey:
    """One Deployment as it is now."""

    workload: Workload
    pods: tuple[Pod, ...]
    """Those of its selector."""
    autoscalers: tuple[Raw, ...]
    """HPAs and ScaledObjects that scale it, as the API server has them."""
    nodes: tuple[Mapping[str, str], ...]
    """Labels of the nodes that its pods run on; empty where they may not be read."""

    @property
    def ready(self) -> list[str]:
        """Names of the pods that are Ready and stay."""
        return sorted(one.name for one in self.pods if one.ready_since is not None and not one.going)

    @property
    def starts(self) -> tuple[float, ...]:
        """Seconds from creation to Ready of the pods that are Ready."""
        times = (one.ready_since - one.created_at for one in self.pods if one.ready_since is not None)
        return tuple(sorted(each for each in times if each > 0.0))


async def survey(cluster: Cluster, target: Key) -> Survey:
    """Read it. NotFound without such a Deployment; ClusterError where the cluster does not answer."""
    namespace, name = target
    raw = await cluster.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
    selector = raw["spec"]["selector"]
    listed = await cluster.get(f"/api/v1/namespaces/{namespace}/pods", labelSelector=_selector(selector))
    read = [(one, each) for each in listed["items"] if (one := objects.pod(each)) is not None]
    names = sorted({each["spec"].get("nodeName", "") for _, each in read} - {""})
    return Survey(
        workload=objects.workload(raw),
        pods=tuple(one for one, _ in read),
        autoscalers=tuple([each for each in await autoscalers(cluster, namespace) if _scales(each, name)]),
        nodes=tuple([labels for node in names if (labels := await _labels(cluster, node)) is not None]),
    )


async def deployments(cluster: Cluster) -> list[Key]:
    """Namespaces and names of all Deployments with a replica. ClusterError."""
    listed = await cluster.get("/apis/apps/v1/deployments")
    return sorted(objects.key_of(raw) for raw in listed["items"] if raw.get("status", {}).get("readyReplicas"))


async def scaled_by(cluster: Cluster, namespace: str, kind: str, name: str) -> Key:
    """The Deployment that an HPA (`hpa`) or a ScaledObject scales. NotFound, and ClusterError."""
    group, plural = AUTOSCALERS[kind][:2]
    raw = await cluster.get(f"/apis/{group}/namespaces/{namespace}/{plural}/{name}")
    found = objects.autoscaler({**raw, "kind": AUTOSCALERS[kind][2]})
    if found is None:
        raise ClusterError(f"{plural}/{name} scales no Deployment")
    return found.target


async def autoscalers(cluster: Cluster, namespace: str) -> list[Raw]:
    """HPAs and, where KEDA is installed, ScaledObjects of a namespace. A ScaledObject's own HPA is left out."""
    found: list[Raw] = []
    for group, plural, kind in AUTOSCALERS.values():
        try:
            listed = await cluster.get(f"/apis/{group}/namespaces/{namespace}/{plural}")
        except NotFound:
            continue
        found += [{**each, "kind": kind} for each in listed["items"] if made_by_keda(each) is None]
    return found


async def _labels(cluster: Cluster, node: str) -> dict[str, str] | None:
    try:
        return dict((await cluster.get(f"/api/v1/nodes/{node}"))["metadata"].get("labels", {}))
    except ClusterError:  # a tenant may not read nodes
        return None


def _scales(raw: Raw, name: str) -> bool:
    one = objects.autoscaler(raw)
    return one is not None and one.target[1] == name


def _selector(selector: Mapping[str, Any]) -> str:
    """A label selector as a query writes it."""
    terms = [f"{key}={value}" for key, value in selector.get("matchLabels", {}).items()]
    for one in selector.get("matchExpressions", ()):
        key, operator, values = one["key"], one["operator"], ",".join(one.get("values", ()))
        terms.append(
            {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}.get(operator, f"!{key}")
        )
    return ",".join(terms)
