"""Which requests of a window missed the SLO, and at what load they did."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from servingpool.decision.columns import TTFT_SUM, WAITED
from servingpool.decision.demand import Demand
from servingpool.decision.ledger import AT, KEPT_SECONDS, LOAD, SPAN, Ledger, Misses, Window, misses
from servingpool.decision.memory import Memory
from servingpool.decision.past_loads import PastLoads
from servingpool.decision.pool import Pool
from servingpool.decision.step_time import StepTime
from servingpool.decision.witnesses import SHAPE_WINDOW, late_first_tokens

LIFETIME_WINDOW = 60.0
OVERLOAD = 1.0
"""Beyond it queues grow without end. What is late then is blamed on the load without the queue: blamed on the load
with it, those on time before and after took the safe load from 0.66 to 0.37 behind one step of the ramp."""
RELIEVED = 0.5
"""Of an overload: at less than that most of those who are on time never met it. With those on time always counted at
the load of now, a fleet at its max whose queue never ends was taught that all of a load is safe at which half of it was
late. Of full replicas it is known that they are relieved below a load of 1."""


def missed(memory: Memory, pool: Pool, window: Window, *, output_tokens: bool = True) -> Misses:
    """Requests of a window and how many broke either bound, or that of the first token only.

    Only the two marginals are exposed. They are joined as if independent: it errs towards too many misses,
    by less than their product, where the same requests break both. A request counts when it gets its first token: that
    many end, if not in the same seconds. Of the first token the most pessimistic of three witnesses is believed.
    """
    slo = pool.slo
    ttft = late_first_tokens(memory, window, slo.time_to_first_token)
    bound = slo.time_per_output_token if output_tokens else None
    tpot = misses(window.finished(), memory.ledger.last(SHAPE_WINDOW).finished(), memory.edges[2:4], bound)
    late = ttft.late + tpot.late * (1.0 - ttft.share)
    return Misses(max(ttft.requests, late), late)


def offered_load(pool: Pool, demand: Demand, ledger: Ledger) -> float:
    """Load that the requests of the last tick meet.

    What arrives, and the queue, which must be worked off within the TTFT bound or is late.
    """
    bound = pool.slo.time_to_first_token
    queue = demand.queued * demand.work_per_request / bound if bound is not None else 0.0
    return ledger.load_of(demand.level + queue)


class Blame(NamedTuple):
    """The loads that the requests of one tick are held to have met."""

    late: float
    on_time: float


def blame(pool: Pool, step: StepTime, demand: Demand, ledger: Ledger, past: PastLoads) -> Blame:
    """The loads that those who are judged now are held to have met: the highest since the first of them came.

    A miss is reported up to a request's lifetime after the load that caused it. Without this the backlog of one
    overload teaches that light load misses too, and at light load nothing ever contradicts it. Who is on time after an
    overload that new replicas have relieved has hardly met it: most of them are the new replicas'.
    """
    decoding = _decoding(pool, step, demand)
    # Who ends now may have had the first token a whole answer ago, and have waited for it until then.
    reach = _back_to_the_queue(ledger, _waited(pool, ledger.last(LIFETIME_WINDOW + decoding)) + decoding)
    met = ledger.last(reach)
    highest = met.highest_offered()
    if highest <= OVERLOAD:
        return Blame(highest, highest)
    earlier = past.highest(float(ledger.rows[-1, AT]) - reach) if reach > KEPT_SECONDS else 0.0
    overload, now = max(met.highest_load(), earlier), ledger.load_of(demand.level)
    relieved = OVERLOAD if math.isfinite(step.batch) and overload > OVERLOAD else RELIEVED * overload
    return Blame(overload, now if now < relieved else overload)


def _back_to_the_queue(ledger: Ledger, reach: float) -> float:
    """Seconds back to where the queue began that stood within `reach` seconds; `reach` where none did.

    What could not be worked off in time is a queue. A tick of which nothing is known ends none.
    """
    at, load = ledger.rows[:, AT], ledger.rows[:, LOAD]
    queued = np.flatnonzero((load > OVERLOAD) & (at > at[-1] - reach))
    if not len(queued):
        return reach
    within = np.flatnonzero(load[: queued[-1]] <= OVERLOAD)
    begin = within[-1] + 1 if len(within) else 0
    return max(reach, float(ledger.rows[begin:, SPAN].sum()))


def _waited(pool: Pool, recent: Window) -> float:
    """Seconds that the requests whose first token came in a window may have waited for it.

    The first token of a request that queued for a minute tells of the load of a minute ago. Twice the mean wait,
    since waits are spread from none to the longest, and the mean of those that were late: while new replicas answer at
    once, the queue of an old one is told by a few, and blamed on the light load of now it taught a knee at 0.24.
    """
    bound = pool.slo.time_to_first_token
    judged = recent.first_tokens().total
    longest = max(recent.total(TTFT_SUM), recent.total(WAITED))  # a histogram may leave the queue out
    waited = 2.0 * longest / judged if judged > 0.0 else 0.0
    late = recent.first_tokens().late
    if bound is not None and late >= 1.0:
        on_time = (judged - late) * bound / 2.0
        waited = max(waited, (recent.total(TTFT_SUM) - on_time) / late)
    return max(waited, bound or 0.0)


def _decoding(pool: Pool, step: StepTime, demand: Demand) -> float:
    """Seconds from the first token to the last."""
    bound = pool.slo.time_per_output_token
    return demand.steps * step.tokens * (bound if bound is not None else 2.0 * step.between_tokens)
