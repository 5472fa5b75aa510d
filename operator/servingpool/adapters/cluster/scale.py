"""Targets of any kind: found by discovery, and read through their scale subresource.

Deployments are watched. Of any other kind each target is read before it is decided on, as HPA does: one request for its
scale, one for the object when that has changed, and one for the pods of a kind whose templates are not known.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from operator import attrgetter

from servingpool.adapters.cluster import input_limits, kinds, objects
from servingpool.adapters.cluster.arguments import batch_limit
from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.devices import Api, devices_of
from servingpool.adapters.cluster.drain import read_drain
from servingpool.adapters.cluster.errors import ClusterError, Forbidden, NotFound, said
from servingpool.adapters.cluster.fair_order import in_turns
from servingpool.adapters.cluster.kinds import Sort, base_of, path_of, plural_of
from servingpool.adapters.cluster.objects import Kind, Raw, TargetKey, Workload, unix
from servingpool.adapters.cluster.selector import parse

log = logging.getLogger(__name__)

DISCOVERED_FOR = 60.0
"""Seconds for which an answer of discovery counts: a CRD may be installed, or given a scale subresource, meanwhile."""
KEPT_FOR = 120.0
"""Seconds for which a target is decided on as it was read last, while the API server does not answer. A scale carries
the number that it replaces, so it is refused where that has changed."""
READ_AT_ONCE = 16
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 60.0
"""Seconds before a target that cannot be scaled is asked for again. The pause doubles with each failure, unless the
target was read before."""
REPLICAS_LOOKED_AT = 3
"""Replicas all of whose pods are read, to know the GPUs of a replica."""
EVENTS_WITHIN = 1.0
"""Seconds for the events of a target, without which it is known as well."""
LONGEST_READING = 10.0
"""Seconds for all targets of a Prometheus. Others are decided on as they were read last, and come first next time."""


class Fault(Enum):
    """Why a target cannot be scaled."""

    UNKNOWN_KIND = "the API server has no such kind"
    NO_SCALE = "the kind has no scale subresource"
    FORBIDDEN = "it may not be read"
    NO_TARGET = "it does not exist"
    NO_SELECTOR = "its scale subresource names no pods"
    FAILED = "it has not been read yet"


class Unscalable(Exception):
    """A target cannot be scaled. `detail` is the API server's answer, where it says more than the fault."""

    def __init__(self, fault: Fault, detail: str = "") -> None:
        super().__init__(fault, detail)
        self.fault, self.detail = fault, detail


CORE = "v1"
"""Version of the group of pods and services, which has no name."""
SHORT = {
    **dict.fromkeys(("deploy", "deployment", "deployments"), "Deployment"),
    **dict.fromkeys(("sts", "statefulset", "statefulsets"), "StatefulSet"),
}
"""Kubectl's names of the kinds that need no discovery."""


def known_sort(name: str) -> Sort:
    """Group and kind as kubectl takes them, as far as nobody is asked: of others the group is empty."""
    kind = name.lower().partition(".")[0]
    return ("apps", SHORT[kind]) if kind in SHORT else ("", name)


class Discovery:
    """Resources of each kind that have a scale subresource."""

    def __init__(self, api: Api, clock: Callable[[], float]) -> None:
        self._api, self._clock = api, clock
        self._listed: dict[str, tuple[float, Sequence[Raw]]] = {}
        """Time of listing and resources, by the path of a group's version."""

    async def resource(self, api_version: str, kind: str) -> Kind:
        """The resource of a kind. Raises Unscalable; ClusterError where discovery fails."""
        resources = await self._resources(api_version)
        plural = plural_of(resources, kind)
        if plural is None:
            raise Unscalable(Fault.UNKNOWN_KIND)
        if not any(each["name"] == f"{plural}/scale" and each["namespaced"] for each in resources):
            raise Unscalable(Fault.NO_SCALE)
        return kinds.group_of(api_version), api_version.rpartition("/")[2], plural

    async def find(self, name: str) -> tuple[str, str]:
        """API version and kind as kubectl takes them: `sts`, `statefulset`, `statefulsets.apps`.

        Of several groups with such a kind the first one, as the API server orders them. Raises as `resource`.
        """
        kind, _, group = name.lower().partition(".")
        if not group and kind in SHORT:
            return "apps/v1", SHORT[kind]
        groups = (await self._api.get("/apis"))["groups"]
        versions = {each["name"]: each["preferredVersion"]["groupVersion"] for each in groups}
        for within, version in {"": CORE, **versions}.items():
            if group in {"", within}:
                for one in await self._resources(version):
                    names = {one["name"], one.get("singularName"), one["kind"].lower(), *one.get("shortNames", ())}
                    if kind in names and "/" not in one["name"]:
                        return version, one["kind"]
        raise Unscalable(Fault.UNKNOWN_KIND)

    async def scalable(self) -> list[tuple[str, str, str]]:
        """API version, kind and plural of all that has a scale subresource, in each group's preferred version.

        ReplicaSets are left out: Deployments set most, and there are many. So is a group that does not answer.
        """
        found = []
        for each in (await self._api.get("/apis"))["groups"]:
            version = each["preferredVersion"]["groupVersion"]
            try:
                resources = await self._resources(version)
            except ClusterError:
                continue
            scaled = {one["name"].removesuffix("/scale") for one in resources if one["name"].endswith("/scale")}
            scaled &= {one["name"] for one in resources if one["namespaced"]}
            found += [(version, one["kind"], one["name"]) for one in resources if one["name"] in scaled]
        return [one for one in found if one[:2] != ("apps/v1", "ReplicaSet")]

    async def _resources(self, api_version: str) -> Sequence[Raw]:
        path = base_of(api_version)
        held = self._listed.get(path)
        if held is None or not held[1] or not 0.0 <= self._clock() - held[0] < DISCOVERED_FOR:
            try:
                found = (await self._api.get(path))["resources"]
            except NotFound:
                found = ()
            held = self._listed[path] = self._clock(), found
        return held[1]


async def read_target(
    api: Api, discovery: Discovery, key: TargetKey, api_version: str, held: tuple[str, Workload] | None = None
) -> tuple[str, Workload]:
    """The resourceVersion of a target, and the target. Raises Unscalable, and ClusterError where nobody knows.

    `held` is what was read last: what has not changed since is not read again.
    """
    resource = await discovery.resource(api_version, key.kind)
    path = path_of(api_version, resource[2], key.namespace, key.name)
    try:
        scale = await api.get(f"{path}/scale")
        version = str(scale["metadata"].get("resourceVersion"))
        spec, status = scale.get("spec", {}), scale.get("status", {})
        selector = parse(str(status.get("selector") or ""))
        if selector is None and len(str(status.get("selector"))) > input_limits.SELECTOR:
            raise Unscalable(Fault.FAILED, f"its selector is longer than {input_limits.SELECTOR} characters")
        if selector is None:
            raise Unscalable(Fault.NO_SELECTOR)
        replicas, standing = (objects.count(one.get("replicas", 0)) for one in (spec, status))
        if held is not None and held[0] == version:
            found = replace(held[1], replicas=replicas)
        else:
            raw = await api.get(path)
            pods = kinds.pod_specs(key.sort, raw)
            found = objects.target(key, raw, pods or (), replicas=replicas)
            if pods is None:
                found = await _seen_in_pods(api, found, selector.text)
    except NotFound as error:
        raise Unscalable(Fault.NO_TARGET) from error
    except Forbidden as error:
        raise Unscalable(Fault.FORBIDDEN, str(error)) from error
    except (TypeError, ValueError) as error:
        raise Unscalable(Fault.FAILED, f"its fields are not as expected ({type(error).__name__}: {error})") from error
    return version, replace(found, resource=resource, selector=selector, standing=standing)


async def _seen_in_pods(api: Api, target: Workload, selector: str) -> Workload:
    """The target with what its pods say of a replica: it has no templates that are known."""
    path = path_of("v1", "pods", target.key.namespace)
    selected = owned_by(target.uid, (await api.get(path, labelSelector=selector))["items"])
    if not selected:
        return target
    groups = _alike(target.key.sort, selected)
    label = next(iter(groups))[0]
    if label in kinds.GROUP_LABELS:  # pods that are not selected may have it too, such as workers
        values = sorted(value for name, value in groups if name == label)[:REPLICAS_LOOKED_AT]
        listed = await api.get(path, labelSelector=f"{label} in ({','.join(values)})")
        groups = _alike(target.key.sort, listed["items"])
    devices = [devices_of(group) for group in groups.values()]
    limits = [{batch_limit(spec.get("containers") or ()) for spec in group} - {math.inf} for group in groups.values()]
    return replace(
        target,
        # The greatest: a replica whose pods are not all there yet asks for less.
        gpus=max(asked.gpus for asked in devices),
        devices=max(devices, key=lambda asked: sum(n for _, n in asked.resources)),
        nodes=tuple(spec.get("nodeSelector") or {} for spec in next(iter(groups.values()))),
        drain=read_drain(selected[0]["spec"]),
        batch_limit=next((limit.pop() for limit in limits if len(limit) == 1), math.inf),
    )


def owned_by(uid: str, pods: Sequence[Raw]) -> Sequence[Raw]:
    """The pods among these that this object controls; all, where it controls none itself."""
    return [raw for raw in pods if objects.owner_of(raw["metadata"]).uid == uid] or pods


def _alike(sort: Sort, pods: Iterable[Raw]) -> dict[tuple[str, str], list[Raw]]:
    """The specs of pods by replica."""
    found: defaultdict[tuple[str, str], list[Raw]] = defaultdict(list)
    for raw in pods:
        meta = raw["metadata"]
        found[kinds.group(sort, meta.get("labels") or {}) or ("", meta["uid"])].append(raw["spec"])
    return found


@dataclass(frozen=True, slots=True)
class _Failure:
    """A target that cannot be scaled. The exception that said so is not kept: it would keep its frames."""

    fault: Fault
    detail: str
    version: str = ""
    """API group and version that was asked for: in another version the answer may differ."""
    times: int = 0
    again: float = -math.inf
    """Time of the next attempt, by the reader's clock."""


class TargetReader:
    """Reads the targets that no watch shows, into the cache.

    Namespaces have turns, so that whoever has thousands of targets waits for himself.
    """

    def __init__(self, api: Api, cache: ClusterCache, clock: Callable[[], float]) -> None:
        """`clock` is monotonic, in seconds."""
        self.cache = cache
        self._api, self._clock = api, clock
        self._discovery = Discovery(api, clock)
        self._held: dict[TargetKey, tuple[str, Workload]] = {}
        """Targets as last read, with the resourceVersion."""
        self._read_at: dict[TargetKey, float] = {}
        self._tried_at: dict[TargetKey, float] = {}
        """Time at which each target's last reading began, whatever came of it."""
        self._failures: dict[TargetKey, _Failure] = {}

    def fault(self, key: TargetKey) -> Unscalable:
        """Why the cache does not have this target."""
        failure = self._failures.get(key)
        if failure is not None:
            return Unscalable(failure.fault, failure.detail)
        if key.sort != kinds.DEPLOYMENT:
            return Unscalable(Fault.FAILED)
        unreadable = self.cache.left_out.why(key.kind, key[:2])
        return Unscalable(Fault.NO_TARGET) if unreadable is None else Unscalable(Fault.FAILED, unreadable)

    async def read(self, wanted: Mapping[TargetKey, str]) -> None:
        """Read these targets, given with their API group and version; Deployments aside, which are watched."""
        now = self._clock()
        due = [key for key, version in wanted.items() if key.sort != kinds.DEPLOYMENT and self._due(key, version, now)]
        # Of each namespace those that were tried longest ago first.
        due.sort(key=lambda one: self._tried_at.get(one, -math.inf))
        waiting = iter(in_turns(due, attrgetter("namespace")))

        async def serve() -> None:
            for key in waiting:
                self._tried_at[key] = self._clock()
                await self._read(key, wanted[key])

        try:
            async with asyncio.timeout(LONGEST_READING):
                await asyncio.gather(*(serve() for _ in range(min(READ_AT_ONCE, len(due)))))
        except TimeoutError:
            log.warning(
                "%d of %d targets were not read within %g s. They are decided on as they were read last, and are read "
                "first in the next tick.",
                sum(1 for _ in waiting) + READ_AT_ONCE,
                len(due),
                LONGEST_READING,
            )
            for key in wanted.keys() & self._held.keys():
                self._not_read(key, "the API server did not answer in time")

    def _due(self, key: TargetKey, version: str, now: float) -> bool:
        """Whether a target is to be read now: a target that cannot be scaled has pauses."""
        failure = self._failures.get(key)
        # The pause is compared from both sides, so that a clock that steps back does not make it long.
        return failure is None or failure.version != version or not now < failure.again <= now + LONGEST_PAUSE

    def forget(self, wanted: Mapping[TargetKey, str]) -> None:
        """Keep only these targets: no pool names the others any more."""
        for key in (self._held.keys() | self._failures.keys() | self._tried_at.keys()) - wanted.keys():
            self._lose(key)
            for known in (self._failures, self._read_at, self._tried_at):
                known.pop(key, None)

    async def _read(self, key: TargetKey, version: str) -> None:
        try:
            found = await read_target(self._api, self._discovery, key, version, self._held.get(key))
        except Unscalable as fault:
            self._fail(key, version, fault.fault, fault.detail)
        except ClusterError as error:
            self._not_read(key, str(error))
        except Exception as defect:
            # An answer that nobody expects must not end the round of the other pools.
            log.exception("Reading %s %s/%s failed.", key.kind, *key[:2])
            self._fail(key, version, Fault.FAILED, f"its fields are not as expected ({type(defect).__name__})")
        else:
            self._held[key], self._read_at[key] = found, self._clock()
            self._failures.pop(key, None)
            self.cache.see_target(key, await self._with_refusal(found[1]))

    async def _with_refusal(self, found: Workload) -> Workload:
        """The target, and why pods of it cannot be made, as the last event says: the status of such kinds does not.

        What was said before the newest pod was made is over.
        """
        if found.key.sort not in kinds.ORDINAL or found.standing >= found.replicas:
            return found
        pods = {pod.name: pod.created_at for replica in self.cache.replicas(found) for pod in replica}
        path = path_of("v1", "events", found.key.namespace)
        about = f"reason=FailedCreate,involvedObject.kind=StatefulSet,involvedObject.name={found.key.name}"
        with contextlib.suppress(ClusterError, TimeoutError, ValueError, LookupError):
            async with asyncio.timeout(EVENTS_WITHIN):
                events = (await self._api.get(path, fieldSelector=about, limit="50"))["items"]
            # Such as: create Pod vllm-2 in StatefulSet vllm failed error: pods "vllm-2" is forbidden.
            texts = [(unix(at), str(one.get("message"))) for one in events if (at := one.get("lastTimestamp"))]
            unmade = (one for one in texts if one[1].partition(" Pod ")[2].partition(" ")[0] not in pods)
            _, last = max([(max(pods.values(), default=0.0), ""), *unmade])
            return replace(found, refusal=said(last.partition(" failed error: ")[2]))
        return found

    def _fail(self, key: TargetKey, version: str, fault: Fault, detail: str) -> None:
        """This target cannot be scaled, which seldom changes by itself."""
        self._lose(key)
        before = self._failures.get(key)
        times = before.times if before is not None and before.version == version else 0
        pause = FIRST_PAUSE if key in self._read_at else min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(times, 10))
        self._failures[key] = _Failure(fault, detail, version, times + 1, self._clock() + pause)

    def _not_read(self, key: TargetKey, why: str) -> None:
        """No answer came for this target: what was read last counts for a while."""
        if not 0.0 <= self._clock() - self._read_at.get(key, -math.inf) < KEPT_FOR:
            self._lose(key)
            self._failures[key] = _Failure(Fault.FAILED, why)

    def _lose(self, key: TargetKey) -> None:
        self._held.pop(key, None)
        self.cache.see_target(key, None)
