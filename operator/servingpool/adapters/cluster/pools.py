"""ServingPools as a person asks for them: with their kubeconfig and rights, synchronously.

Not by `client`: its library takes a third of a second to import, and kubectl's users wait for less.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from typing import Any, Self
from urllib.parse import urlencode

from servingpool.adapters.cluster.api_server import ApiServer
from servingpool.adapters.cluster.kubeconfig import credentials_of
from servingpool.adapters.cluster.paths import path_of
from servingpool.adapters.cluster.refusals import NotInstalled, Unanswered, kind_of, said, why
from servingpool.api.group import API_VERSION, PLURAL

TIMEOUT = 30.0
"""Seconds to connect and for each read: a person waits for it."""
PROBED = 5.0
"""The same for `probe`, which asks for one pool alone."""
PAGE = 500
"""Pools in a page of a list, as kubectl asks for."""
WATCHED = 300
"""Seconds after which the API server ends a watch. We open a new one then."""
REFUSED, MISSING = 400, 404
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
FIELD_MANAGER = "servingpool-cli"
WRITES = {"PATCH", "POST"}
"""Methods that tell our name as field manager."""


class Pools:
    """The ServingPools of one cluster."""

    def __init__(self, server: ApiServer, namespace: str) -> None:
        self._server = server
        self.namespace = namespace
        """Of the kubeconfig's context."""

    @classmethod
    def connect(cls, kubeconfig: str | None, context: str | None) -> Self:
        """Connect with a kubeconfig and one of its contexts; by default `~/.kube/config` and the current one.

        Without a kubeconfig as the pod's service account. ClusterError where neither can be used.
        """
        with credentials_of(kubeconfig, context) as (found, namespace):
            return cls(ApiServer(found), namespace)

    def read(self, namespace: str | None, name: str | None, *, table: bool = False) -> dict[str, Any]:
        """One pool, or the list of a namespace, or of all; as stored, or as the table of its columns."""
        accept = TABLE if table else JSON
        with _translated(_reading(namespace, name)):
            response = self._send("GET", pool_path(namespace, name), accept=accept)
            return _parsed(response.read(), _reading(namespace, name), response.status)

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
        with _translated(f"watch {PLURAL}"):
            response = self._send(
                "GET",
                pool_path(namespace, None),
                query=query,
                accept=TABLE if table else JSON,
                timeout=TIMEOUT + WATCHED,
            )
            if response.status >= REFUSED:
                _parsed(response.read(), f"watch {PLURAL}", response.status)
            kept = b""
            while piece := response.read1():
                *lines, kept = (kept + piece).split(b"\n")
                yield from (json.loads(line) for line in lines if line)

    def patch(self, namespace: str, name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Merge changes into a pool. Conflict where it has another `metadata.resourceVersion` than they name."""
        return self.request("PATCH", pool_path(namespace, name), f"change ServingPool {namespace}/{name}", changes)

    def request(self, method: str, path: str, what: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Any request for one object; a PATCH merges. `what` completes "Cannot ..." in the message of a failure."""
        with _translated(what):
            response = self._send(method, path, body=body)
            return _parsed(response.read(), what, response.status)

    def _list(self, path: str, query: Mapping[str, str], timeout: float = TIMEOUT) -> dict[str, Any]:
        what = f"list {path.rpartition('/')[2]}"
        with _translated(what):
            response = self._send("GET", path, query=query, timeout=timeout)
            return _parsed(response.read(), what, response.status)

    def _send(
        self,
        method: str,
        path: str,
        *,
        accept: str = JSON,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        timeout: float = TIMEOUT,
    ) -> HTTPResponse:
        form = MERGE_PATCH if method == "PATCH" else JSON
        headers = {"Accept": accept, **({} if body is None else {"Content-Type": form})}
        given = {**(query or {}), **({"fieldManager": FIELD_MANAGER} if method in WRITES else {})}
        return self._server.request(
            method,
            path + (f"?{urlencode(given)}" if given else ""),
            headers,
            None if body is None else json.dumps(body).encode(),
            timeout,
        )


def pool_path(namespace: str | None, name: str | None) -> str:
    """Path of one pool, of a namespace's or of all."""
    return path_of(API_VERSION, PLURAL, namespace, name)


def _reading(namespace: str | None, name: str | None) -> str:
    return f"list {PLURAL}" if name is None else f"read ServingPool {namespace}/{name}"


def _parsed(body: bytes, what: str, status: int) -> dict[str, Any]:
    if status == MISSING and not body.startswith(b"{"):  # the path itself, so the kind
        raise NotInstalled(f"Cannot {what}: the API server does not know this kind")
    if status >= REFUSED:
        try:
            told = said(json.loads(body).get("message", ""))
        except (ValueError, AttributeError, RecursionError):
            told = ""
        raise kind_of(status)(f"Cannot {what}: {status} {told or 'without a reason'}")
    try:
        found: dict[str, Any] = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Unanswered(f"Cannot {what}: what answered is no API server, perhaps a login page") from error
    return found


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except (HTTPException, OSError, ValueError) as error:
        raise Unanswered(f"Cannot {what}: the API server did not answer ({why(error)})") from error
