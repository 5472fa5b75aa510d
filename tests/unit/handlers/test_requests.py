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
from servingpool.adapters.cluster.kubeconfig import Login
from servingpool.adapters.cluster.lease import Election, Terms
from servingpool.adapters.cluster.objects import FIELD_MANAGER
from servingpool.handlers.watching import Watches
from servingpool.loop.metrics import LoopMetrics
from servingpool.loop.operator import Heartbeat, Operator
from servingpool.loop.reconciler import All
from servingpool_lab.credentials import write_kubeconfig

from ..adapters.cluster import virtual_time  # noqa: TID252, tests are no package of an installed name
from ..adapters.cluster.fake_lease import LEASE, Server  # noqa: TID252
from ..decision.world import START  # noqa: TID252
from ..fuzzing import EXAMPLES  # noqa: TID252
from ..reconcile.fake_cluster import TICK  # noqa: TID252
from ..reconcile.test_other_kinds import OtherKinds  # noqa: TID252
from .test_streams import FAULTS, REFUSALS, at_once, listening

VERBS = ["discovery", "read", "scale", "status", "lease", "event", "count"]
"""Requests: `read` is of a target and its scale, `count` of objects of a kind."""


class Apart(OtherKinds):
    """A cluster that is asked by HTTP, on virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self.fault: tuple[str, str] | None = None
        """The request that fails, and how."""
        self.once, self.asked, self.lease = False, 0, Server()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        verb, fault = verb_of(request), ""
        if self.fault is not None and self.fault[0] == verb:
            fault, self.asked = self.fault[1], self.asked + 1
            self.fault = None if self.once else self.fault
        if fault in REFUSALS:
            return web.Response(**{"text": '{"kind": "Status"}', "content_type": "application/json"} | REFUSALS[fault])
        await asyncio.sleep({"silence": 3600.0, "late": 5.0}.get(fault, 0.0))
        found: dict[str, Any] = {"metadata": {}}
        status = 200
        if fault != "reset":
            try:
                found = await self.carry_out(request, verb) or found
            except (Conflict, NotFound) as error:
                status = 409 if isinstance(error, Conflict) else 404
        if fault in {"reset", "lost"}:
            assert request.transport is not None
            request.transport.abort()
        return web.json_response(found, status=status)

    async def carry_out(self, request: web.Request, verb: str) -> dict[str, Any] | None:
        body = await request.json() if request.can_read_body else {}
        match verb:
            case "scale":
                before, wanted = (each["value"] for each in body)
                if before != self.services["vllm"].replicas:
                    raise Conflict("it was changed")
                self.set_replicas("vllm", wanted, by=FIELD_MANAGER)
                return {"metadata": {}, "spec": {"replicas": wanted}}
            case "status":
                await self.write_status(("chat", "pool"), body["status"])
            case "lease" if body:
                return self.lease.write(body["spec"], body["metadata"].get("resourceVersion"))
            case "lease":
                return self.lease.read()
            case "count":
                return {"items": [{"metadata": {}}]}
            case "discovery" | "read":
                return await self.get(request.path)
        return None

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
    if "leases" in parts or "events" in parts:
        return "lease" if "leases" in parts else "event"
    if request.method == "PATCH":
        return parts[-1]
    return "count" if "limit" in request.query else "discovery" if len(parts) < 5 else "read"


DURATIONS = (0.0, 20.0) if EXAMPLES < 1_000 else (0.0, 20.0, 150.0, 600.0)
"""Seconds of a fault; 0 for one request."""


@pytest.mark.parametrize("fault", [*FAULTS, "lost"])
def test_a_fault_of_a_request_is_over_soon_after_it(fault: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request has it in turn, for each duration, and meanwhile min rises by one."""
    monkeypatch.setattr(asyncio, "to_thread", at_once)

    async def story() -> None:
        world, now = Apart(), asyncio.get_running_loop().time
        world.serve(replicas=2, rate=2.0)
        async with listening(world.answer) as url:
            cluster = Cluster.of(Login(str(write_kubeconfig(tmp_path / "config", url, b"", token="secret"))))
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
                world.fault, world.once, world.asked = (verb, fault), not seconds, 0
                stood = world.services["vllm"].replicas
                least = world.least(1 + stood)
                await virtual_time.until(lambda: world.asked)
                await asyncio.sleep(seconds)
                said = f"{verb} for {seconds} s"
                assert world.services["vllm"].replicas in {stood, least}, said
                assert world.asked <= 4.0 * seconds + 2, f"{said}: a busy loop"
                assert verb == "lease" or operator.problem is None, said
                world.fault = None if seconds else world.fault
                async with asyncio.timeout(15.0):
                    await virtual_time.until(lambda: election.leading and world.well(least))  # noqa: B023
                assert not ended.is_set(), said
            serving.cancel()
            await operator.stop()
            await cluster.close()

    virtual_time.run(story)
