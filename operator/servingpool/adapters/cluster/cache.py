"""The objects that the watches have shown, and the targets that were read, by target."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from servingpool.adapters.cluster import kinds, objects
from servingpool.adapters.cluster.autoscaling import paused
from servingpool.adapters.cluster.left_out import LeftOut, reason, tolerant
from servingpool.adapters.cluster.objects import NO_OWNER, Autoscaler, Key, Owner, Pod, Raw, TargetKey, Workload
from servingpool.adapters.cluster.selector import Selector
from servingpool.api.group import KIND

Owned = tuple[str, str]
"""Namespace and uid of an object that may own others."""
LONGEST_CHAIN = 8
"""Owners above a pod that are followed: from a worker of a group to its leader, and to what made that."""


Place = TypeVar("Place")
Name = TypeVar("Name")


def _remove(held: dict[Place, dict[Name, Any]], place: Place, name: Name) -> None:
    held.get(place, {}).pop(name, None)
    if not held.get(place, True):
        del held[place]


def _version(pool: Raw) -> tuple[object, ...]:
    # A change of labels is none of the generation.
    return tuple(pool["metadata"].get(name) for name in ("uid", "generation", "labels"))


class ClusterCache:
    """The cluster as last seen. Only handlers and `scale` write to it, and the loop reads it, all in one event loop.

    A Deployment's pods are found through the owner chain (Deployment, ReplicaSet, Pod), as the API server records it:
    people choose names and labels, and two Deployments with the same labels are common. Those of other kinds are the
    ones that the scale subresource selects; if some of these have an owner chain to the target, only those.

    An owner counts in its own namespace alone, as for the API server: uids are no secret.
    """

    def __init__(self) -> None:
        self.pools: dict[Key, Raw] = {}
        self.budgets: dict[str, Raw] = {}
        """GPUBudgets by name."""
        self.namespaces: dict[str, Mapping[str, str]] = {}
        """Labels by name."""
        self.edition = 0
        """Rises with each change of a budget or of a namespace."""
        self.pools_edition = 0
        """Rises with each change of a pool but those of its status."""
        self.left_out = LeftOut()
        self.as_ordered: Callable[[Workload], Workload] | None = None
        """A target after our own orders, which the watch may not show yet; None where nobody orders."""
        self.absent: dict[TargetKey, dict[int, float]] = {}
        """Unix time in seconds since when numbers of a target have no pod; each look at its replicas writes it."""
        self._workloads: dict[TargetKey, Workload] = {}
        self._revisions: dict[Owned, Owner] = {}
        """ReplicaSets to what controls them."""
        self._revisions_of: defaultdict[Owned, dict[str, None]] = defaultdict(dict)
        self._pods: defaultdict[Owned, dict[str, Pod]] = defaultdict(dict)
        """Pods by uid, by the object that controls them, such as a ReplicaSet."""
        self._spaces: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        """Namespace to its pods by uid."""
        self._labelled: dict[str, dict[str, dict[str, list[Pod]]]] = {}
        """Namespace to a label's name to its values to their pods; made when asked for, while no pod changes."""
        self._owners: dict[str, Owned] = {}
        """Pod uid to what controls it."""
        self._costly: dict[str, str] = {}
        """Uid and namespace of the pods with a deletion cost of ours."""
        self._autoscalers: dict[tuple[str, Key], Autoscaler] = {}
        self._autoscaled: defaultdict[TargetKey, dict[tuple[str, Key], None]] = defaultdict(dict)

    @tolerant(KIND)
    def see_pool(self, raw: Raw, *, gone: bool) -> None:
        """Take in a ServingPool that was added, changed or deleted; the methods below do so for other kinds."""
        key, uid = objects.key_of(raw), raw["metadata"]["uid"]
        if gone:
            self.forget_pool(key, uid)
            return
        before, found = self.pools.get(key), objects.pool(raw)
        self.pools[key] = found
        self.pools_edition += before is None or _version(before) != _version(found)
        if (overlong := objects.overlong(raw)) is not None:
            self.left_out.note(KIND, key, overlong)

    def forget_pool(self, key: Key, uid: str) -> None:
        """Forget a ServingPool that no longer exists; another pool of its name may exist."""
        # Events of different objects come in any order: a deletion may arrive after the next object of that name.
        if key in self.pools and self.pools[key]["metadata"]["uid"] == uid:
            del self.pools[key]
            self.pools_edition += 1

    @tolerant("GPUBudget")
    def see_budget(self, raw: Raw, *, gone: bool) -> None:
        """A GPUBudget."""
        name, uid = raw["metadata"]["name"], raw["metadata"]["uid"]
        before = self.budgets.get(name, {}).get("metadata", {})
        if not gone:
            self.budgets[name] = objects.pool(raw)
            self.edition += (before.get("uid"), before.get("generation")) != (uid, raw["metadata"].get("generation"))
        elif before.get("uid") == uid:
            del self.budgets[name]
            self.edition += 1

    @tolerant("Namespace")
    def see_namespace(self, raw: Raw, *, gone: bool) -> None:
        """A namespace."""
        name, labels = raw["metadata"]["name"], {} if gone else objects.pool(raw)["metadata"].get("labels") or {}
        before = self.namespaces.pop(name, None)
        if not gone:
            self.namespaces[name] = labels
            if (overlong := objects.overlong(raw)) is not None:
                self.left_out.note("Namespace", ("", name), overlong)
        self.edition += before != self.namespaces.get(name)

    @tolerant("Deployment")
    def see_workload(self, raw: Raw, *, gone: bool) -> None:
        """A Deployment."""
        key, uid = TargetKey(*objects.key_of(raw)), raw["metadata"]["uid"]
        if not gone:
            found = self._workloads[key] = objects.workload(raw, self._workloads.get(key))
            self._note(found)
        elif key in self._workloads and self._workloads[key].uid == uid:
            del self._workloads[key]

    def see_target(self, key: TargetKey, found: Workload | None) -> None:
        """A target of another kind was read; None if it cannot be scaled, or nobody asks for it any more."""
        self.left_out.forget(key.kind, key[:2])
        if found is not None:
            self._workloads[key] = found
            self._note(found)
        else:
            self._workloads.pop(key, None)
            self.absent.pop(key, None)

    def _note(self, workload: Workload) -> None:
        if workload.left_out:
            self.left_out.note(workload.key.kind, workload.key[:2], "; ".join(workload.left_out))

    @tolerant("ReplicaSet")
    def see_replica_set(self, raw: Raw, *, gone: bool) -> None:
        """A ReplicaSet."""
        namespace, uid = objects.key_of(raw)[0], raw["metadata"]["uid"]
        owner = None if gone else objects.replica_set(raw)
        before = self._revisions.pop((namespace, uid), None)
        if before is not None:
            _remove(self._revisions_of, (namespace, before.uid), uid)
        if owner is not None:
            self._revisions[namespace, uid] = owner
            self._revisions_of[namespace, owner.uid][uid] = None

    @tolerant("Pod")
    def see_pod(self, raw: Raw, *, gone: bool) -> None:
        """A pod."""
        namespace, uid = objects.key_of(raw)[0], raw["metadata"]["uid"]
        pod = None if gone else self._read(raw)
        self._forget_pod(namespace, uid)
        if pod is not None:
            owned = self._owners[uid] = namespace, pod.owner.uid
            self._pods[owned][uid] = self._spaces[namespace][uid] = pod
            if pod.cost is not None and pod.cost.ours and not pod.going:
                self._costly[uid] = namespace
            if pod.left_out:
                self.left_out.note("Pod", (namespace, pod.name), pod.left_out)

    def _read(self, raw: Raw) -> Pod:
        try:
            return objects.pod(raw)
        except Exception as defect:  # if nothing tells whose it is, it is left out by the same exception
            return objects.unread_pod(raw, reason(defect))

    def _forget_pod(self, namespace: str, uid: str) -> None:
        # Its former ReplicaSet, not the one it names now: a pod that is relabelled by hand is released.
        before = self._owners.pop(uid, None)
        self._costly.pop(uid, None)
        self._labelled.pop(namespace, None)
        if before is not None:
            _remove(self._pods, before, uid)
        _remove(self._spaces, namespace, uid)

    @tolerant("HorizontalPodAutoscaler")
    def see_autoscaler(self, raw: Raw, *, gone: bool) -> None:
        """Take in an HPA or a ScaledObject; a ScaledObject that KEDA has paused scales nothing."""
        name = (raw["kind"], objects.key_of(raw))
        held = self._autoscalers.get(name)
        if gone and held is not None and held.uid != raw["metadata"]["uid"]:
            return
        before = self._autoscalers.pop(name, None)
        if before is not None:
            _remove(self._autoscaled, before.target, name)
        autoscaler = None if gone or paused(raw) else objects.autoscaler(raw)
        if autoscaler is not None:
            self._autoscalers[name] = autoscaler
            self._autoscaled[autoscaler.target][name] = None

    def workload(self, key: TargetKey) -> Workload | None:
        """The target of this namespace, name and kind, with the replicas that we have ordered."""
        return self._after_orders(self._workloads.get(key))

    def _after_orders(self, shown: Workload | None) -> Workload | None:
        return shown if shown is None or self.as_ordered is None else self.as_ordered(shown)

    def pods(self, workload: Workload) -> Iterator[Pod]:
        """A Deployment's pods that are not being deleted."""
        return (pod for pods in self._by_revision(workload) for pod in pods if not pod.going)

    def draining(self, workload: Workload) -> list[Pod]:
        """Pods of a target that are being deleted and have not ended, also those that should have ended."""
        pods: Iterable[Pod] = chain.from_iterable(self._by_revision(workload))
        if workload.selector is not None:
            pods = self._own(workload, self._matched(workload.key.namespace, workload.selector))
        return [pod for pod in pods if pod.going and not pod.ended]

    def strangers(self, workload: Workload) -> list[Pod]:
        """Pods that count as a target's, by its selector alone, and are controlled by another kind than most are."""
        if workload.selector is None:
            return []
        pods = list(self._selected(workload, workload.selector))
        tops = [[NO_OWNER, *self._chain(workload.key.namespace, pod.owner)][-1].kind for pod in pods]  # as far as known
        times = Counter(tops)
        most = max(times, key=lambda kind: (times[kind], kind), default="")
        return [pod for pod, kind in zip(pods, tops, strict=True) if kind != most]

    def runs(self, namespace: str, uid: str, now: float) -> bool:
        """Whether this pod exists, has not ended, and should not have been ended by its node by now."""
        pod = self._spaces.get(namespace, {}).get(uid)
        return pod is not None and not pod.ended and now < pod.holds_until

    def drains(self, namespace: str, uid: str, now: float) -> bool:
        """Whether this pod is being deleted, and runs."""
        pod = self._spaces.get(namespace, {}).get(uid)
        return pod is not None and pod.going and self.runs(namespace, uid, now)

    def replicas(self, workload: Workload) -> list[tuple[Pod, ...]]:
        """The pods that are not being deleted, by replica, in each the selected ones first.

        Of most kinds a replica is a pod. One that carries a label of a group is with all that carry the same.
        """
        if workload.selector is None:
            return [(pod,) for pod in self.pods(workload)]
        sort = workload.key.sort
        found: defaultdict[tuple[str, str], list[Pod]] = defaultdict(list)
        for pod in self._selected(workload, workload.selector):
            found[kinds.group(sort, pod.labels) or ("", pod.uid)].append(pod)
        selected = {pod.uid for pods in found.values() for pod in pods}
        for label, value in found:
            if label in kinds.GROUP_LABELS:  # such as workers, that are not selected
                for pod in self._with(workload.key.namespace, label).get(value, ()):
                    alike = kinds.group(sort, pod.labels) == (label, value)
                    if alike and pod.uid not in selected and not pod.going:
                        found[label, value].append(pod)
        for pods in found.values():
            pods.sort(key=lambda pod: (pod.uid not in selected, pod.name))
        return [tuple(pods) for _, pods in sorted(found.items())]

    def costly(self) -> Iterator[tuple[str, Pod, Workload | None]]:
        """Pods with our deletion cost: namespace, pod, and its Deployment if that still exists."""
        workloads = self._workloads.values() if self._costly else ()
        by_uid = {(workload.key.namespace, workload.uid): workload for workload in workloads}
        for uid, namespace in self._costly.items():
            pod = self._pods[self._owners[uid]][uid]
            above = self._revisions.get((namespace, pod.owner.uid), NO_OWNER)
            yield namespace, pod, self._after_orders(by_uid.get((namespace, above.uid)))

    def rolling_out(self, workload: Workload) -> bool:
        """Whether pods of more than one revision exist."""
        if workload.selector is None:
            return sum(any(not pod.going for pod in pods) for pods in self._by_revision(workload)) > 1
        found: defaultdict[str, set[str]] = defaultdict(set)
        for pod in self._selected(workload, workload.selector):
            label, value = kinds.revision(pod.labels) or ("", "")
            found[label].add(value)
        return any(len(values) > 1 for values in found.values())

    def _by_revision(self, workload: Workload) -> Iterator[Iterable[Pod]]:
        """A Deployment's pods, of each ReplicaSet."""
        namespace = workload.key.namespace
        for revision in self._revisions_of.get((namespace, workload.uid), ()):
            yield self._pods.get((namespace, revision), {}).values()

    def _selected(self, workload: Workload, selector: Selector) -> Iterator[Pod]:
        matched = (pod for pod in self._matched(workload.key.namespace, selector) if not pod.going)
        return iter(self._own(workload, matched))

    def _matched(self, namespace: str, selector: Selector) -> Iterator[Pod]:
        pods: Iterable[Pod] = self._spaces.get(namespace, {}).values()
        found = [[self._with(namespace, key).get(value, ()) for value in values] for key, values in selector.named]
        if found:
            fewest = min(found, key=lambda lists: sum(map(len, lists)))
            pods = chain.from_iterable(fewest)
        return (pod for pod in pods if selector.admits(pod.labels))

    def _own(self, workload: Workload, pods: Iterable[Pod]) -> list[Pod]:
        """The pods among these that the target controls; all, where its kind controls no pods."""
        every = list(pods)
        namespace, uid = workload.key.namespace, workload.uid
        leads = {
            owner: any(above.uid == uid for above in self._chain(namespace, owner))
            for owner in {pod.owner for pod in every}
        }
        return [pod for pod in every if leads[pod.owner]] if any(leads.values()) else every

    def _chain(self, namespace: str, owner: Owner) -> Iterator[Owner]:
        """This owner and the owners above it, as far as they are watched: ReplicaSets and pods."""
        for _ in range(LONGEST_CHAIN):
            if not owner.uid:
                return
            yield owner
            pod = self._spaces.get(namespace, {}).get(owner.uid)
            owner = self._revisions.get((namespace, owner.uid), NO_OWNER) if pod is None else pod.owner

    def _with(self, namespace: str, label: str) -> Mapping[str, Sequence[Pod]]:
        """The pods of a namespace that have this label, by its value. Each target looking at all pods was quadratic."""
        known = self._labelled.setdefault(namespace, {})
        if label not in known:
            found = known[label] = {}
            for pod in self._spaces.get(namespace, {}).values():
                if label in pod.labels:
                    found.setdefault(pod.labels[label], []).append(pod)
        return known[label]

    def autoscalers(self, target: TargetKey) -> list[Autoscaler]:
        """Other programs that scale this target; a ScaledObject before the HPA that KEDA makes of it."""
        found = [self._autoscalers[name] for name in self._autoscaled.get(target, ())]
        return sorted(found, key=lambda autoscaler: autoscaler.kind, reverse=True)
