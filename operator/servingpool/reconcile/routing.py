"""Whether the gateway's routing fits replicas of unequal speed: the RoutingFollowsSpeed condition.

Least-loaded routing gives each replica about as many running requests, so a fast one, which finishes sooner, serves
more. Under round robin each gets the same share: slow replicas hold more requests, and the fleet can do no more than
its number of replicas times its slowest. The slope of log(requests) over log(speed) tells the two apart.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from servingpool.api.conditions import Reason
from servingpool.api.duration import brief
from servingpool.catalogue.notes import Note
from servingpool.decision.observation import Observation, Unknown
from servingpool.decision.parts import Part

MEMORY = 1800.0
"""Seconds after which an observation counts 1/e as much."""
LEAST_SEEN = 600.0
"""Seconds that replicas of two targets must have served side by side. The number of running requests is noisy."""
WARM = 60.0
"""Seconds after which a Ready replica has its share: least-loaded routing floods a new one."""
LEAST_REQUESTS = 2.0
"""Requests a replica, running and waiting. Of fewer, chance decides where they are."""
LEAST_DIFFERENCE = 0.2
"""Relative difference of two speeds from which on routing matters."""
BOUNDARY = -0.5
"""Slope below which it is round robin. Its own slope is -1 or less, that of least-loaded routing about 0."""
BY_SPEED = 0.5
"""Slope above which fast replicas hold about as much more as they serve."""
HYSTERESIS = 0.15
"""How far beyond the boundary the slope must be for round robin, and for its end. While few requests run, ties make
least-loaded routing look a little like it: in the simulator it had -0.02 to -0.6, round robin -2 to -3."""
FEWEST = 0.05
"""Requests that count for a target that gets none: a logarithm needs some."""


class TargetLoad(NamedTuple):
    """Requests in the engines of one target, as seen."""

    target: str
    """Its name."""
    requests: float
    """Replica-seconds times requests in the engine, running and waiting; those of long ago count less."""
    replicas: float
    """Replica-seconds of warm replicas whose samples tell their requests, likewise."""

    @property
    def each(self) -> float:
        """Mean number of requests in a replica's engine."""
        return self.requests / self.replicas


@dataclass(frozen=True, slots=True)
class Spread:
    """How requests were spread over the targets of a pool in the last half hour or so."""

    at: float | None = None
    """Unix time in seconds of the last observation."""
    seconds: float = 0.0
    """For which replicas of two targets served side by side; those of long ago count less."""
    loads: tuple[TargetLoad, ...] = ()

    def seen(self, observation: Observation, now: float, standing: Container[str] = ()) -> Spread:
        """After another observation. What replicas of one target alone show is no comparison, and does not count.

        Nor do the gauges of those that are `standing` still.
        """
        if not observation.targets:
            return NOT_SEEN
        requests, replicas = _in_engines(observation, standing)
        elapsed = 0.0 if self.at is None else now - self.at
        if len(requests) < 2 or not 0.0 < elapsed <= LEAST_SEEN:
            return Spread(now, self.seconds * _kept(elapsed), tuple(_aged(one, elapsed) for one in self.loads))
        before = {one.target: _aged(one, elapsed) for one in self.loads}
        loads = []
        for order in observation.targets:
            old = before.get(order.target, TargetLoad(order.target, 0.0, 0.0))
            more, warm = requests.get(order.target, 0.0), replicas.get(order.target, 0.0)
            loads.append(TargetLoad(old.target, old.requests + more * elapsed, old.replicas + warm * elapsed))
        return Spread(now, self.seconds * _kept(elapsed) + elapsed, tuple(loads))


NOT_SEEN = Spread()


def _kept(elapsed: float) -> float:
    return math.exp(-max(0.0, elapsed) / MEMORY)


def _aged(load: TargetLoad, elapsed: float) -> TargetLoad:
    return load._replace(requests=load.requests * _kept(elapsed), replicas=load.replicas * _kept(elapsed))


def _in_engines(observation: Observation, standing: Container[str]) -> tuple[dict[str, float], dict[str, float]]:
    """By target, the requests in the engines of warm replicas that tell them, and the number of these replicas."""
    if isinstance(observation.metrics, Unknown):
        return {}, {}
    warm = {one.name: one.target for one in observation.ready if one.ready_for is None or one.ready_for >= WARM}
    requests: dict[str, float] = {}
    replicas: dict[str, float] = {}
    for sample in observation.metrics:
        target = warm.get(sample.replica)
        if target is None or isinstance(sample.running, Unknown) or sample.replica in standing:
            continue
        waiting = 0.0 if isinstance(sample.waiting, Unknown) else sample.waiting
        requests[target] = requests.get(target, 0.0) + sample.running + waiting
        replicas[target] = replicas.get(target, 0.0) + 1.0
    return requests, replicas


def judge_routing(
    parts: Sequence[Part], reference: str, spread: Spread, before: str | None = None
) -> tuple[Reason, str] | None:
    """Reason and message; None for a pool of one target. `before`: the reason that stands."""
    if not parts:
        return None
    speeds = {one.target: one.speed for one in parts if not isinstance(one.speed, Unknown) and one.speed > 0.0}
    if len(speeds) < 2:
        return Reason.ROUTING_UNKNOWN, Reason.ROUTING_UNKNOWN.message(detail=Note.FEW_SPEEDS.message())
    if max(speeds.values()) < (1.0 + LEAST_DIFFERENCE) * min(speeds.values()):
        return Reason.SIMILAR_SPEEDS, Reason.SIMILAR_SPEEDS.message(least=LEAST_DIFFERENCE)
    loads = [one for one in spread.loads if one.target in speeds and one.replicas > 0.0]
    compared = [speeds[one.target] for one in loads]
    detail = None
    if spread.seconds < LEAST_SEEN or not compared or max(compared) < (1.0 + LEAST_DIFFERENCE) * min(compared):
        seen, wanted = brief(min(spread.seconds, LEAST_SEEN)), brief(LEAST_SEEN)
        detail = Note.SELDOM_SIDE_BY_SIDE.message(seen=seen, wanted=wanted)
    elif sum(one.requests for one in loads) < LEAST_REQUESTS * sum(one.replicas for one in loads):
        detail = Note.FEW_IN_ENGINES.message(least=LEAST_REQUESTS)
    if detail is not None:
        return Reason.ROUTING_UNKNOWN, Reason.ROUTING_UNKNOWN.message(detail=detail)
    return _judged(parts, reference, speeds, loads, before)


def _judged(
    parts: Sequence[Part], reference: str, speeds: Mapping[str, float], loads: Sequence[TargetLoad], before: str | None
) -> tuple[Reason, str]:
    found = slope(loads, speeds)
    held = ", ".join(f"{one.each:.1f} in a replica of {one.target}" for one in loads)
    if found >= BOUNDARY + (HYSTERESIS if before == Reason.ROUND_ROBIN else -HYSTERESIS):
        cost = Note.FULL_USE.message() if found > BY_SPEED else Note.SLOW_FULL_FIRST.message()
        return Reason.LEAST_LOADED, Reason.LEAST_LOADED.message(held=held, cost=cost)
    ready = {one.target: one.ready for one in parts if one.ready and one.target in speeds}
    slowest = min((speeds[name] for name in ready), default=0.0)
    said = Reason.ROUND_ROBIN.message(
        held=held,
        ready=sum(ready.values()),
        usable=sum(ready.values()) * slowest,
        whole=sum(count * speeds[name] for name, count in ready.items()),
        reference=reference,
    )
    return Reason.ROUND_ROBIN, said


def slope(loads: Sequence[TargetLoad], speeds: Mapping[str, float]) -> float:
    """By least squares, of log(requests in a replica) over log(speed), each target weighted by its replica-seconds."""
    weights = [one.replicas for one in loads]
    x = [math.log(speeds[one.target]) for one in loads]
    y = [math.log(max(FEWEST, one.each)) for one in loads]
    whole = math.fsum(weights)
    mean_x = math.fsum(w * each for w, each in zip(weights, x, strict=True)) / whole
    mean_y = math.fsum(w * each for w, each in zip(weights, y, strict=True)) / whole
    spread = math.fsum(w * (each - mean_x) ** 2 for w, each in zip(weights, x, strict=True))
    return math.fsum(w * (a - mean_x) * (b - mean_y) for w, a, b in zip(weights, x, y, strict=True)) / spread
