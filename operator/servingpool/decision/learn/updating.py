"""From an observation to the memory of the pool."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from servingpool.decision import zero
from servingpool.decision.engine import Rates, StepTime
from servingpool.decision.learn.error_budget import Calibration, ErrorBudget
from servingpool.decision.learn.forecast import Forecast
from servingpool.decision.learn.kinds import NO_ENGINE, Kinds, kind_of, updated, with_speeds
from servingpool.decision.learn.memory import BIN, Memory, Scored, UpdateResult
from servingpool.decision.learn.miss_curve import (
    OVERLOAD,
    LoadAttribution,
    MissCurve,
    attribute_load,
    offered,
    posterior,
    tpot_infeasible,
)
from servingpool.decision.learn.step_time import NEARLY_FULL, short_answers
from servingpool.decision.observation import Observation, Unknown
from servingpool.decision.observe.columns import WORK, Column
from servingpool.decision.observe.counters import CounterDelta, diff_counters
from servingpool.decision.observe.gauges import with_believed_queue
from servingpool.decision.observe.latency import Misses, Tail
from servingpool.decision.observe.lateness import Lateness
from servingpool.decision.observe.queueing import looked
from servingpool.decision.observe.window import NOTHING, Demand, SampleWindow, Slice, rate_window, usual
from servingpool.decision.params import LONGEST_GAP, MINUTE, REMEMBERED
from servingpool.decision.pool import Pool
from servingpool.decision.words import clock

LEAST_SPAN = 1.0
"""Seconds between two observations below which the second teaches nothing."""


class _Tick(NamedTuple):
    """One observation, and what is asked of it."""

    observation: Observation
    pool: Pool
    now: float
    span: float
    """Seconds since the one before."""
    elapsed: float
    """Seconds since the last one that showed any traffic: what is counted now came in them. By `span`, scrapes each
    30 s and ticks each 15 s would teach at half speed."""


def update(observation: Observation, pool: Pool, memory: Memory, now: float) -> UpdateResult:
    """Learn from one observation. The same one at the same `now` a second time changes nothing."""
    memory = _without_the_past_of_another_slo(memory, pool)
    last = memory.at
    if last is not None and now < last - LEAST_SPAN:
        # The clock was set back: nothing in the windows can be compared with now.
        memory, last = memory.interrupted(), None
    if last is not None and now < last + LEAST_SPAN:
        return UpdateResult.of(memory, *_known(memory, pool), pool)
    span = 0.0 if last is None else min(now - last, LONGEST_GAP)
    since = math.inf if memory.covered_at is None else now - memory.covered_at
    observation, gauge = with_believed_queue(observation, memory.gateway_gauge, memory.window, pool.params.stands_still)
    answers = short_answers(memory.window, memory.profile.engine.fit, pool.params)
    if answers.by_prompt and not pool.prefills:
        pool = replace(pool, prefills=True)
    tick = _Tick(observation, pool, now, span, since if since <= LONGEST_GAP else span)
    delta = diff_counters(
        observation,
        pool,
        memory.last,
        usual(
            memory.window,
            lambda: memory.step_time(pool) if memory.profile.engine.fit.known else None,
            # Running requests from which on a replica may be full, by target.
            {one.target: NEARLY_FULL * one.saturation.most_running for one in memory.profile.kinds},
            short=answers.short,
            queue_excluded=memory.profile.queue_in_ttft.excluded,
        ),
    )
    before, memory = memory, _with_gateway_demand(tick, delta, _add_to_windows(tick, delta, memory))
    memory = _with_curve_of_the_full_batch(memory, pool, before.profile.engine.saturation.batch)
    step, demand = _known(memory, pool)
    unknown = step is None or demand is None or delta.coverage == 0.0
    if unknown or memory.looks:
        standing = {one.replica for one in memory.last.standing}
        looks = looked(memory.looks, observation, standing, pool.slo.queue_bound) if unknown else ()
        memory = replace(memory, looks=looks)
    if step is not None and demand is not None and delta.covered > 0.0:
        memory = _learn_from_demand(tick, memory, step, demand, before=before)
    memory = memory if gauge is memory.gateway_gauge else replace(memory, gateway_gauge=gauge)
    return UpdateResult.of(memory, step, demand, pool)


def _known(memory: Memory, pool: Pool) -> tuple[StepTime | None, Demand | None]:
    """Step time and demand that the windows show."""
    step = memory.step_time(pool)
    return step, None if step is None else memory.window.demand(step, memory.interval, pool.params)


def _with_curve_of_the_full_batch(memory: Memory, pool: Pool, before: float) -> Memory:
    """The memory with the miss curve in today's loads, where `before` was the full batch until now.

    A full replica has a load of 1. Seen full for the first time at a load of 0.06, it shows that all loads so far were
    sixteen times as high.
    """
    if memory.profile.engine.saturation.batch == before or (step := memory.step_time(pool)) is None:
        return memory
    usual = memory.window.lengths(memory.interval, pool.params)
    if step.work(*usual) <= 0.0:
        return memory
    curve = memory.profile.curve.in_other_units(step.work(*usual) / replace(step, batch=before).work(*usual))
    return replace(memory, profile=replace(memory.profile, curve=curve), penalty=None, predicted_by=None)


def _add_to_windows(tick: _Tick, delta: CounterDelta, memory: Memory) -> Memory:
    """The memory with the observation in its windows, and what can be learned without knowing what requests cost."""
    observation, now, span, params = tick.observation, tick.now, tick.span, tick.pool.params
    seen = delta.covered > 0.0
    unread = observation.metrics.reason if isinstance(observation.metrics, Unknown) else None
    hole = memory.covered_at is None or now - memory.covered_at > LONGEST_GAP
    if seen and (hole or memory.since is None):
        # The loop, Prometheus or the fleet was away. Windows fill anew, and nothing is removed until they have.
        memory = replace(memory.without_forecasts(), since=now, recommendations=())
    profile, kinds = memory.profile, _kinds(tick, delta, memory)
    # Without a step nobody tells whether the engine is still another one.
    fit, engine = kind_of(kinds, profile.reference).fit, delta.engines.get(profile.reference, NO_ENGINE)
    doubted = fit.changed(params) and (engine.steps if fit.decodes else engine.prefills)
    profile = replace(
        profile,
        kinds=kinds,
        at=now if seen else profile.at,
        queue_in_ttft=profile.queue_in_ttft.update(
            delta.waits, known=delta.queue_excluded, elapsed=tick.elapsed, params=params
        ),
        curve=profile.curve.doubted(tick.elapsed) if doubted else profile.curve,
        learned=profile.learned + (tick.elapsed if seen else 0.0),
    )
    interval, (ttft_tail, tpot_tail) = memory.interval, _tails(tick, memory, delta.damaged)
    if delta.interval is not None:
        # A lost scrape looks like a longer interval, so it is believed slowly; at first sight a minute is.
        interval = min(delta.interval, interval * 1.02 if memory.covered_at is not None else MINUTE)
    return replace(
        memory,
        profile=profile,
        window=memory.window.add(now=now, span=span, ready=_ready(observation, span), delta=delta),
        last=delta,
        ttft_inferred=tick.observation.ttft_inferred,
        interval=max(interval, 1.0),
        damaged="; ".join(f"{name}: {why}" for name, why in delta.damaged.items()) or unread,
        queue_unknown=delta.waiting.reason if isinstance(delta.waiting, Unknown) else None,
        covered_at=now if seen else memory.covered_at,
        ttft_tail=ttft_tail,
        tpot_tail=tpot_tail,
        predicted_by=None,
    )


def with_fresh_samples(observation: Observation, memory: Memory, now: float) -> tuple[Observation, Memory]:
    """The observation, with Unknown samples where they fall behind our clock; and the memory of their usual lag.

    Prometheus, or a cache before it, may repeat an old answer, in which all looks fresh. Two clocks may differ, and one
    may be set: only a lag that grows counts, and one that lasts is believed, a second of it every eight.
    """
    newest = max([one.scraped_at for one in observation.samples], default=None)
    if newest is None:
        return observation, memory
    lag, passed = now - newest, math.inf if memory.at is None else now - memory.at
    least = min(lag, memory.lag + passed / 8.0) if 0.0 <= passed <= LONGEST_GAP else lag
    if lag - least > max(MINUTE, 2.0 * memory.interval):
        said = Unknown(f"Prometheus shows no sample newer than {clock(newest)}, which is {lag:.0f} s ago by our clock")
        observation = replace(observation, metrics=said)
    return observation, memory if least == memory.lag else replace(memory, lag=least)


def _kinds(tick: _Tick, delta: CounterDelta, memory: Memory) -> Kinds:
    """The kinds with what the engines showed of their steps and their full batches."""
    profile, pool, params = memory.profile, tick.pool, tick.pool.params
    (prompt, steps), tokens = memory.window.lengths(memory.interval, params), memory.window.tokens_a_step(params)
    # A replica with a sample has served: not to be Ready for a moment is no start.
    starting = [one for one in tick.observation.starting if one.name not in memory.last.samples]
    kinds = updated(profile.kinds, delta.engines, tick.observation.ready, starting, pool, tick.elapsed)
    return with_speeds(kinds, profile.reference, pool, tokens=tokens, prompt=prompt, steps=steps)


def _with_gateway_demand(tick: _Tick, delta: CounterDelta, memory: Memory) -> Memory:
    """The memory with what the gateway shows, of a pool that may go to zero.

    Requests that arrive while no replica serves and start one are late, unless a cold start is within the bound. They
    count where the gateway counts them. One that is held and served later counts a second time, as the engine saw it.
    """
    observation, pool, now, was = tick.observation, tick.pool, tick.now, memory.demand
    demand = None if pool.idle_after is None else zero.updated(was, observation, _engines(delta), pool, now)
    gone = None if demand is None else zero.vanished(memory.profile.vanished, was, demand, observation, pool, now)
    if gone != memory.profile.vanished:
        memory = replace(memory, profile=replace(memory.profile, vanished=gone))
    bound = pool.slo.time_to_first_token
    if demand is not None and bound is not None and not pool.slo.at_gateway and memory.horizon(pool) > bound:
        arrived = demand.arrived - (0.0 if was is None else was.arrived)
        if arrived > 0.0:
            memory = replace(memory, score=_score(memory, Misses(arrived, arrived), now))
    return memory if demand is memory.demand else replace(memory, demand=demand)


def _engines(delta: CounterDelta) -> zero.Engines:
    gauges = (delta.running, delta.waiting)
    lacking = [f"requests at the engines: {one.reason}" for one in gauges if isinstance(one, Unknown)]
    # What is not believed is no proof of the contrary.
    lacking += [f"{one.replica} shows {one.requests:.0f} requests and makes no progress" for one in delta.standing]
    if delta.coverage < 1.0:
        lacking = ["not all ready replicas could be read"]
    worked = any(delta.sums[figure] > 0.0 for figure in (*WORK, Column.REJECTED))
    busy = worked or any(not isinstance(one, Unknown) and one > 0.0 for one in gauges)
    return zero.Engines(unknown=lacking[0] if lacking else None, busy=busy)


def _ready(observation: Observation, span: float) -> float:
    """Replicas ready in the last `span` seconds, on average.

    One that turned Ready a second ago has served none of what the others' counters show: 3 replicas becoming 10 were
    taken for a demand three times as high.
    """
    if span <= 0.0:
        return float(observation.serving)
    since = np.array([math.inf if one.ready_for is None else one.ready_for for one in observation.ready])
    return float([one.weight for one in observation.ready] @ (since / span).clip(0.0, 1.0))


def _tails(tick: _Tick, memory: Memory, damaged: Mapping[str, str]) -> tuple[Tail, Tail]:
    """The tails of TTFT and TPOT: the engines', or the gateway's TTFT where the SLO is measured there."""
    whole = [one for one in tick.observation.samples if one.replica not in damaged]
    ttft = {one.replica: one.time_to_first_token for one in whole}
    if tick.pool.slo.at_gateway:
        ttft = {"": tick.observation.gateway.time_to_first_token}
    lasts, tpot = tick.pool.params.recent_window, {one.replica: one.time_per_output_token for one in whole}
    return memory.ttft_tail.update(ttft, tick.span, lasts), memory.tpot_tail.update(tpot, tick.span, lasts)


def _without_the_past_of_another_slo(memory: Memory, pool: Pool) -> Memory:
    """Drop what was learned of another SLO; what was learned of engine, traffic and cold start stays."""
    slo, known = (pool.slo.time_to_first_token, pool.slo.time_per_output_token, pool.slo.attainment), memory.profile.slo
    elsewhere = memory.profile.at_gateway != pool.slo.at_gateway
    if known == slo and not elsewhere:
        return memory
    profile = replace(memory.profile, slo=slo, at_gateway=pool.slo.at_gateway)
    if known is None:
        return replace(memory, profile=profile)
    if known[:2] == slo[:2] and not elsewhere:  # which requests are late did not change, only how many may be
        return replace(memory, profile=replace(profile, budget=ErrorBudget()), penalty=None)
    profile = replace(profile, curve=MissCurve(), budget=ErrorBudget(), calibration=Calibration())
    return replace(memory.interrupted(), profile=profile)


def _learn_from_demand(tick: _Tick, memory: Memory, step: StepTime, demand: Demand, *, before: Memory) -> Memory:
    """Learn from a tick whose demand is known. `before`: the memory without this observation."""
    pool, now = tick.pool, tick.now
    excluded = memory.profile.queue_in_ttft.excluded
    judge, last = Lateness(memory.window, excluded, pool), Slice(memory.window.rows[-1:])
    infeasible = tpot_infeasible(pool, step)
    late = judge.missed(last, hopeless=infeasible)
    window = memory.window.noted(late, demand=demand.rates, offered=offered(pool, demand))
    fade = math.exp(-tick.elapsed / REMEMBERED)
    served = (window.served(demand, memory.interval, pool.params), Rates(*(fade * one for one in memory.most_served)))
    by_engines = pool.slo.time_to_first_token is not None and not pool.slo.at_gateway
    if excluded and not before.profile.queue_in_ttft.excluded and by_engines:
        verdicts = [judge.missed(Slice(window.rows[at : at + 1])) for at in range(len(window.rows))]
        memory = _judged_anew(replace(memory, window=window), verdicts)
        window = memory.window
    # If an idle engine already breaks TPOT, misses of TPOT say nothing about fleet size. What is learned stays for
    # hours, so until the fit is known such requests teach nothing.
    in_all = judge.missed(last, output_tokens=False) if infeasible else late
    sure = memory.profile.engine.fit.known or not infeasible
    mean = window.last(pool.params.mean_window)
    usual = mean.sums[Column.TTFT_COUNT] * tick.elapsed / max(mean.seconds, tick.elapsed)
    carried, curve, calibration = in_all, memory.profile.curve, memory.profile.calibration
    if in_all.requests > 0.0 and sure:
        attribution = attribute_load(pool, step, demand, window)
        if memory.profile.engine.saturation.known or attribution.late == math.inf:
            carried = _carried(in_all, attribution)
        calibration = _calibration(tick, memory, demand, carried, usual, before=before)
        curve = curve.update(attribution, carried, elapsed=tick.elapsed, params=pool.params)
    forecast, budget = _forecast(tick, memory, demand, mean.mean_demand), _budget(tick, memory, carried, in_all, usual)
    # While no request comes only calm moments leave the past, and what is left would ask for ever more. By less than
    # these five minutes bursts of code are apart.
    silent, busy = window.last(pool.params.recent_window).sums[Column.BEGUN] == 0.0, memory.profile.busy
    if last.sums[Column.BEGUN] > 0.0:
        seen = (*demand.rates, demand.prompt, demand.steps, step.tokens)
        busy = busy.update(seen, tick.elapsed, pool.params.evidence_memory)
    return replace(
        memory,
        window=window,
        profile=replace(
            memory.profile, curve=curve, calibration=calibration, forecast=forecast, budget=budget, busy=busy
        ),
        most_served=max(served, key=lambda rates: step.work(*rates)),
        penalty=memory.penalty if now < memory.penalty_until or silent else None,
        score=_score(memory, late, now),
    )


def _calibration(
    tick: _Tick, memory: Memory, demand: Demand, carried: Misses, usual: float, *, before: Memory
) -> Calibration:
    """Misses observed and predicted, with the tick's where its load was in the units of the prediction."""
    profile = memory.profile
    same = before.profile.engine.saturation.batch == profile.engine.saturation.batch
    predicted = _predicted(tick, before, memory.window.per_replica(demand.level)) if same else None
    if predicted is None or not carried.requests > 0.0 < usual:
        return profile.calibration
    return profile.calibration.update(
        predicted=predicted, observed=carried.share, weight=carried.requests / usual, elapsed=tick.elapsed
    )


def _forecast(tick: _Tick, memory: Memory, demand: Demand, usual: Rates) -> Forecast:
    """The forecast with the tick. `usual`: mean demand of ten minutes."""
    pool, now, serving = tick.pool, tick.now, tick.observation.serving
    # Of a fleet that loses replicas from time to time, so much more is needed that the rest can serve.
    absent = math.fsum(one.weight for one in memory.absent(tick.observation))
    more = 1.0 + absent / max(serving, absent, NOTHING)
    return memory.profile.forecast.update(
        now=now,
        demand=Rates(*(more * rate for rate in demand.rates)),
        usual=usual,
        ready=round(serving),
        horizon=memory.horizon(pool),
        elapsed=tick.elapsed,
        # The demand of a half-filled window reads low, and what follows it would count as a surge.
        files=memory.since is None or now - memory.since >= rate_window(memory.interval, pool.params),
    )


def _budget(tick: _Tick, memory: Memory, carried: Misses, in_all: Misses, usual: float) -> ErrorBudget:
    """The error budget with this tick added; unchanged where the pool is not in charge or not calibrated."""
    pool, budget = tick.pool, memory.profile.budget
    if not pool.in_charge or not memory.calibrated(pool):
        return budget
    requested, starting = tick.observation.requested, tick.observation.starting
    return budget.update(
        carried=carried,
        in_all=in_all,
        allowed=pool.slo.allowed,
        usual=usual,
        elapsed=tick.elapsed,
        above_min=requested > pool.min_replicas,
        # More careful planning brings no replica for which there is no node.
        below_max=requested < pool.max_replicas and not any(replica.unschedulable for replica in starting),
        params=pool.params,
    )


def _judged_anew(memory: Memory, verdicts: Sequence[Misses]) -> Memory:
    """The memory once it is known that the TTFT histogram excludes the queue, with `verdicts` on the window's ticks.

    What it taught is dropped, and the last minutes' score is what the other witnesses say. Each tick is judged alone:
    a witness counts those late for their first token and those late for the others, and over minutes that were bad for
    both the same requests would count twice.
    """
    rows, earlier = memory.window.rows.copy(), verdicts[:-1]
    rows[:, [Column.JUDGED, Column.LATE]] = [(tick.requests, tick.late) for tick in verdicts]
    begin, window = float(rows[0, Column.AT]), SampleWindow(rows, memory.window.buckets)
    again = Scored(begin, sum(tick.requests for tick in earlier), sum(tick.late for tick in earlier))
    score = (*(one for one in memory.score if one.begin + BIN <= begin), again)
    profile = replace(memory.profile, curve=MissCurve(), calibration=Calibration())
    return replace(memory, window=window, profile=profile, score=score, predicted_by=None)


def _carried(in_all: Misses, attribution: LoadAttribution) -> Misses:
    """Requests that met a load which a fleet can carry.

    Beyond the load of a full replica a queue grows without end: what follows from it says nothing of lower loads.
    """
    late = in_all.late if attribution.late <= OVERLOAD else 0.0
    on_time = in_all.requests - in_all.late if attribution.on_time <= OVERLOAD else 0.0
    return Misses(late + on_time, late)


def _predicted(tick: _Tick, before: Memory, load: float) -> float | None:
    """Share of misses that was expected at `load` before it was observed; None where nothing was."""
    curve = before.predicted_by
    if curve is None:
        step = before.step_time(tick.pool)
        if step is None:
            return None  # the first observation that shows the step time
        curve = posterior(before.profile.curve, tick.pool, step)
    return min(1.0, float(curve.cost(np.array([load]))[0]))


def _score(memory: Memory, late: Misses, now: float) -> tuple[Scored, ...]:
    score = memory.score
    if score and now < score[-1].begin + BIN:
        last = score[-1]
        return (*score[:-1], Scored(last.begin, last.requests + late.requests, last.late + late.late))
    return (*memory.score_of_last_hour(now), Scored(now, late.requests, late.late))
