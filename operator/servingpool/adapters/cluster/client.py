"""The API server as the operator asks it, and as the commands that survey a cluster and the lab's emulator do.

Plain data in and out, for any group: `CoreV1Api` alone imports 90 MB of models, and reading a Lease through the typed
APIs loses the form of its times. `api_server` is the synchronous twin, with the same `Login`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any, Self

import aiohttp
import orjson
from yarl import URL

from servingpool.adapters.cluster.errors import (
    OK,
    ClusterError,
    Invalid,
    NotFound,
    answer,
    listed,
    said,
    unanswered,
    unreadable,
    why,
)
from servingpool.adapters.cluster.kinds import (
    APPLY_PATCH,
    JSON,
    JSON_PATCH,
    LEASES,
    MERGE_PATCH,
    base_of,
    path_of,
    version_of,
)
from servingpool.adapters.cluster.kubeconfig import Login
from servingpool.adapters.cluster.objects import DELETION_COST, FIELD_MANAGER, Count, Key, Kind, Workload, revision_of
from servingpool.adapters.cluster.older_schema import without
from servingpool.adapters.cluster.session import TIMEOUT, session_of
from servingpool.api.group import API_VERSION, BUDGET_PLURAL, KIND, PLURAL

WATCHED = 300
"""Seconds after which the API server ends a watch."""
AT_ONCE = 100
"""Connections at a time; more requests wait for one."""
LOST = (TimeoutError, aiohttp.ClientError, OSError)
"""Errors of the client where no answer comes."""
FAULTS = (*LOST, ClusterError, ValueError)
"""Errors of the client where no answer comes, a request cannot be made, or the reply is no answer."""
LONGEST_EVENT = 1024
"""Characters of an event's message that the API server accepts."""
PAGE = 500
"""Objects in a page of a list, as kubectl asks for."""
METADATA_ALONE = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
AS_US = {"fieldManager": FIELD_MANAGER, "timeout": f"{TIMEOUT:.0f}s"}
"""Query of each write of an object. Once our own time is up, the API server gives up on it too: its own limit is 60 s,
and another operator may write for the pool by then."""

INDEX = re.compile(r"\[\d+\]")
UNKNOWN_TO_SCHEMA = (
    "The API server refuses %s in the status of %s, so that part is left out of every status: %s. "
    "If the operator is newer than the custom resource definitions, apply those of its release."
)

log = logging.getLogger(__name__)


def _failed(what: str, error: BaseException) -> ClusterError:
    """An error of `FAULTS`, in our own words."""
    if isinstance(error, ClusterError):  # of the credentials, which are read again
        return error
    if isinstance(error, LOST):
        return unanswered(what, type(error).__name__, why(error))
    return unreadable(what, type(error).__name__)  # its text may hold a token


class Whole(dict[str, Any]):
    """An object, a list, or a part of discovery. Another one than was asked for is no answer: it lacks what is read."""

    def __init__(self, what: str, found: Mapping[str, Any]) -> None:
        super().__init__(found)
        self._what = what

    def __missing__(self, field: str) -> Any:
        """Unanswered, for a field that each such answer of an API server has."""
        raise unreadable(self._what, f"it has no {field}")


class Connection:
    """Connections to one API server, kept for the life of the process."""

    def __init__(self, session: aiohttp.ClientSession, server: str) -> None:
        self._session, self._server = session, server

    @classmethod
    async def connect(cls, kubeconfig: str | None, context: str | None = None) -> Self:
        """Connect as `Login` does. ClusterError."""
        return cls.of(await asyncio.to_thread(Login, kubeconfig, context))

    @classmethod
    def of(cls, login: Login) -> Self:
        """Connect as this login, in the running event loop."""
        return cls(session_of(login, connections=AT_ONCE), login.server)

    async def aclose(self) -> None:
        """Let go of the connections."""
        await self._session.close()

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        """Whatever stands at a path of the API, as plain data. NotFound if nothing does."""
        return await self.request("GET", path, f"read {path}", query=query)

    async def request(
        self,
        method: str,
        path: str,
        what: str,
        body: object = None,
        *,
        query: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> dict[str, Any]:
        """The answer, decoded. A ClusterError says "Cannot" and `what`, such as "scale Deployment chat/vllm"."""
        headers = {"Accept": accept, "Content-Type": content_type}
        try:
            async with self._send(method, path, query, headers, body) as response:
                content = await response.read()
        except FAULTS as error:
            raise _failed(what, error) from error
        found = answer(what, response.status, response.reason, content)
        meta, spec = found.get("metadata"), found.get("spec", {})
        one = isinstance(meta, dict) and isinstance(spec, dict) and ("name" in meta or "items" not in found)
        whole = found if one else listed(found)
        if whole is None:
            raise unreadable(what, "it is no object, and no list")
        return Whole(what, whole)

    async def watch(self, path: str, what: str, **query: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Changes of a list, as type and object, until the API server ends the watch. Raises as `request`."""
        given = {**query, "watch": "true", "timeoutSeconds": WATCHED}
        try:
            async with self._send("GET", path, given, {"Accept": JSON}, None, WATCHED + TIMEOUT) as stream:
                if stream.status != OK:
                    answer(what, stream.status, stream.reason, await stream.read())
                async for line in stream.content:
                    change = answer(what, OK, None, line)
                    kind, found = change.get("type"), change.get("object")
                    if not isinstance(kind, str) or not isinstance(found, dict):
                        raise unreadable(what, "it is no change")
                    if kind == "ERROR":  # such as a resourceVersion that is too old
                        raise ClusterError(f"Cannot {what}: {said(found.get('message'))}")
                    yield kind, found
        except FAULTS as error:
            raise _failed(what, error) from error

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        headers: dict[str, str],
        body: object,
        within: float | None = None,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The answer, its body unread. `within`: seconds for all of it, `TIMEOUT` by default."""
        return self._session.request(
            method,
            URL(f"{self._server}{path}", encoded=True).update_query(query or {}),
            headers=headers,
            data=None if body is None else orjson.dumps(body),
            timeout=aiohttp.ClientTimeout(total=within or TIMEOUT),
        )


class Cluster(Connection):
    """The operator's client of its cluster: inventories, scale, deletion costs, status, events, and its Lease."""

    def __init__(self, session: aiohttp.ClientSession, server: str) -> None:
        super().__init__(session, server)
        self.writes: dict[str, int] = {"scale": 0, "cost": 0, "status": 0, "event": 0}
        """Requests that changed something, by kind, since the start."""
        self._told: set[str] = set()
        """Fields of a status that were refused and logged."""

    async def count(self, kind: Kind, namespace: str | None) -> Count:
        """How many objects of a kind there are, in a namespace or in all; none if the kind is not installed."""
        items, rest = await self._page(kind, namespace, limit=1)
        return Count(len(items) + (rest.get("remainingItemCount") or 0), revision_of(rest))

    async def uids(self, kind: Kind, namespace: str | None) -> set[str]:
        """Uids of all objects of a kind that exist now, in a namespace or in all; none if the kind is not installed."""
        found: set[str] = set()
        token: str | None = ""
        while token is not None:
            items, rest = await self._page(kind, namespace, limit=PAGE, token=token)
            found |= {item["metadata"]["uid"] for item in items}
            token = rest.get("continue") or None
        return found

    async def serves(self, kind: Kind) -> bool:
        """Whether the API server has this kind, by its own list of kinds: a 404 may be a proxy's."""
        group, version, plural = kind
        at, groups = version_of(group, version), (await self.get("/apis"))["groups"]
        if at not in {"v1", *(one["groupVersion"] for each in groups for one in each["versions"])}:
            return False
        return any(one["name"] == plural for one in (await self.get(base_of(at)))["resources"])

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
        what = f"scale {target.key.kind} {namespace}/{name}"
        url = f"{path_of(version_of(group, version), plural, namespace, name)}/scale"
        stored = await self.request("PATCH", url, what, body, query=AS_US, content_type=JSON_PATCH)
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
        await self.request(
            "PATCH",
            path_of("v1", "pods", namespace, name),
            f"set the deletion cost of Pod {namespace}/{name}",
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata},
            query={**AS_US, "force": "false"},
            content_type=APPLY_PATCH,
        )
        self.writes["cost"] += 1

    async def write_status(self, pool: Key, changes: dict[str, Any]) -> None:
        """Merge `changes` into a ServingPool's status."""
        await self._write_status(f"ServingPool {'/'.join(pool)}", path_of(API_VERSION, PLURAL, *pool), changes)

    async def write_budget_status(self, name: str, changes: dict[str, Any]) -> None:
        """Merge `changes` into a GPUBudget's status."""
        await self._write_status(f"GPUBudget {name}", path_of(API_VERSION, BUDGET_PLURAL, None, name), changes)

    async def _write_status(self, what: str, path: str, changes: dict[str, Any]) -> None:
        """Merge `changes`; what an older custom resource definition does not take is left out and logged once."""

        async def merge(part: dict[str, Any]) -> None:
            url, body = f"{path}/status", {"status": part}
            await self.request("PATCH", url, f"write the status of {what}", body, query=AS_US, content_type=MERGE_PATCH)

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
        about = {"apiVersion": API_VERSION, "kind": KIND, "namespace": namespace, "name": name, "uid": uid}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{name}.", "namespace": namespace},
            "involvedObject": about,
            "type": type_,
            "reason": reason,
            "message": message[:LONGEST_EVENT],
            "source": {"component": FIELD_MANAGER},
            "reportingComponent": FIELD_MANAGER,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self.request(
            "POST", path_of("v1", "events", namespace), f"post an event on ServingPool {namespace}/{name}", event
        )
        self.writes["event"] += 1

    async def read_lease(self, lease: Key) -> dict[str, Any]:
        """A Lease as plain data. NotFound if there is none."""
        return await self.request("GET", path_of(LEASES, "leases", *lease), f"read Lease {'/'.join(lease)}")

    async def list_leases(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        """All Leases of a namespace with these labels, as plain data."""
        path, what = path_of(LEASES, "leases", namespace), f"list the Leases of namespace {namespace}"
        found = await self.request("GET", path, what, query={"labelSelector": selector})
        return [{"apiVersion": LEASES, "kind": "Lease", **one} for one in found["items"]]

    async def create_lease(
        self,
        lease: Key,
        spec: dict[str, Any],
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Create a Lease. Conflict if there is one by now."""
        namespace, name = lease
        meta = {"name": name, "labels": dict(labels or {}), "annotations": dict(annotations or {})}
        body = {"apiVersion": LEASES, "kind": "Lease", "metadata": meta, "spec": spec}
        return await self.request(
            "POST", path_of(LEASES, "leases", namespace), f"create Lease {namespace}/{name}", body
        )

    async def replace_lease(self, lease: Key, held: dict[str, Any]) -> dict[str, Any]:
        """Replace a Lease as it was read. Conflict if someone else has written it since."""
        return await self.request("PUT", path_of(LEASES, "leases", *lease), f"renew Lease {'/'.join(lease)}", held)

    async def delete_lease(self, lease: Key, version: str) -> None:
        """Delete a Lease as it was read. Conflict if someone has written it since; nothing if it is gone."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"resourceVersion": version}}
        with contextlib.suppress(NotFound):
            await self.request("DELETE", path_of(LEASES, "leases", *lease), f"delete Lease {'/'.join(lease)}", body)

    async def _page(
        self, kind: Kind, namespace: str | None, *, limit: int, token: str = ""
    ) -> tuple[list[Any], dict[str, Any]]:
        """A page of a list, of each object its metadata alone; and what it says of the rest.

        `token` is what the page before said to go on with.
        """
        group, version, plural = kind
        what = f"list {plural}" + ("" if namespace is None else f" in namespace {namespace}")
        path, query = path_of(version_of(group, version), plural, namespace), {"limit": limit, "continue": token}
        try:
            page = await self.request("GET", path, what, query=query, accept=METADATA_ALONE)
        except NotFound:
            if await self.serves(kind):
                raise
            return [], {}
        return page["items"], page["metadata"]
