"""The status that people read, built once a tick: of a pool that was decided on, after acting; or of a refused one."""

from __future__ import annotations

from dataclasses import fields, replace

from pydantic.alias_generators import to_camel

from servingpool.adapters.prometheus import Absence, Selection
from servingpool.api.conditions import Condition, ConditionType, Reason, Truth, condition, updated
from servingpool.api.duration import brief
from servingpool.api.serving_pool import ServingPool
from servingpool.api.status import Candidate, LastDecision, Latency, Limit, Status, Throughput
from servingpool.api.time import from_unix
from servingpool.catalogue.limits import LimitName
from servingpool.catalogue.notes import Note
from servingpool.decision.decision import Decision, Figures, Verdict, slo_met
from servingpool.decision.lateness import Witness
from servingpool.decision.observation import Observation, Reading, Unknown
from servingpool.reconcile.act import ScaleOutcome
from servingpool.reconcile.deletion_cost import in_flight
from servingpool.reconcile.draining import judge_drain
from servingpool.reconcile.estimating import estimated
from servingpool.reconcile.pool_plan import Learned, Planned, PoolPlan, Refusal
from servingpool.reconcile.preconditions import Conduct

FIGURE_NAMES = {one.name: to_camel(one.name) for one in fields(Figures)}
"""Figures of a decision, and their names in the status."""

SEEN = (
    *("fleet", "replicas", "ready_replicas", "desired_replicas"),
    *("throughput", "queue_depth", "latency", "attainment"),
)
"""What a status tells of now. The last decision stays: it says when it was made."""


def _metrics_condition(
    observation: Observation, selection: Selection | None, learned: Learned
) -> tuple[Truth, Reason, str]:
    """What to say of the metrics."""
    if selection is None and isinstance(observation.metrics, Unknown) and (observation.ready or observation.starting):
        said = Reason.FAILED_GET_METRICS.message(detail=observation.metrics.reason)
        return Truth.FALSE, Reason.FAILED_GET_METRICS, said
    if selection is None or not observation.ready:
        return Truth.UNKNOWN, Reason.NO_READY_REPLICAS, Reason.NO_READY_REPLICAS.message()
    missing, detail = selection.missing, selection.explain()
    if not missing:
        return _pages_condition(observation, learned)
    if len(missing) < len(observation.ready):
        return Truth.TRUE, Reason.PARTIAL_METRICS, Reason.PARTIAL_METRICS.message(detail=detail)
    if all(one.kind is Absence.OTHER_MODEL for one in missing.values()):
        return Truth.FALSE, Reason.NO_SERIES_FOR_MODEL, Reason.NO_SERIES_FOR_MODEL.message(detail=detail)
    return Truth.FALSE, Reason.FAILED_GET_METRICS, Reason.FAILED_GET_METRICS.message(detail=detail)


def _pages_condition(observation: Observation, learned: Learned) -> tuple[Truth, Reason, str]:
    """Of a fleet of which every page is there: what they lack."""
    if learned.missing is not None:
        detail = Note.ALL_PAGES_LACK.message(names=learned.missing)
        if learned.coverage > 0.0:
            return Truth.TRUE, Reason.PARTIAL_METRICS, Reason.PARTIAL_METRICS.message(detail=detail)
        return Truth.FALSE, Reason.FAILED_GET_METRICS, Reason.FAILED_GET_METRICS.message(detail=detail)
    if learned.queue_unknown is not None:
        detail = Note.QUEUE_UNKNOWN.message(detail=learned.queue_unknown)
        return Truth.TRUE, Reason.PARTIAL_METRICS, Reason.PARTIAL_METRICS.message(detail=detail)
    return Truth.TRUE, Reason.VALID_METRICS, Reason.VALID_METRICS.message(ready=len(observation.ready))


def build(due: Planned, outcome: ScaleOutcome, held: Status, scaled_at: float | None) -> Status:
    """The status of a pool after acting.

    `held` is the one before: conditions keep their transition times. `scaled_at` is the Unix time in seconds of the
    last order that is worth telling; None if there was none since the start.
    """
    return _refused(due, held) if isinstance(due, Refusal) else _decided(due, outcome, held, scaled_at)


def _decided(plan: PoolPlan, outcome: ScaleOutcome, held: Status, scaled_at: float | None) -> Status:
    """The status of a pool that was decided on, and scaled or not."""
    pool, decision, observation = plan.seen.pool, plan.decision, plan.seen.observation
    conduct = plan.conduct if outcome.failure is None else _failed(plan.conduct, *outcome.failure)
    metrics = _metrics_condition(observation, plan.seen.selection, plan.learned)
    target, figures, ready = pool.spec.targets[0], decision.figures, len(observation.ready)
    scale_time = {} if scaled_at is None else {"last_scale_time": from_unix(scaled_at)}
    judged = [
        _condition(pool, decision, ConditionType.READY, conduct.ready, conduct.reason, conduct.message),
        _condition(pool, decision, ConditionType.METRICS_AVAILABLE, *metrics),
        _slo_condition(pool, decision, plan.learned),
        _limited_condition(pool, decision),
        _calibrating_condition(pool, decision),
        _condition(
            pool,
            decision,
            ConditionType.DRAIN_READY,
            *judge_drain(plan.seen.workload.drain, in_flight(observation).values()),
        ),
    ]
    cold_start = plan.learned.cold_start
    return held.model_copy(
        update={
            "observed_generation": pool.metadata.generation,
            "conditions": updated(held.conditions, judged),
            "fleet": f"{ready}/{decision.replicas}/{target.max}",
            "why": _why(conduct, metrics, decision),
            "replicas": observation.requested if outcome.ordered is None else outcome.ordered,
            "ready_replicas": ready,
            "desired_replicas": decision.replicas,
            "throughput": _throughput(figures.generation_rate, figures.prompt_rate, ready, plan.gpus, pool),
            "queue_depth": _rounded(figures.queue, 1),
            "latency": Latency(
                time_to_first_token=_seconds(figures.time_to_first_token),
                time_per_output_token=_seconds(figures.time_per_output_token),
            ),
            "attainment": _percent(figures.attainment),
            "cold_start": None if cold_start is None else brief(cold_start),
            "last_decision": _last_decision(decision),
            **scale_time,
        }
    )


def _refused(refusal: Refusal, held: Status) -> Status:
    """The status of a pool for which nothing can be decided: `held` without what nobody looks at now.

    Of a deleted Deployment `2/2/10`, its tokens per second and "all 2 ready replicas are scraped" stood for ever.
    """
    judged = [(ConditionType.READY, refusal.truth)]
    judged += [(one.type, Truth.UNKNOWN) for one in held.conditions if one.type is not ConditionType.READY]
    conditions = [
        condition(
            type_,
            truth,
            reason=refusal.reason,
            message=refusal.message,
            generation=refusal.meta.generation,
            now=from_unix(refusal.at),
        )
        for type_, truth in judged
    ]
    return held.model_copy(
        update=dict.fromkeys(SEEN)
        | {
            "observed_generation": refusal.meta.generation,
            "conditions": updated(held.conditions, conditions),
            "why": refusal.reason.value,
        }
    )


def _failed(conduct: Conduct, reason: Reason, message: str) -> Conduct:
    """What is said of a pool whose scale attempt failed."""
    return replace(conduct, ready=Truth.FALSE, reason=reason, message=message)


def _why(conduct: Conduct, metrics: tuple[Truth, Reason, str], decision: Decision) -> str:
    if conduct.ready is not Truth.TRUE:
        return conduct.reason.value
    if metrics[0] is Truth.FALSE:
        return metrics[1].value
    if decision.verdict is not Verdict.HOLD or not decision.limits:
        return decision.verdict.value
    return decision.limits[-1].name


def _condition(
    pool: ServingPool, decision: Decision, type_: ConditionType, truth: Truth, reason: Reason, message: str
) -> Condition:
    return condition(
        type_,
        truth,
        reason=reason,
        message=message,
        generation=pool.metadata.generation,
        now=from_unix(decision.at),
    )


def _slo_condition(pool: ServingPool, decision: Decision, learned: Learned) -> Condition:
    figures, slo = decision.figures, pool.spec.slo
    attained, met = figures.attainment, slo_met(figures, slo.attainment / 100.0)
    if isinstance(attained, Unknown):
        truth, reason = Truth.UNKNOWN, Reason.TOO_FEW_REQUESTS
        said = [Reason.TOO_FEW_REQUESTS.message(detail=attained.reason)]
    else:
        percent, objective = 100.0 * attained, slo.attainment
        if met:
            truth, reason = Truth.TRUE, Reason.OBJECTIVE_MET
            said = [Reason.OBJECTIVE_MET.message(attained=percent, objective=objective)]
        else:
            truth, reason = Truth.FALSE, Reason.OBJECTIVE_MISSED
            said = [Reason.OBJECTIVE_MISSED.message(attained=percent, objective=objective)]
            if not isinstance(figures.attainment_now, Unknown):
                said.append(Note.RECENT.message(recent=100.0 * figures.attainment_now))
        said += _believed(figures) + estimated(learned, slo.time_to_first_token, slo.time_per_output_token)
    said += [] if decision.warning is None else [decision.warning]
    return _condition(pool, decision, ConditionType.SLO_MET, truth, reason, " ".join(said))


def _believed(figures: Figures) -> list[str]:
    if figures.witness == Witness.HISTOGRAM:
        return []
    waits = [Note.WAITING_NOW.message(seconds=figures.longest_wait)] if figures.longest_wait >= 1.0 else []
    return [Note.WITNESS.message(witness=figures.witness), *waits]


def _limited_condition(pool: ServingPool, decision: Decision) -> Condition:
    hit = next((limit for limit in decision.limits if limit.name in {LimitName.MAXIMUM, LimitName.MINIMUM}), None)
    if hit is None:
        said = Reason.DESIRED_WITHIN_RANGE.message()
        return _condition(pool, decision, ConditionType.SCALING_LIMITED, Truth.FALSE, Reason.DESIRED_WITHIN_RANGE, said)
    if hit.name == LimitName.MAXIMUM:
        reason, said = Reason.TOO_MANY_REPLICAS, Reason.TOO_MANY_REPLICAS.message(needed=hit.before, bound=hit.after)
    else:
        reason, said = Reason.TOO_FEW_REPLICAS, Reason.TOO_FEW_REPLICAS.message(needed=hit.before, bound=hit.after)
    return _condition(pool, decision, ConditionType.SCALING_LIMITED, Truth.TRUE, reason, said)


def _calibrating_condition(pool: ServingPool, decision: Decision) -> Condition:
    if decision.calibrating:
        said = Reason.LEARNING.message()
        return _condition(pool, decision, ConditionType.CALIBRATING, Truth.TRUE, Reason.LEARNING, said)
    said = Reason.LEARNED.message()
    return _condition(pool, decision, ConditionType.CALIBRATING, Truth.FALSE, Reason.LEARNED, said)


def _throughput(generation: Reading, prompt: Reading, ready: int, gpus: int, pool: ServingPool) -> Throughput | None:
    if isinstance(generation, Unknown):
        return None
    cost = pool.spec.targets[0].cost_per_replica_hour
    return Throughput(
        generation_tokens_per_second=round(generation, 1),
        prompt_tokens_per_second=_rounded(prompt, 1),
        tokens_per_second_per_gpu=round(generation / (ready * gpus), 1) if ready * gpus else None,
        dollars_per_million_tokens=(
            round(cost * ready / 3600.0 / generation * 1e6, 2) if cost is not None and generation > 1.0 else None
        ),
    )


def _last_decision(decision: Decision) -> LastDecision:
    figures = decision.figures
    return LastDecision(
        at=from_unix(decision.at),
        replicas=decision.replicas,
        verdict=decision.verdict.value,
        need=_rounded(decision.need, 2),
        limits=tuple(
            Limit(name=limit.name, before=limit.before, after=limit.after, reason=limit.reason)
            for limit in decision.limits
        ),
        reason=decision.reason,
        load=_rounded(figures.load, 3),
        safe_load=_rounded(figures.safe_load, 3),
        forecast=_rounded(figures.forecast, 2),
        horizon=brief(figures.horizon),
        figures={
            FIGURE_NAMES[name]: float(f"{value:.6g}")
            for name in FIGURE_NAMES
            if isinstance(value := getattr(figures, name), float)
        },
        candidates=tuple(
            Candidate(replicas=round(one.replicas), misses=float(f"{one.misses:.6g}")) for one in decision.candidates
        ),
        warnings=() if decision.warning is None else (decision.warning,),
    )


def _rounded(figure: Reading, digits: int) -> float | None:
    return None if isinstance(figure, Unknown) else round(figure, digits)


def _seconds(figure: Reading) -> str | None:
    return None if isinstance(figure, Unknown) else brief(figure)


def _percent(figure: Reading) -> float | None:
    return None if isinstance(figure, Unknown) else round(100.0 * figure, 2)
