"""A fleet of several kinds of replicas behind one load balancer, each a Deployment on nodes that may run out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from servingpool.decision.observation import Observation, Ordered
from servingpool.decision.pool import ONLY
from servingpool_simulation.fleet import Fleet, Phase, SimulatedReplica
from servingpool_simulation.kinds import Kind
from servingpool_simulation.scrape import Scraper
from servingpool_simulation.tables import Ints, State, engine_rows
from servingpool_simulation.upgrade import with_profile


class Moment(NamedTuple):
    """What stands of each kind after a decision."""

    at: float
    """Seconds of the trace."""
    requested: tuple[int, ...]
    ready: tuple[int, ...]
    pending: tuple[int, ...]
    """Pods for which there is no node."""


@dataclass(slots=True)
class MixedFleet(Fleet):
    """Replicas of several kinds that serve one trace. Engines are rows of the same arrays, whatever their kind."""

    kinds: tuple[Kind, ...] = ()
    """Their supply in seconds of the trace. `profile` is the first one's."""
    course: list[Moment] = field(default_factory=list, init=False)
    spec: list[int] = field(init=False)
    """`spec.replicas` of each kind's Deployment."""
    _states: tuple[State, ...] = field(init=False, repr=False)
    """The engines under each kind's figures."""
    _kind_of: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64), init=False, repr=False)
    """[row]"""
    _told: dict[int, bool] = field(default_factory=dict, init=False)
    """By ordinal, replicas whose node is told to vanish: whether the Deployment still counts the pod."""

    def __post_init__(self) -> None:
        Fleet.__post_init__(self)
        profiles = [kind.profile for kind in self.kinds]
        if not profiles or len({(profile.max_model_len, profile.conduct) for profile in profiles}) > 1:
            raise ValueError("need one kind or more, with the same max_model_len and the same metrics")
        if self.upgrades or self.profile != profiles[0]:
            raise ValueError("a fleet of several kinds has no upgrades, and the profile of the first kind")
        self._pauses = any(profile.pause_every for profile in profiles)
        self._widest = max(profiles, key=lambda profile: profile.max_num_seqs)
        self.state = with_profile(engine_rows(self._widest, 0), self.profile)
        self.spec = [0] * len(self.kinds)
        self._share_engines()

    @property
    def requested(self) -> int:
        """Replicas ordered, of all kinds."""
        return sum(self.spec)

    def start_mixed(self, parts: tuple[int, ...]) -> None:
        """Replicas of each kind that have been there for long; paid for from now."""
        for kind, replicas in enumerate(parts):
            if replicas > self.kinds[kind].lasting(self.now):
                raise ValueError(f"there are no nodes for {replicas} of {self.kinds[kind].name} at the start")
            self.spec[kind] = replicas
            for _ in range(replicas):
                replica = self._create(kind)
                replica.created_at = self.now - self.kinds[kind].cold_start.mean
                replica.ready_at = replica.paid_from = self.now
        self._wake(self.now)

    def scale(self, replicas: int, parts: tuple[int, ...] = ()) -> None:
        """Sets how many there should be of each kind; of a single one, without parts. Increases come first."""
        wanted = parts or (replicas,)
        if len(wanted) != len(self.kinds) or min(wanted) < 0 or sum(wanted) != replicas:
            raise ValueError(f"need 0 or more of each of {len(self.kinds)} kinds, got {wanted} of {replicas}")
        for kind in sorted(range(len(wanted)), key=lambda kind: wanted[kind] < self.spec[kind]):
            self.spec[kind] = wanted[kind]
            self._remove_surplus(kind)
            self._converge(kind)
        self._wake(self.now)
        every = range(len(self.kinds))
        ready, pending = self.of(Phase.READY), [one for one in self.of(Phase.LOADING) if one.ready_at == math.inf]
        counts = (tuple(sum(one.kind == kind for one in ones) for kind in every) for ones in (ready, pending))
        self.course.append(Moment(self.now, wanted, *counts))

    def advance(self, until: float) -> None:
        """As `Fleet.advance`, and nodes come and vanish."""
        events = {at for kind in self.kinds for at in kind.events(self.now, until)}
        for moment in (*sorted(events), until):
            Fleet.advance(self, moment)
            for kind in range(len(self.kinds)):
                self._vanish(kind)
                self._tell(kind)
                self._converge(kind)
            self._wake(self.now)

    def hours(self, kind: int, begin: float, end: float) -> float:
        """Replica-hours of a kind in [begin, end] that are paid for."""
        return math.fsum(one.paid_for(begin, end) for one in self.replicas if one.kind == kind) / 3600.0

    def dollars(self, begin: float, end: float) -> float:
        """What [begin, end] costs."""
        return math.fsum(kind.price * self.hours(place, begin, end) for place, kind in enumerate(self.kinds))

    def gpus_per_replica(self, begin: float, end: float) -> float:
        """Over [begin, end] on average."""
        hours = [self.hours(kind, begin, end) for kind in range(len(self.kinds))]
        gpus = [kind.profile.gpus for kind in self.kinds]
        if len(set(gpus)) == 1 or not sum(hours):
            return gpus[0]
        return float(np.average(gpus, weights=hours))

    def _engines(self) -> tuple[tuple[State, ...], Ints]:
        return self._states, self._kind_of

    def _share_engines(self) -> None:
        """Anew after each growth of the arrays."""
        more = len(self.state.engines) - len(self._kind_of)
        self._kind_of = np.concatenate((self._kind_of, np.zeros(more, dtype=np.int64)))
        self._states = tuple(with_profile(self.state, kind.profile) for kind in self.kinds)

    def _create(self, kind: int) -> SimulatedReplica:
        """A pod without a node: ready, and paid for, never."""
        self._order(ready_at=math.inf, created_at=self.now)
        if len(self._kind_of) < len(self.state.engines):
            self._share_engines()
        replica = self.replicas[-1]
        replica.kind, replica.paid_from = kind, math.inf
        self._kind_of[replica.row] = kind
        return replica

    def _counted(self, kind: int) -> list[SimulatedReplica]:
        """The pods that the Deployment counts."""
        return [
            one
            for one in self._alive
            if one.kind == kind and (one.phase is not Phase.DRAINING or self._told.get(one.ordinal, False))
        ]

    def _on_nodes(self, kind: int) -> list[SimulatedReplica]:
        return [
            one
            for one in self._alive
            if one.kind == kind and (one.phase is not Phase.LOADING or one.ready_at < math.inf)
        ]

    def _remove_surplus(self, kind: int) -> None:
        """As `Fleet.scale` chooses; of those not Ready, one without a node first."""
        pods = self._counted(kind)
        pods.sort(key=lambda one: (one.phase is not Phase.READY, one.ready_at, one.ordinal))
        for one in pods[self.spec[kind] :]:
            if one.phase is Phase.LOADING:
                self._release(one, self.now)
            elif one.phase is Phase.READY:
                one.phase = Phase.DRAINING
                one.draining_from = self.now
            else:
                self._told[one.ordinal] = False

    def _converge(self, kind: int) -> None:
        """Creates the pods that are missing, and gives nodes to pods without, the oldest first."""
        for _ in range(self.spec[kind] - len(self._counted(kind))):
            self._create(kind)
        pods = [one for one in self.of(Phase.LOADING) if one.kind == kind and one.ready_at == math.inf]
        if not pods:
            return
        what, taken = self.kinds[kind], self._on_nodes(kind)
        staying = sum(one.ordinal not in self._told for one in taken)
        free = min(what.nodes(self.now) - len(taken), what.lasting(self.now) - staying)
        for one in pods[: len(pods) if free == math.inf else max(0, int(free))]:
            one.paid_from = self.now
            one.ready_at = self.now + what.cold_start.draw(self.seed, one.ordinal)

    def _tell(self, kind: int) -> None:
        """Nodes beyond what lasts are told to vanish: their pods drain. Which ones, chance says."""
        what = self.kinds[kind]
        if what.notice is None:
            return
        staying = [one for one in self._on_nodes(kind) if one.ordinal not in self._told]
        surplus = len(staying) - what.lasting(self.now)
        if surplus <= 0:
            return
        random = np.random.default_rng((self.seed, 4, kind, int(self.now)))
        for place in sorted(random.permutation(len(staying))[: int(surplus)].tolist()):
            one = staying[place]
            if one.phase is Phase.LOADING:
                self._release(one, self.now)
                continue
            self._told[one.ordinal] = one.phase is Phase.READY and not what.evicts
            if one.phase is Phase.READY:
                one.phase = Phase.DRAINING
                one.draining_from = self.now

    def _vanish(self, kind: int) -> None:
        """Nodes that were told so and for which the time has come are gone, with the requests that they had."""
        if self.kinds[kind].notice is None:
            return
        taken = self._on_nodes(kind)
        over = len(taken) - self.kinds[kind].nodes(self.now)
        for one in [one for one in taken if one.ordinal in self._told][: max(0, int(over))]:
            self._kill(one)


@dataclass(slots=True)
class MixedScraper(Scraper):
    """Shows whose each replica is, and which pods have no node."""

    def observe(self) -> Observation:
        """As `Scraper.observe`; a single kind is not named."""
        seen, fleet = Scraper.observe(self), self.fleet
        assert isinstance(fleet, MixedFleet)
        names = [kind.name for kind in fleet.kinds] if len(fleet.kinds) > 1 else [ONLY]
        ready = zip(seen.ready, fleet.of(Phase.READY), strict=True)
        starting = zip(seen.starting, fleet.of(Phase.LOADING), strict=True)
        return replace(
            seen,
            ready=tuple(replace(shown, target=names[one.kind]) for shown, one in ready),
            starting=tuple(
                replace(shown, target=names[one.kind], unschedulable=one.ready_at == math.inf)
                for shown, one in starting
            ),
            targets=tuple(map(Ordered, names, fleet.spec)),
        )
