"""The share of requests that misses the SLO at a given load, learned, not assumed.

The knee where latency turns vertical moves with model, GPU, prompts, burstiness and router, so it is inferred: a grid
posterior over a logistic in log load with three unknowns,

    miss(load) = floor + (1 - floor) / (1 + (load / knee) ** -steepness)

The floor is needed: some requests miss at any fleet size (prompts whose prefill alone outlasts the TTFT bound). Without
it, their misses pull the knee towards zero and the fleet explodes. Evidence is kept as counts per bin of load: small
enough for the status of the resource, and a person can read it ("at load 0.6, 300 requests, 2% late"). Each miss is
attributed to the highest load since its request came; physics tells where the knee can be.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from servingpool.decision.engine import Rates, StepTime
from servingpool.decision.observe.columns import DEMAND, OFFERED, Column
from servingpool.decision.observe.latency import Misses
from servingpool.decision.observe.window import KEPT_SECONDS, NOTHING, Demand, SampleWindow, Slice, loads
from servingpool.decision.params import MINUTE, Params
from servingpool.decision.pool import Pool

Array = NDArray[np.float64]

BINS = np.geomspace(0.03, 3.0, 40)
"""Loads at which evidence is kept and the curve is tabulated: 12% apart."""
LOG_BINS = np.log(BINS)
LEAST_LOAD, MOST_LOAD = BINS[[0, -1]].tolist()
WIDTH = float(np.diff(LOG_BINS).mean())
KNEES = np.geomspace(0.06, 1.2, 32)
LOG_KNEES = np.log(KNEES)
STEEPNESS = np.array([2.5, 5.0, 10.0, 20.0])
FLOORS = np.array([0.0005, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.25, 0.36, 0.48, 0.6, 0.7, 0.8, 0.88, 0.95])
UNPROVEN = 1000.0
"""Logarithm of the odds against a floor, for each e times that it exceeds the misses at light load, and against a knee
beyond a full replica: no number of requests says otherwise."""
LIGHT, ENOUGH_LIGHT = 2 / 3, 4.0
"""Light load is at most this share of the heaviest that was met; and times `enough` requests that must have met it. At
a half an outage of ten minutes, which misses at any load, kept a fleet at 12 instead of 8 replicas for two hours."""
DOUBT = 90.0
"""Seconds after which evidence counts 1/e while the engine is not the one that the evidence is of."""
LOG_UNLIKELY = math.log(NOTHING)
"""Logarithm of a cell's weight over the best cell's, up to which the cell is left aside."""
BEYOND_PHYSICS = 12.0
"""Logarithm of the odds against a knee beyond physics: hundreds of requests on time may outweigh them."""


class Shape(NamedTuple):
    """Prior of knee and steepness."""

    knee_spread: float
    """Standard deviation of the knee, in log load."""
    steepness: float
    steepness_spread: float
    """Standard deviation of the logarithm of the steepness."""


ESTIMATED = Shape(0.35, 8.0, 0.7)
"""Prior where the load of a full replica follows from step times alone."""
OBSERVED = Shape(0.2, 16.0, 0.4)
"""Prior where replicas were seen full: requests wait only while all are, so the knee is close to that, and steep."""


class _Grid(NamedTuple):
    """The grid, shared by all pools. 2,048 cells: knees ascend, each with all steepnesses, each with all floors."""

    floor: Array
    log_steepness: Array
    """(knees x steepnesses,)"""
    log_prior_of_floor: Array
    """(floors,)"""
    miss: Array
    log_miss: Array
    """(bins, cells): a row per bin, so that bins without late requests are never touched."""
    log_hit: Array
    """(knees x steepnesses, bins), with the floor's part apart: a hit is (1 - floor) (1 - rise)."""
    log_hit_of_floor: Array
    """(floors,)"""


@cache
def _grid() -> _Grid:
    knee, steep = (axis.ravel() for axis in np.meshgrid(KNEES, STEEPNESS, indexing="ij"))
    rise = 1.0 / (1.0 + (BINS / knee[:, None]) ** -steep[:, None])
    share = FLOORS[:, None] + (1.0 - FLOORS[:, None]) * rise[:, None, :]
    miss = np.clip(share.reshape(-1, len(BINS)), 1e-9, 1.0)
    return _Grid(
        floor=np.tile(FLOORS, len(rise)),
        log_steepness=np.log(steep),
        log_prior_of_floor=np.linspace(0.0, -0.8 * (len(FLOORS) - 1), len(FLOORS)),
        miss=miss,
        log_miss=np.ascontiguousarray(np.log(miss).T),
        log_hit=np.log(np.clip(1.0 - rise, 1e-9, 1.0)),
        log_hit_of_floor=np.log(1.0 - FLOORS),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """The posterior mean curve, ready to be read."""

    miss: Array
    """Expected share of misses at each of BINS, non-decreasing."""
    floor: float
    """Expected share that misses at any fleet size."""
    limit: float
    """The load beyond which queues grow without end."""
    aftermath: float
    """Misses after an overload for each in it: a fleet that was short by x drains the queue with what it has to spare,
    about a quarter, so the requests of the next 4x are late too."""

    def cost(self, load: Array) -> Array:
        """Share of misses at each load, with the misses until an overload's queue is gone: may exceed 1."""
        return self.at(load) + self.aftermath * np.maximum(0.0, load / self.limit - 1.0)

    def at(self, load: Array) -> Array:
        """Expected share of misses at each load; flat beyond the ends of the table."""
        return np.interp(np.log(np.maximum(load, 1e-6)), LOG_BINS, self.miss)

    def load_for(self, share: float) -> float:
        """The highest load with at most this share of misses; the table's lowest where there is none."""
        above = int(self.miss.searchsorted(share, "right"))
        if above == 0:
            return float(BINS[0])
        if above == len(BINS):
            return float(BINS[-1])
        low, high = self.miss[above - 1], self.miss[above]
        part = (share - low) / max(high - low, 1e-12)
        return float(np.exp(LOG_BINS[above - 1] + part * (LOG_BINS[above] - LOG_BINS[above - 1])))


def _bin(load: float) -> int:
    return round(math.log(min(max(load, LEAST_LOAD), MOST_LOAD) / LEAST_LOAD) / WIDTH)


@dataclass(frozen=True, slots=True)
class MissCurve:
    """Evidence per bin of load: effective requests and how many of them were late."""

    requests: tuple[float, ...] = (0.0,) * len(BINS)
    late: tuple[float, ...] = (0.0,) * len(BINS)

    def update(self, at: LoadAttribution, misses: Misses, *, elapsed: float, params: Params) -> MissCurve:
        """Add a tick's requests, at the loads that they met. `elapsed` seconds of forgetting are applied first."""
        keep, requests = math.exp(-elapsed / params.evidence_memory), misses.requests
        counted, missed = ([count * keep for count in counts] for counts in (self.requests, self.late))
        if requests > 0.0:
            weight, late = min(1.0, params.tick_weight / requests), min(misses.late, requests)
            index = _bin(at.late)
            counted[index] += late * weight
            missed[index] += late * weight
            counted[_bin(at.on_time)] += (requests - late) * weight
        return MissCurve(tuple(counted), tuple(missed))

    def doubted(self, elapsed: float) -> MissCurve:
        """The evidence after `elapsed` seconds with another engine than the evidence is of."""
        keep = math.exp(-elapsed / DOUBT)
        return MissCurve(*(tuple([count * keep for count in counts]) for counts in (self.requests, self.late)))

    def floor_proven(self, enough: float, allowed: float) -> float:
        """The highest floor that may be believed: `allowed`, or the misses at light load, up to the next of FLOORS."""
        shown = self.late_at_light_load(enough)
        return allowed if shown <= allowed else float(FLOORS[min(int(FLOORS.searchsorted(shown)), len(FLOORS) - 1)])

    def late_at_light_load(self, enough: float) -> float:
        """Share late of the requests at the lightest load; 0 where too few met a load that is LIGHT.

        Only light load tells what misses at any fleet size from what falls as the load does.
        """
        below = list(accumulate(self.requests))
        lightest = bisect_left(below, ENOUGH_LIGHT * enough)
        if lightest == len(below) or BINS[lightest] > LIGHT * BINS[bisect_left(below, below[-1] - enough)]:
            return 0.0
        return sum(self.late[: lightest + 1]) / below[lightest]

    def in_other_units(self, ratio: float) -> MissCurve:
        """The same evidence where what was a load of 1 is one of `ratio`.

        What lies beyond the table is dropped, for its outermost bins held all that was lighter or heavier already; and
        what is beyond a full replica then, for nobody knew that it was.
        """
        bins = np.arange(1, len(BINS) - 1)
        at = np.arange(len(BINS)) - math.log(ratio) / WIDTH
        moved = (np.interp(at, bins, counts[1:-1], left=0.0, right=0.0) for counts in (self.requests, self.late))
        return MissCurve(*(tuple((counts * (BINS <= 1.0)).tolist()) for counts in moved))

    def posterior(
        self, *, expected_knee: float, highest_knee: float, shape: Shape, params: Params, most_floor: float = 1.0
    ) -> Curve:
        """The curve, given where physics expects the knee and the load beyond which it is not to lie.

        `most_floor`: share of misses beyond which a floor is not proven.
        """
        grid = _grid()
        late = np.array(self.late)
        met = np.array(self.requests) - late
        of_knee = -0.5 * ((LOG_KNEES - math.log(expected_knee)) / shape.knee_spread) ** 2
        of_steepness = -0.5 * ((grid.log_steepness - math.log(shape.steepness)) / shape.steepness_spread) ** 2
        # Beyond a replica that was seen full a queue grows: who is on time there has come before it.
        of_knee[highest_knee * 1.05 < KNEES] -= UNPROVEN if shape is OBSERVED else BEYOND_PHYSICS
        of_rise = grid.log_hit @ met + of_steepness + of_knee.repeat(len(STEEPNESS))
        of_floor = np.add.reduce(met) * grid.log_hit_of_floor + grid.log_prior_of_floor
        of_floor -= UNPROVEN * np.log(np.maximum(FLOORS / most_floor, 1.0))
        weight = np.add.outer(of_rise, of_floor).ravel()
        late_bins = (late > NOTHING).nonzero()[0]
        if len(late_bins):
            bins = slice(late_bins[0], late_bins[-1] + 1)
            weight += late[bins] @ grid.log_miss[bins]
        # The exponential of what is far below is a denormal, which takes longer than all the rest.
        highest = np.maximum.reduce(weight)
        likely = (weight > highest + LOG_UNLIKELY).nonzero()[0]
        weight = np.exp(weight[likely] - highest)
        weight /= np.add.reduce(weight)
        miss = np.maximum.accumulate(weight @ grid.miss.take(likely, axis=0))
        return Curve(miss, float(weight @ grid.floor[likely]), highest_knee, params.aftermath)


FULL_KNEE_SHARE = 0.9
"""Expected knee, as a share of a load of 1, where a replica was seen full and its batch is the limit."""
OVERLOAD = 1.0
"""The load of a full replica, beyond which queues grow without end. Misses beyond it are attributed to the load without
the queue: with it, those on time before and after took the safe load from 0.66 to 0.37 after one step of the ramp."""
LOWEST_KNEE, HIGHEST_KNEE = float(KNEES[0]), OVERLOAD


def posterior(evidence: MissCurve, pool: Pool, step: StepTime) -> Curve:
    """The miss curve as believed now."""
    highest = _highest(pool, step)
    observed = math.isfinite(step.batch) and highest >= HIGHEST_KNEE
    highest = min(HIGHEST_KNEE, highest)
    share = FULL_KNEE_SHARE if observed else pool.params.knee_share
    return evidence.posterior(
        expected_knee=max(LOWEST_KNEE, share * highest),
        highest_knee=highest,
        shape=OBSERVED if observed else ESTIMATED,
        params=pool.params,
        most_floor=_most_floor(evidence, pool),
    )


def _most_floor(evidence: MissCurve, pool: Pool) -> float:
    """The highest floor that may be believed: light load alone proves a floor that breaks the SLO.

    Any may be where hardly a request was seen, for then the prior is all that is known; and where the gateway judges,
    for much of a miss there is beyond the engines, and no fleet size would prove it.
    """
    allowed = pool.slo.allowed
    if pool.slo.at_gateway or not has_evidence(evidence, allowed):
        return 1.0
    return evidence.floor_proven(enough_for(allowed), allowed)


def _highest(pool: Pool, step: StepTime) -> float:
    """The load beyond which a knee hardly lies; above 1 where that is beyond a full replica."""
    bound = pool.slo.time_per_output_token
    # ITL = a / (1 - load) reaches the bound at 1 - a / bound: a knee hardly lies beyond. Where even an idle engine
    # breaks TPOT, TPOT says nothing on the size of the fleet.
    unlimited = bound is None or tpot_infeasible(pool, step)
    highest = HIGHEST_KNEE if bound is None or unlimited else 1.0 - step.between_tokens / bound
    # That is a load by step time alone; `stretch` puts it into units of a full batch.
    return step.stretch * min(HIGHEST_KNEE, max(LOWEST_KNEE, highest))


def highest_knee(pool: Pool, step: StepTime) -> float:
    """The highest load at which an engine can hold TPOT."""
    return min(HIGHEST_KNEE, _highest(pool, step))


def tpot_infeasible(pool: Pool, step: StepTime) -> bool:
    """Whether even without load a token takes longer than it may."""
    bound = pool.slo.time_per_output_token
    return bound is not None and step.between_tokens >= bound


def has_evidence(evidence: MissCurve, share: float) -> bool:
    """Whether enough requests were seen to speak of misses as rare as `share`, and not the prior alone."""
    return math.fsum(evidence.requests) > enough_for(share)


def enough_for(share: float) -> float:
    """Requests that tell of misses as rare as `share`."""
    return 3.0 / share


class LoadAttribution(NamedTuple):
    """Loads that the requests counted in one tick have met."""

    late: float
    on_time: float


def offered(pool: Pool, demand: Demand) -> Rates:
    """What the requests of the last tick meet: arrivals, and the queue, to be drained within the TTFT bound."""
    bound = pool.slo.time_to_first_token
    return demand.rates_of(demand.arrivals + (demand.queued / bound if bound is not None else 0.0))


def attribute_load(pool: Pool, step: StepTime, demand: Demand, window: SampleWindow) -> LoadAttribution:
    """The highest load since the first of the requests that are counted now arrived; infinite where nobody knows.

    A miss is reported up to a request's lifetime after the load that caused it. Without this the queue of one overload
    teaches that light load misses too, and at light load nothing ever contradicts it: one of half an hour, which
    outlasts the window, taught that 25% of requests miss at any fleet size. Requests on time after an overload that new
    replicas have relieved have hardly met it: most of them are the new replicas'.
    """
    # Seconds from the first token to the last.
    decoding = demand.steps * step.tokens * (pool.slo.time_per_output_token or 2.0 * step.between_tokens)
    # A request that ends now may have had its first token a whole answer ago, and have waited for it until then.
    met = loads(window.rows, OFFERED, step)
    reach = _back_to_the_queue(window, met, _waited(pool, window.last(MINUTE + decoding)) + decoding)
    rows = window.last(reach).rows
    highest = float(np.fmax.reduce(met[len(met) - len(rows) :], initial=0.0))
    if highest <= OVERLOAD:
        return LoadAttribution(highest, highest)
    if reach > KEPT_SECONDS:
        return LoadAttribution(math.inf, math.inf)
    overload = float(np.fmax.reduce(loads(rows, DEMAND, step), initial=0.0))
    now = window.per_replica(demand.level)
    # Full replicas are known to be relieved below a load of 1.
    relieved = OVERLOAD if math.isfinite(step.batch) and overload > OVERLOAD else pool.params.relieved * overload
    return LoadAttribution(overload, now if now < relieved else overload)


def _back_to_the_queue(window: SampleWindow, load: Array, reach: float) -> float:
    """Seconds back to where the queue began that stood within `reach` seconds; `reach` where none did.

    A tick of which nothing is known ends no queue.
    """
    at = window.rows[:, Column.AT]
    queued = ((load > OVERLOAD) & (at > at[-1] - reach)).nonzero()[0]
    if not len(queued):
        return reach
    within = (load[: queued[-1]] <= OVERLOAD).nonzero()[0]
    begin = within[-1] + 1 if len(within) else 0
    return max(reach, float(window.rows[begin:, Column.SPAN].sum()))


def _waited(pool: Pool, recent: Slice) -> float:
    """Seconds that the requests whose first token came in a window may have waited for it.

    Twice the mean wait, since waits are spread from none to the longest, and at least the mean of those that were late:
    while new replicas answer at once, the queue of an old one shows in a few.
    """
    bound = pool.slo.time_to_first_token
    judged = recent.sums[Column.TTFT_COUNT]
    by_histogram = recent.sums[Column.TTFT_SUM] / max(judged, 1.0)  # it may exclude the queue
    waited = 2.0 * max(by_histogram, recent.sums[Column.WAITED] / max(recent.sums[Column.BEGUN], 1.0))
    late = recent.split(Column.TTFT_COUNT).late
    if bound is not None and late >= 1.0:
        on_time = (judged - late) * bound / 2.0
        waited = max(waited, (recent.sums[Column.TTFT_SUM] - on_time) / late)
    return max(waited, bound or 0.0)
