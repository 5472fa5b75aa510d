"""The operator's writes to the cluster: scale, deletion costs, status, events, and its Lease."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime
from typing import Any, Self

import orjson
from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException

from servingpool.adapters.cluster.errors import ClusterError, Invalid, NotFound, translated
from servingpool.adapters.cluster.kubeconfig import NO_FILE, Credentials, choose
from servingpool.adapters.cluster.objects import DELETION_COST, FIELD_MANAGER, Key, Kind, Workload
from servingpool.adapters.cluster.older_schema import without
from servingpool.adapters.cluster.paths import path_of, version_of
from servingpool.api.group import API_VERSION, BUDGET_PLURAL, GROUP, KIND, PLURAL, VERSION

TIMEOUT = 10.0
"""Seconds for one request. The client's own default is five minutes: twenty ticks."""
REFUSED = 400
"""HTTP status from which an answer is a refusal."""
LONGEST_EVENT = 1024
"""Characters of an event's message that the API server accepts."""
LEASES = ("coordination.k8s.io", "v1", "leases")
PAGE = 500
"""Objects in a page of a list, as kubectl asks for."""
JSON = "application/json"
METADATA_ALONE = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

INDEX = re.compile(r"\[\d+\]")
UNKNOWN_TO_SCHEMA = (
    "The API server refuses %s in the status of %s, so that part is left out of every status: %s. "
    "If the operator is newer than the custom resource definitions, apply those of its release."
)

log = logging.getLogger(__name__)


async def credentials(kubeconfig: str | None) -> Credentials:
    """Those that `Cluster.connect` uses, read anew: a token may have been renewed, by a plugin too."""
    settings = await _configuration(kubeconfig, None)
    return Credentials(
        server=settings.host,
        verified=settings.verify_ssl,
        authority=settings.ssl_ca_cert,
        authorization=await settings.get_api_key_with_prefix("BearerToken"),
        certificate=settings.cert_file,
        key=settings.key_file,
        proxy=settings.proxy,
    )


class Cluster:
    """One connection, kept for the life of the operator."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api
        # Plain data in and out, for any group: CoreV1Api alone imports 90 MB of models, and reading a Lease through
        # the typed APIs loses the form of its times.
        self._objects = client.CustomObjectsApi(api)
        self.writes: dict[str, int] = {"scale": 0, "cost": 0, "status": 0, "event": 0}
        """Requests that changed something, by kind, since the start."""
        self._told: set[str] = set()
        """Fields of a status that were refused and logged."""

    @classmethod
    async def connect(cls, kubeconfig: str | None, context: str | None = None) -> Self:
        """Connect with a kubeconfig's path, or else as the pod's service account, or else with `~/.kube/config`."""
        return cls(client.ApiClient(await _configuration(kubeconfig, context)))

    async def close(self) -> None:
        """Let go of the connection."""
        await self._api.close()

    async def count(self, kind: Kind, namespace: str | None) -> int:
        """How many objects of a kind there are, in a namespace or in all; 0 if the kind is not installed."""
        items, rest = await self._page(kind, namespace, limit=1)
        return len(items) + (rest.get("remainingItemCount") or 0)

    async def uids(self, kind: Kind, namespace: str | None) -> set[str]:
        """Uids of all objects of a kind that exist now, in a namespace or in all; none if the kind is not installed."""
        found: set[str] = set()
        token: str | None = ""
        while token is not None:
            items, rest = await self._page(kind, namespace, limit=PAGE, token=token)
            found |= {item["metadata"]["uid"] for item in items}
            token = rest.get("continue") or None
        return found

    async def read_pool(self, pool: Key) -> dict[str, Any]:
        """A ServingPool as plain data. NotFound if there is none."""
        namespace, name = pool
        with translated(f"read ServingPool {namespace}/{name}"):
            found: dict[str, Any] = await self._objects.get_namespaced_custom_object(
                GROUP, VERSION, namespace, PLURAL, name, _request_timeout=TIMEOUT
            )
        return found

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        """Whatever stands at a path of the API, as plain data. NotFound if nothing does."""
        with translated(f"read {path}"):
            found: dict[str, Any] = await self._request("GET", path, query_params=list(query.items()))
        return found

    async def scale(self, target: Workload, replicas: int) -> None:
        """Set a target's replicas if they are still as it says; Conflict if someone else changed them.

        ClusterError, too, where the API server took the order and stored another number.

        The precondition is on the number itself, not on resourceVersion: that changes with every pod that becomes
        ready, and each such change would cost a tick.
        """
        (namespace, name), (group, version, plural) = target.key[:2], target.resource
        path, before = "/spec/replicas", target.replicas
        # A Scale of 0 lacks the field: `test` takes that for null, and `replace` does not take it at all.
        body = [
            {"op": "test", "path": path, "value": before or None},
            {"op": "replace" if before else "add", "path": path, "value": replicas},
        ]
        with translated(f"scale {target.key.kind} {namespace}/{name}"):
            stored = await self._objects.patch_namespaced_custom_object_scale(
                group,
                version,
                namespace,
                plural,
                name,
                body,
                field_manager=FIELD_MANAGER,
                _content_type=JSON_PATCH,
                _request_timeout=TIMEOUT,
            )
            if not isinstance(stored, dict) or not isinstance(stored.get("spec", {}), dict):
                raise ValueError("it is no Scale")  # noqa: TRY004, an answer is no argument
        self.writes["scale"] += 1
        found = stored.get("spec", {}).get("replicas", 0)
        if found != replicas:
            raise ClusterError(
                f"Requested {replicas} replicas, the API server stored {found}. Check admission webhooks"
            )

    async def set_deletion_cost(self, pod: Key, uid: str, cost: int | None) -> None:
        """Set a pod's cost of deletion; None takes back what we have set.

        By server-side apply, for then the API server keeps whose it is: it answers Conflict where somebody else has set
        one, and takes back only ours. Conflict, too, where the pod of this uid is gone.
        """
        namespace, name = pod
        metadata: dict[str, Any] = {"namespace": namespace, "name": name, "uid": uid}
        if cost is not None:
            metadata["annotations"] = {DELETION_COST: str(cost)}
        with translated(f"set the deletion cost of Pod {namespace}/{name}"):
            await self._request(
                "PATCH",
                f"/api/v1/namespaces/{namespace}/pods/{name}",
                content_type=APPLY_PATCH,
                query_params=[("fieldManager", FIELD_MANAGER), ("force", "false")],
                body={"apiVersion": "v1", "kind": "Pod", "metadata": metadata},
            )
        self.writes["cost"] += 1

    async def write_status(self, pool: Key, changes: dict[str, Any]) -> None:
        """Merge `changes` into a ServingPool's status."""
        namespace, name = pool
        path = path_of(API_VERSION, PLURAL, namespace, name)
        await self._write_status(f"ServingPool {namespace}/{name}", path, changes)

    async def write_budget_status(self, name: str, changes: dict[str, Any]) -> None:
        """Merge `changes` into a GPUBudget's status."""
        await self._write_status(f"GPUBudget {name}", path_of(API_VERSION, BUDGET_PLURAL, None, name), changes)

    async def _write_status(self, what: str, path: str, changes: dict[str, Any]) -> None:
        """Merge `changes`; what an older custom resource definition does not take is left out and logged once."""

        async def merge(part: dict[str, Any]) -> None:
            with translated(f"write the status of {what}"):
                query = [("fieldManager", FIELD_MANAGER)]
                await self._request("PATCH", f"{path}/status", MERGE_PATCH, query_params=query, body={"status": part})

        try:
            await merge(changes)
        except Invalid as refused:
            left = without(changes, refused.fields)
            if left == changes or not left:
                raise
            fields = ", ".join(sorted({INDEX.sub("[]", field) for field in refused.fields}))
            if fields not in self._told:
                self._told.add(fields)
                log.warning(UNKNOWN_TO_SCHEMA, fields, what, refused)
            await merge(left)
        self.writes["status"] += 1

    async def post_event(self, pool: Key, uid: str, *, type_: str, reason: str, message: str) -> None:
        """Post an event on a ServingPool. `type_` is Normal or Warning."""
        namespace, name = pool
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{name}.", "namespace": namespace},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "namespace": namespace,
                "name": name,
                "uid": uid,
            },
            "type": type_,
            "reason": reason,
            "message": message[:LONGEST_EVENT],
            "source": {"component": FIELD_MANAGER},
            "reportingComponent": FIELD_MANAGER,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        with translated(f"post an event on ServingPool {namespace}/{name}"):
            await self._request("POST", f"/api/v1/namespaces/{namespace}/events", body=event)
        self.writes["event"] += 1

    async def read_lease(self, lease: Key) -> dict[str, Any]:
        """A Lease as plain data. NotFound if there is none."""
        namespace, name = lease
        with translated(f"read Lease {namespace}/{name}"):
            lease_now: dict[str, Any] = await self._objects.get_namespaced_custom_object(
                *LEASES[:2], namespace, LEASES[2], name, _request_timeout=TIMEOUT
            )
        return lease_now

    async def create_lease(self, lease: Key, spec: dict[str, Any]) -> dict[str, Any]:
        """Create a Lease. Conflict if there is one by now."""
        namespace, name = lease
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
        with translated(f"create Lease {namespace}/{name}"):
            made: dict[str, Any] = await self._objects.create_namespaced_custom_object(
                *LEASES[:2], namespace, LEASES[2], body, _request_timeout=TIMEOUT
            )
        return made

    async def replace_lease(self, lease: Key, held: dict[str, Any]) -> dict[str, Any]:
        """Replace a Lease as it was read. Conflict if someone else has written it since."""
        namespace, name = lease
        with translated(f"renew Lease {namespace}/{name}"):
            made: dict[str, Any] = await self._objects.replace_namespaced_custom_object(
                *LEASES[:2], namespace, LEASES[2], name, held, _request_timeout=TIMEOUT
            )
        return made

    async def serves(self, kind: Kind) -> bool:
        """Whether the API server has this kind."""
        group, version, plural = kind
        try:
            with translated(f"list {plural}"):
                path, query = path_of(version_of(group, version), plural), [("limit", 1)]
                await self._request("GET", path, accept=METADATA_ALONE, query_params=query)
        except NotFound:
            return False
        return True

    async def _page(
        self, kind: Kind, namespace: str | None, *, limit: int, token: str = ""
    ) -> tuple[list[Any], dict[str, Any]]:
        """A page of a list, of each object its metadata alone; and what it says of the rest.

        `token` is what the page before said to go on with.
        """
        group, version, plural = kind
        path = path_of(version_of(group, version), plural, namespace)
        try:
            with translated(f"list {plural}" + ("" if namespace is None else f" in namespace {namespace}")):
                query = [("limit", limit), ("continue", token)]
                page = await self._request("GET", path, accept=METADATA_ALONE, query_params=query)
        except NotFound:
            return [], {}
        return page["items"] or [], page["metadata"]  # an empty list of metadata is null

    async def _request(
        self, method: str, path: str, content_type: str = JSON, *, accept: str = JSON, **parameters: Any
    ) -> Any:
        """What `CustomObjectsApi` has no path for: the core group, and lists without their items."""
        headers = {"Accept": accept, "Content-Type": content_type}
        request = await self._api.param_serialize(
            method, path, header_params=headers, auth_settings=["BearerToken"], **parameters
        )
        response = await self._api.call_api(*request, _request_timeout=TIMEOUT)
        body = await response.read()
        if response.status >= REFUSED:
            raise ApiException(status=response.status, reason=response.reason, body=body.decode(errors="replace"))
        return orjson.loads(body)


async def _configuration(kubeconfig: str | None, context: str | None) -> client.Configuration:
    settings = client.Configuration()
    with translated("read the cluster's credentials"):
        if kubeconfig is not None:
            choose(kubeconfig, context)
            await config.load_kube_config(kubeconfig, context=context, client_configuration=settings)
        else:
            try:
                if context is not None:
                    raise config.ConfigException("a context is of a kubeconfig")  # noqa: TRY301
                config.load_incluster_config(client_configuration=settings)
            except config.ConfigException:
                chosen = choose(None, context)
                if chosen is None:
                    raise config.ConfigException(NO_FILE) from None
                # Named, for the client takes KUBECONFIG as it was when it was imported.
                await config.load_kube_config(chosen.path, context=context, client_configuration=settings)
    return settings
