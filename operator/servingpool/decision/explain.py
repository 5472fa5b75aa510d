"""The figures and the sentence of a decision.

In: what was learned, planned and limited. Out: `Figures`, the reason, a warning where something is wrong but not fatal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from servingpool.decision.decision import AtZero, Figures, Limited, Plan
from servingpool.decision.learn.memory import Memory, UpdateResult
from servingpool.decision.learn.miss_curve import tpot_infeasible
from servingpool.decision.observation import Reading, Unknown
from servingpool.decision.observe.gauges import doubted_queue
from servingpool.decision.observe.lateness import Lateness, Queues, Witness
from servingpool.decision.observe.samples import BEGUN, GENERATED, PROMPTS, TTFT_COUNT, TTFT_SUM, WAITED, Standing
from servingpool.decision.observe.window import MINUTE, READY, RUNNING, SUMS, WAITING, Slice, rate_window
from servingpool.decision.pool import Pool
from servingpool.decision.words import MOST_NAMED, clock, shown, span

NEVER_FULL = Unknown("no replica was seen full")


def figures(
    pool: Pool, memory: Memory, update: UpdateResult, plan: Plan | Unknown, queues: Queues, now: float
) -> Figures:
    """Figures of the pool, measured and estimated; Unknown where a figure is not known."""
    window, profile, params = memory.window, memory.profile, pool.params
    recent = window.last(rate_window(memory.interval, params))
    no_rate = plan if isinstance(plan, Unknown) else Unknown("no scrapes to take a rate from")
    demand, step, full = update.demand, update.step, profile.saturation
    judge = Lateness(window, profile.queue_in_ttft.excluded, pool)
    overdue = queues.overdue(pool.slo.time_to_first_token)
    unjudged = _unjudged(pool, memory, now)
    rule = None if update.forecast is None else update.forecast.rule
    loaded = demand is not None and window.rows[-1, READY] > 0.0

    def of_plan(read: Callable[[Plan], float]) -> Reading:
        return plan if isinstance(plan, Unknown) else read(plan)

    return Figures(
        arrivals=no_rate if demand is None else demand.arrivals,
        generation_rate=_rate(recent, GENERATED, no_rate),
        prompt_rate=_rate(recent, PROMPTS, no_rate),
        queue=_gauge(recent, WAITING),
        running=_gauge(recent, RUNNING),
        time_to_first_token=_first_token(memory, pool, judge),
        time_per_output_token=memory.tpot_tail.at(pool.slo.attainment),
        attainment=_attainment(memory, overdue, now) if unjudged is None else unjudged,
        attainment_now=_attained_in(pool.params.recent_window, memory, pool, overdue) if unjudged is None else unjudged,
        attainment_minute=_attained_in(MINUTE, memory, pool, overdue) if unjudged is None else unjudged,
        judged=unjudged is None,
        witness=judge.believed,
        longest_wait=queues.longest_wait,
        full_batch=full.batch if full.known else NEVER_FULL,
        full_requests=full.requests / full.seconds if full.seconds > 0.0 else NEVER_FULL,
        full_tokens=full.tokens / full.seconds if full.seconds > 0.0 else NEVER_FULL,
        step_base=no_rate if step is None else step.base,
        step_per_request=no_rate if step is None else step.per_request,
        step_per_prefill_token=no_rate if step is None else step.per_prefill_token,
        work_per_request=no_rate if demand is None else demand.work_per_request,
        load=window.per_replica(demand.level) if demand is not None and loaded else no_rate,
        safe_load=plan if isinstance(plan, Unknown) else _safe_load(plan),
        miss_floor=of_plan(lambda plan: plan.curve.floor),
        miss_calibration=profile.calibration.ratio(params),
        persistence=no_rate if rule is None else rule.persistence,
        usual_persistence=no_rate if rule is None else rule.reversion,
        forecast=of_plan(lambda plan: plan.expected),
        burst=of_plan(lambda plan: plan.burst),
        backlog=of_plan(lambda plan: plan.backlog),
        horizon=memory.horizon(pool),
        fast_factor=profile.budget.fast_factor(params),
        slow_factor=profile.budget.slow_factor(params),
        allowance=of_plan(lambda plan: plan.allowance),
        penalty=of_plan(lambda plan: plan.penalty),
        for_forecast=of_plan(lambda plan: plan.for_forecast),
        for_initial_fleet=of_plan(lambda plan: plan.for_initial_fleet),
        for_present_load=of_plan(lambda plan: plan.for_present_load),
        recommended=of_plan(lambda _: memory.highest_recommendation),
        idle_for=memory.idle_for(now),
    )


def warning(pool: Pool, update: UpdateResult, plan: Plan | Unknown, now: Reading) -> str | None:
    """Why no fleet size holds the SLO; None where some may. `now`: the share of the last requests that met it."""
    bound, step = pool.slo.time_per_output_token, update.step
    if bound is not None and step is not None and update.memory.profile.fit.known and tpot_infeasible(pool, step):
        return (
            f"Time per output token {bound * 1000:.0f} ms cannot be held at any fleet size: "
            f"even an idle engine takes {step.between_tokens * 1000:.0f} ms per token. "
            f"Set a bound above that, or use faster replicas."
        )
    if isinstance(plan, Unknown) or plan.feasible or not plan.has_evidence:
        return None
    held = 1.0 - plan.curve.floor
    lower = "" if not isinstance(now, Unknown) and now < held else f"set attainment below {held:.1%}, "
    return (
        f"About {plan.curve.floor:.1%} of requests miss the SLO at any fleet size; {plan.allowed:.1%} are allowed. "
        f"Raise the bound, {lower}or use faster replicas."
    )


def reason(
    moved: str,
    pool: Pool,
    plan: Plan | Unknown,
    answer: Limited,
    figures: Figures,
    at_zero: AtZero | None = None,
    doubts: Sequence[str] = (),
) -> str:
    """Why this many replicas, in one sentence. `moved`: its beginning; `doubts`: sentences on disbelieved figures."""
    without = figures.idle_for
    if at_zero is not None:
        parts = [at_zero.why]
    elif answer.replicas == 0 and not isinstance(without, Unknown):
        parts = [f"idle for {span(without)}"]
    elif isinstance(plan, Unknown):
        parts = [f"the need is unknown ({plan.reason})"]
    else:
        parts = _weighed(pool, plan, figures)
    parts += doubts
    parts += [limit.reason for limit in answer.applied]
    return f"{moved}: {'; '.join(parts)}"


def doubts(memory: Memory, plan: Plan | Unknown, standing: Sequence[Standing], pool: Pool) -> list[str]:
    """Sentences on figures that were read and are not believed."""
    found = []
    if memory.damaged is not None and memory.coverage > 0.0:
        found.append(f"left out of this scrape: {memory.damaged}")
    if standing:
        said = f"no progress at {told_standing(standing)}: such gauges are not believed"
        if not isinstance(plan, Unknown) and plan.stuck:
            said += f", so {_needed(pool.whole(plan.need))} in all"
        found.append(said)
    queue = doubted_queue(memory.gateway_gauge, pool.params.stands_still)
    return found if queue is None else [*found, queue]


def told_standing(standing: Sequence[Standing]) -> str:
    """Names of the replicas that stand still, with their requests and since when."""
    first = ", ".join(
        f"{one.replica} ({one.requests:.0f} requests since {clock(one.since)})" for one in standing[:MOST_NAMED]
    )
    others = len(standing) - MOST_NAMED
    return f"{first} and {others} more" if others > 0 else first


def _weighed(pool: Pool, plan: Plan, figures: Figures) -> list[str]:
    if plan.idle:
        return [f"no request in the last {pool.params.idle_window / 60:.0f} minutes, so nothing is kept beyond min"]
    parts = [
        f"{_number(figures.arrivals)} requests/s now",
        f"in {figures.horizon:.0f} s (cold start) traffic should keep {_number(plan.expected)} replicas busy",
    ]
    if plan.backlog >= 0.1:
        parts.append(f"{_number(figures.queue)} queued requests keep {plan.backlog:.1f} more busy")
    if not isinstance(figures.full_requests, Unknown):
        at_a_time = "" if isinstance(figures.full_batch, Unknown) else f", {_number(figures.full_batch)} at a time"
        parts.append(f"a full replica serves {_number(figures.full_requests)} requests/s{at_a_time}")
    return [*parts, _sizing(plan, figures.burst)]


def _sizing(plan: Plan, burst: Reading) -> str:
    """The largest of the three needs, and its cause."""
    need = max(plan.for_forecast, plan.for_initial_fleet, plan.for_present_load)
    if need > max(plan.for_forecast, plan.for_initial_fleet):
        return f"{shown(plan.for_forecast)} cover the forecast; the present load needs {shown(need)}"
    if need > plan.for_forecast:
        kept = f"{shown(need)} are kept because the initial fleet may have been needed"
        return f"{shown(plan.for_forecast)} cover the forecast; {kept}"
    if not plan.feasible:
        said = "too few requests were seen to tell whether the SLO can hold"
        if plan.has_evidence:
            said = f"no replica count meets the SLO ({_percent(plan.curve.floor)} would still miss)"
        return f"{said}; {_needed(need)}, the cheapest fleet by what is known so far"
    plain = max(1, math.ceil((plan.expected + plan.backlog) / plan.safe_load))
    if need < plain:
        return f"{_needed(need)}: cheaper than the {plain} that would cover every burst, even with the misses to expect"
    said = f"each may be {plan.safe_load:.0%} busy, so {_needed(need)}"
    price = f"a late request is priced at {_number(plan.penalty)} times its GPU time"
    spare = f", {shown(need - plain)} of them spare: traffic may reach {_number(burst)} busy replicas, and {price}"
    return said if need == plain else f"{said}{spare}"


def _needed(replicas: float) -> str:
    return f"{shown(replicas)} {'is' if replicas == 1.0 else 'are'} needed"


def _mean_prefill(memory: Memory, pool: Pool) -> Reading:
    window = memory.window.last(pool.params.mean_window)
    requests = window.total(TTFT_COUNT)
    return window.total(TTFT_SUM) / requests if requests > 0.0 else Unknown("no request began in ten minutes")


def _first_token(memory: Memory, pool: Pool, judge: Lateness) -> Reading:
    """TTFT at the SLO's percentile; with the time in the queue where the histogram excludes it."""
    inferred = memory.ttft_inferred and judge.believed is not Witness.GATEWAY
    shown = _mean_prefill(memory, pool) if inferred else memory.ttft_tail.at(pool.slo.attainment)
    if judge.believed is not Witness.QUEUE or isinstance(shown, Unknown):
        return shown
    rows = memory.window.last(pool.params.recent_window).rows
    begun, waited = rows[:, SUMS + BEGUN], rows[:, SUMS + WAITED]
    each = np.divide(waited, begun, out=np.zeros(len(rows)), where=begun > 0.0)
    order = np.argsort(each)
    place = np.searchsorted(np.cumsum(begun[order]), pool.slo.attainment * begun.sum())
    return shown + float(each[order][min(place, len(rows) - 1)]) if len(rows) else shown


def _safe_load(plan: Plan) -> Reading:
    if plan.feasible:
        return plan.safe_load
    many = "more requests miss than may, at any load"
    return Unknown(many if plan.has_evidence else "too few requests were seen to tell")


def _rate(window: Slice, column: int, otherwise: Unknown) -> Reading:
    rate = window.rate(column)
    return otherwise if rate is None else rate


def _gauge(window: Slice, column: int) -> Reading:
    value = window.rows[-1, column] if len(window.rows) else np.nan
    return Unknown("not read at the last observation") if np.isnan(value) else float(value)


def _unjudged(pool: Pool, memory: Memory, now: float) -> Unknown | None:
    """Why the SLO is not judged: the gateway has not told the client's TTFT for longer than a lost scrape takes."""
    told = memory.client is not None and now - memory.client.at <= pool.params.longest_gap
    return None if told or memory.client_unknown is None else Unknown(memory.client_unknown)


def _attained_in(seconds: float, memory: Memory, pool: Pool, overdue: float) -> Reading:
    misses = memory.window.last(seconds).misses
    requests = misses.requests + overdue
    if requests * pool.slo.allowed < 1.0:
        return Unknown(f"too few requests in {span(seconds)}")
    return 1.0 - (misses.late + overdue) / requests


def _attainment(memory: Memory, overdue: float, now: float) -> Reading:
    """Attainment over the last hour; `overdue` requests have waited for too long already, and count as late."""
    # Bins go when a new one begins: while nothing is read none does.
    score = memory.score_of_last_hour(now)
    requests = sum(entry.requests for entry in score) + overdue
    if requests <= 0.0:
        return Unknown("no request was judged in the last hour")
    return 1.0 - (sum(entry.late for entry in score) + overdue) / requests


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else f"{share:.2%}"


def _number(figure: Reading) -> str:
    if isinstance(figure, Unknown):
        return "an unknown number of"
    if 0.0 < figure < 0.01:
        return "less than 0.01"
    return f"{figure:.2g}" if figure < 10 else f"{figure:.0f}"
