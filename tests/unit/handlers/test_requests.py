"""What the operator asks of the API server, each request with each fault: by HTTP, through its own client and loop."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from servingpool.adapters.cluster.client import Cluster
from servingpool.adapters.cluster.errors import Conflict, NotFound
from servingpool.adapters.cluster.lease import Election, Terms
from servingpool.adapters.cluster.objects import FIELD_MANAGER
from servingpool.handlers.watching import Watches
from servingpool.loop.metrics import LoopMetrics
from servingpool.loop.operator import Heartbeat, Operator
from servingpool.loop.reconciler import All

from ..adapters.cluster import virtual_time  # noqa: TID252, tests are no package of an installed name
from ..adapters.cluster.fake_lease import LEASE, Server  # noqa: TID252
from ..decision.world import START  # noqa: TID252
from ..reconcile.fake_cluster import TICK  # noqa: TID252
from ..reconcile.test_other_kinds import OtherKinds  # noqa: TID252
from .faults import DURATIONS, FAULTS, WAYS, Faults, on_virtual_time, well

VERBS = ["discovery", "count", "get of a target", "get of scale", "patch of scale", "patch of status"]
VERBS += ["get of the Lease", "put of the Lease", "event"]
"""Requests; `count` is of objects of a kind."""


class Apart(OtherKinds):
    """A cluster that is asked by HTTP, on virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self.faults, self.lease = Faults(), Server()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        verb = verb_of(request)
        return await self.faults.answer(request, verb, lambda: self.carry_out(request, verb))

    async def carry_out(self, request: web.Request, verb: str) -> web.Response:
        try:
            return web.json_response(await self.done(request, verb) or {"metadata": {}})
        except (Conflict, NotFound) as error:
            return web.json_response({"metadata": {}}, status=409 if isinstance(error, Conflict) else 404)

    async def done(self, request: web.Request, verb: str) -> dict[str, Any] | None:
        body = await request.json() if request.can_read_body else {}
        match verb:
            case "patch of scale":
                before, wanted = (each["value"] for each in body)
                if before != self.services["vllm"].replicas:
                    raise Conflict("it was changed")
                self.set_replicas("vllm", wanted, by=FIELD_MANAGER)
                return {"metadata": {}, "spec": {"replicas": wanted}}
            case "patch of status":
                await self.write_status(("chat", "pool"), body["status"])
            case "put of the Lease":
                return self.lease.write(body["spec"], body["metadata"].get("resourceVersion"))
            case "get of the Lease":
                return self.lease.read()
            case "count":
                return {"items": [{"metadata": {}}]}
            case "event":
                return None
        return await self.get(request.path)

    async def serve_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self.serve_on()

    def least(self, replicas: int) -> int:
        """Min is so many replicas from now on."""
        target = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "vllm", "min": replicas, "max": 100}
        self.pool(targets=[target])
        return replicas

    def well(self, replicas: int) -> bool:
        """Whether min is ordered and told."""
        generation, status = self.cache.pools["chat", "pool"]["metadata"]["generation"], self.status()
        told = status.get("replicas"), status["observedGeneration"], self.condition("Ready")[0]
        return (self.services["vllm"].replicas, *told) == (replicas, replicas, generation, "True")


def verb_of(request: web.Request) -> str:
    parts = request.path.split("/")
    if "leases" in parts:
        return "get of the Lease" if request.method == "GET" else "put of the Lease"
    if "events" in parts:
        return "event"
    if parts[-1] in {"scale", "status"}:
        return f"{request.method.lower()} of {parts[-1]}"
    return "count" if "limit" in request.query else "discovery" if len(parts) < 5 else "get of a target"


@pytest.mark.parametrize("fault", [*FAULTS, "lost"])
def test_a_fault_of_a_request_is_over_soon_after_it(fault: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request has it in turn, for each duration, and meanwhile min rises by one."""
    on_virtual_time(monkeypatch)

    async def story() -> None:
        world, now = Apart(), asyncio.get_running_loop().time
        world.serve(replicas=2, rate=2.0)
        async with world.faults.server(world.answer, tmp_path / "config") as login:
            cluster = Cluster.of(login)
            world.lease.write({"holderIdentity": "", "leaseTransitions": 2**31 - 1}, None)
            election = Election(cluster, LEASE, "me", terms=Terms(), clock=now)
            world.api, world.share, world._time = cluster, All(lambda: election.leading), now  # type: ignore[method-assign]
            world.restart()
            watches = Watches(world.cache, now)
            await watches.expect(cluster)
            ended = asyncio.Event()
            settings: Any = {"interval": 5.0, "now": lambda: START + now(), "lost": ended.set}
            metrics = LoopMetrics(CollectorRegistry())
            operator = Operator(world.loop, watches, election, metrics, Heartbeat(now), **settings)
            operator.start()
            serving = asyncio.create_task(world.serve_for_ever())
            least = world.least(2)
            await asyncio.sleep(100.0)
            for verb, seconds in itertools.product(VERBS, DURATIONS):
                world.faults.begin(verb, fault, seconds)
                stood = world.services["vllm"].replicas
                least = world.least(1 + stood)
                await virtual_time.until(lambda: world.faults.asked)
                await asyncio.sleep(seconds)
                said = f"{verb} for {seconds} s"
                assert world.services["vllm"].replicas in {stood, least}, said
                assert world.faults.asked <= 4.0 * seconds + 2, f"{said}: a busy loop"
                assert "Lease" in verb or fault in WAYS or operator.problem is None, said
                world.faults.end()
                await well(verb, lambda: election.leading and world.well(least))  # noqa: B023
                assert not ended.is_set(), said
            serving.cancel()
            await operator.stop()
            await cluster.aclose()

    virtual_time.run(story)
