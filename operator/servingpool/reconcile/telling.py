"""From a decision to the status that people read, and whether it is worth a write."""

from __future__ import annotations

import re
from typing import Any

from servingpool.adapters.cluster.objects import Workload
from servingpool.adapters.prometheus import Absence, Selection
from servingpool.api.conditions import Condition, ConditionType, Reason, Truth, condition, updated
from servingpool.api.duration import brief
from servingpool.api.serving_pool import Metadata, ServingPool
from servingpool.api.status import LastDecision, Latency, Limit, Status, Throughput
from servingpool.api.time import from_unix
from servingpool.decision import limits
from servingpool.decision.decision import Decision, Figures, Verdict, slo_met
from servingpool.decision.observation import Observation, Reading, Unknown
from servingpool.decision.state import Memory
from servingpool.decision.witnesses import Witness
from servingpool.reconcile.conduct import Conduct, gpus_of
from servingpool.reconcile.draining import judge_drain
from servingpool.reconcile.estimating import estimated
from servingpool.reconcile.victims import in_flight

FIGURES_AFTER = 60.0
"""Seconds between two writes for nothing but changed figures."""
FIGURES_CHANGE = 0.2
"""Relative change of a figure that is worth one."""
SERVING_AFTER = 300.0
"""Seconds after which a pool with traffic is written all the same: a decision that is older than this reads as if
the operator were gone. An idle pool is not written at all."""
FIGURES_FLOOR = 5.0
"""Tokens per second, requests, percent: what is smaller is measured by this. One request that waits now and then
caused half of all writes to 1,000 pools under steady traffic."""
NUMBER = re.compile(r"(?<![\w.-])(?<!HTTP )\d+(\.\d+)?(?![\w-]|\.\d)")
"""In a message, one that may be another at every tick: seconds since a scrape, replicas, percent. Not in a name."""
SEEN = (
    *("fleet", "replicas", "ready_replicas", "desired_replicas"),
    *("throughput", "queue_depth", "latency", "attainment"),
)
"""What a status tells of now. The last decision stays: it says when it was made."""


def metrics_condition(
    observation: Observation, selection: Selection | None, memory: Memory
) -> tuple[Truth, Reason, str]:
    """What to say of the metrics. `memory`: as they were taken in."""
    if selection is None and isinstance(observation.metrics, Unknown) and (observation.ready or observation.starting):
        return Truth.FALSE, Reason.FAILED_GET_METRICS, observation.metrics.reason
    if selection is None or not observation.ready:
        return Truth.UNKNOWN, Reason.NO_READY_REPLICAS, "no replica is ready, so there is nothing to scrape"
    missing, said = selection.missing, selection.explain()
    if not missing:
        return _pages_condition(observation, memory)
    if len(missing) < len(observation.ready):
        return Truth.TRUE, Reason.PARTIAL_METRICS, said
    if all(one.kind is Absence.OTHER_MODEL for one in missing.values()):
        return Truth.FALSE, Reason.NO_SERIES_FOR_MODEL, said
    return Truth.FALSE, Reason.FAILED_GET_METRICS, said


def _pages_condition(observation: Observation, memory: Memory) -> tuple[Truth, Reason, str]:
    """Of a fleet of which every page is there: what they lack."""
    if memory.lacking is not None:
        said = f"pages lack {memory.lacking}"
        if memory.coverage > 0.0:
            return Truth.TRUE, Reason.PARTIAL_METRICS, said
        return Truth.FALSE, Reason.FAILED_GET_METRICS, said
    if memory.no_queue is not None:
        said = f"the queue could not be read, so nothing is removed: {memory.no_queue}"
        return Truth.TRUE, Reason.PARTIAL_METRICS, said
    return Truth.TRUE, Reason.VALID_METRICS, f"all {len(observation.ready)} ready replicas are scraped"


def status(
    pool: ServingPool,
    held: Status,
    workload: Workload,
    conduct: Conduct,
    metrics: tuple[Truth, Reason, str],
    decision: Decision,
    memory: Memory,
    observation: Observation,
) -> Status:
    """The status as it should be now. `held` is the one before: conditions keep their transition times."""
    target = pool.spec.targets[0]
    figures = decision.figures
    gpus = gpus_of(pool, workload)
    ready = len(observation.ready)
    judged = [
        _condition(pool, decision, ConditionType.READY, conduct.ready, conduct.reason, conduct.message),
        _condition(pool, decision, ConditionType.METRICS_AVAILABLE, *metrics),
        _slo_condition(pool, decision, memory),
        _limited_condition(pool, decision),
        _calibrating_condition(pool, decision),
        _condition(
            pool,
            decision,
            ConditionType.DRAIN_READY,
            *judge_drain(workload.drain, in_flight(observation).values()),
        ),
    ]
    starts = memory.profile.cold_start
    return held.model_copy(
        update={
            "observed_generation": pool.metadata.generation,
            "conditions": updated(held.conditions, judged),
            "fleet": f"{ready}/{decision.replicas}/{target.max}",
            "why": _why(conduct, metrics, decision),
            "replicas": observation.requested,
            "ready_replicas": ready,
            "desired_replicas": decision.replicas,
            "throughput": _throughput(figures.generation_rate, figures.prompt_rate, ready, gpus, pool),
            "queue_depth": _rounded(figures.queue, 1),
            "latency": Latency(
                time_to_first_token=_seconds(figures.time_to_first_token),
                time_per_output_token=_seconds(figures.time_per_output_token),
            ),
            "attainment": _percent(figures.attainment),
            "cold_start": brief(starts.expected(0.0)) if starts.seconds else None,
            "last_decision": _last_decision(decision),
        }
    )


def scaled(status: Status, replicas: int, at: float) -> Status:
    """The status of a pool that was scaled last at this Unix time in seconds."""
    return status.model_copy(update={"replicas": replicas, "last_scale_time": from_unix(at)})


def still(status: Status, held: Status, type_: ConditionType) -> Status:
    """`status`, with this condition as it was held: since when it is so must not be since a moment's hope."""
    before = held.condition(type_)
    return status if before is None else status.model_copy(update={"conditions": updated(status.conditions, (before,))})


def blind(meta: Metadata, held: Status, problem: tuple[Reason, str], now: float) -> Status:
    """`held` without what nobody looks at now.

    Of a deleted Deployment `2/2/10`, its tokens per second and "all 2 ready replicas are scraped" stood for ever.
    """
    reason, message = problem
    unknown = [
        condition(
            one.type,
            Truth.UNKNOWN,
            reason=reason,
            message=message,
            generation=meta.generation,
            now=from_unix(now),
        )
        for one in held.conditions
        if one.type is not ConditionType.READY
    ]
    return held.model_copy(update=dict.fromkeys(SEEN) | {"conditions": updated(held.conditions, unknown)})


def with_ready(
    meta: Metadata, held: Status, problem: tuple[Reason, str], now: float, truth: Truth = Truth.FALSE
) -> Status:
    """`held`, with Ready turned false, or unknown, for this reason."""
    reason, message = problem
    judged = condition(
        ConditionType.READY,
        truth,
        reason=reason,
        message=message,
        generation=meta.generation,
        now=from_unix(now),
    )
    return held.model_copy(
        update={
            "observed_generation": meta.generation,
            "conditions": updated(held.conditions, (judged,)),
            "why": reason.value,
        }
    )


def worth_writing(before: Status, after: Status, age: float) -> bool:
    """Whether a person would care, `age` seconds after the last write."""
    if _headline(before) != _headline(after) or _seen_whole_again(before, after):
        return True
    if age < FIGURES_AFTER:
        return False
    return (
        _reasons(before) != _reasons(after)
        or _other_complaints(before, after)
        or _figures_moved(before, after)
        or (age >= SERVING_AFTER and _serving(after))
    )


def changes(before: Any, after: Any) -> Any:
    """The merge patch (RFC 7386) that turns `before` into `after`: lists whole, what is gone as None."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        if isinstance(value, dict) and isinstance(before.get(key), dict):
            inner = changes(before[key], value)
            if inner:
                patch[key] = inner
        elif key not in before or before[key] != value:
            patch[key] = value
    return patch


def _headline(status: Status) -> tuple[Any, ...]:
    conditions = tuple((one.type, one.status, one.reason if _tells(one) else "") for one in status.conditions)
    return (status.observed_generation, conditions, status.fleet, status.replicas, status.last_scale_time)


def _reasons(status: Status) -> tuple[str | None, ...]:
    return (status.why, *(one.reason for one in status.conditions))


def _other_complaints(before: Status, after: Status) -> bool:
    """Whether something else is said of what may be wrong; "last scraped 93 s ago" is new at every tick.

    "Cannot be reached" stood for a day where it was "answered HTTP 401" by then, for both are FailedGetMetrics.
    """
    held = {one.type: one.message for one in before.conditions}
    return any(
        (_tells(one) or one.type is ConditionType.METRICS_AVAILABLE)
        and held.get(one.type) != one.message  # in most cases it is not, and quick to see
        and NUMBER.sub("#", held.get(one.type, "")) != NUMBER.sub("#", one.message)
        for one in after.conditions
    )


def _tells(condition: Condition) -> bool:
    """Whether the reason is what a person looks for. Of what is well it may come and go with a gateway that does."""
    return condition.type is ConditionType.READY or condition.status is not Truth.TRUE


def _seen_whole_again(before: Status, after: Status) -> bool:
    """Whether what could be read again when it was last written, but in part, now is read whole.

    When Prometheus is back its first pages are old: a minute long "last scraped 16 s ago" stood there. Told each time
    that pages are whole again, a gateway that answers at every other tick makes two writes a minute instead of one.
    """
    back = before.last_decision.at if before.last_decision is not None else None
    partial = any(
        one.reason == Reason.PARTIAL_METRICS and one.last_transition_time == back for one in before.conditions
    )
    return partial and any(one.reason == Reason.VALID_METRICS for one in after.conditions)


def _figures_moved(before: Status, after: Status) -> bool:
    return any(
        (old is None) != (new is None) or (old is not None and new is not None and _moved(old, new))
        for old, new in zip(_figures(before), _figures(after), strict=True)
    )


def _serving(status: Status) -> bool:
    return status.throughput is not None and bool(status.throughput.generation_tokens_per_second)


def _moved(old: float, new: float) -> bool:
    return abs(new - old) > FIGURES_CHANGE * max(abs(old), abs(new), FIGURES_FLOOR)


def _figures(status: Status) -> tuple[float | None, ...]:
    throughput = status.throughput
    return (
        None if throughput is None else throughput.generation_tokens_per_second,
        status.queue_depth,
        # A percent of requests late is a fifth of a 95% budget: count the misses, not the hits.
        None if status.attainment is None else 100.0 - status.attainment,
    )


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


def _slo_condition(pool: ServingPool, decision: Decision, memory: Memory) -> Condition:
    figures, slo = decision.figures, pool.spec.slo
    attained, met = figures.attainment, slo_met(figures, slo.attainment / 100.0)
    if isinstance(attained, Unknown):
        truth, reason, said = Truth.UNKNOWN, Reason.TOO_FEW_REQUESTS, attained.reason
    else:
        truth = Truth.TRUE if met else Truth.FALSE
        reason = Reason.OBJECTIVE_MET if met else Reason.OBJECTIVE_MISSED
        said = f"{100.0 * attained:.1f}% of the last hour's requests met the SLO, {slo.attainment:g}% are asked for"
        if not met and not isinstance(figures.attainment_now, Unknown):
            said = f"{100.0 * figures.attainment_now:.1f}% of the last 5 minutes' and {said}"
        if figures.witness != Witness.HISTOGRAM:
            said = f"{said}; {_believed(figures)}"
        if guessed := estimated(memory, slo.time_to_first_token, slo.time_per_output_token):
            said = f"{said}; {guessed}"
    if decision.warnings:
        said = f"{said}; {decision.warnings[0]}"
    return _condition(pool, decision, ConditionType.SLO_MET, truth, reason, said)


def _believed(figures: Figures) -> str:
    waits = f": requests wait {figures.longest_wait:.0f} s now" if figures.longest_wait >= 1.0 else ""
    return f"the TTFT histogram excludes queue time, so the {figures.witness} counts{waits}"


def _limited_condition(pool: ServingPool, decision: Decision) -> Condition:
    bounds = {limits.MAXIMUM: Reason.TOO_MANY_REPLICAS, limits.MINIMUM: Reason.TOO_FEW_REPLICAS}
    hit = next((limit for limit in decision.limits if limit.name in bounds), None)
    if hit is None:
        said = "the need lies within min..max"
        return _condition(pool, decision, ConditionType.SCALING_LIMITED, Truth.FALSE, Reason.DESIRED_WITHIN_RANGE, said)
    said = f"{hit.before} replicas are needed, {hit.reason}"
    return _condition(pool, decision, ConditionType.SCALING_LIMITED, Truth.TRUE, bounds[hit.name], said)


def _calibrating_condition(pool: ServingPool, decision: Decision) -> Condition:
    if decision.calibrating:
        said = "engine and traffic are being learned; nothing is removed yet, nor added while hardly a request is late"
        return _condition(pool, decision, ConditionType.CALIBRATING, Truth.TRUE, Reason.LEARNING, said)
    return _condition(
        pool, decision, ConditionType.CALIBRATING, Truth.FALSE, Reason.LEARNED, "engine and traffic are learned"
    )


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
        warnings=decision.warnings,
    )


def _rounded(figure: Reading, digits: int) -> float | None:
    return None if isinstance(figure, Unknown) else round(figure, digits)


def _seconds(figure: Reading) -> str | None:
    return None if isinstance(figure, Unknown) else brief(figure)


def _percent(figure: Reading) -> float | None:
    return None if isinstance(figure, Unknown) else round(100.0 * figure, 2)
