"""The work of a backtest: from a recording's chunks to what was and what would have been."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np

from servingpool.recording.format import Chunk, Header, RecordingError
from servingpool_backtest.arrivals import Arrivals, Traffic
from servingpool_backtest.autoscaler_rule import Rule
from servingpool_backtest.bursts import burstiness
from servingpool_backtest.engine_fit import fit
from servingpool_backtest.intervals import gather
from servingpool_backtest.observed import Observed, observe, serving
from servingpool_backtest.replay import AsItWas, Replayed, World, replay, replay_as_it_was
from servingpool_backtest.result import COLD_START, Backtest, Question
from servingpool_simulation.fleet import ColdStart
from servingpool_simulation.policies import TICK

WARM_UP = 7200.0
"""Seconds that the core learns from before it is in charge, as the operator reads them from Prometheus."""
LONGEST_WARM_UP = 0.25
"""Of the history."""
SHORT = 1.5 * 86_400.0
"""Seconds of history up to which Auto is replayed several times: in a longer one chance evens out."""
TIMES = 3
"""How often, with other draws of arrivals, lengths, start-up times and scrape phases; the middle one is shown."""
WIDTH = 300.0
"""Seconds of a bin."""


def backtest(
    header: Header,
    chunks: Iterable[Chunk],
    question: Question,
    progress: Callable[[str], None] = lambda _: None,
    *,
    processes: int = 2,
) -> Backtest:
    """Raises RecordingError where the history is too short or shows nothing to learn from."""
    progress("reading")
    intervals = gather(chunks, question.pool.slo, header.begin)
    if not len(intervals.end):
        raise RecordingError("holds no two scrapes of a pod")
    end = min(header.end, float(intervals.end[-1]))
    engine = fit(intervals)
    observed = observe(intervals, question.pool.slo, header.begin, end, WIDTH)
    warm_up = min(WARM_UP, LONGEST_WARM_UP * (end - header.begin)) // WIDTH * WIDTH
    cold_start = question.cold_start
    if cold_start is None:
        cold_start = statistics.median(header.starts) if header.starts else COLD_START
    world = World(
        profile=engine.profile(header.engine, header.gpus),
        pool=question.pool,
        cold_start=ColdStart(cold_start),
        scrape_interval=intervals.scrape_interval,
        begin=header.begin,
        end=end,
        warm_up=warm_up,
        initial=_initial(observed, warm_up),
        seed=question.seed,
    )
    ticks = int((end - header.begin) // TICK) + 1
    at = header.begin + TICK * np.arange(ticks, dtype=np.float64)
    fleet = AsItWas(at, serving(intervals, header.begin, ticks, TICK))
    progress("fitting the bursts")
    clump = 1.0 if intervals.ttft_from_admission else burstiness(world, fleet, intervals)
    traffic = Traffic.of(intervals, header.begin, end)
    arrivals = traffic.drawn(question.seed, clump)
    progress("replaying")
    seeds = range(question.seed + 1, question.seed + (TIMES if end - header.begin <= SHORT else 1))
    others = [(replace(world, seed=seed), traffic.drawn(seed, clump)) for seed in seeds]
    if processes > 1:
        with ProcessPoolExecutor(processes - 1) as pool:
            further = [pool.submit(replay, *one) for one in others]
            other = pool.submit(replay_as_it_was, world, arrivals, fleet)
            ruled = pool.submit(_ruled, world, arrivals, question.rule)
            first = replay(world, arrivals)
            was, rule, autos = other.result(), ruled.result(), [first, *(each.result() for each in further)]
    else:
        was, rule = replay_as_it_was(world, arrivals, fleet), _ruled(world, arrivals, question.rule)
        autos = [replay(*one) for one in ((world, arrivals), *others)]
    autos.sort(key=lambda one: one.replica_seconds)
    auto = autos[len(autos) // 2]
    return Backtest(
        header=header,
        question=question,
        engine=engine,
        cold_start=cold_start,
        clump=clump,
        observed=observed,
        was=was,
        auto=auto,
        auto_hours=tuple(one.replica_seconds / 3600.0 * header.gpus for one in autos),
        rule=rule,
        arrivals=arrivals,
        scored_from=header.begin + warm_up,
        scored_until=end,
        auto_initial=world.initial,
        ttft_from_admission=intervals.ttft_from_admission,
        scrape_interval=intervals.scrape_interval,
    )


def _ruled(world: World, arrivals: Arrivals, rule: Rule | None) -> Replayed | None:
    """The autoscaler's rule in charge, within its own bounds."""
    policy = None if rule is None else rule.policy()
    if rule is None or policy is None:
        return None
    low, high = rule.pool(world.pool)
    pool = replace(world.pool, min_replicas=low, max_replicas=high, windows=())
    return replay(replace(world, pool=pool), arrivals, policy)


def _initial(observed: Observed, warm_up: float) -> int:
    """Replicas of the warm-up."""
    part = observed.at <= observed.at[0] + max(warm_up, observed.width)
    return max(1, round(float(np.median(observed.serving[part]))))
