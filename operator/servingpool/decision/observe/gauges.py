"""A gateway's queue that is not believed.

One of the same length for minutes in which nothing came and nothing was served is left behind by requests that gave up.
One that stands beside Ready replicas without any work for a minute orders one replica, as for one that hangs: if that
gets no work either, others would not. Its requests wait all the same, so they are late, and nothing is removed.
One that is far longer than what can have come is not known until it moves on, as with any queue (`confirm`). One that
stays as long as it is while others begin, and the engines have room, is parked: 30 requests that a gauge showed for an
hour took 3 replicas to 13. Two minutes after they last had room it counts again.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from servingpool.decision.observation import Observation, Reading, Unknown
from servingpool.decision.observe.columns import WORK, Column
from servingpool.decision.observe.confirm import FAR, SLACK, Level
from servingpool.decision.observe.plausible import MOST_REQUESTS
from servingpool.decision.observe.window import KEPT_SECONDS, SampleWindow, Slice
from servingpool.decision.params import MINUTE
from servingpool.decision.pool import Pool
from servingpool.decision.words import clock


class GatewayGauge(NamedTuple):
    """The gateway's queue and arrivals when they were last seen."""

    level: Level
    arrivals: Reading
    """Arrivals that the gateway had counted by then."""
    moved_at: float
    """Unix time in seconds of the scrape at which something came, was served, or changed last."""
    served_at: float
    """Unix time in seconds of the last scrape before which a Ready replica had work, or may have, or nothing waited."""
    room_at: float = -math.inf
    """Unix time in seconds of the last scrape at which requests began at engines with room."""

    def stands_still(self, after: float) -> bool:
        """Whether nothing has moved for `after` seconds while requests are shown."""
        return self.level.shown > 0.0 and self.level.at - self.moved_at >= after

    def unserved(self, pool: Pool) -> bool:
        """Whether the Ready replicas had no work for a minute, and the TTFT bound, while believed requests wait."""
        rests = self.level.at - self.served_at >= max(MINUTE, pool.slo.queue_bound)
        return rests and not self.stands_still(pool.params.stands_still)


def with_believed_queue(
    observation: Observation, before: GatewayGauge | None, window: SampleWindow, after: float
) -> tuple[Observation, GatewayGauge | None]:
    """The observation with the gateway's queue as far as it is believed, and the gauge to remember.

    `window`: without this observation; `after`: seconds for which nothing moves, before a queue is not believed. While
    no replica is ready nothing can move.
    """
    gateway = observation.gateway
    queue, arrivals, at = gateway.queue, gateway.arrivals, gateway.scraped_at
    at = max([one.scraped_at for one in observation.samples], default=None) if at is None else at
    if isinstance(queue, Unknown) or at is None:
        return observation, before
    if before is None:
        return observation, GatewayGauge(Level(at, at, queue, queue, queue), arrivals, at, at)
    level, seconds = before.level, at - before.level.at
    if seconds > 0.0:
        rate = window.last(KEPT_SECONDS).rate(Column.BEGUN) or 0.0
        come = min(float(arrivals) - float(before.arrivals), MOST_REQUESTS * seconds * max(1, len(observation.ready)))
        # Arrivals that are not known are NaN, which is no greater.
        most = (0.0 if level.jumped else level.shown) + max(FAR * max(SLACK, rate * seconds), come)
        moved = queue != level.shown or arrivals != before.arrivals
        # Once it is known to stand still, it does so without a replica too, until it changes.
        moved |= window.worked if observation.ready else not before.stands_still(after)
        # A request that begins while the engines have room has not waited in this queue, so the queue is parked.
        passed = rate * (at - level.since) >= SLACK and _begin_with_room(observation, window.last(MINUTE))
        room_at = at if passed else before.room_at
        if at - room_at > 2.0 * MINUTE:
            level = level._replace(begun=0.0, parked=0.0)
        level = level.next(at, queue, most, begun=rate * seconds if passed else 0.0)
        last = Slice(window.rows[-1:])  # a tick without a new sample tells no work, and what runs as before
        rest = last.highest(Column.RUNNING) == 0.0 and not any(last.sums[figure] > 0.0 for figure in WORK)
        served_at = before.served_at if rest and queue > 0.0 and observation.ready else at
        before = GatewayGauge(level, arrivals, at if moved else before.moved_at, served_at, room_at)
    believed = 0.0 if before.stands_still(after) else before.level.believed
    return replace(observation, gateway=replace(gateway, queue=believed)), before


def _begin_with_room(observation: Observation, recent: Slice) -> bool:
    """Whether requests begin, no engine has a queue, and batches vary: full ones stay full while requests wait."""
    waiting = [one.waiting for one in observation.samples if not isinstance(one.waiting, Unknown)]
    if recent.sums[Column.BEGUN] <= 0.0 or not waiting or any(waiting):
        return False
    running = recent.known(Column.RUNNING)
    most = float(running.max(initial=0.0))
    return most - float(running.min(initial=math.inf)) > math.sqrt(most)


def doubted_queue(gauge: GatewayGauge, pool: Pool) -> str | None:
    """Sentence on a gateway's queue that orders no replica; None where it does."""
    if gauge.stands_still(pool.params.stands_still):
        said = f"{gauge.level.shown:.0f} requests in the gateway's queue since {clock(gauge.moved_at)}"
        return f"{said}, and none comes or is served: not believed"
    if gauge.unserved(pool):
        said = f"gateway {pool.gateway} holds {gauge.level.shown:.0f} requests, and the Ready replicas"
        return f"{said} have had no work since {clock(gauge.served_at)}: at most one more is ordered"
    if gauge.level.parked:
        return f"gateway {pool.gateway}: {gauge.level.told()}"
    believed = gauge.level.believed
    return f"the gateway's queue: {believed.reason}" if isinstance(believed, Unknown) else None
