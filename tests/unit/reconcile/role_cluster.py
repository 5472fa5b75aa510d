"""A pool of prefill and decode engines: each request is served by one of both, as a gateway in front hands it on."""

from __future__ import annotations

from typing import Any

from servingpool.decision.observation import ReplicaMetrics

from ..decision.world import ENGINE, TTFT_BOUNDS, Engine  # noqa: TID252, tests are no package of an installed name
from .fake_cluster import TICK, FakeCluster

ROUTER = ("chat", "router-7c9f-bbbbb")
GATEWAY = {"name": "vllm-router", "workload": "router"}
PREFILL = {"name": "prefill", "role": "prefill", "max": 12}
DECODE = {"name": "decode", "role": "decode", "max": 12}


class RoleCluster(FakeCluster):
    """`rate` requests/s arrive, of so many `prompt` and `output` tokens."""

    def __init__(self, *, rate: float = 8.0, prefill: int = 2, decode: int = 2, **settings: Any) -> None:
        self.rate, self.prompt, self.output = rate, 3000.0, 200.0
        self.counts = [0.0, 0.0]
        """Of the gateway: requests sent to an engine, tries that met none."""
        self.transfer = 0.0
        """Seconds that a KV cache takes to a decode engine, where the request waits for it."""
        super().__init__(**settings)
        self.prefill = self.serve("prefill", replicas=prefill, rate=rate)
        self.decode = self.serve("decode", replicas=decode, rate=rate)

    def pool(self, name: str = "pool", **spec: Any) -> None:
        super().pool(name, **{"targets": [PREFILL, DECODE], **spec})

    def serve_on(self) -> None:
        up = bool(self.prefill.engines and self.decode.engines)
        self.counts[0 if up else 1] += self.rate * TICK
        for service, prompt, output in ((self.prefill, self.prompt, 1.0), (self.decode, 0.0, self.output)):
            share = self.rate / max(1, len(service.engines))
            for engine in service.engines:
                serve_role(engine, share, prompt, output, self.transfer if service is self.decode else 0.0)
        self.pass_a_tick((self.prefill, self.decode))
        sent, tries = self.counts
        router = ReplicaMetrics(ROUTER[1], self.now, begun=sent, admission_rejections=tries)
        self.prometheus.gateways = {ROUTER: {"": router}}

    def go(self, rate: float, minutes: float) -> None:
        self.rate = rate
        self.step(minutes=minutes)

    def side(self, role: str) -> dict[str, Any]:
        """What the status says of a role."""
        found: dict[str, Any] = next(one for one in self.status()["roles"] if one["role"] == role)
        return found

    @property
    def ordered(self) -> tuple[int, int]:
        """Replicas for prefill and for decode."""
        both = (self.prefill, self.decode)
        prefill, decode = (one.replicas for one in both)
        return prefill, decode


def serve_role(engine: Engine, rate: float, prompt: float, output: float, transfer: float = 0.0) -> None:
    """A request of one token decodes nothing: it has no time between tokens."""
    before, requests, late = (engine.decode_steps, engine.decode_seconds), engine.requests, engine.late
    engine.serve(rate, TICK, prompt, output)
    engine.first_token_seconds += transfer * (engine.requests - requests)
    if transfer > max(TTFT_BOUNDS):
        engine.late = late + engine.requests - requests
    if output <= 1.0:
        engine.decode_steps, engine.decode_seconds = before
    engine.running = min(10.0, rate * ENGINE.work(prompt, output) * 10.0) if rate else 0.0
