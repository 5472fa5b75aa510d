"""What the record proves: GPUs under the budget, what each pool's users got, when the budget bound, what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from fleet_run.record import ClusterObservation, PoolObservation, Record
from fleet_run.scale_writes import over
from fleet_run.scene import GPUS, POOLS, TARGETS, Pool

PIECE = 300.0
"""Seconds of the pieces whose worst one is shown."""
FEW = 30
"""Requests of a piece below which its attainment says little."""

Span = tuple[float, float]
"""From when to when, Unix time in seconds."""


@dataclass(frozen=True)
class Result:
    """What a pool's users got, and what it held."""

    pool: Pool
    sent: int
    ended: int
    rejected: int
    lost: int
    attainment: float | None
    """Share of the requests that ended; None where none did."""
    bound_ended: int
    """Requests that ended while the budget bound."""
    bound_attainment: float | None
    limited_minutes: float
    """In which the budget kept this pool from GPUs that it wanted."""
    gpu_hours: float
    """Loading and draining ones too."""
    most_gpus: int
    worst: tuple[float, float] | None
    """Minute at which the five minutes with the lowest attainment begin, and that attainment."""


def results(record: Record) -> list[Result]:
    """One for each pool."""
    return [_result(record, pool) for pool in POOLS]


def _result(record: Record, pool: Pool) -> Result:
    steps = list(pairwise(record.observations))
    name = pool.name
    first, last = record.observations[0].pools[name], record.observations[-1].pools[name]
    in_bound = [(a.pools[name], b.pools[name]) for a, b in steps if a.bound]
    bound_ended = sum(b.ended - a.ended for a, b in in_bound)
    bound_met = sum(b.attained - a.attained for a, b in in_bound)
    return Result(
        pool,
        sent=last.arrived - first.arrived,
        ended=last.ended - first.ended,
        rejected=last.rejected - first.rejected,
        lost=last.lost - first.lost,
        attainment=_attainment(first, last),
        bound_ended=bound_ended,
        bound_attainment=bound_met / bound_ended if bound_ended else None,
        limited_minutes=sum(b.at - a.at for a, b in steps if a.pools[name].limited) / 60.0,
        gpu_hours=sum(gpus_of(a, pool) * (b.at - a.at) for a, b in steps) / 3600.0,
        most_gpus=max(gpus_of(one, pool) for one in record.observations),
        worst=_worst(record, name),
    )


def gpus_of(observation: ClusterObservation, pool: Pool) -> int:
    """GPUs that a pool holds, as the budget counts them; a replica has one."""
    return sum(observation.targets[one.name].held for one in pool.targets)


def _attainment(before: PoolObservation, after: PoolObservation) -> float | None:
    ended = after.ended - before.ended
    return (after.attained - before.attained) / ended if ended else None


def _worst(record: Record, name: str) -> tuple[float, float] | None:
    found = []
    begin = record.begin
    while begin < record.end:
        before, after = record.observation(begin).pools[name], record.observation(begin + PIECE).pools[name]
        attainment = _attainment(before, after)
        if attainment is not None and after.ended - before.ended >= FEW:
            found.append((attainment, record.minute(begin)))
        begin += PIECE
    return min(found)[::-1] if found else None


def spans(record: Record, holds: Callable[[ClusterObservation], bool]) -> list[Span]:
    """When it held, from the observation that showed it to the one that showed it no more."""
    found: list[Span] = []
    for before, after in pairwise(record.observations):
        if holds(before):
            begin = found.pop()[0] if found and found[-1][1] == before.at else before.at
            found.append((begin, after.at))
    return found


def bound(record: Record) -> list[Span]:
    """When the budget kept a pool from GPUs that it wanted."""
    return spans(record, lambda observation: observation.bound)


def at_zero(record: Record) -> list[Span]:
    """When a pool that goes to zero had no replica ordered."""
    names = [one.name for pool in POOLS if pool.idle_after is not None for one in pool.targets]
    return spans(record, lambda observation: not any(observation.targets[name].ordered for name in names))


def without_node(record: Record) -> dict[str, list[Span]]:
    """When a pod had no node (yet), by target; targets whose pods always had one are left out."""
    found = {name: spans(record, partial(_lacks_node, name)) for name in TARGETS}
    return {name: when for name, when in found.items() if when}


def _lacks_node(name: str, observation: ClusterObservation) -> bool:
    return observation.targets[name].without_node > 0


def faults(record: Record) -> Iterator[str]:
    """Each thing that must not have happened, as a sentence."""
    for one in over(record.writes, GPUS):
        yield (
            f"In minute {record.minute(one.at):.1f} a write of {one.user} set {one.target} from {one.before} to "
            f"{one.after} replicas, and {one.gpus} GPUs were ordered."
        )
    seen = max(observation.gpus for observation in record.observations)
    if seen > GPUS:
        yield f"{seen} GPUs were held in one observation."
    for result in results(record):
        if result.lost:
            yield f"{result.lost} requests of {result.pool.name} were lost."
        if result.rejected:
            yield f"{result.rejected} requests of {result.pool.name} were rejected."
    if not at_zero(record):
        yield "No pool went to zero."
    if not bound(record):
        yield "The budget never bound."
    yield from record.faults


def misses(record: Record) -> Iterator[str]:
    """Each objective that was not held, as a sentence."""
    for result in results(record):
        if result.attainment is not None and result.attainment < result.pool.slo.attainment:
            yield (
                f"{result.pool.name} attained {100 * result.attainment:.1f}%, and its objective is "
                f"{100 * result.pool.slo.attainment:g}%."
            )
