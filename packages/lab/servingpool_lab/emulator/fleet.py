"""The replicas that the cluster runs and the load balancer before them, at the time the caller says it is."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from servingpool.decision.pool import Slo
from servingpool_lab.emulator.ledger import Ended, Fate, Ledger
from servingpool_lab.emulator.replay import Arrival
from servingpool_simulation.engine import Engine, EngineMetrics
from servingpool_simulation.hardware import EngineProfile


class Phase(StrEnum):
    """Where a replica is in its life."""

    LOADING = "loading"
    READY = "ready"
    UNREADY = "unready"
    """Was ready and is not: keeps what it has, gets nothing new."""
    DRAINING = "draining"
    """Terminating: gets no new request and finishes those that it has."""


@dataclass(slots=True)
class EmulatedReplica:
    """One pod's server. Times are seconds on the emulator's clock."""

    name: str
    phase: Phase = Phase.LOADING
    engine: Engine | None = None
    """None until it is ready for the first time: a server that loads answers nobody."""
    started_at: float = math.nan
    leaves_at: float = math.inf
    """Draining: when its preStop hook is done."""
    requests: dict[int, float] = field(default_factory=dict)
    """Number in the engine to arrival at the front door, of the requests in flight."""

    @property
    def drained(self) -> bool:
        """Nothing is left in it."""
        return self.engine is None or self.engine.in_flight == 0


class EmulatedFleet:
    """Sends arrivals to the least loaded ready replica and writes down what becomes of them.

    Time never runs backwards: every method with a time first brings the fleet there. Arrivals are routed at their own
    times, however late `advance` is called, so what happens does not depend on how often it is.
    """

    def __init__(self, profile: EngineProfile, slo: Slo) -> None:
        """`profile` is every replica's."""
        self.profile = profile
        self.ledger = Ledger(slo)
        self.now = 0.0
        self.replica_seconds = 0.0
        """Of all replicas so far, from order to release: loading and draining count."""
        self._arrivals: Iterator[Arrival] = iter(())
        self._next: Arrival | None = None
        self._replicas: dict[str, EmulatedReplica] = {}
        self._front_door: deque[Arrival] = deque()
        self._turn = 0
        self._tokens_of_gone = (0.0, 0.0)

    def open(self, arrivals: Iterator[Arrival]) -> None:
        """Lets users in: from now on these arrive, none of them before now."""
        self._arrivals = arrivals
        self._next = next(arrivals, None)

    def order(self, name: str, at: float) -> None:
        """A replica was scheduled and loads."""
        self.advance(at)
        if name not in self._replicas:
            self._replicas[name] = EmulatedReplica(name)

    def serve(self, name: str, at: float) -> None:
        """A replica is ready: from now on it gets requests, first those that waited at the front door."""
        self.order(name, at)
        replica = self._replicas[name]
        if replica.phase in (Phase.READY, Phase.DRAINING):
            return
        replica.phase = Phase.READY
        if replica.engine is None:
            replica.engine, replica.started_at = Engine(self.profile, start=at), at
        while self._front_door:
            self._route(self._front_door.popleft(), at)

    def suspend(self, name: str, at: float) -> None:
        """A ready replica fails its readiness probe."""
        self.advance(at)
        if (replica := self._replicas.get(name)) and replica.phase is Phase.READY:
            replica.phase = Phase.UNREADY

    def drain(self, name: str, at: float, pre_stop: float = 0.0) -> None:
        """A replica is being deleted. Its preStop hook runs for `pre_stop` seconds, while it goes on serving."""
        self.advance(at)
        if (replica := self._replicas.get(name)) and replica.phase is not Phase.DRAINING:
            replica.phase, replica.leaves_at = Phase.DRAINING, at + pre_stop

    def remove(self, name: str, at: float) -> None:
        """A replica is gone; what it had not finished is lost."""
        self.advance(at)
        replica = self._replicas.pop(name, None)
        if replica is None:
            return
        for arrival in replica.requests.values():
            self.ledger.end(Ended(arrival, at, Fate.LOST))
        if replica.engine is not None:
            prompt, output = self._tokens_of(replica.engine)
            self._tokens_of_gone = (self._tokens_of_gone[0] + prompt, self._tokens_of_gone[1] + output)

    def advance(self, until: float) -> None:
        """Lets time pass to `until`: arrivals, and every engine step that ends by then."""
        if until <= self.now:
            return
        while self._next is not None and self._next.at <= until:
            arrival, self._next = self._next, next(self._arrivals, None)
            self.ledger.arrive(arrival.at)
            self._route(arrival, arrival.at)
        for replica in self._replicas.values():
            self._settle(replica, until)
        self.replica_seconds += len(self._replicas) * (until - self.now)
        self.now = until

    def leavers(self) -> list[str]:
        """Draining replicas whose server has exited: the hook is done and every answer is given."""
        return [
            replica.name
            for replica in self._replicas.values()
            if replica.phase is Phase.DRAINING and replica.drained and replica.leaves_at <= self.now
        ]

    def replica(self, name: str) -> EmulatedReplica | None:
        """The replica, if the cluster has it."""
        return self._replicas.get(name)

    def metrics(self, name: str) -> EngineMetrics | None:
        """What the replica exposes now; None while it does not listen."""
        replica = self._replicas.get(name)
        return replica.engine.metrics() if replica and replica.engine else None

    def count(self, phase: Phase) -> int:
        """Replicas in this phase."""
        return sum(replica.phase is phase for replica in self._replicas.values())

    def names(self) -> list[str]:
        """All replicas that the cluster has."""
        return list(self._replicas)

    @property
    def waiting(self) -> int:
        """Requests that no batch has taken up: in the replicas' queues and at the front door."""
        return sum(engine.waiting for engine in self._engines()) + len(self._front_door)

    @property
    def in_flight(self) -> int:
        """Requests that came and have not ended."""
        return sum(engine.in_flight for engine in self._engines()) + len(self._front_door)

    @property
    def front_door(self) -> int:
        """Requests that wait because no replica is ready."""
        return len(self._front_door)

    def tokens(self) -> tuple[float, float]:
        """Prompt and output tokens so far, of all replicas that ever were."""
        prompt, output = self._tokens_of_gone
        for engine in self._engines():
            more_prompt, more_output = self._tokens_of(engine)
            prompt, output = prompt + more_prompt, output + more_output
        return prompt, output

    def _route(self, arrival: Arrival, at: float) -> None:
        ready = [r for r in self._replicas.values() if r.phase is Phase.READY and r.engine is not None]
        if not ready:
            self._front_door.append(arrival)
            return
        for replica in ready:
            self._settle(replica, at)
        self._turn += 1
        order = [ready[(self._turn + k) % len(ready)] for k in range(len(ready))]
        chosen = min(order, key=lambda replica: replica.engine.in_flight if replica.engine else 0)
        assert chosen.engine is not None
        number = chosen.engine.submit(at, arrival.prompt_tokens, arrival.output_tokens)
        chosen.requests[number] = arrival.at

    def _settle(self, replica: EmulatedReplica, until: float) -> None:
        if replica.engine is None:
            return
        replica.engine.advance(until)
        for outcome in replica.engine.take_outcomes():
            arrival = replica.requests.pop(outcome.request)
            if outcome.ttft is None:
                self.ledger.end(Ended(arrival, outcome.finished_at, Fate.REJECTED))
                continue
            waited = outcome.arrival - arrival
            self.ledger.end(Ended(arrival, outcome.finished_at, Fate.FINISHED, outcome.ttft + waited, outcome.tpot))

    def _engines(self) -> list[Engine]:
        return [replica.engine for replica in self._replicas.values() if replica.engine is not None]

    @staticmethod
    def _tokens_of(engine: Engine) -> tuple[float, float]:
        counters = engine.metrics().counters
        return counters["prompt_tokens"], counters["generation_tokens"]
