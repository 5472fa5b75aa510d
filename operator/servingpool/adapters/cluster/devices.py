"""Accelerators that pods ask for: extended resources in their limits, and claims (DRA)."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from servingpool.adapters.cluster import input_limits
from servingpool.adapters.cluster.accelerators import counted
from servingpool.adapters.cluster.errors import ClusterError, NotFound
from servingpool.adapters.cluster.fair_order import in_turns
from servingpool.adapters.cluster.kinds import path_of
from servingpool.adapters.cluster.quantity import whole
from servingpool.decision.observation import Unknown

Raw = Mapping[str, Any]
Amounts = Counter[str]
"""Amounts of extended resources, by name."""
CLAIM_VERSIONS = ("resource.k8s.io/v1", "resource.k8s.io/v1beta2", "resource.k8s.io/v1beta1")
"""Versions of the claims' API, the newest first. Kubernetes 1.34 has them all."""
MOST_NAMES = 1024
"""Extended resources and claims of a pod that are read. A real pod names two or three."""
READ_FOR = 60.0
"""Seconds for which a template counts as it was read. Its spec cannot change, but it can be made anew."""
NOT_READ = Unknown("the ResourceClaimTemplate has not been read yet")
NEVER = (float("-inf"), NOT_READ)


class Devices(NamedTuple):
    """Devices that the pods of one replica, or one pod, ask for."""

    resources: tuple[tuple[str, int], ...] = ()
    """Extended resources with their amounts, as Kubernetes reserves them for each pod."""
    templates: tuple[str, ...] = ()
    """ResourceClaimTemplates, each as often as it is named: every pod gets a claim of its own."""
    shared: str | None = None
    """A ResourceClaim that is named itself: pods may share it."""
    unreadable: tuple[str, ...] = ()
    """Extended resources of which an amount is no quantity."""
    gpus: int = 0
    """Accelerators that they occupy; amounts that are no quantity count as none."""

    def amount(self, resource: str) -> int | Unknown:
        """Devices for so much of this extended resource."""
        if self == UNREAD:
            return Unknown("a pod cannot be read")
        if resource in self.unreadable:
            return Unknown(f"an amount of {resource} is no quantity")
        return sum(amount for name, amount in self.resources if name == resource)


UNREAD = Devices(unreadable=("",))
"""Devices of a pod that cannot be read."""


def containers(pod: Raw) -> list[Raw]:
    """Containers of a pod that run beside each other: sidecars are init containers that go on."""
    return [*(pod.get("containers") or ()), *filter(_goes_on, pod.get("initContainers") or ())]


def devices_of(pods: Sequence[Raw]) -> Devices:
    """Devices that pods of these specs ask for. `UNREAD` beyond `MOST_NAMES`.

    The pods of a group share one spec, which may be 1,000 times in the list and is read once.
    """
    resources: Amounts = Counter()
    templates: list[str] = []
    shared: str | None = None
    unreadable: set[str] = set()
    gpus = 0
    specs = {id(pod): pod for pod in pods}
    for pod in specs.values():
        reserved = _reserved(pod, unreadable)
        claims: Sequence[Raw] = pod.get("resourceClaims") or ()
        if len(resources.keys() | reserved.keys() | unreadable) + len(templates) + len(claims) > MOST_NAMES:
            return UNREAD
        times = sum(each is pod for each in pods)
        gpus += times * counted(reserved)
        resources.update({name: times * amount for name, amount in reserved.items()})
        for claim in claims:
            if "resourceClaimTemplateName" in claim:
                templates += [str(claim["resourceClaimTemplateName"])] * times
            else:
                shared = str(claim.get("resourceClaimName"))
    return Devices(tuple(sorted(resources.items())), tuple(templates), shared, tuple(sorted(unreadable)), gpus)


def _reserved(pod: Raw, unreadable: set[str]) -> Amounts:
    """Extended resources that Kubernetes reserves for a pod, for its whole life.

    The greater of what runs together, and of each init container with the sidecars that were started before it
    (`AggregateContainerRequests` of Kubernetes); and the overhead of its runtime. A pod's own `resources` have none.
    """
    started: Amounts = Counter()
    at_start: Amounts = Counter()
    for container in pod.get("initContainers") or ():
        for name, amount in _asked(container, unreadable).items():
            total = started[name] + amount
            at_start[name] = max(at_start[name], total)
            if _goes_on(container):
                started[name] = total
    together = started
    for container in pod.get("containers") or ():
        together.update(_asked(container, unreadable))
    most = Counter({name: max(together[name], at_start[name]) for name in together.keys() | at_start.keys()})
    most.update(_asked({"resources": {"limits": pod.get("overhead")}}, unreadable))
    return most


def _asked(container: Raw, unreadable: set[str]) -> Amounts:
    """Extended resources: those of Kubernetes itself have no domain. Of too many no amount is read."""
    limits = (container.get("resources") or {}).get("limits") or {}
    few = len(limits) <= MOST_NAMES
    read = {name: whole(amount) if few else None for name, amount in limits.items() if "/" in name}
    unreadable.update(name for name, amount in read.items() if amount is None)
    return Counter({name: amount for name, amount in read.items() if amount is not None})


def _goes_on(container: Raw) -> bool:
    return container.get("restartPolicy") == "Always"


class _Unclear(Exception):
    """How many devices a request asks for is not known from it alone."""


def requested(template: Raw, device_class: str) -> int | Unknown:
    """Devices of this class that a claim of this ResourceClaimTemplate asks for."""
    try:
        devices = template["spec"]["spec"].get("devices") or {}
        return sum(_of_request(each, device_class) for each in devices.get("requests") or ())
    except _Unclear as unclear:
        return Unknown(str(unclear))
    except (AttributeError, KeyError, TypeError, ValueError) as defect:
        return Unknown(f"its fields are not as expected ({type(defect).__name__})")


def _of_request(request: Raw, device_class: str) -> int:
    if "firstAvailable" in request:
        raise _Unclear("its request lists alternatives")
    exactly = request.get("exactly", request)  # before v1, the request itself
    if exactly.get("deviceClassName") != device_class:
        return 0
    if exactly.get("allocationMode", "ExactCount") != "ExactCount":
        raise _Unclear(f"its allocationMode is {exactly['allocationMode']}")
    return int(exactly.get("count", 1))


class Api(Protocol):
    """Part of a cluster that reading needs."""

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        """The object at a path. NotFound and other ClusterErrors."""


class ClaimTemplates:
    """The ResourceClaimTemplates that pods of budgets name, as they were read last."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._read: dict[tuple[str, str], tuple[float, Raw | Unknown]] = {}
        """Unix time in seconds of each template's reading, and its devices, by namespace and name."""
        self.wanted: set[tuple[str, str]] = set()
        """Templates that somebody asked for."""

    def count(self, namespace: str, devices: Devices, device_class: str) -> int | Unknown:
        """Devices of a class that these claims ask for."""
        if devices.shared is not None:
            return Unknown(f"ResourceClaim '{devices.shared}' may be shared by pods")
        total = 0
        for name in devices.templates:
            self.wanted.add((namespace, name))
            _, found = self._read.get((namespace, name), NEVER)
            amount = found if isinstance(found, Unknown) else requested(found, device_class)
            if isinstance(amount, Unknown):
                return Unknown(f"ResourceClaimTemplate '{name}': {amount.reason}")
            total += amount
        return total

    async def read(self, now: float) -> None:
        """Read the templates that were asked for and are not fresh. `now` is Unix time in seconds."""
        wanted, self.wanted = self.wanted, set()
        self._read = {
            key: each for key, each in self._read.items() if key in wanted or 0.0 <= now - each[0] < 10.0 * READ_FOR
        }
        # Namespaces have turns, in each what was read longest ago: whoever names thousands waits for himself.
        order = sorted(wanted, key=lambda key: self._read.get(key, NEVER)[0])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READ_FOR / 6.0):  # the status of the budgets waits for it
                for key in in_turns(order, itemgetter(0)):
                    at, before = self._read.get(key, NEVER)
                    if not 0.0 <= now - at < READ_FOR:
                        found = await self._fetch(*key)
                        # What was read before holds while the API server does not answer: its spec cannot change.
                        if isinstance(found, Mapping) or isinstance(before, Unknown):
                            self._read[key] = now, found

    async def _fetch(self, namespace: str, name: str) -> Raw | Unknown:
        for version in CLAIM_VERSIONS:
            try:
                found = await self._api.get(path_of(version, "resourceclaimtemplates", namespace, name))
            except NotFound:
                continue
            except ClusterError as error:
                return Unknown(str(error))
            kept = {"spec": found.get("spec")}  # its labels alone may be a megabyte
            return kept if len(repr(kept)) <= input_limits.KEPT else Unknown("its spec is too long to be read")
        return Unknown("it does not exist")
