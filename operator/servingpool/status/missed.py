"""Why the SLO is missed: a state, which the reason of SLOMet names, and its figures.

A pure function of the plan. What to do follows from the state: "raise max" does not help a fleet that recovers.
"""

from __future__ import annotations

import math
from datetime import datetime

from servingpool.api.conditions import Reason
from servingpool.api.duration import brief
from servingpool.catalogue.limits import LimitName
from servingpool.decision.decision import Limit
from servingpool.decision.figures import slo_met
from servingpool.decision.learn.kinds import OVERDUE
from servingpool.decision.need.mix import BEYOND
from servingpool.decision.observation import Reading, Unknown
from servingpool.decision.observe.window import KEPT_SECONDS
from servingpool.decision.params import DEFAULT, MINUTE
from servingpool.decision.words import clock, shown
from servingpool.reconcile.collect.targets import of_role
from servingpool.reconcile.plan.pool_plan import PoolPlan, StagePlan
from servingpool.reconcile.plan.preconditions import ScalePermission

CALM_FOR = MINUTE
"""Seconds of low load after which a fleet counts as recovering: the time of the shortest attainment."""
CALM_KNOWN = KEPT_SECONDS - MINUTE
"""Seconds of low load from which on the load before is not known any more, so that its beginning is not told."""
LASTING = (LimitName.GPU_BUDGET, LimitName.UNSCHEDULABLE)
"""Limits that bind whatever max is, so that a higher max would not help."""
KEEP_FROM_READY = (
    *(Reason.ROLLOUT_IN_PROGRESS, Reason.WAITING_FOR_NODE, Reason.UNSCHEDULABLE, Reason.SCHEDULING_GATED),
    *(Reason.FAILED_CREATE, Reason.FAILED_UPDATE_SCALE, Reason.REPLICAS_CONTESTED),
)
"""Reasons of Ready for which requested replicas do not become Ready."""
WORST_FIRST = (
    *(Reason.OBJECTIVE_UNATTAINABLE, Reason.SCALE_UP_HELD_BACK, Reason.MAX_TOO_LOW),
    *(Reason.REPLICAS_STARTING, Reason.OBJECTIVE_MISSED, Reason.RECOVERING),
)
"""Of two roles in different states the first of these is told."""


def missed(plan: PoolPlan, permission: ScalePermission, certain: datetime | None) -> tuple[Reason, str]:
    """The state of a pool that misses its SLO, as a reason and its message; of two roles that miss, of the worse.

    `permission`: after the order was tried. `certain`: since when it is that no fleet size holds the SLO.
    """
    share = plan.seen.pool.spec.slo.attainment_share
    missing = [one for one in plan.stages if none_serves(one, permission) or not slo_met(one.decision.figures, share)]
    states = [(one.role, *_of_stage(one, permission, certain)) for one in missing or plan.stages]
    role, reason, said = min(states, key=lambda one: WORST_FIRST.index(one[1]))
    return reason, of_role(role, said)


def none_serves(stage: StagePlan, permission: ScalePermission) -> bool:
    """Whether nothing serves or comes, though replicas are wanted: what was served before tells nothing then."""
    kept = not permission.act or permission.reason in KEEP_FROM_READY
    empty = kept and stage.decision.replicas > 0 and not any(one.ready or one.requested for one in stage.decision.parts)
    return empty or left_nothing(stage) is not None


def left_nothing(stage: StagePlan) -> Limit | None:
    """The limit that leaves a stage none of the replicas that it is to have."""
    if stage.decision.replicas or any(part.ready for part in stage.decision.parts):
        return None
    return next((one for one in stage.decision.limits if one.name in LASTING and one.after < 1.0 <= one.before), None)


def _of_stage(stage: StagePlan, permission: ScalePermission, certain: datetime | None) -> tuple[Reason, str]:
    decision = stage.decision
    ready, calm = sum(part.ready for part in decision.parts), stage.memory.calm_since(stage.core)
    if decision.warning is not None:
        since = clock(decision.at if certain is None else certain.timestamp())
        return Reason.OBJECTIVE_UNATTAINABLE.said(why=decision.warning, since=since)
    if ready and calm is not None and decision.at - calm >= CALM_FOR and not _misses_now(stage, decision.at - calm):
        return Reason.RECOVERING.said(ready=_counted(ready, "ready replica"), calm=_calm(calm, decision.at))
    starting, overdue = _starting(stage) if _short(stage) else ("", False)
    needed, held = needed_of(stage), _held_back(stage, permission, overdue=overdue)
    if held is not None:
        name, why, action = held
        return Reason.SCALE_UP_HELD_BACK.said(
            needed=needed, ordered=decision.replicas, ready=ready, name=name, why=why.rstrip("."), action=action
        )
    if not overdue and not isinstance(decision.need, Unknown) and above_max(stage):
        enough = "" if _several(stage) else " in steps" if _unbounded(stage) else f" to {math.ceil(decision.need)}"
        return Reason.MAX_TOO_LOW.said(needed=needed, bound=decision.bounds.most, enough=enough)
    if starting:
        return Reason.REPLICAS_STARTING.said(starting=starting)
    return Reason.OBJECTIVE_MISSED.said(ready=ready, needed=needed)


def _misses_now(stage: StagePlan, calm: float) -> bool:
    """Whether more than allowed misses of late, after `calm` seconds of low load. Too few requests are no misses.

    A minute of too few requests tells nothing. The last 5 minutes tell, once no miss in them is from before.
    """
    now = stage.decision.figures.attainment_minute
    if isinstance(now, Unknown) and calm >= DEFAULT.recent_window:
        now = stage.decision.figures.attainment_now
    return not isinstance(now, Unknown) and now < stage.seen.pool.spec.slo.attainment_share


def _calm(since: float, at: float) -> str:
    """Since when the load is low, as the beginning of a sentence."""
    known = f"Since {clock(since)} ({brief(at - since)})"
    return f"For {brief(CALM_KNOWN)} or more" if at - since >= CALM_KNOWN else known


def _short(stage: StagePlan) -> bool:
    """Whether fewer replicas are ready than are desired and, of one target, needed."""
    decision, ready = stage.decision, sum(part.ready for part in stage.decision.parts)
    enough = _several(stage) or isinstance(decision.need, Unknown) or ready < decision.need
    return ready < decision.replicas and enough


def _held_back(stage: StagePlan, permission: ScalePermission, *, overdue: bool) -> tuple[str, str, str] | None:
    """What keeps the fleet below its need, by name, with a sentence and what to do; None where nothing but max does.

    `overdue`: replicas that start have taken so long that they are not counted on.
    """
    decision, need = stage.decision, stage.decision.need
    of_ready = permission.reason.value, permission.message, permission.reason.action
    if (none := left_nothing(stage)) is not None:
        return none.name.value, none.reason, none.name.action
    short = _short(stage)
    kept = short and permission.reason in KEEP_FROM_READY
    if short and not permission.act and decision.replicas > sum(part.requested for part in decision.parts):
        return of_ready
    if isinstance(need, Unknown) and not short:
        return "MetricsAvailable", f"the need is unknown ({need.reason})", "See the condition MetricsAvailable."
    if not isinstance(need, Unknown) and not isinstance(decision.capacity, Unknown) and decision.capacity < need:
        cuts = [one for one in decision.limits if one.after < one.before and one.name != LimitName.MAXIMUM]
        # What keeps ordered replicas from Ready comes before limits that end by themselves once these are.
        cuts = [one for one in cuts if one.name in LASTING] if kept or overdue or _cut_by_max(stage) else cuts
        if cuts:
            return cuts[-1].name.value, cuts[-1].reason, cuts[-1].name.action
    return of_ready if kept else None


def _starting(stage: StagePlan) -> tuple[str, bool]:
    """How many replicas start of a fleet that is short, and when the last is ready; and whether that one is overdue."""
    missing = [part for part in stage.decision.parts if part.ready < part.replicas]
    left, in_turn = [], [one.name for one in stage.seen.targets if one.workload.in_turn]
    for part in missing:
        ages = [one.age for one in stage.seen.observation.starting if one.target == part.target]
        turns = part.replicas - part.ready if part.target in in_turn else 1
        youngest = min(ages, default=0.0) if turns > 1 or part.ready + len(ages) >= part.replicas else 0.0
        left.append((turns * part.cold_start - youngest, part.cold_start, youngest))
    count, (seconds, cold, age) = sum(part.replicas - part.ready for part in missing), max(left)
    usual, soon = f" for {brief(age)}, and a start usually takes {brief(cold)}", f", ready in about {brief(seconds)}"
    said = f"{count} of {stage.decision.replicas} replicas are starting{soon if age < cold else usual}"
    return said, age > OVERDUE * cold


def above_max(stage: StagePlan) -> bool:
    """Whether max limits the answer; of one target, also whether it would without another limit of `LASTING`."""
    need = stage.decision.need
    if _several(stage) or isinstance(need, Unknown) or not any(one.name in LASTING for one in stage.decision.limits):
        return _cut_by_max(stage)
    return math.ceil(need) > stage.decision.bounds.most.replicas


def _cut_by_max(stage: StagePlan) -> bool:
    return any(one.name == LimitName.MAXIMUM for one in stage.decision.limits)


def below_min(stage: StagePlan) -> bool:
    """Whether the raw need is below the min in force.

    Of several targets, or of an unknown need: whether a limit raised the answer to min.
    """
    need, names = stage.decision.need, (LimitName.MINIMUM, LimitName.RATIO, LimitName.OTHER_ROLE)
    if _several(stage) or isinstance(need, Unknown):
        return any(one.name in names for one in stage.decision.limits)
    return math.ceil(need) < stage.decision.bounds.least.replicas


def needed_of(stage: StagePlan) -> str:
    """The raw need, the one figure that every text has; of several targets in replicas of the reference.

    Where the search for the need ended at its own bound, it is only known to be above max.
    """
    need = stage.decision.need
    if isinstance(need, Unknown):
        return "an unknown number of replicas"
    if _several(stage):
        return f"{shown(need)} replicas of {stage.memory.profile.reference}"
    if _unbounded(stage):
        return f"more than {_counted(stage.decision.bounds.most.replicas, 'replica')}"
    return _counted(math.ceil(need), "replica")


def _unbounded(stage: StagePlan) -> bool:
    """Whether the need of one target is the largest fleet that was weighed, so that it has no figure."""
    need, most = stage.decision.need, stage.decision.bounds.most.replicas
    return not isinstance(need, Unknown) and need >= BEYOND * most


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _several(stage: StagePlan) -> bool:
    """Whether the need is counted in replicas of a reference, so that it does not compare with min and max."""
    return len(stage.seen.targets) > 1


def attained(figure: Reading) -> str:
    """A share of requests; why it is unknown where it is."""
    return f"unknown ({figure.reason})" if isinstance(figure, Unknown) else f"{100.0 * figure:.1f}%"
