"""What pods ask for of accelerators: extended resources in their limits, and claims (DRA)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, Protocol

from servingpool.adapters.cluster.errors import ClusterError, NotFound
from servingpool.adapters.cluster.paths import path_of
from servingpool.decision.observation import Unknown

Raw = Mapping[str, Any]
SUFFIXES = {"": Decimal(1), "m": Decimal("0.001")} | {
    f"{letter.upper() if binary and letter == 'k' else letter}{'i' * binary}": Decimal(1024 if binary else 1000)
    ** power
    for power, letter in enumerate("kMGTPE", 1)
    for binary in (False, True)
}
CLAIM_VERSIONS = ("resource.k8s.io/v1", "resource.k8s.io/v1beta2", "resource.k8s.io/v1beta1")
"""Of the API of claims, the newest first. Kubernetes 1.34 has them all."""
READ_FOR = 60.0
"""Seconds for which a template counts as it was read. Its spec cannot change, but it can be made anew."""
NOT_READ = Unknown("the ResourceClaimTemplate has not been read yet")


class Devices(NamedTuple):
    """What the pods of one replica, or one pod, ask for."""

    resources: tuple[tuple[str, int], ...] = ()
    """Extended resources with their amounts, of all containers that run beside each other."""
    templates: tuple[str, ...] = ()
    """ResourceClaimTemplates, each as often as it is named: every pod gets a claim of its own."""
    shared: str | None = None
    """A ResourceClaim that is named itself: pods may share it."""

    def amount(self, resource: str) -> int:
        """So much of this extended resource."""
        return sum(amount for name, amount in self.resources if name == resource)


def whole(amount: object) -> int:
    """A Kubernetes quantity, such as `8`, `"1k"` or `1e3`, rounded up."""
    text = str(amount)
    number = text.rstrip("mkKMGTPEi") if "e" not in text.lower()[:-1] else text
    return math.ceil(Decimal(number) * SUFFIXES[text[len(number) :]])


def containers(pod: Raw) -> list[Raw]:
    """Those of a pod that run beside each other: sidecars are init containers that go on."""
    sidecars = [one for one in pod.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    return [*(pod.get("containers") or ()), *sidecars]


def devices_of(pods: Iterable[Raw]) -> Devices:
    """What pods of these specs ask for."""
    resources: dict[str, int] = {}
    templates: list[str] = []
    shared: str | None = None
    for pod in pods:
        for container in containers(pod):
            for name, amount in ((container.get("resources") or {}).get("limits") or {}).items():
                if "/" in name:  # an extended resource; those of Kubernetes itself have no domain
                    resources[name] = resources.get(name, 0) + whole(amount)
        for claim in pod.get("resourceClaims") or ():
            if "resourceClaimTemplateName" in claim:
                templates.append(str(claim["resourceClaimTemplateName"]))
            else:
                shared = str(claim.get("resourceClaimName"))
    return Devices(tuple(sorted(resources.items())), tuple(templates), shared)


def requested(template: Raw, device_class: str) -> int | Unknown:
    """Devices of this class that a claim of this ResourceClaimTemplate asks for."""
    count = 0
    requests: Sequence[Raw] = template.get("spec", {}).get("spec", {}).get("devices", {}).get("requests") or ()
    for request in requests:
        if "firstAvailable" in request:
            return Unknown("its request lists alternatives")
        exactly = request.get("exactly", request)  # before v1, the request itself
        if exactly.get("deviceClassName") != device_class:
            continue
        if exactly.get("allocationMode", "ExactCount") != "ExactCount":
            return Unknown(f"its allocationMode is {exactly['allocationMode']}")
        count += int(exactly.get("count", 1))
    return count


class Api(Protocol):
    """What reading needs of a cluster."""

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        """What stands at a path. NotFound and other ClusterErrors."""


class ClaimTemplates:
    """The ResourceClaimTemplates that pods of budgets name, as they were read last."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._read: dict[tuple[str, str], tuple[float, Raw | Unknown]] = {}
        """When, in Unix seconds, and what, by namespace and name."""
        self.wanted: set[tuple[str, str]] = set()
        """Templates that somebody asked for."""

    def count(self, namespace: str, devices: Devices, device_class: str) -> int | Unknown:
        """Devices of a class that these claims ask for."""
        if devices.shared is not None:
            return Unknown(f"ResourceClaim '{devices.shared}' may be shared by pods")
        total = 0
        for name in devices.templates:
            self.wanted.add((namespace, name))
            _, found = self._read.get((namespace, name), (0.0, NOT_READ))
            amount = found if isinstance(found, Unknown) else requested(found, device_class)
            if isinstance(amount, Unknown):
                return Unknown(f"ResourceClaimTemplate '{name}': {amount.reason}")
            total += amount
        return total

    async def read(self, now: float) -> None:
        """Read those that were asked for, and are not fresh. `now` is Unix time in seconds."""
        wanted, self.wanted = self.wanted, set()
        self._read = {
            key: each for key, each in self._read.items() if key in wanted or 0.0 <= now - each[0] < 10.0 * READ_FOR
        }
        for key in sorted(wanted):
            at, _ = self._read.get(key, (float("-inf"), NOT_READ))
            if not 0.0 <= now - at < READ_FOR:
                found = await self._fetch(*key)
                # What was read before holds while the API server does not answer: its spec cannot change.
                if isinstance(found, Mapping) or isinstance(self._read.get(key, (0.0, NOT_READ))[1], Unknown):
                    self._read[key] = now, found

    async def _fetch(self, namespace: str, name: str) -> Raw | Unknown:
        for version in CLAIM_VERSIONS:
            try:
                return await self._api.get(path_of(version, "resourceclaimtemplates", namespace, name))
            except NotFound:
                continue
            except ClusterError as error:
                return Unknown(str(error))
        return Unknown("it does not exist")
