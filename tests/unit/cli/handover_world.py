"""A cluster on virtual time in which an operator, an HPA's controller and KEDA scale one Deployment as the real ones do."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from servingpool.adapters.cluster.autoscaling import bounds_of, made_by_keda, pause_asked, paused
from servingpool.adapters.cluster.errors import Conflict, Forbidden, NotFound, kind_of

POOLS = "/apis/servingpool.dev/v1alpha1/namespaces/chat/servingpools"
DEPLOYMENTS = "/apis/apps/v1/namespaces/chat/deployments"
GROUPS = "/apis/leaderworkerset.x-k8s.io/v1"
GROUP_SETS = f"{GROUPS}/namespaces/chat/leaderworkersets"
DISCOVERY = {GROUPS: [{"name": "leaderworkersets", "kind": "LeaderWorkerSet"}], "/apis/keda.sh/v1alpha1": []}
"""Kinds by API group and version."""
HPAS = "/apis/autoscaling/v2/namespaces/chat/horizontalpodautoscalers"
SCALED_OBJECTS = "/apis/keda.sh/v1alpha1/namespaces/chat/scaledobjects"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
START = 1_800_000_000.0
OPERATOR, CONTROLLER, KEDA = 15.0, 15.0, 2.0
"""Seconds between two looks of each."""


class Killed(BaseException):
    """The command's process is gone."""


def pool(mode: str = "Recommend", **target: Any) -> dict[str, Any]:
    spec = {"mode": mode, "targets": [{"name": "qwen", "min": 1, "max": 12, **target}]}
    return {"kind": "ServingPool", "metadata": {"name": "qwen", "namespace": "chat", "generation": 1}, "spec": spec}


def hpa(name: str = "qwen", target: str = "qwen", low: int = 2, high: int = 12) -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    spec = {"scaleTargetRef": reference, "minReplicas": low, "maxReplicas": high, "metrics": [{"type": "Pods"}]}
    meta = {"name": name, "namespace": "chat", "labels": {"team": "chat"}, "annotations": {"note": "ours"}}
    return {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {**meta, "managedFields": [{"manager": "helm"}], "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": spec,
        "status": {"currentReplicas": 4},
    }


def scaled_object(**annotations: str) -> dict[str, Any]:
    meta = {"name": "qwen", "namespace": "chat", "annotations": annotations}
    spec = {"scaleTargetRef": {"name": "qwen"}, "minReplicaCount": 2, "maxReplicaCount": 12}
    return {"kind": "ScaledObject", "metadata": meta, "spec": spec, "status": {}}


@dataclass
class World:
    """All of it. It is what `Pools` is to the command, and its clock."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By path."""
    wanted: int = 4
    """Replicas that the operator wants."""
    other_wants: int = 4
    """Replicas that the HPA wants, within its bounds."""
    target: str = DEPLOYMENTS
    """Where its target is."""
    namespace: str = "chat"
    now: float = START
    operator_runs: bool = True
    keda_installed: bool = True
    keda_runs: bool = True
    forbidden: set[str] = field(default_factory=set)
    """Verb and plural that the person may not."""
    refuse_all_of_keda: bool = False
    events_left: int | None = None
    """Requests and sleeps until the command is killed."""
    events: int = 0
    writes: list[tuple[float, str, int]] = field(default_factory=list)
    """Time, writer and number of each change of the Deployment's replicas."""
    both: int = 0
    """Times that the operator scaled while another autoscaler did."""
    unbounded: float = 0.0
    """Seconds in which nobody was in charge of the Deployment."""
    conditions: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Of the pool, besides Ready: status, reason, message."""
    respawn: dict[str, Any] | None = None
    """An HPA that a GitOps tool creates again, once the operator has scaled."""
    _seen: tuple[dict[str, Any], str | None] | None = None
    """What the operator acts on next."""
    _versions: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        spec = {"replicas": 4}
        self.put(self.target, {"metadata": {"name": "qwen", "namespace": "chat"}, "spec": spec})
        self.conditions = {
            "MetricsAvailable": ("True", "ValidMetrics", "All 4 ready replicas are scraped."),
            "Calibrating": ("False", "Learned", "Learned."),
            "DrainReady": ("True", "Drains", "Pods drain."),
        } | self.conditions

    def put(self, plural: str, raw: dict[str, Any]) -> dict[str, Any]:
        number = next(self._versions)
        raw = copy.deepcopy(raw)
        raw["metadata"] |= {"uid": f"u{number}", "resourceVersion": str(number)}
        self.objects[f"{plural}/{raw['metadata']['name']}"] = raw
        return raw

    # What the command sees

    def read(self, namespace: str | None, name: str | None, *, table: bool = False) -> dict[str, Any]:
        return self.request("GET", f"{POOLS}/{name}", f"read ServingPool {namespace}/{name}")

    def patch(self, namespace: str, name: str, changes: dict[str, Any]) -> dict[str, Any]:
        return self.request("PATCH", f"{POOLS}/{name}", f"change ServingPool {namespace}/{name}", changes)

    def request(self, method: str, path: str, what: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = self._answer(method, path, what, body)
        self._event()
        return answer

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self._event()
        self.passes(seconds)

    # What passes

    def passes(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.now += 1.0
            if self.now % KEDA == 0.0 and self.keda_runs:
                self._keda()
            if self.now % OPERATOR == 7.0 and self.operator_runs:
                self._seen = copy.deepcopy(self.pool), self._blocked()
            if self.now % OPERATOR == 10.0 and self._seen is not None:
                self._operator(*self._seen)
            if self.now % CONTROLLER == 11.0:
                self._controller()
            if self.respawn is not None and self.writes and self.now % 40.0 == 0.0 and not self.all(HPAS):
                self.put(HPAS, self.respawn)
            if not self.all(HPAS) and self.pool["spec"]["mode"] != "Auto":
                self.unbounded += 1.0

    def all(self, plural: str) -> list[dict[str, Any]]:
        return [raw for path, raw in self.objects.items() if path.rpartition("/")[0] == plural]

    @property
    def pool(self) -> dict[str, Any]:
        return self.objects[f"{POOLS}/qwen"]

    @property
    def replicas(self) -> int:
        return int(self.objects[f"{self.target}/qwen"]["spec"]["replicas"])

    @property
    def writers(self) -> list[str]:
        """Who scaled, one after the other."""
        return [name for name, _ in itertools.groupby(writer for _, writer, _ in self.writes)]

    def _event(self) -> None:
        self.events += 1
        if self.events_left is not None:
            self.events_left -= 1
            if self.events_left <= 0:
                raise Killed

    def _answer(self, method: str, path: str, what: str, body: dict[str, Any] | None) -> dict[str, Any]:
        if path == REVIEWS:
            asked = (body or {})["spec"]["resourceAttributes"]
            return {"status": {"allowed": f"{asked['verb']} {asked['resource']}" not in self.forbidden}}
        if path.startswith("/apis/keda.sh"):
            self._admit_keda(path, what)
        if path in DISCOVERY:
            return {"resources": DISCOVERY[path]}
        if path in {HPAS, SCALED_OBJECTS}:
            return self._collection(method, path, body)
        if path not in self.objects:
            raise NotFound(f"Cannot {what}: 404 not found")
        raw = self.objects[path]
        if method == "GET":
            return copy.deepcopy(raw)
        stated = (body or {}).get("preconditions") or (body or {}).get("metadata") or {}
        if any(stated.get(name) not in {None, raw["metadata"][name]} for name in ("uid", "resourceVersion")):
            raise kind_of(409)(f"Cannot {what}: 409 the object has been modified")
        if method == "DELETE":
            del self.objects[path]
            return {}
        return copy.deepcopy(self._merge(raw, body or {}))

    def _admit_keda(self, path: str, what: str) -> None:
        """The API server judges rights before it looks whether there is such a kind."""
        if self.refuse_all_of_keda and path.startswith(SCALED_OBJECTS):
            raise Forbidden(f"Cannot {what}: 403 forbidden")
        if not self.keda_installed:
            raise NotFound(f"Cannot {what}: 404 not found")

    def _collection(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        if method == "GET":
            return {"items": copy.deepcopy(self.all(path))}
        assert body is not None
        if f"{path}/{body['metadata']['name']}" in self.objects:
            raise Conflict("409 already exists")
        raw = copy.deepcopy(body)
        raw["metadata"]["namespace"] = "chat"
        return copy.deepcopy(self.put(path, raw))

    def _merge(self, raw: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        annotations = raw["metadata"].get("annotations", {}) | body.get("metadata", {}).get("annotations", {})
        raw["metadata"]["annotations"] = {name: value for name, value in annotations.items() if value is not None}
        if body.get("spec") and raw["spec"] != (new := raw["spec"] | body["spec"]):
            raw["spec"] = new
            raw["metadata"]["generation"] += 1
        raw["metadata"]["resourceVersion"] = str(next(self._versions))
        return raw

    def _scale(self, writer: str, replicas: int) -> None:
        if replicas != self.replicas:
            self.objects[f"{self.target}/qwen"]["spec"]["replicas"] = replicas
            self.both += writer == "operator" and self._blocked() is not None
            self.writes.append((self.now, writer, replicas))

    def _blocked(self) -> str | None:
        return next((f"OwnedBy{name}" for name, found in self._others() if found), None)

    def _operator(self, seen: dict[str, Any], blocked: str | None) -> None:
        """Act on what was seen seconds ago, whatever has changed since: the real one is more careful."""
        raw, before = self.pool, self.replicas
        self._seen = None
        auto = seen["spec"]["mode"] == "Auto"
        if auto and blocked is None:
            self._scale("operator", self.wanted)
        reason = (blocked or "SucceededGetScale") if auto else "Recommending"
        would = f"Auto would be blocked ({blocked}): It scales 'qwen'; delete it first."
        told = "Recommend mode." if blocked is None or auto else f"Recommend mode. {would}"
        at = datetime.fromtimestamp(self.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = raw.get("status", {})
        history = status.get("history", [])
        if self.replicas != before:
            history = [{"from": before, "to": self.replicas, "by": "servingpool-operator", "why": "Load."}, *history]
        ready = {"type": "Ready", "status": "False" if auto and blocked else "True", "reason": reason, "message": told}
        held = next((one for one in status.get("conditions", ()) if one["type"] == "Ready"), None)
        same = held is not None and held["status"] == ready["status"]
        ready["lastTransitionTime"] = held["lastTransitionTime"] if same and held is not None else at
        others = [
            {"type": type_, "status": status_, "reason": reason_, "message": message, "lastTransitionTime": at}
            for type_, (status_, reason_, message) in self.conditions.items()
        ]
        raw["status"] = {
            "observedGeneration": seen["metadata"]["generation"],
            "conditions": [ready, *others],
            "desiredReplicas": self.wanted,
            "replicas": self.replicas,
            "coldStart": "40s",
            "lastDecision": {"at": at, "reason": f"{self.wanted} cover the forecast."},
            "history": history,
        }
        raw["metadata"]["resourceVersion"] = str(next(self._versions))

    def _others(self) -> list[tuple[str, bool]]:
        return [
            ("KEDA", any(not paused(raw) for raw in self.all(SCALED_OBJECTS))),
            ("HPA", bool([raw for raw in self.all(HPAS) if raw["spec"]["scaleTargetRef"]["name"] == "qwen"])),
        ]

    def _controller(self) -> None:
        for raw in self.all(HPAS):
            if raw["spec"]["scaleTargetRef"]["name"] == "qwen":
                low, high = bounds_of(raw)
                self._scale("hpa", max(low, min(high, self.other_wants)))
            raw["status"] = {"conditions": [{"type": "AbleToScale", "status": "True"}]}
            raw["metadata"]["resourceVersion"] = str(next(self._versions))

    def _keda(self) -> None:
        """A look does one thing: the condition comes before the HPA goes."""
        for raw in self.all(SCALED_OBJECTS):
            made = [path for path, one in self.objects.items() if HPAS in path and made_by_keda(one) is not None]
            asked = pause_asked(raw)
            if asked and not paused(raw):
                raw["status"] = {"conditions": [{"type": "Paused", "status": "True"}]}
            elif asked and made:
                del self.objects[made[0]]
            elif not asked and not made:
                raw["status"] = {"conditions": [{"type": "Paused", "status": "False"}]}
                one = hpa("keda-hpa-qwen")
                one["metadata"]["ownerReferences"] = [{"kind": "ScaledObject", "name": "qwen", "controller": True}]
                self.put(HPAS, one)
