"""One policy, one trace, a fleet of several kinds: what would have happened; and the best mix that never changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product

from servingpool.decision.pool import Pool, Slo
from servingpool_simulation.kinds import Kind, pool_of
from servingpool_simulation.mixed_fleet import MixedFleet, MixedScraper, Moment
from servingpool_simulation.policies import Policy, Schedule
from servingpool_simulation.run import Result, SimulationOptions, let_serve
from servingpool_simulation.timetable import SELDOM
from servingpool_simulation.traces import Trace

Parts = tuple[int, ...]
"""Replicas of each kind."""


@dataclass(frozen=True, slots=True, eq=False)
class MixResult:
    """One run of a fleet of several kinds."""

    result: Result
    """As of one kind: the sums over kinds."""
    dollars: float
    """Of the scored time; loading and draining count, a pod without a node does not."""
    hours: tuple[float, ...]
    """Replica-hours of each kind."""
    course: Sequence[Moment]
    orders: int
    """Changes of a kind's `spec.replicas` in the scored time."""
    lost: int
    """Requests that vanished nodes had."""

    @property
    def attained(self) -> float:
        """Share of the requests that met every bound of the SLO."""
        return self.result.score.attainment

    @property
    def attains(self) -> bool:
        """It attained what the SLO asks for."""
        return self.attained >= self.result.slo.attainment


def simulate_mix(
    trace: Trace, kinds: Sequence[Kind], policy: Policy, slo: Slo, options: SimulationOptions, initial: Parts = ()
) -> MixResult:
    """Runs one policy on a fleet of these kinds, deterministically for a seed.

    `initial` replicas of each kind are ready at the start; without, the pool's minimum of the first kind, or each
    one's base. Cold starts are the kinds', not the options'. A policy that answers for a pool with targets without
    parts is refused: ValueError.
    """
    pool = pool_of(kinds, slo)
    begin, end = options.history, trace.duration
    moved = tuple(kind.later(begin) for kind in kinds)
    fleet = MixedFleet(
        kinds[0].profile,
        trace,
        kinds[0].cold_start,
        options.routing,
        options.seed,
        half_speed=options.half_speed,
        holds_for=options.holds_for,
        kinds=moved,
    )
    initial = initial or _least(kinds, pool)
    fleet.start_mixed(initial)
    scraper = MixedScraper(fleet, slo, options.scrape, policy.every_bucket)
    longest = max((kind.cold_start for kind in kinds), key=lambda cold_start: cold_start.mean)
    result = let_serve(fleet, scraper, pool, policy, replace(options, cold_start=longest))
    dollars = fleet.dollars(begin, end)
    result = replace(result, score=replace(result.score, cost=dollars))
    hours = tuple(fleet.hours(kind, begin, end) for kind in range(len(kinds)))
    return MixResult(result, dollars, hours, fleet.course, _orders(initial, fleet.course), fleet.lost)


def _least(kinds: Sequence[Kind], pool: Pool) -> Parts:
    bases = [kind.base for kind in kinds]
    return (bases[0] + pool.min_replicas - sum(bases), *bases[1:])


def _orders(initial: Parts, course: Sequence[Moment]) -> int:
    stood = (initial, *(moment.requested for moment in course))
    return sum(a != b for before, after in pairwise(stood) for a, b in zip(before, after, strict=True))


def static_mix(trace: Trace, kinds: Sequence[Kind], parts: Parts, slo: Slo, options: SimulationOptions) -> MixResult:
    """A run of a mix that never changes; where there are no nodes for a part of it, that part is pending."""
    initial = tuple(int(min(n, kind.lasting(0.0))) for n, kind in zip(parts, kinds, strict=True))
    seldom = replace(options, decide_every=SELDOM)
    return simulate_mix(trace, kinds, Schedule((parts,), f"static {parts}"), slo, seldom, initial)


def best_static_mix(
    trace: Trace, kinds: Sequence[Kind], slo: Slo, options: SimulationOptions
) -> tuple[Parts, MixResult] | None:
    """The cheapest mix that never changes and attains, known only in hindsight; None where none does.

    Takes for granted that more replicas of any kind attain no less. A mix that would cost no less than the best one
    known, with what there are nodes for, is not run.
    """
    search = _Search(trace, kinds, slo, options)
    for head in search.heads():
        search.fill_up(head)
    return search.best


@dataclass(slots=True)
class _Search:
    trace: Trace
    kinds: Sequence[Kind]
    slo: Slo
    options: SimulationOptions
    best: tuple[Parts, MixResult] | None = None
    runs: dict[Parts, MixResult] = field(default_factory=dict)

    def heads(self) -> Iterator[Parts]:
        """Replicas of all kinds but the last, cheap ones first; at least each one's base."""
        ranges = [range(kind.base, kind.most + 1) for kind in self.kinds[:-1]]
        yield from sorted(product(*ranges), key=self.price)

    def price(self, parts: Parts) -> float:
        """Dollars of this mix, or of its first kinds, all the time as far as there are nodes."""
        end = self.trace.duration - self.options.history
        return sum(kind.price * kind.standing(n, end) / 3600.0 for n, kind in zip(parts, self.kinds, strict=False))

    def fill_up(self, head: Parts) -> None:
        """The fewest of the last kind beside `head` with which it attains, if that is cheaper than the best."""
        last = self.kinds[-1]
        low, high = last.base - 1, last.most
        if self.best is not None:
            most = self.price(self.best[0])
            while high > low and self.price((*head, high)) >= most - 1e-9:
                high -= 1
        if high == low or not self.attains((*head, high)):
            return
        while high - low > 1:
            middle = (low + high) // 2
            if self.attains((*head, middle)):
                high = middle
            else:
                low = middle
        parts = (*head, high)
        self.best = parts, self.run(parts)

    def attains(self, parts: Parts) -> bool:
        """Whether a mix attains, without a run where a smaller one does or a larger one does not."""
        if not sum(parts):
            return False
        for known, run in self.runs.items():
            pairs = list(zip(known, parts, strict=True))
            if run.attains and all(a <= b for a, b in pairs):
                return True
            if not run.attains and all(a >= b for a, b in pairs):
                return False
        return self.run(parts).attains

    def run(self, parts: Parts) -> MixResult:
        """One run, made once."""
        if parts not in self.runs:
            self.runs[parts] = static_mix(self.trace, self.kinds, parts, self.slo, self.options)
        return self.runs[parts]
