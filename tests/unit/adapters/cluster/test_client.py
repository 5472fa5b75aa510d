"""The requests themselves, as an API server receives them, and its refusals in our own words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from servingpool.adapters.cluster import objects
from servingpool.adapters.cluster.client import Cluster
from servingpool.adapters.cluster.errors import ClusterError, Conflict, Forbidden, NotInstalled, Unanswered

POOL = ("chat", "pool")
SCALED_OBJECTS = ("keda.sh", "v1alpha1", "scaledobjects")
WORKLOAD = objects.workload({"metadata": {"namespace": "chat", "name": "vllm", "uid": "d"}, "spec": {"replicas": 2}})


class Api:
    """Remembers what it was asked, and answers with `status`."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str, Any]] = []
        self.query: dict[str, str] = {}
        self.status = 200
        self.missing = "/nothing"
        """End of the paths that are not there."""
        self.answers: Any = None
        """Of an object. A function makes it from the query."""

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else dict(request.query)
        self.query = dict(request.query)
        self.asked.append((request.method, request.path, request.content_type, body))
        refusal = {"kind": "Status", "message": "server's detail.", "details": {}}
        status = 404 if request.path.endswith(self.missing) else self.status
        answer = self.answers(self.query) if callable(self.answers) else self.answers
        answer = {"metadata": {}, **(answer or {})}
        return web.json_response(answer if status == 200 else refusal, status=status)


@pytest.fixture
async def api() -> AsyncIterator[tuple[Api, Cluster]]:
    fake = Api()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server: Any = site._server
    cluster = Cluster(aiohttp.ClientSession(), f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    yield fake, cluster
    await cluster.aclose()
    await runner.cleanup()


async def test_scaling_is_refused_by_the_server_if_somebody_else_was_faster(api: tuple[Api, Cluster]) -> None:
    fake, cluster = api
    fake.answers = {"kind": "Scale", "spec": {"replicas": 5}}
    await cluster.scale(WORKLOAD, 5)
    assert fake.asked == [
        (
            "PATCH",
            "/apis/apps/v1/namespaces/chat/deployments/vllm/scale",
            "application/json-patch+json",
            [
                {"op": "test", "path": "/spec/replicas", "value": 2},
                {"op": "replace", "path": "/spec/replicas", "value": 5},
            ],
        )
    ]
    assert cluster.writes["scale"] == 1


async def test_a_scale_of_zero_has_no_replicas_to_compare_or_replace(api: tuple[Api, Cluster]) -> None:
    fake, cluster = api
    fake.answers = {"kind": "Scale", "spec": {"replicas": 5}}
    await cluster.scale(replace(WORKLOAD, replicas=0), 5)
    assert fake.asked[0][3] == [
        {"op": "test", "path": "/spec/replicas", "value": None},
        {"op": "add", "path": "/spec/replicas", "value": 5},
    ]


@pytest.mark.parametrize(("spec", "stored"), [({"replicas": 3}, 3), ({}, 0)])
async def test_a_replica_count_changed_by_a_webhook_is_reported(
    api: tuple[Api, Cluster], spec: dict[str, int], stored: int
) -> None:
    """By a webhook that caps it, say: it was taken for scaled, and ordered anew at every tick."""
    fake, cluster = api
    fake.answers = {"kind": "Scale", "spec": spec}
    with pytest.raises(
        ClusterError, match=f"Requested 5 replicas, the API server stored {stored}. Check admission webhooks"
    ):
        await cluster.scale(WORKLOAD, 5)


@pytest.mark.parametrize(
    ("cost", "said"), [(-1, {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1"}}), (None, {})]
)
async def test_a_deletion_cost_is_applied_and_taken_back_as_ours_alone(
    api: tuple[Api, Cluster], cost: int | None, said: dict[str, Any]
) -> None:
    fake, cluster = api
    await cluster.set_deletion_cost(("chat", "vllm-1"), "p-1", cost)
    [(method, path, content_type, body)] = fake.asked
    assert (method, path) == ("PATCH", "/api/v1/namespaces/chat/pods/vllm-1")
    assert content_type == "application/apply-patch+yaml"
    metadata = {"namespace": "chat", "name": "vllm-1", "uid": "p-1"}
    assert body == {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | said}
    assert fake.query == {"fieldManager": "servingpool-operator", "timeout": "10s", "force": "false"}
    assert cluster.writes["cost"] == 1


async def test_a_status_is_merged(api: tuple[Api, Cluster]) -> None:
    fake, cluster = api
    await cluster.write_status(POOL, {"queueDepth": None})
    method, path, content_type, body = fake.asked[0]
    assert (method, path) == ("PATCH", "/apis/servingpool.dev/v1alpha1/namespaces/chat/servingpools/pool/status")
    assert content_type == "application/merge-patch+json"
    assert body == {"status": {"queueDepth": None}}


async def test_an_event_that_is_too_long_is_cut_not_lost(api: tuple[Api, Cluster]) -> None:
    fake, cluster = api
    await cluster.post_event(POOL, "uid-1", type_="Normal", reason="SuccessfulRescale", message="x" * 5000)
    _, path, _, event = fake.asked[0]
    assert path == "/api/v1/namespaces/chat/events"
    assert len(event["message"]) == 1024
    assert event["involvedObject"]["uid"] == "uid-1"
    assert event["count"] == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [(409, Conflict), (422, Conflict), (404, NotInstalled), (403, Forbidden), (500, Unanswered), (429, ClusterError)],
)
async def test_a_refusal_is_reported_with_the_servers_own_words(
    api: tuple[Api, Cluster], status: int, error: type[ClusterError]
) -> None:
    fake, cluster = api
    fake.status = status
    with pytest.raises(error, match=f"Cannot scale Deployment chat/vllm: {status}") as caught:
        await cluster.scale(WORKLOAD, 5)
    assert type(caught.value) is error
    assert str(caught.value).endswith(": server's detail")
    assert cluster.writes["scale"] == 0


@pytest.mark.parametrize(
    ("kind", "namespace", "path"),
    [
        (("", "v1", "pods"), None, "/api/v1/pods"),
        (("", "v1", "pods"), "chat", "/api/v1/namespaces/chat/pods"),
        (("apps", "v1", "deployments"), None, "/apis/apps/v1/deployments"),
    ],
)
async def test_counting_transfers_one_object(
    api: tuple[Api, Cluster], kind: tuple[str, str, str], namespace: str | None, path: str
) -> None:
    fake, cluster = api
    fake.answers = {"metadata": {"remainingItemCount": 19_999}, "items": [{"metadata": {}}]}
    assert (await cluster.count(kind, namespace)).objects == 20_000
    assert fake.asked[0][1] == path
    assert fake.query["limit"] == "1"
    fake.answers = {"metadata": {}, "items": None}  # as API servers say it
    assert (await cluster.count(kind, namespace)).objects == 0
    assert await cluster.uids(kind, namespace) == set()


async def test_uids_are_those_of_all_pages(api: tuple[Api, Cluster]) -> None:
    fake, cluster = api
    pages = {"": ("p-1", "more+"), "more+": ("p-2", "last"), "last": ("p-3", "")}

    def page(query: dict[str, str]) -> Any:
        uid, following = pages[query["continue"]]
        return {"metadata": {"continue": following}, "items": [{"metadata": {"uid": uid}}]}

    fake.answers = page
    assert await cluster.uids(("", "v1", "pods"), "chat") == {"p-1", "p-2", "p-3"}
    assert [path for _, path, _, _ in fake.asked] == ["/api/v1/namespaces/chat/pods"] * 3


async def test_a_list_that_breaks_off_is_not_taken_for_the_whole(api: tuple[Api, Cluster]) -> None:
    fake, cluster = api

    def page(query: dict[str, str]) -> Any:
        fake.status = 410  # from the second page on: it took too long
        return {"metadata": {"continue": "more"}, "items": [{"metadata": {"uid": "p-1"}}]}

    fake.answers = page
    with pytest.raises(ClusterError, match="Cannot list pods in namespace chat: 410"):
        await cluster.uids(("", "v1", "pods"), "chat")


@pytest.mark.parametrize("served", [[], [{"name": "scaledobjects"}]])
async def test_a_list_that_is_not_found_is_empty_only_where_discovery_lacks_the_kind(
    api: tuple[Api, Cluster], served: list[dict[str, str]]
) -> None:
    """A proxy's 404 emptied the caches."""
    fake, cluster = api
    fake.missing = "/scaledobjects"
    fake.answers = {"groups": [{"versions": [{"groupVersion": "keda.sh/v1alpha1"}]}], "resources": served}
    with pytest.raises(NotInstalled) if served else nullcontext():
        assert await cluster.uids(SCALED_OBJECTS, None) == set()


async def test_an_object_is_no_list(api: tuple[Api, Cluster]) -> None:
    """As a list of Leases it ended the process."""
    _, cluster = api
    for asked in cluster.uids(SCALED_OBJECTS, None), cluster.list_leases("chat", ""), cluster.serves(SCALED_OBJECTS):
        with pytest.raises(Unanswered):
            await asked


async def test_a_watch_tells_changes_until_the_server_ends_it_or_refuses(api: tuple[Api, Cluster]) -> None:
    fake, cluster = api
    pod = {"metadata": {"name": "vllm-1"}}
    expired = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}}

    async def changes() -> list[tuple[str, dict[str, Any]]]:
        return [found async for found in cluster.watch("/api/v1/pods", "watch pods", resourceVersion="7")]

    fake.answers = {"type": "DELETED", "object": pod}
    assert await changes() == [("DELETED", pod)]
    assert fake.query == {"resourceVersion": "7", "watch": "true", "timeoutSeconds": "300"}
    fake.answers = expired
    with pytest.raises(ClusterError, match="Cannot watch pods: too old resource version"):
        await changes()
    fake.answers = {"kind": "PodList"}
    with pytest.raises(Unanswered, match="Cannot watch pods: the answer cannot be read"):
        await changes()
    fake.status = 403
    with pytest.raises(Forbidden, match="Cannot watch pods: 403 Forbidden: server's detail"):
        await changes()


async def test_a_request_that_cannot_be_made_is_told_without_its_token(
    api: tuple[Api, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token file that ends in a new line: leader election ended the process."""
    _, cluster = api

    def send(*_: object) -> None:
        raise ValueError("Forbidden control character in header Authorization: secret")

    monkeypatch.setattr(cluster, "_send", send)
    with pytest.raises(ClusterError, match="Cannot read Lease chat/pool: the answer cannot be read") as failed:
        await cluster.read_lease(POOL)
    assert "secret" not in f"{failed.value} {failed.value.detail}"
