"""A gateway's queue that is not believed.

One of the same length for minutes in which nothing came and nothing was served is left behind by requests that gave up.
One that is far longer than the scrape before, and than what can have come since, is believed by the next one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from servingpool.decision.observation import NOT_EXPOSED, Observation, Reading, ReplicaMetrics, Unknown
from servingpool.decision.observe.plausible import FAR, SLACK
from servingpool.decision.observe.window import SampleWindow
from servingpool.decision.words import clock


class GatewayGauge(NamedTuple):
    """The gateway's queue and arrivals when they were last seen."""

    at: float
    """Unix time in seconds of the scrape."""
    queue: float
    """Requests that the gauge showed and that were believed."""
    arrivals: Reading
    """Arrivals that the gateway had counted by then."""
    moved_at: float
    """Unix time in seconds of the scrape at which something came, was served, or changed last."""
    jumped: Reading = NOT_EXPOSED
    """Requests that the gauge showed and that were not believed."""

    def stands_still(self, after: float) -> bool:
        """Whether nothing has moved for `after` seconds while requests are shown."""
        return self.queue > 0.0 and self.at - self.moved_at >= after


def with_believed_queue(
    observation: Observation, before: GatewayGauge | None, window: SampleWindow, after: float
) -> tuple[Observation, GatewayGauge | None]:
    """The observation with the gateway's queue as far as it is believed, and the gauge to remember.

    `window`: without this observation; `after`: seconds for which nothing moves, before a queue is not believed. While
    no replica is ready nothing can move.
    """
    gateway = observation.gateway
    queue, at = gateway.queue, gateway.scraped_at
    if isinstance(queue, Unknown):
        return observation, before
    at = max((one.scraped_at for one in _samples(observation)), default=None) if at is None else at
    if at is None:
        return observation, before
    if before is None:
        return observation, GatewayGauge(at, queue, gateway.arrivals, at)
    if at > before.at:
        if _far(queue, before, window, at - before.at):
            before = before._replace(at=at, jumped=queue)
            return _with_queue(observation, believed_queue(queue, before, after)), before
        moved = queue != before.queue or gateway.arrivals != before.arrivals
        # Once it is known to stand still, it does so without a replica too, until it changes.
        if observation.ready or not before.stands_still(after):
            moved = moved or not observation.ready or window.worked
        before = GatewayGauge(at, queue, gateway.arrivals, at if moved else before.moved_at)
    return _with_queue(observation, believed_queue(queue, before, after)), before


def believed_queue(queue: Reading, gauge: GatewayGauge | None, after: float) -> Reading:
    """The gateway's `queue` as far as it is believed."""
    if gauge is None or isinstance(queue, Unknown):
        return queue
    if not isinstance(gauge.jumped, Unknown):
        return Unknown(_jumped(queue))
    return 0.0 if gauge.stands_still(after) else queue


def doubted_queue(gauge: GatewayGauge | None, after: float) -> str | None:
    """Sentence on a gateway's queue that is not believed; None where it is believed."""
    if gauge is None:
        return None
    if not isinstance(gauge.jumped, Unknown):
        return _jumped(gauge.jumped)
    if not gauge.stands_still(after):
        return None
    said = f"{gauge.queue:.0f} requests in the gateway's queue since {clock(gauge.moved_at)}"
    return f"{said}, and none comes or is served: not believed"


def _far(queue: float, before: GatewayGauge, window: SampleWindow, seconds: float) -> bool:
    """Whether the queue is far longer than before and than can have come since, and the last scrape did not say so."""
    if queue <= before.queue + FAR * SLACK or (not isinstance(before.jumped, Unknown) and queue >= 0.5 * before.jumped):
        return False
    return queue > before.queue + FAR * window.arriving * seconds


def _jumped(queue: float) -> str:
    return f"{queue:.3g} requests in the gateway's queue after one scrape is more than can have come"


def _samples(observation: Observation) -> tuple[ReplicaMetrics, ...]:
    return () if isinstance(observation.metrics, Unknown) else observation.metrics


def _with_queue(observation: Observation, queue: Reading) -> Observation:
    if queue is observation.gateway.queue:
        return observation
    return replace(observation, gateway=replace(observation.gateway, queue=queue))
