"""One look at a pool, turned into knowledge. No decision is taken here.

Live ticks and history go through the same function: what Prometheus remembers teaches exactly as it would
have taught live.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from servingpool.decision import demand as demand_model
from servingpool.decision.belief import hopeless, horizon, posterior, settled
from servingpool.decision.blame import OVERLOAD, Blame, blame, missed, offered_load
from servingpool.decision.budget import ErrorBudget
from servingpool.decision.calibration import Calibration
from servingpool.decision.demand import Demand
from servingpool.decision.intake import LONGEST_GAP, Intake, take_in
from servingpool.decision.ledger import AT, Misses, Window
from servingpool.decision.memory import Memory
from servingpool.decision.miss_curve import MissCurve
from servingpool.decision.observation import Histogram, Observation
from servingpool.decision.percentile import Tail
from servingpool.decision.pool import Pool
from servingpool.decision.step_time import StepTime
from servingpool.decision.unknown import Unknown
from servingpool.decision.witnesses import SHAPE_WINDOW

LEAST_SPAN = 1.0
"""Seconds between two looks below which the second teaches nothing."""
LONGEST_INTERVAL = 60.0
"""Seconds between scrapes that are believed at first sight."""
SCORE_BIN = 300.0
SCORE_KEPT = 3600.0
Judged = tuple[float, float, float]
"""Start of a bin, requests, those late."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What the last look taught, next to the memory that holds it."""

    memory: Memory
    step: StepTime | None
    demand: Demand | None
    """None where the step time or the arrivals are not known yet."""


@dataclass(frozen=True, slots=True)
class _Look:
    """One look, and what is asked of it."""

    observation: Observation
    pool: Pool
    now: float
    span: float
    """Seconds since the one before."""
    elapsed: float
    """Seconds since the last one that told of any traffic: what is counted now came in them. By `span`, scrapes each
    30 s and looks each 15 s would teach at half speed, and calibrate for ten minutes where five are asked for."""

    @property
    def ready(self) -> int:
        return len(self.observation.ready)

    @property
    def allowed(self) -> float:
        """Share of misses."""
        return 1.0 - self.pool.slo.attainment


def observe(observation: Observation, pool: Pool, memory: Memory, now: float) -> Memory:
    """Learn from one look. The same look at the same `now` a second time changes nothing."""
    return study(observation, pool, memory, now).memory


def study(observation: Observation, pool: Pool, memory: Memory, now: float) -> Lesson:
    """`observe`, with what is needed to go on and decide."""
    memory = _without_the_past_of_another_slo(memory, pool)
    if memory.at is not None and now < memory.at - LEAST_SPAN:
        memory = memory.interrupted()  # the clock was set back: nothing in the windows can be compared with now
    if memory.at is not None and now < memory.at + LEAST_SPAN:
        return Lesson(memory, *_told(memory))
    span = min(now - memory.at, LONGEST_GAP) if memory.at is not None else 0.0
    since = math.inf if memory.covered_at is None else now - memory.covered_at
    look = _Look(observation, pool, now, span, since if since <= LONGEST_GAP else span)
    intake = take_in(observation, pool.slo, memory.pages, memory.door, memory.profile.saturation.full_from)
    before, memory = memory, _take_note(look, intake, memory)
    memory = _in_units_of_the_full_batch(memory, before.profile.saturation.batch)
    step, demand = _told(memory)
    if step is None or demand is None or intake.covered <= 0.0:
        return Lesson(memory, step, demand)
    return _learn_from_demand(look, memory, step, demand, before=before)


def _told(memory: Memory) -> tuple[StepTime | None, Demand | None]:
    """What the windows say."""
    step = _step(memory, memory.profile.saturation.batch)
    return step, None if step is None else demand_model.measure(memory.ledger, step, memory.interval)


def _step(memory: Memory, batch: float) -> StepTime | None:
    """The step time, with so many requests in a full batch."""
    step = memory.profile.fit.solve()
    if step is None:
        return None
    prompt, steps = demand_model.lengths(memory.ledger, memory.interval)
    tokens = demand_model.tokens_a_step(memory.ledger)
    return step.limited(batch=batch, tokens=tokens, prompt_tokens=prompt, steps=steps)


def _in_units_of_the_full_batch(memory: Memory, before: float) -> Memory:
    """The memory in today's units of work, where `before` was the full batch until now.

    A full replica has a load of 1. Seen full for the first time at a load of 0.06, it shows that all demand and all
    loads so far were sixteen times as high.
    """
    batch = memory.profile.saturation.batch
    if batch == before:
        return memory
    old, new = _step(memory, before), _step(memory, batch)
    if old is None or new is None:
        return memory
    return memory.in_other_units(new.stretch / old.stretch)


def _take_note(look: _Look, intake: Intake, memory: Memory) -> Memory:
    """The memory with the look in its windows, and what can be learned without knowing what the requests cost."""
    observation, now, span = look.observation, look.now, look.span
    seen = intake.covered > 0.0
    hole = memory.covered_at is None or now - memory.covered_at > LONGEST_GAP
    if seen and (hole or memory.since is None):
        # The loop, Prometheus or the fleet was away. Windows fill anew, and nothing is removed until they have.
        memory = replace(memory.without_forecasts(), since=now, kept=())
    ledger = memory.ledger.add(now=now, span=span, ready=_present(observation, span), intake=intake)
    profile = memory.profile
    fit = profile.fit.learn(intake.steps, elapsed=look.elapsed)
    busiest = max((one.decoding for one in intake.steps), default=0.0)
    profile = replace(
        profile,
        at=now if seen else profile.at,
        fit=fit,
        saturation=profile.saturation.learn(
            intake.full, busiest=busiest, running=intake.most_running, elapsed=look.elapsed
        ),
        # Without a step nobody tells whether the engine is still another one.
        curve=profile.curve.doubted(look.elapsed) if fit.changed and intake.steps else profile.curve,
        # Who has a page has served: not to be Ready for a moment is no start.
        cold_start=profile.cold_start.learn(
            observation.ready, tuple(one for one in observation.starting if one.name not in memory.pages)
        ),
        learned=profile.learned + (look.elapsed if seen else 0.0),
    )
    interval = memory.interval
    if intake.interval is not None:
        # A lost scrape looks like a longer interval, so it is believed slowly; at first sight there is nothing else.
        known = interval * 1.02 if memory.covered_at is not None else LONGEST_INTERVAL
        interval = min(intake.interval, known)
    return replace(
        memory,
        profile=profile,
        ledger=ledger,
        pages=intake.pages,
        queues=intake.queues,
        stuck=intake.stuck,
        door=intake.door,
        edges=intake.edges if intake.coverage > 0.0 else memory.edges,
        interval=max(interval, 1.0),
        coverage=intake.coverage,
        lacking=intake.lacking,
        no_queue=intake.waiting.reason if isinstance(intake.waiting, Unknown) else None,
        covered_at=now if seen else memory.covered_at,
        first_token_tail=_tail(memory.first_token_tail, observation, "time_to_first_token", span),
        output_token_tail=_tail(memory.output_token_tail, observation, "time_per_output_token", span),
        foretelling=None,
    )


def _present(observation: Observation, span: float) -> float:
    """Replicas ready in the last `span` seconds, on average.

    One that turned Ready a second ago has served none of what the others' counters tell: 3 replicas becoming 10 were
    taken for a demand three times as high, and two hours long for a thing that may come again.
    """
    if span <= 0.0:
        return float(len(observation.ready))
    return sum(1.0 if one.ready_for is None else min(1.0, max(0.0, one.ready_for) / span) for one in observation.ready)


def _without_the_past_of_another_slo(memory: Memory, pool: Pool) -> Memory:
    """Drop what was learned of another SLO: which requests were late, and how much hope that gave.

    What was learned of engine, traffic and cold start stays.
    """
    slo, known = (pool.slo.time_to_first_token, pool.slo.time_per_output_token, pool.slo.attainment), memory.profile.slo
    if known == slo:
        return memory
    profile = replace(memory.profile, slo=slo)
    if known is None:
        return replace(memory, profile=profile)
    if known[:2] == slo[:2]:  # which requests are late did not change, only how many may be
        return replace(memory, profile=replace(profile, budget=ErrorBudget()), price=None)
    profile = replace(profile, curve=MissCurve(), budget=ErrorBudget(), calibration=Calibration())
    return replace(memory.interrupted(), profile=profile)


def _learn_from_demand(look: _Look, memory: Memory, step: StepTime, demand: Demand, *, before: Memory) -> Lesson:
    """Where it is known what came and what that costs. `before`: the memory that the look was not in."""
    pool, now = look.pool, look.now
    ledger = memory.ledger.judged(load=offered_load(pool, demand, memory.ledger), work=demand.level)
    past = memory.past_loads.learn(now, ledger.load_of(demand.level))
    memory = replace(memory, ledger=ledger, past_loads=past)
    if memory.profile.saturation.queue_left_out and not before.profile.saturation.queue_left_out:
        memory = _judged_anew(memory, pool)
    last = Window(ledger.rows[-1:])
    late = missed(memory, pool, last)
    # What no fleet can hold says nothing on the size of the fleet. Whether it is so is not known at first, and what is
    # learned stays for hours: until then nothing is.
    lost = hopeless(pool, step)
    telling = missed(memory, pool, last, output_tokens=False) if lost else late
    sure = memory.profile.fit.known or not lost
    window = ledger.last(SHAPE_WINDOW)
    typical = window.first_tokens().total * look.elapsed / max(window.seconds, look.elapsed)
    profile = memory.profile
    curve, calibration = profile.curve, profile.calibration
    judged = telling
    if telling.requests > 0.0 and sure:
        blamed = blame(pool, step, demand, ledger, past)
        judged = _within_a_full_replica(telling, blamed) if profile.saturation.known else telling
        same_units = before.profile.saturation.batch == profile.saturation.batch
        foretold = _foretold(look, before, ledger.load_of(demand.level)) if same_units else None
        if foretold is not None and judged.requests > 0.0 < typical:
            calibration = calibration.learn(
                foretold=foretold,
                came=judged.share,
                weight=judged.requests / typical,
                elapsed=look.elapsed,
            )
        curve = curve.learn(
            load=blamed.late,
            on_time_at=blamed.on_time,
            requests=judged.requests,
            late=judged.late,
            elapsed=look.elapsed,
        )
    profile = replace(profile, curve=curve, calibration=calibration)
    forecast = profile.forecast.learn(
        now=now,
        level=demand.level,
        usual=demand_model.usual(ledger),
        ready=look.ready,
        horizon=horizon(memory, pool),
        elapsed=look.elapsed,
        # The level of a half-filled window reads low, and what follows it would count as a surge.
        foretells=memory.since is None or now - memory.since >= demand_model.level_window(memory.interval),
    )
    profile = replace(profile, forecast=forecast)
    if pool.in_charge and settled(memory, pool):
        observation = look.observation
        budget = profile.budget.learn(
            carried=judged,
            in_all=telling,
            allowed=look.allowed,
            usual=typical,
            elapsed=look.elapsed,
            may_rise=observation.requested > pool.min_replicas,
            # More careful planning brings no replica for which there is no node.
            may_fall=observation.requested < pool.max_replicas
            and not any(replica.unschedulable for replica in observation.starting),
        )
        profile = replace(profile, budget=budget)
    memory = replace(
        memory,
        profile=profile,
        price=memory.price if now < memory.price_until else None,
        kept_score=_score(memory.kept_score, late, now),
    )
    return Lesson(memory, step, demand)


def _judged_anew(memory: Memory, pool: Pool) -> Memory:
    """The memory once it is known that the TTFT histogram leaves the queue out.

    What it taught is dropped, and the last minutes' score is what the other witnesses say.
    """
    rows = memory.ledger.rows[:-1]
    ends = [*(begin for begin, _, _ in memory.kept_score), math.inf][1:]
    score = []
    for judged, end in zip(memory.kept_score, ends, strict=True):
        within = rows[(rows[:, AT] >= judged[0]) & (rows[:, AT] < end)]
        late = missed(memory, pool, Window(within))
        score.append((judged[0], late.requests, late.late) if len(rows) and judged[0] >= rows[0, AT] else judged)
    profile = replace(memory.profile, curve=MissCurve(), calibration=Calibration())
    return replace(memory, profile=profile, kept_score=tuple(score), foretelling=None)


def _within_a_full_replica(telling: Misses, blamed: Blame) -> Misses:
    """Those that met a load which a fleet can carry.

    Beyond the load of a full replica a queue grows without end: what came of it says nothing of lower loads.
    """
    late = telling.late if blamed.late <= OVERLOAD else 0.0
    on_time = telling.requests - telling.late if blamed.on_time <= OVERLOAD else 0.0
    return Misses(late + on_time, late)


def _foretold(look: _Look, before: Memory, load: float) -> float | None:
    """Share of misses that was believed to come of `load`, before it came; None where nothing was.

    By the curve that was believed then: what is learned of this look is no foretelling of it.
    """
    curve = before.foretelling
    if curve is None:
        step = _told(before)[0]
        if step is None:
            return None  # the first look that tells the step time
        curve = posterior(before, look.pool, step)
    return min(1.0, float(curve.cost(np.array([load]))[0]))


def _tail(tail: Tail, observation: Observation, name: str, span: float) -> Tail:
    pages = () if isinstance(observation.metrics, Unknown) else observation.metrics
    read = {page.replica: getattr(page, name) for page in pages}
    return tail.learn({replica: page for replica, page in read.items() if isinstance(page, Histogram)}, elapsed=span)


def of_last_hour(kept: tuple[Judged, ...], now: float) -> tuple[Judged, ...]:
    """The bins of a score that began in it."""
    return tuple(entry for entry in kept if entry[0] > now - SCORE_KEPT)


def _score(kept: tuple[Judged, ...], late: Misses, now: float) -> tuple[Judged, ...]:
    if kept and now < kept[-1][0] + SCORE_BIN:
        start, requests, missed_so_far = kept[-1]
        return (*kept[:-1], (start, requests + late.requests, missed_so_far + late.late))
    return (*of_last_hour(kept, now), (now, late.requests, late.late))
