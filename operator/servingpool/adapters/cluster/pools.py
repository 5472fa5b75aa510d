"""ServingPools as a person asks for them: with their kubeconfig and rights, synchronously."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Self

from servingpool.adapters.cluster.api_server import TIMEOUT, ApiServer, answered, answering
from servingpool.adapters.cluster.errors import REFUSED, ClusterError, NotFound, NotInstalled, loads
from servingpool.adapters.cluster.kinds import JSON, LEASES, MERGE_PATCH, OPERATOR, path_of
from servingpool.adapters.cluster.kubeconfig import Login
from servingpool.api.group import API_VERSION, PLURAL

PROBED = 5.0
"""Seconds to connect and for each read of `probe`, which asks for one pool alone."""
PAGE = 500
"""Pools in a page of a list, as kubectl asks for."""
WATCHED = 300
"""Seconds after which the API server ends a watch. We open a new one then."""
PAUSE = 1.0
"""Seconds between two watches: a proxy may end each at once."""
LATE = 30.0
"""Seconds beyond its term for which a Lease may be unrenewed: another operator takes over, and clocks differ."""
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
FIELD_MANAGER = "servingpool-cli"


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
        login = Login(kubeconfig, context)
        return cls(ApiServer.of(login), login.namespace)

    def read(self, namespace: str | None, name: str | None) -> dict[str, Any]:
        """A pool, or the list of a namespace, or of all. NotFound names the pools that may be meant."""
        what = f"list {PLURAL}" if name is None else f"read ServingPool {namespace}/{name}"
        try:
            return self._server.request("GET", pool_path(namespace, name), what)
        except NotInstalled:
            raise
        except NotFound as error:
            error.near = () if name is None else self._near(str(namespace), name)
            raise

    def nobody_decides(self, now: float) -> str:
        """That no operator leads at `now`, Unix seconds; empty where one does, or where Leases may not be read."""
        try:
            found = self.listed(path_of(LEASES, "leases"), {"labelSelector": "=".join(OPERATOR)}, PROBED)["items"]
            last = max(found, key=lambda one: str(one["spec"]["renewTime"]))
            spec, within = last["spec"], last["metadata"]["namespace"]
            at, pod = str(spec["renewTime"]), str(spec.get("holderIdentity") or "unknown").partition("_")[0]
            late = now - datetime.fromisoformat(at).timestamp() - float(spec["leaseDurationSeconds"])
        except (ClusterError, KeyError, TypeError, ValueError):  # no right to list them, or none of this release
            return ""
        said = f"No operator has decided since {at[:10]} {at[11:16]} UTC (last: pod {pod}): pools keep their replicas."
        return f"{said} See why the operator does not run: kubectl get pods -n {within}." if late > LATE else ""

    def _near(self, namespace: str, name: str) -> tuple[str, ...]:
        """Pools whose names are near one that is not there: of its namespace, else of this name in another."""
        near = get_close_matches(name, [str(one["name"]) for one in self._metadata(namespace, {})])
        if near:
            return tuple(near)
        return tuple(f"{name} -n {one['namespace']}" for one in self._metadata(None, only(name)))[:3]

    def _metadata(self, namespace: str | None, query: Mapping[str, str]) -> list[dict[str, Any]]:
        """Metadata of the first pools of a namespace, or of all; empty where pools may not be listed."""
        try:
            found = self.listed(pool_path(namespace, None), {"limit": str(PAGE), **query}, PROBED, METADATA)
            return [one["metadata"] for one in found["items"]]
        except (ClusterError, KeyError, TypeError):
            return []

    def pages(self, namespace: str | None) -> Iterator[dict[str, Any]]:
        """The list of a namespace, or of all, page by page: 5,000 pools at once are 50 MB."""
        token: str | None = ""
        while token is not None:
            found = self.listed(pool_path(namespace, None), {"limit": str(PAGE), "continue": token})
            yield found
            token = found["metadata"].get("continue") or None

    def probe(self, namespace: str | None) -> None:
        """Nothing, if the API server answers: a watch is silent where nothing changes."""
        self.listed(pool_path(namespace, None), {"limit": "1"}, PROBED)

    def autoscalers(self, namespace: str) -> list[dict[str, Any]]:
        """The HorizontalPodAutoscalers of a namespace."""
        path = path_of("autoscaling/v2", "horizontalpodautoscalers", namespace)
        return list(self.listed(path, {}, PROBED)["items"])

    def watch(self, namespace: str | None, name: str | None, since: str) -> Iterator[dict[str, Any]]:
        """Changes after a resourceVersion, as `type` and `object`, until the API server ends the watch."""
        query = {"watch": "true", "resourceVersion": since, "timeoutSeconds": str(WATCHED), **only(name)}
        what = f"watch {PLURAL}"
        with answering(what):
            response = self._server.open("GET", pool_path(namespace, None), query=query, timeout=TIMEOUT + WATCHED)
            if response.status >= REFUSED:
                answered(what, response)
            kept = b""
            while piece := response.read1():
                *lines, kept = (kept + piece).split(b"\n")
                yield from (loads(line) for line in lines if line)

    def changes(self, namespace: str, name: str, found: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Each further state of a pool, without end. NotFound once it is deleted; ClusterError."""
        version = found["metadata"]["resourceVersion"]
        while True:
            for event in self.watch(namespace, name, version):
                if event["type"] == "ERROR":  # such as a version that is no longer kept
                    break
                if event["type"] != "DELETED":
                    found = event["object"]
                    yield found
            time.sleep(PAUSE)
            # The version of the list is of now. A quiet pool's own may be older than any that a watch can begin at.
            listed = self.listed(pool_path(namespace, None), only(name))
            version = listed["metadata"]["resourceVersion"]
            for again in listed["items"] or [self.read(namespace, name)]:
                if again["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
                    found = again
                    yield found

    def patch(self, namespace: str, name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Merge changes into a pool. Conflict where it has another `metadata.resourceVersion` than they name."""
        return self.request("PATCH", pool_path(namespace, name), f"change ServingPool {namespace}/{name}", changes)

    def request(self, method: str, path: str, what: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send any request for an object; a PATCH merges. `what` completes "Cannot ..." in the message of a failure."""
        form = MERGE_PATCH if method == "PATCH" else JSON
        query = {"fieldManager": FIELD_MANAGER} if method in {"PATCH", "POST"} else {}
        return self._server.request(method, path, what, body, query=query, content_type=form)

    def listed(
        self, path: str, query: Mapping[str, str], timeout: float = TIMEOUT, accept: str = JSON
    ) -> dict[str, Any]:
        """Objects of any kind. ClusterError."""
        what = f"list {path.rpartition('/')[2]}"
        return self._server.request("GET", path, what, query=query, timeout=timeout, accept=accept)


def only(name: str | None) -> dict[str, str]:
    """The query of a list or a watch for the pool of this name; for all pools where it is None."""
    return {} if name is None else {"fieldSelector": f"metadata.name={name}"}


def pool_path(namespace: str | None, name: str | None) -> str:
    """Path of one pool, of a namespace's or of all."""
    return path_of(API_VERSION, PLURAL, namespace, name)
