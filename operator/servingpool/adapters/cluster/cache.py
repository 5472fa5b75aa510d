"""The objects that the watches have shown, indexed by Deployment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from servingpool.adapters.cluster import objects
from servingpool.adapters.cluster.autoscaling import paused
from servingpool.adapters.cluster.objects import Autoscaler, Key, Pod, Raw, Workload


class ClusterCache:
    """The cluster as last seen. Only handlers write to it, and the loop reads it, all in one event loop.

    Pods are found through the owner chain (Deployment, ReplicaSet, Pod), as the API server records it: people
    choose names and labels, and two Deployments with the same labels are common.
    """

    def __init__(self) -> None:
        self.pools: dict[Key, Raw] = {}
        self._workloads: dict[Key, Workload] = {}
        self._revisions: dict[str, str] = {}
        """ReplicaSet uid to Deployment uid."""
        self._revisions_of: defaultdict[str, set[str]] = defaultdict(set)
        self._pods: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        """ReplicaSet uid to its pods by uid."""
        self._owners: dict[str, str] = {}
        """Pod uid to ReplicaSet uid."""
        self._costly: dict[str, str] = {}
        """Uid and namespace of the pods with a deletion cost of ours."""
        self._autoscalers: dict[tuple[str, Key], Autoscaler] = {}
        self._autoscaled: defaultdict[Key, set[tuple[str, Key]]] = defaultdict(set)

    def see_pool(self, raw: Raw, *, gone: bool) -> None:
        """A ServingPool was added, changed or deleted; likewise for the others."""
        key, uid = objects.key_of(raw), raw["metadata"]["uid"]
        if gone:
            self.forget_pool(key, uid)
        else:
            self.pools[key] = objects.pool(raw)

    def forget_pool(self, key: Key, uid: str) -> None:
        """A ServingPool no longer exists; another one of its name may."""
        # Events of different objects come in any order: a deletion may arrive after the next object of that name.
        if key in self.pools and self.pools[key]["metadata"]["uid"] == uid:
            del self.pools[key]

    def see_workload(self, raw: Raw, *, gone: bool) -> None:
        """A Deployment."""
        key, uid = objects.key_of(raw), raw["metadata"]["uid"]
        if not gone:
            self._workloads[key] = objects.workload(raw)
        elif key in self._workloads and self._workloads[key].uid == uid:
            del self._workloads[key]

    def see_replica_set(self, raw: Raw, *, gone: bool) -> None:
        """A ReplicaSet."""
        uid = raw["metadata"]["uid"]
        revision = None if gone else objects.replica_set(raw)
        before = self._revisions.pop(uid, None)
        if before is not None:
            self._revisions_of[before].discard(uid)
            if not self._revisions_of[before]:
                del self._revisions_of[before]
        if revision is not None:
            self._revisions[uid] = revision.owner
            self._revisions_of[revision.owner].add(uid)

    def see_pod(self, raw: Raw, *, gone: bool) -> None:
        """A pod."""
        uid = raw["metadata"]["uid"]
        pod = None if gone else objects.pod(raw)
        # Its former ReplicaSet, not the one it names now: a pod that is relabelled by hand is released.
        before = self._owners.pop(uid, None)
        if before is not None:
            del self._pods[before][uid]
            if not self._pods[before]:
                del self._pods[before]
        self._costly.pop(uid, None)
        if pod is not None:
            self._owners[uid] = pod.owner
            self._pods[pod.owner][uid] = pod
            if pod.cost is not None and pod.cost.ours and not pod.going:
                self._costly[uid] = objects.key_of(raw)[0]

    def see_autoscaler(self, raw: Raw, *, gone: bool) -> None:
        """An HPA or a ScaledObject; one that KEDA has paused scales nothing."""
        name = (raw["kind"], objects.key_of(raw))
        held = self._autoscalers.get(name)
        if gone and held is not None and held.uid != raw["metadata"]["uid"]:
            return
        before = self._autoscalers.pop(name, None)
        if before is not None:
            self._autoscaled[before.target].discard(name)
            if not self._autoscaled[before.target]:
                del self._autoscaled[before.target]
        autoscaler = None if gone or paused(raw) else objects.autoscaler(raw)
        if autoscaler is not None:
            self._autoscalers[name] = autoscaler
            self._autoscaled[autoscaler.target].add(name)

    def workload(self, key: Key) -> Workload | None:
        """The Deployment of this namespace and name."""
        return self._workloads.get(key)

    def scaled(self, known: Workload, replicas: int) -> None:
        """Apply our own scale before the watch shows it, so that the next tick does not decide on the old number.

        `known` is the Deployment that was scaled. Our scale adds one generation, and so does a rollout before it; a
        later generation is newer than our scale.
        """
        held = self._workloads.get(known.key)
        if held is not None and held.uid == known.uid and held.generation <= known.generation + 1:
            self._workloads[known.key] = replace(held, replicas=replicas)

    def pods(self, workload: Workload) -> Iterator[Pod]:
        """Its pods that are not being deleted."""
        for revision in self._revisions_of.get(workload.uid, ()):
            yield from (pod for pod in self._pods.get(revision, {}).values() if not pod.going)

    def costly(self) -> Iterator[tuple[str, Pod, Workload | None]]:
        """Pods with our deletion cost: namespace, pod, and its Deployment if that still exists."""
        by_uid = {workload.uid: workload for workload in self._workloads.values()} if self._costly else {}
        for uid, namespace in self._costly.items():
            pod = self._pods[self._owners[uid]][uid]
            yield namespace, pod, by_uid.get(self._revisions.get(pod.owner, ""))

    def rolling_out(self, workload: Workload) -> bool:
        """Whether pods of more than one revision exist."""
        standing = (
            any(not pod.going for pod in self._pods.get(revision, {}).values())
            for revision in self._revisions_of.get(workload.uid, ())
        )
        return sum(standing) > 1

    def autoscalers(self, target: Key) -> list[Autoscaler]:
        """Who else scales this Deployment; a ScaledObject before the HPA that KEDA makes of it."""
        found = [self._autoscalers[name] for name in self._autoscaled.get(target, ())]
        return sorted(found, key=lambda autoscaler: autoscaler.kind, reverse=True)
