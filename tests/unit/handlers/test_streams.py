"""What a tenant stores, and what an API server answers for a moment, end neither a start nor a watch: through kopf."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import kopf
import pytest
from aiohttp import web

from servingpool.adapters.cluster import session
from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.kinds import base_of, version_of
from servingpool.adapters.cluster.kubeconfig import Login, unusable
from servingpool.adapters.cluster.objects import TargetKey
from servingpool.handlers import lifecycle
from servingpool.handlers.lifecycle import live
from servingpool.handlers.watching import Watches
from servingpool_lab.credentials import write_kubeconfig

from ..adapters.cluster import virtual_time  # noqa: TID252, tests are no package of an installed name

DEEPER_THAN_THE_API_SERVER_TAKES = 12_000
PATH = "/apis/apps/v1/namespaces/chat/deployments"
KINDS = {
    ("", "v1"): ("namespaces", "Namespace"),
    ("apps", "v1"): ("deployments", "Deployment"),
    ("apiextensions.k8s.io", "v1"): ("customresourcedefinitions", "CustomResourceDefinition"),
}
DISCOVERY: dict[str, Any] = {
    "/api": {"versions": ["v1"]},
    "/apis": {
        "groups": [
            {"name": group, "versions": [{"version": version}], "preferredVersion": {"version": version}}
            for group, version in KINDS
            if group
        ]
    },
    **{
        base_of(version_of(*group)): {
            "resources": [
                {"name": plural, "singularName": "", "kind": kind, "namespaced": True, "verbs": ["list", "watch"]}
            ]
        }
        for group, (plural, kind) in KINDS.items()
    },
}


def deployment(name: str, replicas: int = 1, *, depth: int = 1) -> bytes:
    """With `managedFields` that are nested so deep."""
    meta = {"namespace": "chat", "name": name, "uid": name, "resourceVersion": "7", "managedFields": [{"fieldsV1": 0}]}
    found = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": {"replicas": replicas}}
    return json.dumps(found).encode().replace(b'"fieldsV1": 0', b'"fieldsV1": ' + nested(depth))


def nested(depth: int) -> bytes:
    # Brackets in texts count for nothing, nor does what is beside the nest.
    return b'{"f:]}{": "[[[[", "f:a":' * depth + b"{}" + b', "f:b": [{}]}' * depth


def change(found: bytes, kind: str = "MODIFIED") -> bytes:
    return b'{"type": "%s", "object": %s}\n' % (kind.encode(), found)


class Server:
    """An API server with Deployments alone, and the operator's watches on it."""

    def __init__(self) -> None:
        self.cache = ClusterCache()
        self.stored: list[bytes] = []
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        """What the watch sends; None ends it."""
        self.unreadable = 0
        """Times that the credentials cannot be read from now on."""
        self.fault: tuple[str, str] | None = None
        """The verb that fails, and how."""
        self.shown = self.stored
        """Objects that were listed, or shown by a watch, last."""
        self.asked = 0
        """Requests with that verb."""
        self.running: asyncio.Task[None] | None = None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        verb = "discovery" if request.path in DISCOVERY else "watch" if "watch" in request.query else "list"
        self.asked += 1
        fault = self.fault[1] if self.fault is not None and self.fault[0] == verb else ""
        if fault in REFUSALS:
            return web.Response(**{"text": '{"kind": "Status"}', "content_type": "application/json"} | REFUSALS[fault])
        if fault == "reset":
            assert request.transport is not None
            request.transport.abort()
        elif fault:
            await asyncio.sleep({"silence": 3600.0, "late": 5.0}.get(fault, 0.0))
        if verb == "discovery":
            return web.json_response(DISCOVERY[request.path])
        assert request.path == PATH
        if verb == "list":
            self.shown = self.stored
            body = b'{"metadata": {"resourceVersion": "7"}, "items": [' + b",".join(self.stored) + b"]}"
            return web.Response(body=body, content_type="application/json")
        response = web.StreamResponse()
        await response.prepare(request)
        if fault in LINES:
            await response.write(LINES[fault])
            return response
        while (line := await self.line(verb)) is not None:
            await response.write(line)
        return response

    async def line(self, verb: str) -> bytes | None:
        """What a watch sends next; None where it ends. One that falls silent stays so."""
        while self.lines.empty():
            await asyncio.sleep(0.05)
            if self.fault is not None and self.fault[0] == verb:
                if self.fault[1] != "silence":
                    return None
                await asyncio.sleep(3600.0)
            if self.shown is not self.stored:
                self.shown = self.stored
                return change(self.stored[0])
        return self.lines.get_nowait()

    def replicas(self, name: str) -> int | None:
        found = self.cache.workload(TargetKey("chat", name))
        return None if found is None else found.replicas

    async def until(self, name: str, replicas: int) -> None:
        async with asyncio.timeout(60):
            while self.replicas(name) != replicas:
                assert self.running is not None
                assert not self.running.done(), self.running.result()
                await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "PAUSE", 0.0)
    monkeypatch.setattr(lifecycle.Backoffs, "__iter__", lambda _: iter(lambda: 0.01, None))


@contextlib.asynccontextmanager
async def listening(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """URL of a server that answers so."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    sockets: Any = site._server
    yield f"http://127.0.0.1:{sockets.sockets[0].getsockname()[1]}"
    await runner.cleanup()


@contextlib.asynccontextmanager
async def operator(server: Server, kubeconfig: Any) -> AsyncIterator[None]:
    """Kopf's own operator on this server."""
    async with listening(server.answer) as url, running(server, url, kubeconfig):
        yield


@contextlib.asynccontextmanager
async def running(server: Server, url: str, kubeconfig: Any) -> AsyncIterator[None]:
    login = Login(str(write_kubeconfig(kubeconfig, url, b"", token="secret")))
    registry, over = kopf.OperatorRegistry(), asyncio.Event()

    async def nothing() -> None:
        pass

    async def authenticate() -> kopf.AiohttpSession:
        return kopf.AiohttpSession(server=url, aiohttp_session=session.session_of(login, tolerant=True))

    live(registry, scoped=True, start=nothing, stop=nothing, login=authenticate)
    watches = Watches(server.cache, lambda: 0.0, ("chat",))
    watches._see = {("apps", "v1", "deployments"): server.cache.see_workload}
    watches.register(registry)
    server.running = asyncio.create_task(
        kopf.operator(registry=registry, standalone=True, namespaces=["chat"], stop_flag=over)
    )
    try:
        yield
    finally:
        over.set()
        server.lines.put_nowait(None)
        await asyncio.wait({server.running}, timeout=30)


async def test_objects_that_are_nested_deep_are_listed_and_watched_as_the_others_are(tmp_path: Any) -> None:
    depths = [253, 990, 1_020, 1_100, DEEPER_THAN_THE_API_SERVER_TAKES]
    server = Server()
    no_text = deployment("last", 2).replace(b"f:a", b"f:\xff")  # stored by the API server as it came
    server.stored = [*(deployment(f"hostile-{depth}", 3, depth=depth) for depth in depths), no_text]
    async with operator(server, tmp_path / "config"):
        await server.until("last", 2)
        for depth in depths:
            await server.until(f"hostile-{depth}", 3)
            server.lines.put_nowait(change(deployment(f"hostile-{depth}", 4, depth=depth)))
            await server.until(f"hostile-{depth}", 4)
        server.lines.put_nowait(change(no_text.replace(b'"replicas": 2', b'"replicas": 5')))
        await server.until("last", 5)


LATER = {"Retry-After": "3600"}
REFUSALS: dict[str, dict[str, Any]] = {
    **{str(each): {"status": each, "headers": LATER} for each in (400, 401, 403, 404, 409, 410, 422, 429, 500, 503)},
    "login page": {"text": "<html>", "content_type": "text/html"},
    **{
        text: {"text": text}
        for text in ("[]", "null", "{}", '{"items": 3}', '{"items": [null]}', '{"metadata": {}, "spec": 1}')
    },
}
LINES = {
    "ends at once": b"",
    "an error": b'{"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcdserver: no leader"}}\n',
    "no metadata": b'{"type": "ADDED", "object": ["metadata"]}\n',
    "a broken line": b'{"type": "MODIFIED", "object": {"meta\n',
    "cut off": change(deployment("seen", 3))[:40],
}
FAULTS = [*REFUSALS, "reset", "silence", "late"]
MATRIX = [
    *((verb, fault) for verb in ("discovery", "list", "watch") for fault in FAULTS),
    *(("watch", at) for at in LINES),
]


@pytest.mark.parametrize(("verb", "fault"), MATRIX)
def test_a_fault_of_the_api_server_is_over_soon_after_it(
    verb: str, fault: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 s of it. Its requests are counted: none is asked again and again without a pause."""
    monkeypatch.undo()
    monkeypatch.setattr(asyncio, "to_thread", at_once)

    async def story() -> None:
        server = Server()
        server.stored = [deployment("seen")]
        if verb == "discovery":
            server.fault = verb, fault
        async with operator(server, tmp_path / "config"):
            if verb != "discovery":
                await server.until("seen", 1)
                server.fault, server.asked = (verb, fault), 0
            await asyncio.sleep(20.0)
            server.stored, server.fault = [deployment("seen", 2)], None
            assert server.asked < 40, "a busy loop"
            over = asyncio.get_running_loop().time()
            await server.until("seen", 2)
            assert asyncio.get_running_loop().time() - over < (75.0 if fault == "silence" else 15.0)

    virtual_time.run(story)


async def at_once(do: Any, *args: Any, **named: Any) -> Any:
    """Virtual time does not wait for threads."""
    return do(*args, **named)


async def test_credentials_that_cannot_be_read_are_waited_for(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, read = Server(), Login.authorization

    def authorization(login: Login, *, anew: bool = False) -> str | None:
        if server.unreadable:
            server.unreadable -= 1
            raise unusable("the program 'aws' gives none")
        return read(login, anew=anew)

    monkeypatch.setattr(session, "FRESH", 0.0)
    monkeypatch.setattr(Login, "authorization", authorization)
    server.stored, server.unreadable = [deployment("seen")], 5
    async with operator(server, tmp_path / "config"):
        await server.until("seen", 1)
