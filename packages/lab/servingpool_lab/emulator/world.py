"""The fleet at wall time: what the pods do to it, and what it says of itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from servingpool_lab.emulator.course import Course
from servingpool_lab.emulator.exposition import Server, render
from servingpool_lab.emulator.fleet import EmulatedFleet, Phase
from servingpool_lab.emulator.ledger import Fate
from servingpool_lab.emulator.pods import Pod, Standing
from servingpool_lab.emulator.quirks import AS_VLLM, PageQuirks
from servingpool_lab.emulator.replay import Arrival
from servingpool_lab.emulator.static import StaticFleet


@dataclass(slots=True)
class World:
    """Applies what the cluster says to the fleet, opens the doors, and answers for every pod."""

    fleet: EmulatedFleet
    model: str
    traffic: Callable[[float], Iterator[Arrival]]
    """The arrivals, when the doors open at a time on the world's clock."""
    open_with: int = 1
    """The doors open when so many replicas are ready: a service that is taken over has users, one that is being set
    up has none yet."""
    clock: Callable[[], float] = time.monotonic
    unix: Callable[[], float] = time.time
    best_static: StaticFleet | None = None
    quirks: PageQuirks = AS_VLLM
    """Of every page."""
    course: Course | None = None
    """None until the doors open."""
    pods: dict[str, Pod] = field(default_factory=dict)
    _zero: float = field(init=False)

    def __post_init__(self) -> None:
        self._zero = self.clock()

    def advance(self) -> None:
        """Brings the fleet to the present."""
        now = self.clock() - self._zero
        while self.course is not None and self.course.due <= now:
            self.fleet.advance(self.course.due)
            self.course.note()
        self.fleet.advance(now)

    def see(self, pod: Pod) -> None:
        """A pod appeared or changed."""
        self.advance()
        now, key = self.fleet.now, pod.key
        match pod.standing:
            case Standing.GONE:
                self.pods.pop(key, None)
                self.fleet.remove(key, now)
                return
            case Standing.READY:
                self.fleet.serve(key, now)
            case Standing.TERMINATING:
                self.fleet.drain(key, now, pod.pre_stop)
            case Standing.LOADING:
                self.fleet.order(key, now)
                self.fleet.suspend(key, now)
        self.pods[key] = pod
        if self.course is None and self.fleet.count(Phase.READY) >= self.open_with:
            self.open()

    def open(self) -> None:
        """Lets users in now, however many replicas are ready."""
        self.advance()
        self.fleet.open(self.traffic(self.fleet.now))
        self.course = Course(self.fleet, self.fleet.now)

    def see_all(self, pods: list[Pod]) -> None:
        """These are all pods that there are."""
        for key in self.pods.keys() - {pod.key for pod in pods}:
            gone = self.pods[key]
            self.see(Pod(gone.namespace, gone.name, Standing.GONE))
        for pod in pods:
            self.see(pod)

    def leavers(self) -> list[Pod]:
        """Pods whose server has exited."""
        self.advance()
        return [self.pods[name] for name in self.fleet.leavers() if name in self.pods]

    def page(self, key: str) -> bytes | None:
        """The metrics page of a pod; None while it does not listen."""
        self.advance()
        replica, metrics = self.fleet.replica(key), self.fleet.metrics(key)
        if replica is None or metrics is None:
            return None
        started = self.unix() - (self.clock() - self._zero) + replica.started_at
        return render(Server(self.model, self.fleet.profile, started, self.quirks), metrics)

    def truth(self) -> dict[str, Any]:
        """Where the run stands. Seconds, requests/s, tokens/s; unknown is null."""
        self.advance()
        fleet, ledger, slo = self.fleet, self.fleet.ledger, self.fleet.ledger.slo
        ttft, tpot = ledger.latest(fleet.now)
        seconds = 0.0 if self.course is None else fleet.now - self.course.begin
        replica_seconds = 0.0 if self.course is None else self.course.replica_seconds
        rows = self.course.rows if self.course else []
        return {
            "open": self.course is not None,
            "seconds": seconds,
            "model": self.model,
            "profile": fleet.profile.name,
            "slo": asdict(slo),
            "replicas": {phase.value: fleet.count(phase) for phase in Phase},
            "arrived": ledger.arrived,
            "attained": ledger.attained,
            "ended": {fate.value: ledger.fates[fate] for fate in Fate},
            "attainment": ledger.attainment,
            "ttft": ttft,
            "tpot": tpot,
            "arrivals": ledger.arrival_rate(fleet.now, self.course.begin) if self.course else 0.0,
            "prompt_tokens": rows[-1]["prompt_tokens"] if rows else None,
            "output_tokens": rows[-1]["output_tokens"] if rows else None,
            "queue": fleet.waiting,
            "front_door": fleet.front_door,
            "in_flight": fleet.in_flight,
            "gpus_per_replica": fleet.profile.gpus,
            "replica_seconds": replica_seconds,
            "gpu_hours": replica_seconds * fleet.profile.gpus / 3600,
            "static": asdict(self.best_static) if self.best_static else None,
        }

    def series(self) -> dict[str, list[Any]]:
        """The run so far, a place every 15 s in each list."""
        self.advance()
        return self.course.columns() if self.course else {}
