"""At which load the requests that are counted now missed the SLO, or did not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from servingpool.decision.counters import WAITED
from servingpool.decision.pool import Pool
from servingpool.decision.samples import BEGUN, TTFT_SUM
from servingpool.decision.step_time import StepTime
from servingpool.decision.window import AT, KEPT_SECONDS, LOAD, SPAN, Demand, SampleWindow, Slice

LIFETIME_WINDOW = 60.0
"""Seconds over which waits are averaged, besides the time that decoding takes."""
OVERLOAD = 1.0
"""The load beyond which queues grow without end. Misses beyond it are attributed to the load without the queue: with
it, those on time before and after took the safe load from 0.66 to 0.37 after one step of the ramp."""


class LoadAttribution(NamedTuple):
    """The loads that the requests counted in one tick have met."""

    late: float
    on_time: float


def offered_load(pool: Pool, demand: Demand, window: SampleWindow) -> float:
    """Load that the requests of the last tick meet: arrivals, and the queue, to be drained within the TTFT bound."""
    bound = pool.slo.time_to_first_token
    queue = demand.queued * demand.work_per_request / bound if bound is not None else 0.0
    return window.load_of(demand.level + queue)


def attribute_load(
    pool: Pool, step: StepTime, demand: Demand, window: SampleWindow, highest_before: Callable[[float], float]
) -> LoadAttribution:
    """The highest load since the first of the requests that are counted now arrived.

    A miss is reported up to a request's lifetime after the load that caused it. Without this the queue of one overload
    teaches that light load misses too, and at light load nothing ever contradicts it. Requests on time after an
    overload that new replicas have relieved have hardly met it: most of them are the new replicas'.

    `highest_before` gives the highest load since a Unix time, where the window does not reach back so far.
    """
    decoding = _decoding(pool, step, demand)
    # A request that ends now may have had its first token a whole answer ago, and have waited for it until then.
    reach = _back_to_the_queue(window, _waited(pool, window.last(LIFETIME_WINDOW + decoding)) + decoding)
    met = window.last(reach)
    highest = met.highest_offered()
    if highest <= OVERLOAD:
        return LoadAttribution(highest, highest)
    earlier = highest_before(float(window.rows[-1, AT]) - reach) if reach > KEPT_SECONDS else 0.0
    overload, now = max(met.highest_load(), earlier), window.load_of(demand.level)
    # Full replicas are known to be relieved below a load of 1.
    relieved = OVERLOAD if math.isfinite(step.batch) and overload > OVERLOAD else pool.params.relieved * overload
    return LoadAttribution(overload, now if now < relieved else overload)


def _back_to_the_queue(window: SampleWindow, reach: float) -> float:
    """Seconds back to where the queue began that stood within `reach` seconds; `reach` where none did.

    A tick of which nothing is known ends no queue.
    """
    at, load = window.rows[:, AT], window.rows[:, LOAD]
    queued = np.flatnonzero((load > OVERLOAD) & (at > at[-1] - reach))
    if not len(queued):
        return reach
    within = np.flatnonzero(load[: queued[-1]] <= OVERLOAD)
    begin = within[-1] + 1 if len(within) else 0
    return max(reach, float(window.rows[begin:, SPAN].sum()))


def _waited(pool: Pool, recent: Slice) -> float:
    """Seconds that the requests whose first token came in a window may have waited for it.

    Twice the mean wait, since waits are spread from none to the longest, and at least the mean of those that were late:
    while new replicas answer at once, the queue of an old one shows in a few.
    """
    bound = pool.slo.time_to_first_token
    judged = recent.first_tokens.total
    by_histogram = recent.total(TTFT_SUM) / max(judged, 1.0)  # it may exclude the queue
    by_queue = recent.total(WAITED) / max(recent.total(BEGUN), 1.0)
    waited = 2.0 * max(by_histogram, by_queue)
    late = recent.first_tokens.late
    if bound is not None and late >= 1.0:
        on_time = (judged - late) * bound / 2.0
        waited = max(waited, (recent.total(TTFT_SUM) - on_time) / late)
    return max(waited, bound or 0.0)


def _decoding(pool: Pool, step: StepTime, demand: Demand) -> float:
    """Seconds from the first token to the last."""
    bound = pool.slo.time_per_output_token
    return demand.steps * step.tokens * (bound if bound is not None else 2.0 * step.between_tokens)
