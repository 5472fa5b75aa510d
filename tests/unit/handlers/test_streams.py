"""What a tenant stores, and what an API server answers for a moment, end neither a start nor a watch: through kopf."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import kopf
import pytest
from aiohttp import web

from servingpool.adapters.cluster import session
from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.kinds import base_of, version_of
from servingpool.adapters.cluster.kubeconfig import Login, unusable
from servingpool.adapters.cluster.objects import Kind, TargetKey
from servingpool.api.group import GROUP, KIND, PLURAL, VERSION
from servingpool.handlers.lifecycle import live
from servingpool.handlers.watching import See, Watches

from ..adapters.cluster import virtual_time  # noqa: TID252, tests are no package of an installed name
from ..adapters.cluster.virtual_time import event_loop_policy  # noqa: F401, TID252
from .faults import DURATIONS, FAULTS, REFUSALS, Faults, on_virtual_time, well

DEEPER_THAN_THE_API_SERVER_TAKES = 12_000
DEPLOYMENTS, CRDS = ("apps", "v1", "deployments"), ("apiextensions.k8s.io", "v1", "customresourcedefinitions")
KINDS = {
    DEPLOYMENTS: "Deployment",
    (GROUP, VERSION, PLURAL): KIND,
    ("keda.sh", "v1alpha1", "scaledobjects"): "ScaledObject",
    CRDS: "CustomResourceDefinition",
    ("", "v1", "namespaces"): "Namespace",
}
DISCOVERY: dict[str, Any] = {
    "/api": {"versions": ["v1"]},
    "/apis": {
        "groups": [
            {"name": group, "versions": [{"version": version}], "preferredVersion": {"version": version}}
            for group, version, _ in KINDS
            if group
        ]
    },
    **{
        base_of(version_of(group, version)): {
            "resources": [
                {"name": plural, "singularName": "", "kind": kind, "namespaced": True, "verbs": ["list", "watch"]}
            ]
        }
        for (group, version, plural), kind in KINDS.items()
    },
}
PLURALS = {f"{base_of(version_of(*kind[:2]))}/{kind[2]}": kind[2] for kind in KINDS}


def deployment(name: str, replicas: int = 1, *, depth: int = 1) -> bytes:
    """With `managedFields` that are nested so deep."""
    meta = {"namespace": "chat", "name": name, "uid": name, "resourceVersion": "7", "managedFields": [{"fieldsV1": 0}]}
    found = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta,
        "spec": {"replicas": replicas, "group": "keda.sh"},
    }
    return json.dumps(found).encode().replace(b'"fieldsV1": 0', b'"fieldsV1": ' + nested(depth))


def nested(depth: int) -> bytes:
    # Brackets in texts count for nothing, nor does what is beside the nest.
    return b'{"f:]}{": "[[[[", "f:a":' * depth + b"{}" + b', "f:b": [{}]}' * depth


def replicas(body: bytes) -> int:
    return int(json.loads(body)["spec"]["replicas"])


class Server:
    """An API server, and the operator's watches on it."""

    def __init__(self, *kinds: Kind) -> None:
        self.cache, self.faults, self.kinds = ClusterCache(), Faults(), kinds or (DEPLOYMENTS,)
        self.stored: dict[str, dict[str, tuple[int, bytes]]] = {plural: {} for plural in PLURALS.values()}
        """Objects and their versions, by plural and name."""
        self.seen: dict[tuple[str, str], int] = {}
        """Replicas that were shown, by plural and name."""
        self.version, self.stirred = 7, asyncio.Event()
        self.standing: set[str] = set()
        """Plurals whose watch stands."""
        self.unreadable = 0
        """Times that the credentials cannot be read from now on."""
        self.running: asyncio.Task[None] | None = None

    def put(self, name: str, body: bytes, plural: str = "deployments") -> None:
        self.version += 1
        self.stored[plural][name] = (
            self.version,
            body.replace(b'"resourceVersion": "7"', b'"resourceVersion": "%d"' % self.version),
        )
        self.stir()

    def stir(self) -> None:
        self.stirred.set()
        self.stirred = asyncio.Event()

    def see(self, plural: str, see: See) -> See:
        def seen(raw: Any, *, gone: bool) -> None:
            see(raw, gone=gone)
            self.seen[plural, raw["metadata"]["name"]] = raw["spec"]["replicas"]

        return seen

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path in DISCOVERY:
            return await self.faults.answer(request, "discovery", lambda: self.discovery(request))
        plural = PLURALS[request.path]
        verb, serve = ("watch", self.watch) if "watch" in request.query else ("list", self.list)
        return await self.faults.answer(request, f"{verb} of {plural}", lambda: serve(request, plural))

    async def discovery(self, request: web.Request) -> web.StreamResponse:
        """A definition that changes has been seen once kopf looks for its kinds."""
        self.seen |= {(CRDS[2], name): replicas(body) for name, (_, body) in self.stored[CRDS[2]].items()}
        return web.json_response(DISCOVERY[request.path])

    async def list(self, _: web.Request, plural: str) -> web.StreamResponse:
        items = b",".join(body for _, body in self.stored[plural].values())
        body = b'{"metadata": {"resourceVersion": "%d"}, "items": [%s]}' % (self.version, items)
        return web.Response(body=body, content_type="application/json")

    async def watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        """What changes. A fault that begins meanwhile ends it, or silences it; one of lists lets it be begun anew."""
        begun = self.faults.fault if self.faults.served else None
        response = web.StreamResponse()
        await response.prepare(request)
        version = int(request.query["resourceVersion"])
        while True:
            stirred, fault = self.stirred, self.faults.fault
            if fault is not begun and fault == (f"watch of {plural}", "silence"):
                self.faults.met()
                self.standing.discard(plural)
                await asyncio.sleep(3600.0)
            if fault is not begun and fault and fault[0] == f"list of {plural}":
                await response.write(LINES["an error"])
            if fault is not begun and fault and fault[0].endswith(f" of {plural}"):
                self.standing.discard(plural)
                return response
            self.standing.add(plural)
            for each, body in sorted(self.stored[plural].values()):
                if each > version:
                    await response.write(b'{"type": "MODIFIED", "object": %s}\n' % body)
            version = self.version
            await stirred.wait()

    def looked(self, plural: str) -> bool:
        """Whether its object was shown as it is."""
        return self.seen.get((plural, "seen")) == replicas(self.stored[plural]["seen"][1])

    async def until(self, name: str, replicas: int, plural: str = "deployments") -> None:
        async with asyncio.timeout(60):
            while self.seen.get((plural, name)) != replicas:
                self.runs()
                await asyncio.sleep(0.01)

    def runs(self) -> None:
        assert self.running is not None
        assert not self.running.done(), self.running.result()


@pytest.fixture(autouse=True)
def _virtual(monkeypatch: pytest.MonkeyPatch) -> None:
    on_virtual_time(monkeypatch)


@contextlib.asynccontextmanager
async def operator(server: Server, kubeconfig: Any) -> AsyncIterator[None]:
    """Kopf's own operator on this server."""
    registry, over, nothing = kopf.OperatorRegistry(), asyncio.Event(), functools.partial(asyncio.sleep, 0.0)
    async with server.faults.server(server.answer, kubeconfig) as login:

        async def authenticate() -> kopf.AiohttpSession:
            return kopf.AiohttpSession(server=login.server, aiohttp_session=session.session_of(login, tolerant=True))

        live(registry, scoped=False, start=nothing, stop=nothing, login=authenticate)
        watches = Watches(server.cache, lambda: 0.0)
        watches._see = {kind: server.see(kind[2], watches._see[kind]) for kind in server.kinds}
        watches.register(registry)
        server.running = asyncio.create_task(
            kopf.operator(registry=registry, standalone=True, clusterwide=True, stop_flag=over)
        )
        try:
            yield
        finally:
            over.set()
            await asyncio.wait({server.running}, timeout=30)


async def test_objects_that_are_nested_deep_are_listed_and_watched_as_the_others_are(tmp_path: Any) -> None:
    depths = [253, 990, 1_020, 1_100, DEEPER_THAN_THE_API_SERVER_TAKES]
    server = Server()
    no_text = deployment("last", 2).replace(b"f:a", b"f:\xff")  # stored by the API server as it came
    for depth in depths:
        server.put(f"hostile-{depth}", deployment(f"hostile-{depth}", 3, depth=depth))
    server.put("last", no_text)
    async with operator(server, tmp_path / "config"):
        await server.until("last", 2)
        for depth in depths:
            await server.until(f"hostile-{depth}", 3)
            server.put(f"hostile-{depth}", deployment(f"hostile-{depth}", 4, depth=depth))
            await server.until(f"hostile-{depth}", 4)
        server.put("last", no_text.replace(b'"replicas": 2', b'"replicas": 5'))
        await server.until("last", 5)
        assert server.cache.workload(TargetKey("chat", "hostile-990"))


LINES = {
    "ends at once": b"",
    "an error": b'{"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcdserver: no leader"}}\n',
    "no metadata": b'{"type": "ADDED", "object": ["metadata"]}\n',
    "a broken line": b'{"type": "MODIFIED", "object": {"meta\n',
    "cut off": b'{"type": "MODIFIED", "object": {"metadata": {"namespace": "chat", "name": "seen"',
}
REFUSALS.update({line: {"body": body, "text": None, "content_type": None} for line, body in LINES.items()})
WATCHED = (DEPLOYMENTS, (GROUP, VERSION, PLURAL), ("keda.sh", "v1alpha1", "scaledobjects"))
PLACES = [plural for _, _, plural in (*WATCHED, CRDS)]


@pytest.mark.parametrize("fault", [*FAULTS, *LINES])
def test_a_fault_of_lists_and_watches_is_over_soon_after_it(fault: str, tmp_path: Any) -> None:
    """Of each kind in turn, and of those of definitions; the other kinds are followed meanwhile."""
    verbs = ("watch",) if fault in LINES else ("list", "watch")

    async def story(seconds: float) -> None:
        server = Server(*WATCHED)

        def put(*plurals: str) -> None:
            for plural in plurals:
                server.put("seen", deployment("seen", server.version), plural)

        def followed(*but: str) -> bool:
            """Definitions from now on: kopf does not look at those that a list shows."""
            server.runs()
            kinds = {*PLACES} - {*but}
            return server.standing >= kinds and all(map(server.looked, kinds - {CRDS[2]}))

        put(*PLACES)
        if fault not in LINES:
            server.faults.begin("discovery", fault, seconds)
        async with operator(server, tmp_path / "config"):
            await asyncio.sleep(seconds)
            server.faults.end()
            await well("discovery at the start", followed)
            if fault not in LINES:
                server.faults.begin("discovery", fault, seconds)
                put(CRDS[2])
                await virtual_time.until(lambda: server.faults.asked)
                put(*PLACES)
                await asyncio.sleep(seconds)
                assert not seconds or followed(), "others are followed"
                server.faults.end()
                put(CRDS[2])
                await well("discovery", lambda: followed() and server.looked(CRDS[2]))
            for verb, kind in itertools.product(verbs, PLACES):
                server.faults.begin(f"{verb} of {kind}", fault, seconds)
                server.stir()
                await virtual_time.until(lambda: server.faults.asked)
                put(*PLACES)
                await asyncio.sleep(seconds)
                assert not seconds or followed(kind), "others are followed"
                assert server.faults.asked < 40 + 2 * seconds, (
                    "a busy loop"
                )  # of a way that fails for each of five kinds
                server.faults.end()
                silent = fault == "silence" and verb == "watch"
                await well(f"{verb} of {kind}", followed, 75.0 if silent else 15.0)

    for seconds in DURATIONS:
        virtual_time.run(lambda: story(seconds))  # noqa: B023


async def test_credentials_that_cannot_be_read_are_waited_for(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, read = Server(), Login.authorization

    def authorization(login: Login, *, anew: bool = False) -> str | None:
        if server.unreadable:
            server.unreadable -= 1
            raise unusable("the program 'aws' gives none")
        return read(login, anew=anew)

    monkeypatch.setattr(session, "FRESH", 0.0)
    monkeypatch.setattr(Login, "authorization", authorization)
    server.put("seen", deployment("seen"))
    server.unreadable = 5
    async with operator(server, tmp_path / "config"):
        await server.until("seen", 1)
