"""Requests that hand a workload from its autoscaler to a pool and back, with a person's kubeconfig and rights."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from servingpool.adapters.cluster import kinds
from servingpool.adapters.cluster.autoscaling import AUTOSCALERS, PAUSED, PAUSED_REPLICAS, made_by_keda, paused
from servingpool.adapters.cluster.errors import Forbidden, NotFound, Unfit
from servingpool.adapters.cluster.kinds import base_of, path_of, plural_of
from servingpool.adapters.cluster.objects import Key, Raw, TargetKey, autoscaler
from servingpool.adapters.cluster.pools import Pools
from servingpool.catalogue.plain import plain

KEPT = "servingpool.dev/adopted"
"""Annotation of the pool with the autoscaler's copy, as JSON. Whoever may switch the pool's mode may write it, a sync
or an upgrade of the pool leaves it alone, and each change of it is checked against the pool's resourceVersion."""
PLURALS_OF_APPS = {("apps/v1", "Deployment"): "deployments", ("apps/v1", "StatefulSet"): "statefulsets"}
PLURALS = {kind: plural for _, plural, kind in AUTOSCALERS.values()}
GROUPS = {kind: group for group, _, kind in AUTOSCALERS.values()}


@dataclass(frozen=True, slots=True)
class Scene:
    """A pool, its target, and the other autoscalers of the target, as read one after the other."""

    pool: Raw
    key: TargetKey
    target: Raw
    autoscalers: tuple[Raw, ...]
    """HPAs and ScaledObjects that name the target, paused ones too; no HPA that KEDA made."""
    keda_hpas: tuple[Raw, ...]
    """HPAs that KEDA made of the ScaledObjects."""
    namesakes: tuple[Raw, ...]
    """Autoscalers that are called like the pool or its target, and scale something else."""
    kept: Raw | None
    """The copy of the autoscaler that was here; None where none is kept."""

    @property
    def contended(self) -> bool:
        """Whether another autoscaler scales the target."""
        return any(not paused(raw) for raw in self.autoscalers) or bool(self.keda_hpas)

    @property
    def replicas(self) -> int:
        """Requested replicas, by the target's spec."""
        found: Any = self.target
        for name in self.path:
            found = found.get(name, {} if name != self.path[-1] else 1)
        return int(found)

    @property
    def path(self) -> tuple[str, ...]:
        """Path of the requested replicas in the target's object."""
        return kinds.REPLICAS.get(self.key.sort, ("spec", "replicas"))


class Handover:
    """Requests to the API server for the handover of one pool."""

    def __init__(self, pools: Pools, key: Key) -> None:
        self._pools, self.key = pools, key

    def look(self) -> Scene:
        """Read the pool, its target and the target's autoscalers. NotFound without the pool or its target."""
        namespace, name = self.key
        pool = self._pools.read(namespace, name)
        spec = pool["spec"]["targets"][0]
        version, kind = str(spec.get("apiVersion", "apps/v1")), str(spec.get("kind", "Deployment"))
        key = TargetKey(namespace, str(spec["name"]), kind, kinds.group_of(version))
        path = path_of(version, self._plural(version, kind), namespace, key.name)
        target = self._pools.request("GET", path, f"read {key} in namespace {namespace}")
        found = [each for kind in GROUPS for each in self._list(kind)]
        scaling: list[Raw] = []
        others: list[Raw] = []
        for raw in found:
            scaled = autoscaler(raw)
            (scaling if scaled is not None and scaled.target == key else others).append(raw)
        kept = (pool["metadata"].get("annotations") or {}).get(KEPT)
        return Scene(
            pool=pool,
            key=key,
            target=target,
            autoscalers=tuple(raw for raw in scaling if made_by_keda(raw) is None),
            keda_hpas=tuple(raw for raw in scaling if made_by_keda(raw) is not None),
            namesakes=tuple(raw for raw in others if raw["metadata"]["name"] in {name, key.name}),
            kept=None if kept is None else _copy(kept, key, others),
        )

    def pool(self) -> Raw:
        """The pool alone. NotFound without it."""
        return self._pools.read(*self.key)

    def keep(self, pool: Raw, copy: Raw | None) -> None:
        """Keep this copy in the pool, or forget the kept copy. Conflict if the pool is another by now."""
        self._change(pool, {"annotations": {KEPT: None if copy is None else json.dumps(copy, sort_keys=True)}}, {})

    def set_mode(self, pool: Raw, mode: str) -> Raw:
        """Set the pool's mode; the pool as it is then. Conflict if it is another by now."""
        return self._change(pool, {}, {"mode": mode})

    def delete(self, hpa: Raw) -> None:
        """Delete an HPA. Conflict if it is not as it was read; nothing happens where it is gone."""
        meta = hpa["metadata"]
        seen = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        with suppress(NotFound):
            self._request("DELETE", hpa, "delete", {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": seen})

    def pause(self, scaled_object: Raw) -> None:
        """Have KEDA pause a ScaledObject and leave replicas as they are. Conflict if it is not as it was read."""
        version = scaled_object["metadata"]["resourceVersion"]
        self.annotate(scaled_object, {PAUSED: "true", PAUSED_REPLICAS: None}, version)

    def annotate(self, scaled_object: Raw, annotations: Mapping[str, str | None], version: str | None = None) -> None:
        """Set annotations of a ScaledObject; None removes an annotation. NotFound without the object."""
        meta = {"annotations": dict(annotations)} | ({} if version is None else {"resourceVersion": version})
        self._request("PATCH", scaled_object, "change", {"metadata": meta})

    def create(self, copy: Raw) -> None:
        """Create an HPA from its copy. Conflict if an HPA of that name exists by now."""
        self._pools.request("POST", self._path(copy["kind"]), f"create {named(copy)}", copy)

    def find(self, like: Raw) -> Raw | None:
        """The autoscaler of this kind and name; None where there is none."""
        try:
            return {**self._request("GET", like, "read"), "kind": like["kind"]}
        except NotFound:
            return None

    def may(self, verb: str, group: str, resource: str, name: str) -> bool:
        """Whether the API server lets us do this here."""
        asked = {"namespace": self.key[0], "verb": verb, "group": group, "resource": resource, "name": name}
        kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        body = {**kind, "spec": {"resourceAttributes": asked}}
        answer = self._pools.request("POST", path, "ask for your rights", body)
        return bool(answer.get("status", {}).get("allowed"))

    def _change(self, pool: Raw, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Raw:
        version = pool["metadata"]["resourceVersion"]
        return self._pools.patch(*self.key, {"metadata": {"resourceVersion": version, **metadata}, "spec": dict(spec)})

    def _plural(self, api_version: str, kind: str) -> str:
        if (api_version, kind) in PLURALS_OF_APPS:
            return PLURALS_OF_APPS[api_version, kind]
        base = base_of(api_version)
        found = plural_of(self._pools.request("GET", base, f"read {base}")["resources"], kind)
        if found is None:
            raise Unfit(f"The API server has no kind {kind} in {base}")
        return found

    def _list(self, kind: str) -> list[dict[str, Any]]:
        try:
            items = self._pools.request("GET", self._path(kind), f"list {PLURALS[kind]}")["items"]
        except (Forbidden, NotFound):
            # Without KEDA nobody has a right on its kinds. Whether it is installed everybody may read.
            if kind == "ScaledObject" and not self._installed(GROUPS[kind]):
                return []
            raise
        return [{**each, "kind": kind} for each in items]

    def _installed(self, group: str) -> bool:
        try:
            self._pools.request("GET", f"/apis/{group}", f"read /apis/{group}")
        except NotFound:
            return False
        return True

    def _path(self, kind: str, name: str | None = None) -> str:
        """Path of an autoscaler of the namespace, or of all of its kind."""
        return path_of(GROUPS[kind], PLURALS[kind], self.key[0], name)

    def _request(self, method: str, of: Raw, what: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        kind, name = of["kind"], of["metadata"]["name"]
        return self._pools.request(method, self._path(kind, name), f"{what} {named(of)}", body)


def named(raw: Raw) -> str:
    """Kind and name, as messages write them."""
    return f"{raw['kind']} '{plain(raw['metadata']['name'])}'"


def _copy(text: str, target: TargetKey, others: Sequence[Raw]) -> Raw:
    """The target's autoscaler in the pool's annotation. Unfit where who may edit the pool put something else there.

    `others`: autoscalers of other targets. Of a ScaledObject the copy has no target: what stands has.
    """
    try:
        kept: Raw = json.loads(text)
        scaled = autoscaler({**kept, "metadata": {**kept["metadata"], "namespace": target.namespace, "uid": ""}})
        of_target = scaled is not None and scaled.target == target
        own = named(kept) not in map(named, others) if kept["kind"] == "ScaledObject" else of_target
        whole = own and kept["kind"] in GROUPS and isinstance(kept["metadata"]["name"], str)
    except (AttributeError, ValueError, KeyError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise Unfit(
            f"The pool's annotation {KEPT} holds no copy of an autoscaler of {target}. Remove it, and run again"
        )
    return kept
