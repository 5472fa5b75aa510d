"""The few fields of Kubernetes objects that matter here. 20,000 pods are kept, so each is small."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from servingpool.adapters.cluster import input_limits, kinds
from servingpool.adapters.cluster.arguments import batch_limit, words_of
from servingpool.adapters.cluster.devices import UNREAD, Devices, containers, devices_of
from servingpool.adapters.cluster.drain import Drain, read_drain
from servingpool.adapters.cluster.kinds import Sort
from servingpool.adapters.cluster.selector import Selector

Raw = Mapping[str, Any]
Key = tuple[str, str]
"""Namespace and name."""
Kind = tuple[str, str, str]
"""API group (empty for core), version and plural."""
DEPLOYMENTS: Kind = ("apps", "v1", "deployments")
Labels = Mapping[str, str]
Kept = TypeVar("Kept", "Workload", "Pod", "Autoscaler")
NO_LABELS: Labels = MappingProxyType({})


class TargetKey(NamedTuple):
    """Whose replicas are set: an object of any kind with a scale subresource."""

    namespace: str
    name: str
    kind: str = "Deployment"
    group: str = "apps"
    """API group. An object is the same in all versions of it."""

    @property
    def sort(self) -> Sort:
        """Group and kind."""
        return self.group, self.kind

    def __str__(self) -> str:
        """Kind and name, such as `Deployment vllm`."""
        return f"{self.kind} {self.name}"


POOL_METADATA = (
    *("name", "namespace", "uid", "generation", "resourceVersion", "creationTimestamp", "deletionTimestamp"),
    "labels",
)
ENDED = frozenset({"Succeeded", "Failed"})
"""Phases of a pod that has ended."""
REPLICAS = ("spec", "replicas")
"""Path of the requested replicas in most kinds."""
WORDS = 300
"""Characters of what the scheduler says of a pod, at most."""
FIELD_MANAGER = "servingpool-operator"
"""Our name among the managers that the API server keeps for each field."""
NOBODY = frozenset({"", "ancient-changes", "before-first-apply"})
"""Names that the API server gives itself: to a writer without a name, to all but the last ten that updated an object,
and to those before the first server-side apply. They are no program, and no longer tell which one it was."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation of a pod's deletion cost: of a shrinking ReplicaSet's ready pods, the cheaper ones go first; 0 without
it."""
# As the ReplicaSet controller reads it (GetDeletionCostFromPodAnnotations): "+10", "008" and "1.5" are none.
COST = re.compile(r"0|-[0-9]{1,10}|[1-9][0-9]{0,9}")
LOWEST_COST, HIGHEST_COST = -(2**31), 2**31 - 1


@dataclass(frozen=True, slots=True)
class Setter:
    """A program that set a field, with the time."""

    program: str
    """The field manager's name."""
    at: str
    """Time of the write as the API server has it, to the second."""


class Parent(NamedTuple):
    """The object that controls a target, and sets its replicas."""

    sort: Sort
    name: str

    def __str__(self) -> str:
        """Kind and name, such as `InferenceService 'llama'`."""
        return f"{self.sort[1]} '{self.name}'"


@dataclass(frozen=True, slots=True)
class Workload:
    """A target."""

    key: TargetKey
    uid: str
    generation: int
    """Generation of the object: it rises with each change of the spec."""
    replicas: int
    """`spec.replicas`: the requested replicas."""
    set_by: Setter | None
    """Program that requested the replicas, as the API server has it. None after a scale to 0, or where a manifest
    without the field was applied."""
    gpus: int
    """GPUs of a replica, over its pods and containers; 0 where these name none."""
    drain: Drain
    """How the pods that serve end."""
    batch_limit: float = math.inf
    """Requests that a replica runs at a time at most; infinite where its arguments do not tell."""
    size: int = 1
    """Pods of a replica, at least."""
    parent: Parent | None = None
    """Object that sets the replicas in our place; None where there is none."""
    resource: Kind = DEPLOYMENTS
    selector: Selector | None = None
    """Which pods are its, as its scale subresource says. None: a Deployment's are told by their owners."""
    standing: int = 0
    """`status.replicas` of the scale subresource."""
    devices: Devices | None = None
    """Devices that a replica asks for; None where they are not known."""
    nodes: tuple[Labels, ...] = field(default=(), hash=False)
    """Node selectors of a replica's pods."""
    ending: bool = False
    """Whether the object is being deleted."""
    refusal: str = ""
    """Why its controller cannot make pods, in the API server's words; empty where it can, or where it does not tell."""
    in_turn: bool = False
    """Whether replicas start one after another, each once the replica before is Ready."""
    first: int = 0
    """The number of the first pod, of a kind that numbers its pods."""
    left_out: tuple[str, ...] = ()
    """Parts of the object that are not read, each with the reason."""


class Owner(NamedTuple):
    """The object that controls another object."""

    uid: str
    kind: str
    name: str

    def __str__(self) -> str:
        """Kind and name, such as `Deployment router`."""
        return f"{self.kind} {self.name}" if self.kind else "no controller"


NO_OWNER = Owner("", "", "")


@dataclass(frozen=True, slots=True)
class DeletionCost:
    """A pod's cost of deletion, and whose it is."""

    value: int
    ours: bool
    """Whether the API server has the cost as we wrote it. A cost that somebody has changed since is theirs."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod."""

    name: str
    uid: str
    owner: Owner
    """Object that controls the pod, such as a ReplicaSet or a StatefulSet; `NO_OWNER` where nothing does."""
    created_at: float
    """Unix time in seconds."""
    ready_since: float | None
    """Unix time in seconds; None while it is not Ready."""
    going: bool
    """Being deleted, or ended."""
    unschedulable: str = ""
    """The scheduler's words, where no node takes the pod; else empty."""
    cost: DeletionCost | None = None
    labels: Labels = field(default_factory=lambda: NO_LABELS, hash=False)
    ended: bool = False
    """Whether the pod holds no node any more, though it still exists."""
    gated: bool = False
    """Whether a scheduling gate, such as Kueue's, holds the pod."""
    devices: Devices = Devices()  # noqa: RUF009, a tuple
    nodes: Labels = field(default_factory=lambda: NO_LABELS, hash=False)
    """Node selector of the pod."""
    placed: bool = False
    """Whether the pod has a node."""
    holds_until: float = math.inf
    """Unix time in seconds until which it may end. After it the node is lost, or a finalizer holds the pod."""
    left_out: str = ""
    """Parts of the pod that are not read, with the reason."""


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """An HPA or a KEDA ScaledObject, and the object that it scales."""

    kind: str
    key: Key
    uid: str
    target: TargetKey


class Unreadable(ValueError):
    """An object is not as the API server's types have it, or is too long. The message names the part."""


def text_of(value: object) -> str:
    """This value as text. Unreadable where it is none: further on it would be compared with text."""
    if not isinstance(value, str):
        raise Unreadable(f"{value!r:.60} is no text")
    return value


def bounded(found: Kept) -> Kept:
    """This object. Unreadable where more of it would be kept than of any real one, whatever the field."""
    if len(repr(found)) > input_limits.KEPT:
        raise Unreadable(f"more than {input_limits.KEPT} characters of it would be kept")
    return found


def key_of(raw: Raw) -> Key:
    """Namespace and name of any object."""
    meta = raw["metadata"]
    return meta.get("namespace", ""), meta["name"]


class Count(NamedTuple):
    """What a list of a kind tells without its objects."""

    objects: int
    revision: int
    """The list's resourceVersion; 0 if it is unknown."""


def revision_of(meta: Raw) -> int:
    """The resourceVersion in metadata of an object or a list; 0 if it is no number."""
    version = meta.get("resourceVersion")
    return int(version) if isinstance(version, str) and version.isdecimal() else 0


def pool(raw: Raw) -> Raw:
    """A ServingPool without fields that nobody reads: managedFields are half of it, 18 KB as Python objects.

    Labels beyond what is kept are left out: see `overlong`. A looser CRD lets a pool without a spec through: it has an
    empty one.
    """
    meta = {name: raw["metadata"][name] for name in POOL_METADATA if name in raw["metadata"]}
    spec = raw["spec"] if isinstance(raw.get("spec"), dict) else {}
    return {**raw, "metadata": meta if overlong(raw) is None else {**meta, "labels": {}}, "spec": spec}


def overlong(raw: Raw) -> str | None:
    """Part of a pool that is longer than is kept; else None. Budgets cannot tell whether they select such a pool."""
    most, size = input_limits.LABELS, input_limits.size_of(raw["metadata"].get("labels") or {})
    return f"labels: longer than {most} characters" if size > most else None


def workload(raw: Raw, held: Workload | None = None) -> Workload:
    """Read a Deployment. `held`: as it was read last; an unchanged spec is not read again."""
    key, meta = TargetKey(*key_of(raw)), raw["metadata"]
    replicas = count((raw.get("spec") or {}).get("replicas", 1))
    if held is not None and (held.uid, held.generation) == (meta["uid"], meta.get("generation")):
        return replace(
            held,
            replicas=replicas,
            set_by=_who_set_replicas(meta, REPLICAS),
            parent=parent_of(key, meta),
            ending="deletionTimestamp" in meta,
            refusal=_refusal(raw),
        )
    return target(key, raw, kinds.pod_specs(key.sort, raw) or (), replicas=replicas)


def count(value: Any) -> int:
    """A number of replicas. TypeError or ValueError where it is none."""
    found = int(value)
    if found < 0:
        raise ValueError(f"{found} replicas")
    return found


def target(key: TargetKey, raw: Raw, pods: Sequence[Raw], *, replicas: int) -> Workload:
    """Read an object of any kind, one replica of which is these pods (their specs), the one that serves first."""
    serving = containers(pods[0]) if pods else []
    said, devices = words_of(serving), devices_of(pods)
    found = Workload(
        key=key,
        uid=raw["metadata"]["uid"],
        generation=int(raw["metadata"].get("generation", 0)),
        replicas=replicas,
        set_by=_who_set_replicas(raw["metadata"], kinds.REPLICAS.get(key.sort, REPLICAS)),
        gpus=devices.gpus,
        drain=read_drain(pods[0] if pods else {}, said),
        batch_limit=batch_limit(serving, said),
        size=max(1, len(pods)),
        parent=parent_of(key, raw["metadata"]),
        devices=devices if pods else None,
        nodes=tuple(pod.get("nodeSelector") or NO_LABELS for pod in pods),
        ending="deletionTimestamp" in raw["metadata"],
        refusal=_refusal(raw),
        in_turn=kinds.in_turn(key.sort, raw),
        # A StatefulSet may begin at another number than 0.
        first=int((raw.get("spec", {}).get("ordinals") or {}).get("start", 0)) if key.sort == kinds.STATEFUL_SET else 0,
        left_out=tuple(
            f"arguments of container {container.get('name')}: longer than {input_limits.ARGUMENTS} characters"
            for container, given in zip(serving, said, strict=True)
            if given is None
        )[: input_limits.TOLD],
    )
    return bounded(found)


def replica_set(raw: Raw) -> Owner | None:
    """Owner of a ReplicaSet, such as a Deployment; None where it has none, or is being deleted."""
    owner = owner_of(raw["metadata"])
    return None if owner is NO_OWNER or "deletionTimestamp" in raw["metadata"] else owner


def pod(raw: Raw) -> Pod:
    """Read a pod."""
    meta, status, created = raw["metadata"], raw.get("status", {}), raw["metadata"]["creationTimestamp"]
    conditions = {condition["type"]: condition for condition in status.get("conditions", ())}
    ready, scheduled = conditions.get("Ready", {}), conditions.get("PodScheduled", {})
    waits = scheduled.get("reason") if scheduled.get("status") == "False" else None
    words = str(scheduled.get("message") or "no reason is given").partition(". ")[0][:WORDS]
    labels = meta.get("labels") or {}
    found = Pod(
        name=meta["name"],
        uid=meta["uid"],
        owner=owner_of(meta),
        created_at=unix(created),
        # Kubernetes' own kubelet tells since when. Another's may not, and that must not end the watch.
        ready_since=unix(ready.get("lastTransitionTime") or created) if ready.get("status") == "True" else None,
        unschedulable=words if waits == "Unschedulable" else "",
        going="deletionTimestamp" in meta or status.get("phase") in ENDED,
        cost=_deletion_cost(meta),
        labels=_labelled(labels),
        ended=status.get("phase") in ENDED,
        gated=waits == "SchedulingGated",
        devices=_shared(devices_of((raw.get("spec") or {},))),
        nodes=(raw.get("spec") or {}).get("nodeSelector") or NO_LABELS,
        placed=bool((raw.get("spec") or {}).get("nodeName")),
        holds_until=_holds_until(meta),
    )
    return bounded(found)


def unread_pod(raw: Raw, why: str) -> Pod:
    """A pod that cannot be read: a Ready replica, so that nothing is removed because it is not seen to serve."""
    meta = raw["metadata"]
    labels = meta.get("labels") if isinstance(meta.get("labels"), dict) else {}
    known = {name: value for name, value in labels.items() if isinstance(value, str)}
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        owner=owner_of(meta),
        created_at=0.0,
        ready_since=0.0,
        going="deletionTimestamp" in meta,
        labels=known if input_limits.size_of(known) <= input_limits.LABELS else NO_LABELS,
        devices=UNREAD,
        left_out=why,
    )


def autoscaler(raw: Raw) -> Autoscaler | None:
    """Read an HPA or a ScaledObject; None if it names nothing to scale."""
    reference = raw.get("spec", {}).get("scaleTargetRef", {})
    if "name" not in reference:
        return None
    key = key_of(raw)
    # KEDA's defaults; and HPA's validation lets an apiVersion be left out.
    group = kinds.group_of(reference.get("apiVersion") or "apps/v1")
    scaled = TargetKey(key[0], text_of(reference["name"]), text_of(reference.get("kind") or "Deployment"), group)
    return bounded(Autoscaler(text_of(raw["kind"]), key, raw["metadata"]["uid"], scaled))


def unix(text: str) -> float:
    """Kubernetes' time stamp as Unix time in seconds."""
    return datetime.fromisoformat(text).timestamp()


def holders(meta: Raw, *path: str) -> Iterator[Raw]:
    """Programs that have written the field at this path, as the API server keeps them."""
    *above, field = (f"f:{name}" for name in path)
    for each in meta.get("managedFields") or ():
        if (each.get("manager") or "") in NOBODY:
            continue
        held = each.get("fieldsV1", {})
        for name in above:
            held = held.get(name, {})
        if field in held:
            yield each


def _who_set_replicas(meta: Raw, path: Sequence[str]) -> Setter | None:
    """The program that set the replicas.

    Several programs may hold the field with the same number: then this operator if it is among the programs, else the
    program that wrote last.
    """
    found = [Setter(str(each.get("manager")), str(each.get("time"))) for each in holders(meta, *path)]
    return max(found, key=lambda setter: (setter.program == FIELD_MANAGER, setter.at), default=None)


def _refusal(raw: Raw) -> str:
    """Refusal of pods, as a Deployment or ReplicaSet tells it."""
    for each in (raw.get("status") or {}).get("conditions") or ():
        if each.get("type") == "ReplicaFailure" and each.get("status") == "True":
            return str(each.get("message") or each.get("reason") or "")
    return ""


def _holds_until(meta: Raw) -> float:
    """Time until which an ended pod counts, as ResourceQuota counts: deletion, and the grace period once more."""
    ends = meta.get("deletionTimestamp")
    return math.inf if ends is None else unix(ends) + float(meta.get("deletionGracePeriodSeconds") or 0)


def _deletion_cost(meta: Raw) -> DeletionCost | None:
    text = (meta.get("annotations") or {}).get(DELETION_COST)
    if text is None:
        return None
    value = int(text) if COST.fullmatch(text) else 0
    ours = any(
        each.get("manager") == FIELD_MANAGER and each.get("operation") == "Apply"
        for each in holders(meta, "metadata", "annotations", DELETION_COST)
    )
    return DeletionCost(value if LOWEST_COST <= value <= HIGHEST_COST else 0, ours)


def owner_of(meta: Raw) -> Owner:
    """Object that controls an object; `NO_OWNER` where nothing does. Unreadable where its names are too long."""
    for reference in meta.get("ownerReferences") or ():
        if reference.get("controller"):
            names = str(reference["uid"]), str(reference["kind"]), str(reference.get("name", ""))
            if sum(map(len, names)) > input_limits.OWNER:
                raise Unreadable(f"names of its owner: longer than {input_limits.OWNER} characters")
            return _owner(*names)
    return NO_OWNER


_owner = lru_cache(maxsize=4096)(Owner)
"""The shared owner object for all pods of one ReplicaSet."""


def parent_of(key: TargetKey, meta: Raw) -> Parent | None:
    """Object that sets the replicas of this object; None where there is none, or where it leaves them to others."""
    owner = next((each for each in meta.get("ownerReferences") or () if each.get("controller")), None)
    if owner is None or key.sort not in kinds.WORKLOADS:
        return None
    sort = kinds.group_of(owner.get("apiVersion", "")), owner["kind"]
    annotations = meta.get("annotations") or {}
    external = sort == kinds.KSERVE and annotations.get(kinds.KSERVE_CLASS) == kinds.KSERVE_EXTERNAL
    left = external or annotations.get(kinds.PARENT_SETS) == kinds.FALSE
    return None if left else Parent(sort, str(owner.get("name")))


def _shared(devices: Devices) -> Devices:
    return _one(*devices) if len(devices.resources) + len(devices.templates) <= input_limits.SHARED_NAMES else devices


_one = lru_cache(maxsize=1024)(Devices)
"""The shared object for all pods that ask for the same."""


def _labelled(labels: Labels) -> Labels:
    short = input_limits.size_of(labels) <= input_limits.SHARED_LABELS
    return _labels(tuple(labels.items())) if short else dict(labels)


@lru_cache(maxsize=16_384)
def _labels(items: tuple[tuple[str, str], ...]) -> Labels:
    """The shared labels of all pods that are labelled alike: thousands come from one template."""
    return {sys.intern(name): sys.intern(value) for name, value in items}
