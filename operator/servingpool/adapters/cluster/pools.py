"""ServingPools as a person asks for them: with their kubeconfig and rights, synchronously."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Self

from servingpool.adapters.cluster.api_server import TIMEOUT, ApiServer, answered, answering
from servingpool.adapters.cluster.errors import REFUSED
from servingpool.adapters.cluster.kubeconfig import credentials_of
from servingpool.adapters.cluster.paths import JSON, MERGE_PATCH, path_of
from servingpool.api.group import API_VERSION, PLURAL

PROBED = 5.0
"""Seconds to connect and for each read of `probe`, which asks for one pool alone."""
PAGE = 500
"""Pools in a page of a list, as kubectl asks for."""
WATCHED = 300
"""Seconds after which the API server ends a watch. We open a new one then."""
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
FIELD_MANAGER = "servingpool-cli"
WRITES = {"PATCH", "POST"}
"""Methods that tell our name as field manager."""


class Pools:
    """Client for the ServingPools of one cluster."""

    def __init__(self, server: ApiServer, namespace: str) -> None:
        self._server = server
        self.namespace = namespace
        """Namespace of the kubeconfig's context."""

    @classmethod
    def connect(cls, kubeconfig: str | None, context: str | None) -> Self:
        """Connect with a kubeconfig and one of its contexts; by default `~/.kube/config` and the current one.

        Without a kubeconfig as the pod's service account. ClusterError where neither can be used.
        """
        with credentials_of(kubeconfig, context) as (found, namespace):
            return cls(ApiServer.of(found), namespace)

    def read(self, namespace: str | None, name: str | None, *, table: bool = False) -> dict[str, Any]:
        """A pool, or the list of a namespace, or of all; as stored, or as the table of its columns."""
        what = f"list {PLURAL}" if name is None else f"read ServingPool {namespace}/{name}"
        return self._server.request("GET", pool_path(namespace, name), what, accept=TABLE if table else JSON)

    def pages(self, namespace: str | None) -> Iterator[dict[str, Any]]:
        """The list of a namespace, or of all, page by page: 5,000 pools at once are 50 MB."""
        token: str | None = ""
        while token is not None:
            found = self._list(pool_path(namespace, None), {"limit": str(PAGE), "continue": token})
            yield found
            token = found["metadata"].get("continue") or None

    def probe(self, namespace: str | None) -> None:
        """Nothing, if the API server answers: a watch is silent where nothing changes."""
        self._list(pool_path(namespace, None), {"limit": "1"}, PROBED)

    def autoscalers(self, namespace: str) -> list[dict[str, Any]]:
        """The HorizontalPodAutoscalers of a namespace."""
        path = path_of("autoscaling/v2", "horizontalpodautoscalers", namespace)
        found: list[dict[str, Any]] = self._list(path, {}, PROBED)["items"]
        return found

    def watch(self, namespace: str | None, name: str | None, since: str, *, table: bool) -> Iterator[dict[str, Any]]:
        """Changes after a resourceVersion, as `type` and `object`, until the API server ends the watch."""
        query: dict[str, str] = {"watch": "true", "resourceVersion": since, "timeoutSeconds": str(WATCHED)}
        query |= {} if name is None else {"fieldSelector": f"metadata.name={name}"}
        path, what, accept = pool_path(namespace, None), f"watch {PLURAL}", TABLE if table else JSON
        with answering(what):
            response = self._server.open("GET", path, query=query, accept=accept, timeout=TIMEOUT + WATCHED)
            if response.status >= REFUSED:
                answered(what, response)
            kept = b""
            while piece := response.read1():
                *lines, kept = (kept + piece).split(b"\n")
                yield from (json.loads(line) for line in lines if line)

    def patch(self, namespace: str, name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Merge changes into a pool. Conflict where it has another `metadata.resourceVersion` than they name."""
        return self.request("PATCH", pool_path(namespace, name), f"change ServingPool {namespace}/{name}", changes)

    def request(self, method: str, path: str, what: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send any request for an object; a PATCH merges. `what` completes "Cannot ..." in the message of a failure."""
        form = MERGE_PATCH if method == "PATCH" else JSON
        query = {"fieldManager": FIELD_MANAGER} if method in WRITES else {}
        return self._server.request(method, path, what, body, query=query, content_type=form)

    def _list(self, path: str, query: Mapping[str, str], timeout: float = TIMEOUT) -> dict[str, Any]:
        return self._server.request("GET", path, f"list {path.rpartition('/')[2]}", query=query, timeout=timeout)


def pool_path(namespace: str | None, name: str | None) -> str:
    """Path of one pool, of a namespace's or of all."""
    return path_of(API_VERSION, PLURAL, namespace, name)
