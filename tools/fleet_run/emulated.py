"""`python -m fleet_run.emulated`: the lab's emulator for several pools, each a fleet of its own, and for a gateway."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet_run.scene import POOLS, ROUTER, TARGETS, Pace, Pool
from servingpool_lab import kwok
from servingpool_lab.emulator.fleet import EmulatedFleet, Phase
from servingpool_lab.emulator.pods import Pod
from servingpool_lab.emulator.replay import replay
from servingpool_lab.emulator.server import serve
from servingpool_lab.emulator.world import World
from servingpool_simulation.hardware import engine_profile

RETRY = 2.0
"""Seconds after which the gateway tries a request again while no replica is ready."""


@dataclass(slots=True)
class Gateway:
    """The page of a vllm-router that is set to try for longer than any cold start: a stand-in, no router runs.

    It holds what comes while no replica is ready, as the emulator's front door does, and counts a try every two seconds
    for each of them, as the router does.
    """

    world: World
    _tries: float = 0.0
    _at: float = 0.0

    def note(self) -> None:
        """Count the tries since the last time. The front door has changed little since: call it often."""
        now = self.world.fleet.now
        self._tries += self.world.fleet.front_door * (now - self._at) / RETRY
        self._at = now

    def page(self) -> bytes:
        """In Prometheus' text format, with the series of tests/fixtures/engines/gateway-vllm-router-0.1.17.txt."""
        fleet = self.world.fleet
        sent = fleet.ledger.arrived - fleet.front_door
        route = 'route="/v1/chat/completions"'
        lines = [
            "# TYPE vllm_router_processed_requests_total counter",
            f'vllm_router_processed_requests_total{{worker="http://10.0.0.1:8000"}} {sent}',
            "# TYPE vllm_router_request_errors_total counter",
            f'vllm_router_request_errors_total{{{route},error_type="no_available_workers"}} {int(self._tries)}',
            "# TYPE vllm_router_active_workers gauge",
            f"vllm_router_active_workers {fleet.count(Phase.READY)}",
        ]
        return ("\n".join(lines) + "\n").encode()


@dataclass(slots=True)
class Town:
    """Several worlds as one: each pod belongs to the world of its app."""

    worlds: Mapping[str, World]
    """By pool."""
    pool_of: Mapping[str, str]
    """By app: the pods' Deployment."""
    gateways: Mapping[str, Gateway]
    """By app."""
    _apps: dict[str, str] = field(default_factory=dict)
    """By the pods' keys."""

    def see(self, pod: Pod) -> None:
        """A pod appeared or changed."""
        self._apps[pod.key] = pod.app
        if pod.app in self.pool_of:
            self.worlds[self.pool_of[pod.app]].see(pod)

    def see_all(self, pods: list[Pod]) -> None:
        """These are all pods that there are."""
        of_pool: dict[str, list[Pod]] = defaultdict(list)
        for pod in pods:
            self._apps[pod.key] = pod.app
            of_pool[self.pool_of.get(pod.app, "")].append(pod)
        for name, world in self.worlds.items():
            world.see_all(of_pool[name])

    def leavers(self) -> list[Pod]:
        """Pods whose server has exited."""
        found = [pod for world in self.worlds.values() for pod in world.leavers()]
        for gateway in self.gateways.values():
            gateway.note()
        return found

    def page(self, key: str) -> bytes | None:
        """The metrics page of a pod; None while it does not listen."""
        app = self._apps.get(key, "")
        if app in self.gateways:
            self.gateways[app].world.advance()
            return self.gateways[app].page()
        return self.worlds[self.pool_of[app]].page(key) if app in self.pool_of else None

    def truth(self) -> dict[str, Any]:
        """Where the run stands, by pool."""
        return {name: world.truth() for name, world in self.worlds.items()}

    def series(self) -> dict[str, Any]:
        """The run so far, by pool."""
        return {name: world.series() for name, world in self.worlds.items()}


def town(pace: Pace) -> Town:
    """All of the scene."""
    worlds = {pool.name: _world(pool, pace, seed) for seed, pool in enumerate(POOLS)}
    pools = {name: pool.name for name, (pool, _) in TARGETS.items()}
    return Town(worlds, pools, {ROUTER: Gateway(worlds["batch"])})


def _world(pool: Pool, pace: Pace, seed: int) -> World:
    profiles = {one.name: engine_profile(one.profile) for one in pool.targets}
    trace = pool.traffic.drawn(pace.factor, seed)
    return World(
        EmulatedFleet(profiles[pool.targets[0].name], pool.slo),
        pool.name,
        lambda begin: replay(trace, begin),
        open_with=pool.initial,
        profiles=profiles,
    )


def main() -> None:
    """Parse, compose, run."""
    parser = argparse.ArgumentParser(prog="python -m fleet_run.emulated", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    selector = f"{kwok.APP_LABEL} in ({','.join((*TARGETS, ROUTER))})"
    made = town(Pace(options.minutes))
    asyncio.run(serve(made, kubeconfig=options.kubeconfig, namespace="default", selector=selector, port=options.port))


if __name__ == "__main__":
    main()
