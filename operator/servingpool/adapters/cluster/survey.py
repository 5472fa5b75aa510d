"""Surroundings of a workload, read once: its pods, its autoscalers, its nodes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple

from servingpool.adapters.cluster import kinds, objects
from servingpool.adapters.cluster.autoscaling import AUTOSCALERS, made_by_keda
from servingpool.adapters.cluster.client import Cluster
from servingpool.adapters.cluster.errors import ClusterError, Forbidden, NotFound, Unfit
from servingpool.adapters.cluster.kinds import Sort, path_of
from servingpool.adapters.cluster.objects import Kind, Pod, Raw, TargetKey, Workload
from servingpool.adapters.cluster.scale import Discovery, Fault, Unscalable, owned_by, read_target


class Named(NamedTuple):
    """A workload, as it is given to a command."""

    namespace: str
    kind: str
    """Kind as kubectl takes it."""
    name: str


@dataclass(frozen=True, slots=True)
class Survey:
    """A workload as it is now."""

    workload: Workload
    pods: tuple[Pod, ...]
    """Pods of the workload's selector: of a group of pods the leading pod."""
    autoscalers: tuple[Raw, ...]
    """HPAs and ScaledObjects that scale it, as the API server has them."""
    nodes: tuple[Mapping[str, str], ...]
    """Labels of the nodes that its pods run on; empty where they may not be read."""

    @property
    def ready(self) -> list[str]:
        """Names of the pods that are Ready and stay."""
        return sorted(one.name for one in self.pods if _stays(one))

    @property
    def starts(self) -> tuple[float, ...]:
        """Seconds from creation to Ready of the pods that are Ready."""
        times = (one.ready_since - one.created_at for one in self.pods if one.ready_since is not None)
        return tuple(sorted(each for each in times if each > 0.0))


async def workload_of(cluster: Cluster, namespace: str, kind: str, name: str) -> tuple[Workload, list[Raw]]:
    """A workload of a kind as kubectl takes it, and its pods as the API server has them.

    NotFound without such a workload, Unfit where it cannot be scaled; ClusterError where the cluster does not answer.
    """
    discovery = Discovery(cluster, time.monotonic)
    try:
        api_version, found = await discovery.find(kind)
        key = TargetKey(namespace, name, found, kinds.group_of(api_version))
        _, workload = await read_target(cluster, discovery, key, api_version)
    except Unscalable as problem:
        if problem.fault is Fault.NO_TARGET:
            raise await _missing(cluster, key, await discovery.resource(api_version, found)) from None
        if isinstance(problem.__cause__, ClusterError):  # the API server's own answer says more
            raise problem.__cause__ from None
        raise Unfit(f"Cannot read {kind} {namespace}/{name}: {problem.fault.value}") from problem
    assert workload.selector is not None
    listed = await cluster.get(path_of("v1", "pods", namespace), labelSelector=workload.selector.text)
    return workload, list(owned_by(workload.uid, listed["items"]))


async def _missing(cluster: Cluster, key: TargetKey, resource: Kind) -> NotFound:
    """That there is no such workload, with the names near to its own."""
    error = NotFound(f"Cannot read {key.kind} {key.name} in namespace {key.namespace}: it does not exist")
    with contextlib.suppress(ClusterError):
        there = await cluster.get(path_of("/".join(filter(None, resource[:2])), resource[2], key.namespace))
        error.near = tuple(get_close_matches(key.name, [one["metadata"]["name"] for one in there["items"]]))
    return error


async def ready_pods(cluster: Cluster, namespace: str, kind: str, name: str) -> tuple[Workload, dict[str, str]]:
    """A workload, and of its pods that are Ready and stay the name and the replica's. Raises as `workload_of`."""
    workload, listed = await workload_of(cluster, namespace, kind, name)
    pods = sorted((one for one in map(objects.pod, listed) if _stays(one)), key=lambda one: one.name)
    return workload, {one.name: (kinds.group(workload.key.sort, one.labels) or ("", one.name))[1] for one in pods}


async def survey(cluster: Cluster, namespace: str, kind: str, name: str) -> Survey:
    """Read it. Raises as `workload_of`."""
    workload, listed = await workload_of(cluster, namespace, kind, name)
    names = sorted({each["spec"].get("nodeName", "") for each in listed} - {""})
    scaling = [(each, objects.autoscaler(each)) for each in await autoscalers(cluster, namespace)]
    return Survey(
        workload=workload,
        pods=tuple(map(objects.pod, listed)),
        autoscalers=tuple(raw for raw, one in scaling if one is not None and one.target == workload.key),
        nodes=tuple([labels for node in names if (labels := await _labels(cluster, node)) is not None]),
    )


async def scalables(cluster: Cluster, say: Callable[[str], object]) -> list[Named]:
    """Objects of the cluster that can be scaled, except those whose replicas another such object sets.

    `say` is told what may not be listed. ClusterError where that is Deployments.
    """
    deployments = (await cluster.get(path_of("apps/v1", "deployments")))["items"]
    found: dict[Sort, tuple[str, list[Raw]]] = {kinds.DEPLOYMENT: (given_kind(kinds.DEPLOYMENT), deployments)}
    for api_version, kind, plural in await Discovery(cluster, time.monotonic).scalable():
        sort = (kinds.group_of(api_version), kind)
        if sort in found:
            continue
        try:
            found[sort] = given_kind(sort), (await cluster.get(path_of(api_version, plural)))["items"]
        except ClusterError as error:
            say(f"{error}: left out.")
    return sorted(
        Named(key.namespace, kind, key.name)
        for (group, sort), (kind, items) in found.items()
        for raw in items
        # Other kinds have no such figure; whether they have pods, the survey of each tells.
        if group != "apps" or raw.get("status", {}).get("readyReplicas")
        for key in [TargetKey(*objects.key_of(raw), sort, group)]
        if (parent := objects.parent_of(key, raw["metadata"])) is None or parent.sort not in found
    )


async def surveyed(
    cluster: Cluster, targets: Iterable[Named], say: Callable[[str], object]
) -> AsyncIterator[tuple[Named, Survey]]:
    """Each workload with its survey. `say` is told why a workload cannot be read. Raises ClusterError."""
    for target in targets:
        try:
            found = await survey(cluster, *target)
        except (NotFound, Forbidden, Unfit) as error:
            say(f"{error}: left out.")
        else:
            yield target, found


def given_kind(sort: Sort) -> str:
    """A kind, as it is given to a command."""
    group, kind = sort
    return kind.lower() if sort in {kinds.DEPLOYMENT, kinds.STATEFUL_SET} else f"{kind}.{group}".rstrip(".").lower()


async def scaled_by(cluster: Cluster, namespace: str, kind: str, name: str) -> TargetKey:
    """The workload that an HPA (`hpa`) or a ScaledObject scales. NotFound, and ClusterError."""
    version, plural = AUTOSCALERS[kind][:2]
    raw = await cluster.get(path_of(version, plural, namespace, name))
    found = objects.autoscaler({**raw, "kind": AUTOSCALERS[kind][2]})
    if found is None:
        raise ClusterError(f"{plural}/{name} scales nothing")
    return found.target


async def autoscalers(cluster: Cluster, namespace: str) -> list[Raw]:
    """HPAs and, where KEDA is installed, ScaledObjects of a namespace. A ScaledObject's own HPA is left out."""
    found: list[Raw] = []
    for version, plural, kind in AUTOSCALERS.values():
        try:
            listed = await cluster.get(path_of(version, plural, namespace))
        except NotFound:
            continue
        found += [{**each, "kind": kind} for each in listed["items"] if made_by_keda(each) is None]
    return found


async def _labels(cluster: Cluster, node: str) -> dict[str, str] | None:
    try:
        return dict((await cluster.get(path_of("v1", "nodes", name=node)))["metadata"].get("labels", {}))
    except ClusterError:  # a tenant may not read nodes
        return None


def _stays(one: Pod) -> bool:
    return one.ready_since is not None and not one.going
