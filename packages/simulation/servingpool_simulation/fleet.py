"""The replicas of one Deployment and the load balancer before them, on virtual time.

A replica is ordered and loads, is ready and serves, drains, is gone; it is paid for from order to release.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from servingpool_simulation import page
from servingpool_simulation.balancer import serve, settle_all
from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.tables import (
    NOBODY,
    TURNED_AWAY,
    Floats,
    Ints,
    Records,
    State,
    engine_rows,
    request_table,
    start_engine,
    with_more_rows,
)
from servingpool_simulation.traces import Trace
from servingpool_simulation.upgrade import Upgrade, end_plans, with_profile

_TOKENS = [page.PROMPT_TOKENS, page.GENERATION_TOKENS]


class Routing(StrEnum):
    """How the load balancer picks a ready replica."""

    LEAST_LOADED = "least-loaded"
    """Fewest requests in flight; ties take turns."""
    ROUND_ROBIN = "round-robin"


class Phase(StrEnum):
    """Where a replica is in its life."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    """Gets no new request and finishes those that it has."""
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class ColdStart:
    """How long a replica takes from order to ready: evenly distributed around the mean."""

    mean: float = 100.0
    """Seconds. Warm standby 3 to 6, warm node 60 to 150, cold node 300 to 600."""
    jitter: float = 0.2
    """Share of the mean that it may be shorter or longer, 0 to below 1."""

    def __post_init__(self) -> None:
        if not (self.mean >= 0 and 0 <= self.jitter < 1):
            raise ValueError(f"need mean >= 0 s and jitter 0 to below 1, got {self.mean} s and {self.jitter}")

    def draw(self, seed: int, ordinal: int) -> float:
        """Seconds for the `ordinal`-th replica of a run: the same whatever was drawn before."""
        if self.jitter == 0:
            return self.mean
        return self.mean * (1 + self.jitter * float(np.random.default_rng((seed, ordinal)).uniform(-1, 1)))


@dataclass(slots=True)
class SimulatedReplica:
    """One replica's life; times in seconds of virtual time."""

    name: str
    ordinal: int
    """Counts the replicas of a run, from 0."""
    row: int
    """Its place in the engine arrays, used again after its release."""
    created_at: float
    ready_at: float
    """While loading: when it will be."""
    paid_from: float
    kind: int = 0
    """Of a fleet of several kinds: which one."""
    phase: Phase = Phase.LOADING
    draining_from: float = math.inf
    released_at: float = math.inf

    def paid_for(self, begin: float, end: float) -> float:
        """Seconds of [begin, end] that somebody pays for."""
        return max(0.0, min(self.released_at, end) - max(self.paid_from, begin))


@dataclass(slots=True)
class Fleet:
    """Replicas of one profile at a time that serve one trace."""

    profile: EngineProfile
    """The one in force."""
    trace: Trace
    cold_start: ColdStart = ColdStart()
    routing: Routing = Routing.LEAST_LOADED
    seed: int = 0
    upgrades: tuple[Upgrade, ...] = ()
    """Ascending in time, in seconds of the trace."""
    half_speed: tuple[int, ...] = ()
    """Ordinals of the replicas whose every step lasts twice as long, as on a throttled GPU."""
    holds_for: float = math.inf
    """Seconds that the gateway holds a request while no replica is ready; then it turns the request away."""
    grace: float = math.inf
    """Seconds that a pod may drain, as its terminationGracePeriodSeconds; then what it has not finished is lost."""
    lost: int = field(default=0, init=False)
    """Requests that a killed pod had."""
    now: float = field(default=0.0, init=False)
    replicas: list[SimulatedReplica] = field(default_factory=list, init=False)
    """All that ever were, in order of creation."""
    state: State = field(init=False, repr=False)
    requests: Records = field(init=False, repr=False)
    served: int = field(default=0, init=False)
    """Requests of the trace that went to a replica or were turned away; the others have not come, or wait at the front
    door."""
    _alive: list[SimulatedReplica] = field(default_factory=list, init=False)
    _free_rows: deque[int] = field(default_factory=deque, init=False)
    _cursor: int = field(default=0, init=False)
    _widest: EngineProfile = field(init=False, repr=False)
    _pauses: bool = field(init=False, repr=False)
    """Some profile has pauses, so replicas need random numbers of their own."""
    _tokens_of_gone: Floats = field(default_factory=lambda: np.zeros(2), init=False)

    def __post_init__(self) -> None:
        profiles = (self.profile, *(upgrade.profile for upgrade in self.upgrades))
        if len({profile.max_model_len for profile in profiles}) > 1:
            raise ValueError("an upgrade cannot change max_model_len")
        self._pauses = any(profile.pause_every for profile in profiles)
        # Batches have room for the widest profile; the figures in force are another matter.
        self._widest = max(profiles, key=lambda profile: profile.max_num_seqs)
        self.state = with_profile(engine_rows(self._widest, 0), self.profile)
        self.requests = request_table(self.trace.arrival, self.trace.prompt, self.trace.output)

    def of(self, *phases: Phase) -> list[SimulatedReplica]:
        """The replicas in these phases, oldest first."""
        return [replica for replica in self._alive if replica.phase in phases]

    @property
    def requested(self) -> int:
        """Replicas ordered and not given up: the Deployment's `spec.replicas`."""
        return len(self.of(Phase.LOADING, Phase.READY))

    @property
    def arrived(self) -> int:
        """Requests of the trace that came by now."""
        return int(np.searchsorted(self.trace.arrival, self.now, side="right"))

    @property
    def front_door(self) -> int:
        """Requests that wait because no replica is ready."""
        return self.arrived - self.served

    def start_ready(self, replicas: int) -> None:
        """Replicas that have been there for long; paid for from now."""
        for _ in range(replicas):
            self._order(ready_at=self.now, created_at=self.now - self.cold_start.mean)
        self._wake(self.now)

    def scale(self, replicas: int, parts: tuple[int, ...] = ()) -> None:
        """Sets how many there should be, 0 or more; `parts` is of a fleet of several kinds.

        Who goes is chosen as a ReplicaSet does: those that still load first, then those that became ready last
        (its rounding of ages to powers of two is left out).
        """
        if replicas < 0 or len(parts) > 1:
            raise ValueError(f"replicas must be 0 or more, and of one kind; got {replicas} {parts}")
        standing = self.of(Phase.LOADING, Phase.READY)
        for _ in range(replicas - len(standing)):
            ordinal = len(self.replicas)
            self._order(ready_at=self.now + self.cold_start.draw(self.seed, ordinal), created_at=self.now)
        standing.sort(key=lambda replica: (replica.phase is Phase.LOADING, replica.ready_at, replica.ordinal))
        for replica in standing[replicas:]:
            if replica.phase is Phase.LOADING:
                self._release(replica, self.now)
            else:
                replica.phase = Phase.DRAINING
                replica.draining_from = self.now
        self._wake(self.now)

    def advance(self, until: float) -> None:
        """Lets virtual time pass to `until` (seconds): arrivals, steps, replicas that become ready or are released."""
        due = {replica.ready_at for replica in self.of(Phase.LOADING) if replica.ready_at <= until}
        due |= {upgrade.at for upgrade in self.upgrades if self.now < upgrade.at <= until}
        for moment in (*sorted(due), until):
            self._serve(moment)
            self.now = moment
            self._wake(moment)
            self._upgrade(moment)
        self._settle(self._rows(*self._alive), until)
        for replica in self.of(Phase.DRAINING):
            engine = self.state.engines[replica.row]
            if engine.in_flight == 0:
                self._release(replica, max(replica.draining_from, float(engine.now)))
            elif until >= replica.draining_from + self.grace:
                self._kill(replica)

    def queued(self) -> int:
        """Requests that no batch has taken up: in the replicas' queues and at the front door."""
        return int(self.state.page[self._rows(*self._alive), page.WAITING].sum()) + self.front_door

    def in_flight(self) -> int:
        """Requests that came and have not finished."""
        return int(self.state.engines.in_flight[self._rows(*self._alive)].sum()) + self.front_door

    def tokens(self) -> tuple[float, float]:
        """Prompt and output tokens so far, of all replicas that ever were."""
        prompt, output = self.state.page[self._rows(*self._alive)][:, _TOKENS].sum(axis=0) + self._tokens_of_gone
        return float(prompt), float(output)

    def paid_for(self, begin: float, end: float) -> float:
        """Replica-seconds in [begin, end]: loading and draining count."""
        return math.fsum(replica.paid_for(begin, end) for replica in self.replicas)

    def gpus_per_replica(self, begin: float, end: float) -> float:  # noqa: ARG002, of several kinds it varies
        """Over [begin, end] on average."""
        return self.profile.gpus

    def _serve(self, until: float) -> None:
        """Sends the requests that arrive before `until` to the ready replicas, and those that waited for one."""
        ready = self.of(Phase.READY)
        if not ready:
            self._turn_away(until - self.holds_for)
            return
        end = int(np.searchsorted(self.trace.arrival, until, side="right"))
        if end > self.served:
            self._cursor = self._route(self._rows(*ready), end)
            self.served = end

    def _route(self, ready: Ints, end: int) -> int:
        """Sends the requests up to the `end`-th to these rows. Returns the cursor for the next call."""
        by_load, numbers = self.routing is Routing.LEAST_LOADED, (self.served, end)
        states, kinds = self._engines()
        return serve(states, self.requests, kinds, ready, by_load, self._cursor, numbers, self.now)

    def _settle(self, rows: Ints, until: float) -> None:
        states, kinds = self._engines()
        settle_all(states, self.requests, kinds, rows, until)

    def _engines(self) -> tuple[tuple[State, ...], Ints]:
        """The engines under each kind's figures, and the kind of each row."""
        return (self.state,), np.zeros(len(self.state.engines), dtype=np.int64)

    def _turn_away(self, arrived: float) -> None:
        """Give up on the requests that arrived up to then and that no replica has."""
        end = int(np.searchsorted(self.trace.arrival, arrived, side="right"))
        if end > self.served:
            given_up = self.requests[self.served : end]
            given_up.status = TURNED_AWAY
            given_up.finished = given_up.arrival + self.holds_for
            self.served = end

    def _kill(self, replica: SimulatedReplica) -> None:
        """The pod is gone now, with the requests that it had."""
        lost = self._requests_of(replica)
        self.requests.status[lost] = TURNED_AWAY
        self.requests.finished[lost] = self.now
        self.lost += len(lost)
        self._release(replica, self.now)

    def _requests_of(self, replica: SimulatedReplica) -> list[int]:
        engine = self.state.engines[replica.row]
        found: list[int] = self.state.batch[replica.row, : engine.decoding + engine.prefilling].request.tolist()
        number = int(engine.head)
        while number != NOBODY:
            found.append(number)
            number = int(self.requests[number].next)
        return found

    @staticmethod
    def _rows(*replicas: SimulatedReplica) -> Ints:
        return np.array([replica.row for replica in replicas], dtype=np.int64)

    def _wake(self, now: float) -> None:
        for replica in self.of(Phase.LOADING):
            if replica.ready_at <= now:
                replica.phase = Phase.READY
                scrape_at = self.state.engines[replica.row].scrape_at  # its first scrape may be arranged already
                self._start(replica)
                self.state.engines[replica.row].scrape_at = scrape_at

    def _start(self, replica: SimulatedReplica) -> None:
        ordinal = replica.ordinal
        draw = int(np.random.default_rng((self.seed, 3, ordinal)).integers(1, 2**31 - 1)) if self._pauses else 1
        slowness = 2.0 if ordinal in self.half_speed else 1.0
        start_engine(self.state, replica.row, replica.ready_at, slowness=slowness, draw=draw)

    def _upgrade(self, now: float) -> None:
        """Each upgrade once: `now` only ever meets it as the end of a stretch that began before it."""
        for upgrade in self.upgrades:
            if upgrade.at == now and upgrade.profile is not self.profile:
                rows = self._rows(*self._alive)
                self._settle(rows, now)
                end_plans(self.state, rows, now)
                self.state = with_profile(self.state, upgrade.profile)
                self.profile = upgrade.profile

    def _order(self, *, ready_at: float, created_at: float) -> None:
        if not self._free_rows:
            self._add_rows()
        replica = SimulatedReplica(
            name=f"replica-{len(self.replicas)}",
            ordinal=len(self.replicas),
            row=self._free_rows.popleft(),
            created_at=created_at,
            ready_at=ready_at,
            paid_from=self.now,
        )
        start_engine(self.state, replica.row, math.inf)
        self.replicas.append(replica)
        self._alive.append(replica)

    def _release(self, replica: SimulatedReplica, at: float) -> None:
        replica.phase = Phase.GONE
        replica.released_at = at
        self._alive.remove(replica)
        self._tokens_of_gone += self.state.page[replica.row, _TOKENS]
        self._free_rows.append(replica.row)

    def _add_rows(self) -> None:
        old = len(self.state.engines)
        self.state = with_more_rows(self.state, engine_rows(self._widest, max(8, old)))
        self._free_rows.extend(range(old, len(self.state.engines)))
