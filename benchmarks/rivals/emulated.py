"""`python -m rivals.emulated`: the lab's emulator for all fleets, each with users of its own who ask the same."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from rivals.scene import FLEETS, PROFILE, SLO, STATE, traffic
from servingpool_lab import kwok
from servingpool_lab.emulator.fleet import EmulatedFleet, Phase
from servingpool_lab.emulator.pods import Pod
from servingpool_lab.emulator.replay import Arrival, replay
from servingpool_lab.emulator.server import serve
from servingpool_lab.emulator.world import World
from servingpool_simulation.traces import Trace

LATE = "late"
STEP = 0.5
"""Seconds after which the emulator's server looks at the time again."""


@dataclass(slots=True)
class Worlds:
    """All fleets as one. Users come to all of them at one moment, when each has its first replicas ready."""

    worlds: dict[str, World]
    """By app, the pods' Deployment."""
    _apps: dict[str, str] = field(default_factory=dict)
    """By the pods' keys."""
    _looked: float = field(default_factory=time.monotonic)
    _late: list[float] = field(default_factory=list)
    """Seconds by which each look at the time came late, once there are users."""

    @property
    def open(self) -> bool:
        """Whether there are users."""
        return all(world.course is not None for world in self.worlds.values())

    def see(self, pod: Pod) -> None:
        """A pod appeared or changed."""
        self._apps[pod.key] = pod.app
        if pod.app in self.worlds:
            self.worlds[pod.app].see(pod)
        self._open_when_ready()

    def _open_when_ready(self) -> None:
        if not self.open and all(
            world.fleet.count(Phase.READY) >= FLEETS[name].initial for name, world in self.worlds.items()
        ):
            for world in self.worlds.values():
                world.open()

    def see_all(self, pods: list[Pod]) -> None:
        """These are all pods that there are."""
        of_app: dict[str, list[Pod]] = defaultdict(list)
        for pod in pods:
            self._apps[pod.key] = pod.app
            of_app[pod.app].append(pod)
        for name, world in self.worlds.items():
            world.see_all(of_app[name])
        self._open_when_ready()

    def leavers(self) -> list[Pod]:
        """Pods whose server has exited."""
        now = time.monotonic()
        if self.open:
            self._late.append(now - self._looked - STEP)
        self._looked = now
        return [pod for world in self.worlds.values() for pod in world.leavers()]

    def page(self, key: str) -> bytes | None:
        """The metrics page of a pod; None while it does not listen."""
        app = self._apps.get(key, "")
        if app == STATE:
            return "".join(self._state()).encode()
        return self.worlds[app].page(key) if app in self.worlds else None

    def truth(self) -> dict[str, Any]:
        """Where the run stands, by fleet."""
        return {"fleets": {name: world.truth() for name, world in self.worlds.items()}}

    def series(self) -> dict[str, Any]:
        """By fleet: its course, and each request that ended, by its client's clock. And how late the emulator was."""
        late = self._late or [0.0]
        fleets = {name: {"course": world.series(), "clients": _clients(world)} for name, world in self.worlds.items()}
        return {**fleets, LATE: {"mean": sum(late) / len(late), "most": max(late)}}

    def _state(self) -> Iterator[str]:
        """Replicas that were ordered, and those that are ready, as kube-state-metrics names them."""
        for series, phases in (
            ("kube_deployment_spec_replicas", (Phase.LOADING, Phase.READY, Phase.UNREADY)),
            ("kube_deployment_status_replicas_ready", (Phase.READY,)),
        ):
            yield f"# TYPE {series} gauge\n"
            for name, world in self.worlds.items():
                yield f'{series}{{deployment="{name}"}} {sum(map(world.fleet.count, phases))}\n'


def _clients(world: World) -> list[tuple[float, float, str, float | None, float | None]]:
    """Of each request: seconds at which it came and ended, how it ended, TTFT and TPOT."""
    if world.course is None:
        return []
    begin = world.course.begin
    return [
        (round(one.arrival - begin, 3), round(one.at - begin, 3), one.fate.value, one.ttft, one.tpot)
        for one in world.fleet.ledger.requests
    ]


def _arrivals(trace: Trace, begin: float) -> Iterator[Arrival]:
    """Once: the replay would begin again."""
    return takewhile(lambda one: one.at < begin + trace.duration, replay(trace, begin))


def main() -> None:
    """Parse, compose, run."""
    parser = argparse.ArgumentParser(prog="python -m rivals.emulated", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--fleets", nargs="+", choices=FLEETS, required=True)
    asked = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    trace = traffic(asked.minutes)
    worlds = Worlds(
        {
            name: World(EmulatedFleet(PROFILE, SLO), name, lambda begin: _arrivals(trace, begin), open_with=sys.maxsize)
            for name in asked.fleets
        }
    )
    selector = f"{kwok.APP_LABEL} in ({','.join((*asked.fleets, STATE))})"
    asyncio.run(serve(worlds, kubeconfig=asked.kubeconfig, namespace="default", selector=selector, port=asked.port))


if __name__ == "__main__":
    main()
