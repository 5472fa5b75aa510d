"""The sentence of a decision.

In: what was learned, planned and limited. Out: the reason, a warning where something is wrong but not fatal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from servingpool.decision.decision import Limited
from servingpool.decision.engine import StepTime
from servingpool.decision.figures import Figures
from servingpool.decision.learn.memory import Memory
from servingpool.decision.learn.miss_curve import tpot_infeasible
from servingpool.decision.observation import Reading, Replica, Unknown
from servingpool.decision.observe.gauges import doubted_queue
from servingpool.decision.observe.samples import Standing
from servingpool.decision.plan import Plan, Wanted
from servingpool.decision.pool import Pool
from servingpool.decision.words import MOST_NAMED, clock, listed, shown, span

FASTER = "Raise the bound, shorten or cache prompts, or use a faster engine."
ROUTE = "Look in its log for why it sends nothing: its list of engines, its view of their load, its own limits."
CAUSES = "Look for a slow or failing replica, a router that loads them unevenly, and clients that send again."


def warning(pool: Pool, memory: Memory, step: StepTime | None, plan: Plan | Unknown, now: Reading) -> str | None:
    """Why no fleet size holds the SLO; None where some may. `now`: the share of the last requests that met it."""
    bound, fit = pool.slo.time_per_output_token, memory.profile.engine.fit
    if bound is not None and step is not None and fit.known and tpot_infeasible(pool, step):
        return (
            f"Time per output token {bound * 1000:.0f} ms cannot be held at any fleet size: "
            f"even an idle engine takes {step.between_tokens * 1000:.0f} ms per token. "
            f"Set a bound above that, or use faster replicas."
        )
    trial, gauge = memory.trial, memory.gateway_gauge
    if gauge is not None and gauge.unserved(pool):
        holds = doubted_queue(gauge, pool) or ""
        return f"{holds[0].upper()}{holds[1:]}. {ROUTE}"
    if trial is not None and (failed := trial.failed) is not None:
        return f"{failed[0].upper()}{failed[1:]}. {FASTER if trial.hopeless else CAUSES}"
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
    wanted: Wanted | None = None,
    doubts: Sequence[str] = (),
) -> str:
    """Why this many replicas, in one sentence. `moved`: its beginning; `doubts`: sentences on disbelieved figures."""
    without = figures.idle_for
    if wanted is not None:
        parts = [wanted.why]
    elif answer.replicas == 0 and not isinstance(without, Unknown):
        parts = [f"idle for {span(without)}"]
    elif isinstance(plan, Unknown):
        parts = [f"the need is unknown ({plan.reason})"]
    else:
        parts = _weighed(pool, plan, figures)
    parts += doubts
    parts += [limit.reason for limit in answer.applied]
    return f"{moved}: {'; '.join(parts)}"


def doubts(
    memory: Memory, plan: Plan | Unknown, standing: Sequence[Standing], absent: Sequence[Replica], pool: Pool
) -> list[str]:
    """Sentences on figures that were read and are not believed, and on replicas that are away."""
    found = [f"{one.name} served and is not Ready: more is planned for such losses" for one in absent[:MOST_NAMED]]
    if memory.damaged is not None and memory.last.coverage > 0.0:
        found.append(f"left out of this scrape: {memory.damaged}")
    if standing:
        said = f"no progress at {told_standing(standing)}: such gauges are not believed"
        if not isinstance(plan, Unknown) and plan.stuck:
            said += f", so {_needed(pool.whole(plan.need))} in all"
        found.append(said)
    queue = memory.gateway_gauge and doubted_queue(memory.gateway_gauge, pool)
    return found if queue is None else [*found, queue]


def told_standing(standing: Sequence[Standing]) -> str:
    """Names of the replicas that stand still, with their requests and since when."""
    return listed([f"{one.replica} ({one.requests:.0f} requests since {clock(one.since)})" for one in standing])


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
        running = "" if isinstance(figures.full_batch, Unknown) else f" with {_number(figures.full_batch)} running"
        parts.append(f"a full replica can serve {_number(figures.full_requests)} requests/s{running}")
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
            said = f"no replica count meets the SLO ({plan.curve.floor:.1%} would still miss)"
        return f"{said}; {_needed(need)}, the cheapest fleet by what is known so far"
    plain = max(1, math.ceil((plan.expected + plan.backlog) / plan.safe_load))
    if need < plain:
        return f"{_needed(need)}: they and the misses to expect cost less than the {plain} that would cover every burst"
    said = f"the SLO allows {plan.safe_load:.0%} load, so {_needed(need)}"
    price = f"a late request counts as {_number(plan.penalty)} times its GPU time"
    spare = f", {shown(need - plain)} of them spare: traffic may reach {_number(burst)} busy replicas, and {price}"
    return said if need == plain else f"{said}{spare}"


def _needed(replicas: float) -> str:
    return f"{shown(replicas)} {'is' if replicas == 1.0 else 'are'} needed"


def _number(figure: Reading) -> str:
    if isinstance(figure, Unknown):
        return "an unknown number of"
    if 0.0 < figure < 0.01:
        return "less than 0.01"
    return f"{figure:.2g}" if figure < 10 else f"{figure:.0f}"
