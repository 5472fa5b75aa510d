"""A timetable chosen in hindsight: a fixed fleet for each hour, or each ten minutes, of this very day's traffic.

It knows how much comes in each stretch, and how, and cannot react within one. Set beside an oracle it hints at how
much of that one's thrift is in single bursts. It proves nothing: found by a search, like the oracle, it may not be
the cheapest; who reacts within a stretch may be cheaper; and nobody could have learned all that it knows of its day.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from servingpool.decision.pool import Pool
from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.policies import TICK, Schedule, Static
from servingpool_simulation.run import Result, SimulationOptions, simulate
from servingpool_simulation.traces import Trace

Ints = NDArray[np.int64]

SELDOM = 900.0
"""Seconds between two decisions of a fleet that never changes: looking at it changes nothing."""
SPARE = 0.02
"""Share of the allowed misses from which on a larger fleet is not looked at."""
CHEAPEST, DEAREST = 1e-2, 1e6
"""Of a miss, in replica-seconds."""
HALVINGS = 14


def timetable(
    trace: Trace, profile: EngineProfile, pool: Pool, options: SimulationOptions, *, stretch: float
) -> Result | None:
    """The cheapest that was found in stretches of so many seconds and attains the target; None where none was.

    One price of a miss for all stretches, as low as the target allows, chooses the fleet of each from the misses of
    fixed fleets in it. It is then run like any other policy, cold starts included, with growth ordered in time; only
    that it starts with its own first fleet.
    """
    missed = _misses_of_fixed_fleets(trace, profile, pool, options, stretch)
    if missed is None:
        return None
    sizes, found = pool.min_replicas + np.arange(len(missed)), None
    low, high = math.log(CHEAPEST), math.log(DEAREST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        fleets = sizes[(sizes[:, None] * stretch + math.exp(middle) * missed).argmin(axis=0)]
        result = _run(fleets, trace, profile, pool, options, stretch)
        if result.score.attainment >= pool.slo.attainment:
            high = middle
            if found is None or result.score.gpu_hours < found.score.gpu_hours:
                found = result
        else:
            low = middle
    return found


def _misses_of_fixed_fleets(
    trace: Trace, profile: EngineProfile, pool: Pool, options: SimulationOptions, stretch: float
) -> Ints | None:
    """(fleets from the least on, stretches); None where not even the largest attains."""
    rows, allowed = [], (1.0 - pool.slo.attainment) * len(trace)
    for size in range(pool.min_replicas, pool.max_replicas + 1):
        alone = replace(options, initial_replicas=size, decide_every=SELDOM)
        outcomes = simulate(trace, profile, pool, Static(size), alone).outcomes
        at = np.minimum(outcomes.arrival // stretch, math.ceil(trace.duration / stretch) - 1).astype(np.int64)
        rows.append(np.bincount(at[~outcomes.met], minlength=math.ceil(trace.duration / stretch)))
        if rows[-1].sum() <= SPARE * allowed:
            break
    return np.array(rows) if rows[-1].sum() <= allowed else None


def _run(
    fleets: Ints, trace: Trace, profile: EngineProfile, pool: Pool, options: SimulationOptions, stretch: float
) -> Result:
    start, at = options.cold_start, np.arange(0.0, trace.duration, TICK)
    lead = start.mean * (1.0 + start.jitter) + TICK  # so that even the slowest is there when its stretch begins
    now, soon = ((np.minimum(when, trace.duration - TICK) // stretch).astype(np.int64) for when in (at, at + lead))
    course = np.maximum(fleets[now], fleets[soon])
    alone = replace(options, initial_replicas=int(fleets[0]), decide_every=None)
    return simulate(trace, profile, pool, Schedule(tuple(course.tolist()), name="timetable"), alone)
