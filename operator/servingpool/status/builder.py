"""The status that people read, built once a tick: of a pool that was decided on, after acting; or of a refused pool."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime

from pydantic.alias_generators import to_camel

from servingpool.api.conditions import Condition, ConditionType, Reason, Truth, condition_of, updated
from servingpool.api.duration import brief
from servingpool.api.role import Role
from servingpool.api.status import (
    BatchStatus,
    Bounds,
    Candidate,
    Change,
    Cost,
    LastDecision,
    Latency,
    Limit,
    RoleStatus,
    Status,
    Throughput,
)
from servingpool.api.time import from_unix
from servingpool.catalogue.limits import LimitName
from servingpool.decision.decision import Decision, Verdict
from servingpool.decision.figures import ROWS, Figures, slo_met
from servingpool.decision.observation import Histogram, Reading, Unknown
from servingpool.decision.observe.lateness import Witness
from servingpool.decision.plan import Wanted
from servingpool.decision.pool import Bounds as InForce
from servingpool.decision.words import clock
from servingpool.reconcile.act import ScaleOutcome, in_flight
from servingpool.reconcile.collect.targets import of_role
from servingpool.reconcile.plan.expense import Expense
from servingpool.reconcile.plan.pool_plan import Planned, PoolPlan, Refusal, StagePlan
from servingpool.reconcile.plan.preconditions import ScalePermission
from servingpool.status.conditions import (
    RANK,
    cold_start_of,
    estimated,
    judge_drains,
    judge_limits,
    judge_metrics,
    judge_objects,
    judge_targets,
    judge_zero,
    limit_of,
    targets_of,
)
from servingpool.status.missed import LASTING, attained, missed, none_serves

FIGURE_NAMES = {name: to_camel(name) for name in ROWS}
"""Figures of a decision, and their names in the status."""


def last_decision(decision: Decision, on_cost: str | None = None) -> LastDecision:
    """The decision in full. `on_cost`: why nothing is told of the cost."""
    figures = decision.figures
    return LastDecision(
        at=from_unix(decision.at),
        replicas=decision.replicas,
        verdict=decision.verdict.value,
        need=rounded(decision.need, 2),
        limits=tuple(
            Limit(name=limit.name, before=round(limit.before, 2), after=round(limit.after, 2), reason=limit.reason)
            for limit in decision.limits
        ),
        reason=decision.reason,
        load=rounded(figures.load, 3),
        safe_load=rounded(figures.safe_load, 3),
        forecast=rounded(figures.forecast, 2),
        horizon=brief(figures.horizon),
        figures={
            FIGURE_NAMES[name]: float(f"{value:.6g}")
            for name in FIGURE_NAMES
            if isinstance(value := getattr(figures, name), float)
        },
        candidates=tuple(
            Candidate(replicas=round(one.replicas, 2), misses=float(f"{one.misses:.6g}")) for one in decision.candidates
        ),
        warnings=tuple(warning for warning in (decision.warning, on_cost) if warning is not None),
    )


def roles_of(plan: PoolPlan, *, done: bool) -> tuple[RoleStatus, ...] | None:
    """Status of each role; None for a pool without. `done`: all desired replicas were requested just now."""
    told = tuple(
        RoleStatus(
            role=Role(stage.role),
            replicas=stage.decision.replicas if done else stage.seen.observation.requested,
            ready_replicas=len(stage.seen.observation.ready),
            desired_replicas=stage.decision.replicas,
            last_decision=last_decision(stage.decision),
        )
        for stage in plan.stages
        if stage.role
    )
    return told or None


def rounded(figure: Reading, digits: int) -> float | None:
    """The figure as the status has it; None where unknown."""
    return None if isinstance(figure, Unknown) else round(figure, digits)


SEEN = (
    *("fleet", "bounds", "replicas", "ready_replicas", "desired_replicas", "targets", "roles"),
    *("throughput", "cost", "queue_depth", "batch", "latency", "attainment", "unattainable_since"),
)
"""Fields that describe the present; the last decision keeps its own time."""

OF_SOME_POOLS = (ConditionType.ZERO_READY, ConditionType.TARGETS_AVAILABLE)
"""Conditions that go when the spec changes: of a pool with min 0, or with several targets."""


def build(
    due: Planned,
    outcome: ScaleOutcome,
    held: Status,
    scaled_at: float | None,
    history: tuple[Change, ...],
    operator: str | None,
) -> Status:
    """The status of a pool after acting.

    `held` is the one before: conditions keep their transition times. `scaled_at` is the Unix time in seconds of the
    last order that is worth telling; None if there was none since the start. `history` is the newest change first.
    `operator` is our name, where several operators write.
    """
    told = _refused(due, held) if isinstance(due, Refusal) else _decided(due, outcome, held, scaled_at)
    return told.model_copy(update={"history": history, "operator": operator})


def _decided(plan: PoolPlan, outcome: ScaleOutcome, held: Status, scaled_at: float | None) -> Status:
    """The status of a pool that was decided on, and scaled or not."""
    decision, observation, permission = plan.decision, plan.seen.observation, plan.permission
    if outcome.failure is not None:
        permission = replace(permission, reason=outcome.failure[0], message=outcome.failure[1])
    metrics = judge_metrics(plan)
    certain = _unattainable_since(decision, held)
    slo_condition = _slo_condition(plan, permission, certain, held)
    bounds, figures, ready = decision.bounds, decision.figures, len(observation.ready)
    judged = [
        _condition(plan, permission.reason, permission.message),
        _condition(plan, *metrics),
        slo_condition,
        _condition(plan, *judge_limits(plan)),
        _condition(plan, *(Reason.LEARNING.said() if decision.calibrating else Reason.LEARNED.said())),
        _condition(plan, *judge_drains(plan.seen.targets, in_flight(observation, plan.standing).values())),
    ]
    # That all objects are read is told where something was not before.
    partly = any(one.type is ConditionType.OBJECTS_READ for one in held.conditions)
    objects = judge_objects(plan.seen) or (Reason.ALL_OBJECTS_READ.said() if partly else None)
    judged += [_condition(plan, *one) for one in (judge_zero(plan), _targets(plan), objects) if one]
    types = {one.type for one in judged}
    before = [one for one in held.conditions if one.type in types or one.type not in OF_SOME_POOLS]
    cold_start, done = cold_start_of(plan.memories), outcome.complete and outcome.ordered is not None
    return held.model_copy(
        update={
            "observed_generation": plan.meta.generation,
            "conditions": updated(before, judged),
            "fleet": f"{ready}/{decision.replicas}/{bounds.most.replicas}",
            "bounds": told_bounds(bounds),
            "why": _why(permission, metrics[0], slo_condition, plan),
            "replicas": observation.requested if outcome.ordered is None else outcome.ordered,
            "ready_replicas": ready,
            "desired_replicas": decision.replicas,
            "targets": targets_of(decision.parts, done=done) if plan.seen.pool.spec.several else None,
            "roles": roles_of(plan, done=done),
            "throughput": _throughput(figures, plan.expense),
            "cost": _cost(plan.expense),
            "queue_depth": rounded(figures.queue, 1),
            "batch": batch_of(plan),
            "latency": Latency(
                time_to_first_token=_seconds(figures.time_to_first_token),
                time_per_output_token=_seconds(figures.time_per_output_token),
            ),
            "attainment": None if isinstance(figures.attainment, Unknown) else round(100.0 * figures.attainment, 2),
            "unattainable_since": certain,
            "cold_start": None if cold_start is None else brief(cold_start),
            "last_decision": last_decision(decision, plan.expense.warning),
            **({} if scaled_at is None else {"last_scale_time": from_unix(scaled_at)}),
        }
    )


def _refused(refusal: Refusal, held: Status) -> Status:
    """The status of a pool for which nothing can be decided: `held` without figures of the present.

    Of a deleted Deployment `2/2/10`, its tokens per second and "all 2 ready replicas are scraped" stood for ever.
    """
    judged = [(ConditionType.READY, refusal.reason.status)]
    judged += [(one.type, Truth.UNKNOWN) for one in held.conditions if one.type is not ConditionType.READY]
    told = condition_of(refusal.reason, refusal.message, generation=refusal.meta.generation, at=refusal.at)
    conditions = [told.model_copy(update={"type": type_, "status": truth}) for type_, truth in judged]
    new = {"observed_generation": refusal.meta.generation, "why": refusal.reason.value}
    return held.model_copy(update=dict.fromkeys(SEEN) | new | {"conditions": updated(held.conditions, conditions)})


def _targets(plan: PoolPlan) -> tuple[Reason, str] | None:
    """Whether all of several targets deliver: of two roles the one that does not, for none takes another's place."""
    if not plan.seen.pool.spec.several:
        return None
    judged = [(stage.role, *judge_targets(stage.decision.parts)) for stage in plan.stages]
    role, reason, said = min(judged, key=lambda one: RANK.index(one[1].status))
    return judge_targets(plan.decision.parts) if reason.status is Truth.TRUE else (reason, of_role(role, said))


def _why(permission: ScalePermission, metrics: Reason, slo: Condition, plan: PoolPlan) -> str:
    well = permission.reason.status is Truth.TRUE
    if metrics.status is Truth.FALSE and (well or permission.act):  # an outage before what it makes old news
        return metrics.value
    verdict = plan.decision.verdict
    # A pod without a node: from the first minute, before what bounds the number.
    if not well or (verdict is Verdict.HOLD and permission.reason is Reason.WAITING_FOR_NODE):
        return permission.reason.value
    if slo.reason == Reason.OBJECTIVE_UNATTAINABLE:  # however many are ordered, and whatever bounds that
        return slo.reason
    if verdict is not Verdict.HOLD:
        return verdict.value
    return limit_of(plan) or (slo.reason if slo.status is Truth.FALSE else verdict.value)


def _condition(plan: PoolPlan, reason: Reason, message: str) -> Condition:
    return condition_of(reason, message, generation=plan.meta.generation, at=plan.decision.at)


def _unattainable_since(decision: Decision, held: Status) -> datetime | None:
    """Since when it is told that no fleet size holds the SLO: a decision without a need tells nothing new."""
    if decision.warning is None:
        return held.unattainable_since if isinstance(decision.need, Unknown) else None
    return held.unattainable_since or from_unix(decision.at)


def batch_of(plan: PoolPlan) -> BatchStatus | None:
    """The work with deadlines; None of a pool without."""
    found, batch, ledger = plan.decision.wanted, plan.seen.pool.spec.batch, plan.memories[0].profile.ledger
    if found is None or batch is None:
        return None
    due, ends, cost, desired = found.due, found.finishes_at, ledger.cost, plan.decision.replicas
    if due and cost and desired < found.replicas - found.may_be_late:  # those that can be had take longer
        ends = plan.decision.at + due.amount * cost / desired if desired else None
    return BatchStatus(
        unit=batch.backlog.unit,
        backlog=round(ledger.waiting, 1) if ledger.known_at == ledger.at else None,
        per_second=None if cost is None else round(desired / cost, 2),
        due=None if due is None else round(due.amount, 1),
        due_at=None if due is None else from_unix(due.at),
        finishes_at=None if ends is None else from_unix(ends),
    )


def _work_condition(plan: PoolPlan, found: Wanted, held: Status, *, idle: bool) -> Condition:
    """Whether work is done in time, or at its rate: what is late already comes before what is at risk.

    `idle`: no replica stands, though some are wanted that cannot wait, so that all work is at risk. Once told, a risk
    lasts until the pool has all that it does not lend: near a deadline other numbers of replicas would do each tick.
    """
    at, ledger, said = plan.decision.at, plan.memories[0].profile.ledger, plan.decision.reason.partition(": ")[2]
    late, unit = [one for one in ledger.dues if one.at < at], ledger.unit
    known = ledger.known_at == at and not isinstance(plan.seen.observation.time_left, Unknown)
    told_before = {one.reason for one in held.conditions} & {Reason.DEADLINE_AT_RISK, Reason.DEADLINE_MISSED}
    must, bind = found.replicas - (found.lends if told_before else found.may_be_late), (*LASTING, LimitName.MAXIMUM)
    short = idle or any(one.name in bind and one.after < min(one.before, must) for one in plan.decision.limits)
    if plan.seen.pool.spec.throughput is not None:
        told = (Reason.THROUGHPUT_HOLDS if known else Reason.THROUGHPUT_UNKNOWN).said(said=said)
        if known and short:
            told = Reason.THROUGHPUT_SHORT.said(most=plan.decision.replicas / (ledger.cost or math.inf), said=said)
    elif late:
        amount, due, longest = math.fsum(one.amount for one in late), clock(late[0].at), brief(at - late[0].at)
        told = Reason.DEADLINE_MISSED.said(amount=amount, unit=unit, at=due, late=longest, said=said)
    elif (risk := found.due if short else found.at_risk) is not None:
        told = Reason.DEADLINE_AT_RISK.said(amount=risk.amount, unit=unit, at=clock(risk.at), said=said)
    else:
        told = (Reason.DEADLINES_HOLD if known else Reason.BACKLOG_UNKNOWN).said(said=said)
    return _condition(plan, *told)


def _slo_condition(plan: PoolPlan, permission: ScalePermission, certain: datetime | None, held: Status) -> Condition:
    idle = any(none_serves(one, permission) for one in plan.stages)
    if (found := plan.decision.wanted) is not None and plan.seen.pool.spec.asked_slo is None:
        return _work_condition(plan, found, held, idle=idle and found.may_be_late < found.replicas)
    figures, objective = plan.decision.figures, plan.seen.pool.spec.slo.attainment
    warned = [] if plan.decision.warning is None else [plan.decision.warning]
    if isinstance(known := figures.attainment, Unknown):
        told = (Reason.TOO_FEW_REQUESTS if figures.judged else Reason.CLIENT_LATENCY_UNKNOWN).said(detail=known.reason)
        reason, said = told[0], [told[1]]
    elif slo_met(figures, objective / 100.0) and not idle:
        reason = Reason.OBJECTIVE_MET
        said = [Reason.OBJECTIVE_MET.message(attained=100.0 * known, objective=objective), *_judged(plan)]
    else:
        recent, minute = attained(figures.attainment_now), attained(figures.attainment_minute)
        whole = (
            f"{100.0 * known:.1f}% of the last hour's requests met the SLO, of the last 5 minutes {recent}, "
            f"of the last minute {minute}; the objective is {objective:g}%."
        )
        reason, state = missed(plan, permission, certain)
        said, warned = [whole, state, *_judged(plan)], [] if reason is Reason.OBJECTIVE_UNATTAINABLE else warned
    return _condition(plan, reason, " ".join([*said, *warned]))


def _judged(plan: PoolPlan) -> list[str]:
    """By what requests were judged, and how exactly."""
    return _believed(plan) + [told for stage in plan.stages for told in _estimated(stage)]


def _estimated(stage: StagePlan) -> list[str]:
    slo, role = stage.seen.pool.spec.slo, stage.role
    said = estimated(stage.memory, slo.time_to_first_token, slo.time_per_output_token, parted=bool(role))
    return [of_role(role, one) for one in said]


def _believed(plan: PoolPlan) -> list[str]:
    """Where TTFT is measured, and the source by which it is judged."""
    figures, gateway = plan.decision.figures, plan.seen.observation.gateway
    if figures.witness == Witness.GATEWAY:
        return ["Time to first token is measured at the gateway."]
    if plan.memories[0].ttft_inferred:
        said = "The engine exports no time to first token"
        return [f"{said}: it is estimated from queue length, gateway arrivals and prefill."]
    choice = isinstance(gateway.time_to_first_token, Histogram)
    where = ["Time to first token is measured at the engines, without the gateway's queue."] if choice else []
    if figures.witness == Witness.HISTOGRAM:
        return where
    waits = [f"Requests wait {figures.longest_wait:.0f} s now."] if figures.longest_wait >= 1.0 else []
    return [*where, "The TTFT histogram excludes queue time, so the queue's length is used instead.", *waits]


def told_bounds(bounds: InForce) -> Bounds:
    """The bounds in force, as the status has them."""
    return Bounds(min=bounds.least.replicas, max=bounds.most.replicas, schedule=", ".join(bounds.schedules) or None)


def _throughput(figures: Figures, money: Expense) -> Throughput | None:
    if isinstance(figures.generation_rate, Unknown):
        return None
    return Throughput(
        generation_tokens_per_second=round(figures.generation_rate, 1),
        prompt_tokens_per_second=rounded(figures.prompt_rate, 1),
        tokens_per_second_per_gpu=rounded(money.per_gpu, 1),
        dollars_per_million_tokens=rounded(money.per_million, 2),
        tokens_per_dollar=rounded(money.per_dollar, 0),
    )


def _cost(money: Expense) -> Cost | None:
    if money.price is None and isinstance(money.dollars, Unknown):
        return None
    return Cost(
        dollars_per_hour=rounded(money.dollars, 2),
        compared_to=money.price,
        noted=money.noted,
        compared_dollars_per_hour=rounded(money.compared, 2),
        break_even_tokens_per_second=rounded(money.break_even, 1),
        break_even_load=rounded(money.break_even_load, 3),
    )


def _seconds(figure: Reading) -> str | None:
    return None if isinstance(figure, Unknown) else brief(figure)
