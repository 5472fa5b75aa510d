"""What the conditions say, and each target: metrics, limits, objects, zero, drains; and how exact the attainment is.

A histogram counts how many requests lie between two of its bounds, not where (docs/records/experiments.md).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from servingpool.adapters.cluster import input_limits
from servingpool.adapters.cluster.drain import Drain
from servingpool.adapters.gateways.own_gateway import OwnGateway, bound_of
from servingpool.adapters.prometheus.diagnosis import Cause
from servingpool.adapters.prometheus.gateways import FirstRequest, GatewayProfile
from servingpool.adapters.prometheus.samples import Selection, alike, lost_parts, named
from servingpool.api.conditions import Reason, Truth
from servingpool.api.duration import brief
from servingpool.api.serving_pool import ServingPool
from servingpool.api.status import TargetStatus
from servingpool.catalogue.limits import LimitName
from servingpool.decision.decision import Part
from servingpool.decision.explain import told_standing
from servingpool.decision.learn.memory import Memory
from servingpool.decision.observation import Observation, Unknown
from servingpool.decision.observe.columns import Column
from servingpool.decision.observe.latency import LatencyCount
from servingpool.decision.observe.samples import Standing
from servingpool.decision.observe.window import KEPT_SECONDS
from servingpool.decision.pool import Bounds
from servingpool.decision.roles import client_bound
from servingpool.decision.words import clock
from servingpool.reconcile.collect.collected import Collected
from servingpool.reconcile.collect.targets import SeenTarget, of_role
from servingpool.reconcile.plan.pool_plan import PoolPlan, StagePlan
from servingpool.status.missed import above_max, below_min, needed_of

WELL = (Reason.VALID_METRICS, Reason.METERED_AT_GATEWAY, Reason.NO_READY_REPLICAS, Reason.SCALED_TO_ZERO)
"""Of which no role is the cause: no sample that there should be is missing."""


def judge_metrics(plan: PoolPlan) -> tuple[Reason, str]:
    """Reason and message, which begins with the role where one alone is the cause."""
    reason, said = _at_zero(plan) or _judged_metrics(plan)
    if reason in WELL:
        return reason, said
    judged = [(one.role, _judged_metrics(one)) for one in plan.stages]
    ill = [role for role, (found, _) in judged if found not in WELL]
    return reason, of_role(ill[0], said) if len(ill) == 1 else said


def _judged_metrics(plan: PoolPlan | StagePlan) -> tuple[Reason, str]:
    observation, selection = plan.seen.observation, plan.seen.selection
    if selection is None and isinstance(observation.metrics, Unknown) and (observation.ready or observation.starting):
        return Reason.FAILED_GET_METRICS.said(detail=observation.metrics.reason)
    if selection is None or not observation.ready:
        return Reason.NO_READY_REPLICAS.said()
    missing, detail = selection.missing, selection.explain()
    if not missing:
        return _samples_condition(observation, selection, plan.memories, plan.decision.standing)
    if len(missing) < len(observation.ready):
        return Reason.PARTIAL_METRICS.said(detail=detail)
    alike = {one.cause for one in missing.values()} - {Cause.UNKNOWN}  # only some are looked into
    cause = alike.pop() if len(alike) == 1 else Cause.UNKNOWN
    return (cause.value or Reason.FAILED_GET_METRICS).said(detail=detail)


def _at_zero(plan: PoolPlan) -> tuple[Reason, str] | None:
    """What to say of the metrics of a fleet that is at 0 because no request comes; None at other times."""
    seen = plan.seen
    shown = not isinstance(seen.observation.gateway.at_zero, Unknown)
    at_zero = shown and seen.observation.requested == 0 and not seen.observation.ready
    if not at_zero or seen.gateway is None or not seen.pool.spec.goes_to_zero:
        return None
    return Reason.SCALED_TO_ZERO.said(gateway=seen.gateway[0].text)


def _samples_condition(
    observation: Observation, selection: Selection, memories: Sequence[Memory], standing: Sequence[Standing]
) -> tuple[Reason, str]:
    """For a fleet whose samples are all fresh: what they lack, and which of them say what nothing moves."""
    missing = next((one.last.missing for one in memories if one.last.missing is not None), None)
    if missing is not None:
        if selection.native:
            return Reason.NATIVE_HISTOGRAMS.said(pods=named(selection.native))
        partial = all(one.last.coverage > 0.0 for one in memories)
        return _lacking_condition(missing, observation, partial=partial)
    unknown = next((said for one in memories if (said := _unknown(one)) is not None), None)
    if unknown is not None:
        return Reason.PARTIAL_METRICS.said(detail=unknown)
    if standing:
        return Reason.NO_PROGRESS.said(replicas=told_standing(standing))
    return _complete_condition(observation, selection)


def _complete_condition(observation: Observation, selection: Selection) -> tuple[Reason, str]:
    """For samples that lack nothing: what else is odd about the pods' series."""
    if selection.unreadable:
        return Reason.UNREADABLE_SERIES.said(detail=alike(selection.unreadable))
    if selection.doubled:
        return Reason.DOUBLED_SERIES.said(pods=named(selection.doubled))
    ready = len(observation.ready)
    return (Reason.METERED_AT_GATEWAY if observation.metered else Reason.VALID_METRICS).said(ready=ready)


def _unknown(memory: Memory) -> str | None:
    """What is not known of samples that lack nothing; None where all is."""
    lacking = (
        ("Figures that cannot be right are left out of this scrape", memory.damaged),
        ("The number of queued requests is unknown", memory.queue_unknown),
        ("The client's time to first token is unknown", memory.last.client_unknown),
    )
    return next((f"{state}: {why}" for state, why in lacking if why is not None), None)


def _lacking_condition(missing: str, observation: Observation, *, partial: bool) -> tuple[Reason, str]:
    """For samples without a figure that decisions need. `partial`: other replicas have it."""
    parts = lost_parts(() if isinstance(observation.metrics, Unknown) else observation.metrics)
    whole = not any(part.endswith(missing.replace("-", " ")) for part in parts)
    gateway = "The engine exports no metrics, and the gateway does not tell"
    told = gateway if observation.metered else "Prometheus has the pods without"
    detail = f"{told} {', '.join([*parts, *[missing] * whole])}"
    if partial:
        return Reason.PARTIAL_METRICS.said(detail=detail)
    # An engine that exports one part of a histogram exports all.
    return Reason.MISSING_FIGURES.said(detail=detail, otherwise=", update the engine, or switch them on" * whole)


LIMITED_BY: tuple[str, ...] = (
    *(Reason.GPU_BUDGET, Reason.TOO_MANY_REPLICAS, Reason.TOO_FEW_REPLICAS),
    *(Reason.PREFILL_PER_DECODE, Reason.OTHER_ROLE_RUNS),
)
"""Reasons with the names of the limits that they report. Where both roles are limited, the first of these is reported:
a role that has less than it needs comes before a role that has more."""


def judge_limits(plan: PoolPlan) -> tuple[Reason, str]:
    """Reason and message."""
    found = [each for stage in plan.stages if (each := _judged_limits(stage)) is not None]
    return min(found, key=lambda one: LIMITED_BY.index(one[0]), default=Reason.DESIRED_WITHIN_RANGE.said())


def limit_of(plan: PoolPlan) -> str | None:
    """Name of the last limit; of both roles', in the order of `LIMITED_BY`. None where nothing is limited."""
    last = [stage.decision.limits[-1].name.value for stage in plan.stages if stage.decision.limits]
    return min(last, key=lambda name: LIMITED_BY.index(name) if name in LIMITED_BY else len(LIMITED_BY), default=None)


def _judged_limits(stage: StagePlan) -> tuple[Reason, str] | None:
    """What limits a stage; None where nothing does."""
    decision, role, needed = stage.decision, stage.role, needed_of(stage)
    cut = next((one for one in decision.limits if one.name == LimitName.GPU_BUDGET), None)
    if cut is not None:
        raised = [one.reason for one in decision.limits if one.after > one.before]
        if raised and not isinstance(decision.need, Unknown) and decision.need <= cut.after:
            needed = f"{needed}; {raised[-1]}"  # the budget takes none of the need
        return Reason.GPU_BUDGET, of_role(role, Reason.GPU_BUDGET.message(needed=needed, said=cut.reason))
    above = above_max(stage)
    if not above and not below_min(stage):
        return None
    reason, said = _by_bound(needed, decision.bounds, above=above)
    return reason, of_role(role, said)


def _by_bound(needed: str, bounds: Bounds, *, above: bool) -> tuple[Reason, str]:
    """Reason and message of a need that is `above` max, or below the min in force."""
    if above:
        return Reason.TOO_MANY_REPLICAS.said(needed=needed, bound=bounds.most)
    least, beside = bounds.least, bounds.least.beside
    if beside is None:
        return Reason.TOO_FEW_REPLICAS.said(needed=needed, bound=least)
    return (Reason.PREFILL_PER_DECODE if beside.ratio else Reason.OTHER_ROLE_RUNS).said(
        needed=needed, bound=least, replicas=beside.replicas, role=beside.role
    )


def judge_objects(seen: Collected) -> tuple[Reason, str] | None:
    """Reason and message; None where nothing is to be said."""
    targets = [target.workload for target in seen.targets]
    own = [f"{one.key}: {'; '.join(one.left_out)}" for one in targets if one.left_out]
    around, count = seen.left_out
    if count:
        told = [*own, *(each for each in around if each not in own)]
        return Reason.UNREADABLE_OBJECTS.said(objects=_named(told, count))
    strange = [(one.workload.key, _named(one.strangers, len(one.strangers))) for one in seen.targets if one.strangers]
    return Reason.PODS_OF_OTHERS.said(target=strange[0][0], pods=strange[0][1]) if strange else None


def _named(found: Sequence[str], count: int) -> str:
    """The first of so many, and how many more there are."""
    told = found[: input_limits.TOLD]
    return "; ".join(told) + (f"; and {count - len(told)} more" if count > len(told) else "")


REACTION = 30.0
"""Seconds from a request to the order: at most one scrape and one tick, 15 s each by default."""


def judge_zero(plan: PoolPlan) -> tuple[Reason, str] | None:
    """Reason and message; None where min is at least 1."""
    pool, known = plan.seen.pool, plan.seen.gateway
    if not pool.spec.goes_to_zero or known is None:
        return None
    own, profile = known
    gone = next((one.profile.vanished for one in plan.memories if one.profile.vanished is not None), None)
    if gone is not None:
        return Reason.DEMAND_VANISHED.said(gateway=own.text, at=clock(gone.at))
    shown = plan.seen.observation.gateway.at_zero
    if isinstance(shown, Unknown):
        return Reason.DEMAND_NOT_SHOWN.said(detail=shown.reason)
    return _first_request(pool, own, profile, cold_start_of(plan.memories), metered=plan.seen.observation.metered)


def cold_start_of(memories: Iterable[Memory]) -> float | None:
    """Seconds from order to Ready, as measured; None if no start was seen."""
    starts = [one.profile.cold_start for one in memories]
    return max((one.expected(0.0) for one in starts if one.seconds), default=None)


def _first_request(
    pool: ServingPool, own: OwnGateway, profile: GatewayProfile, cold: float | None, *, metered: bool
) -> tuple[Reason, str]:
    """What it meets, by the gateway's profile and what the pool says of it."""
    at_zero, holds = profile.at_zero, holds_for(pool, profile)
    does = FirstRequest.REJECTS if at_zero is None else at_zero.first_request
    if does is FirstRequest.REJECTS and holds:
        does = FirstRequest.RETRIES  # the pool says so
    conduct = _conduct(does, holds)
    refuses = does is FirstRequest.REJECTS
    if not refuses and (holds is None or cold is None):
        unset = "spec.metrics.gateway.holdsFor is not set, and the gateway's profile does not say"
        detail = unset if holds is None else "no cold start was measured yet"
        return Reason.FIRST_REQUEST_UNKNOWN.said(gateway=own.text, conduct=conduct, detail=detail)
    counted = _counted(pool, does, metered=metered)
    taken, reaction = ("an unknown time" if cold is None else brief(cold)), brief(REACTION)
    held = not refuses and holds is not None and cold is not None and holds >= cold + REACTION
    return (Reason.HOLDS_FIRST_REQUEST if held else Reason.FIRST_REQUEST_FAILS).said(
        gateway=own.text, conduct=conduct, cold=taken, reaction=reaction, counted=counted
    )


def holds_for(pool: ServingPool, profile: GatewayProfile) -> float | None:
    """Seconds for which the gateway holds a request, or tries it again; None where nothing says."""
    gateway = pool.spec.metrics.gateway
    if gateway is not None and gateway.holds_for is not None:
        return gateway.holds_for
    return None if profile.at_zero is None else profile.at_zero.holds_for


def _conduct(does: FirstRequest, holds: float | None) -> str:
    time = "an unknown time" if holds is None else brief(holds)
    if does is FirstRequest.REJECTS:
        return "refuses requests"
    held = does is FirstRequest.HOLDS
    return f"holds a request for {time}" if held else f"tries a request again for {time}, and refuses it then"


def _counted(pool: ServingPool, does: FirstRequest, *, metered: bool) -> str:
    """How the attainment counts requests that arrive at 0 replicas."""
    if pool.spec.slo.time_to_first_token is None:
        return "The SLO has no timeToFirstToken, so they do not count as late."
    if bound_of(pool, metered=metered) is not None and does is not FirstRequest.HOLDS:
        return "Requests that it refuses are not in its time to first token, so SLOMet does not count them."
    if does is not FirstRequest.RETRIES:
        return "Requests that arrive then count as late."
    tried = "those that it tries again are judged from when a replica serves them."
    return f"Requests that it refuses count as late; {tried}"


WITHDRAWN_AFTER = 5.0
"""Seconds in which a load balancer may still send requests to a deleted pod: EndpointSlice, kube-proxy and the
gateway's watch each take a second or two, more on large clusters. Requests after SIGTERM are lost."""
EXIT = 5.0
"""Seconds from the last answer to the process's end."""


def judge_drain(drain: Drain, busy: Collection[float]) -> tuple[Reason, str]:
    """Reason and message of DrainReady. `busy`: requests in flight on each replica with known load."""
    lacks = _lacks(drain, busy)
    if lacks:
        return lacks[0][0], " ".join(said for _, said in lacks)
    unknown = [each.reason for each in (drain.shutdown_timeout, drain.pre_stop) if isinstance(each, Unknown)]
    if unknown:
        return Reason.DRAIN_NOT_VISIBLE.said(detail="; ".join(unknown))
    assert not isinstance(drain.pre_stop, Unknown)
    assert not isinstance(drain.shutdown_timeout, Unknown)
    return Reason.FINISHES_REQUESTS.said(pre_stop=drain.pre_stop, timeout=drain.shutdown_timeout, grace=drain.grace)


def _lacks(drain: Drain, busy: Collection[float]) -> list[tuple[Reason, str]]:
    """What is missing for a scale-down without loss."""
    found = []
    hook = 0.0 if isinstance(drain.pre_stop, Unknown) else drain.pre_stop
    timeout = 0.0 if isinstance(drain.shutdown_timeout, Unknown) else drain.shutdown_timeout
    needed = hook + timeout + EXIT
    if drain.shutdown_timeout == 0.0:
        now = f", about {sum(busy) / len(busy):.0f} per replica now" if busy else ""
        found.append(Reason.NO_SHUTDOWN_TIMEOUT.said(now=now))
    if not isinstance(drain.pre_stop, Unknown) and drain.pre_stop < WITHDRAWN_AFTER:
        hooked = f"The preStop hook sleeps only {hook:g} s" if hook else "There is no preStop sleep"
        found.append(Reason.PRE_STOP_TOO_SHORT.said(hook=hooked, least=WITHDRAWN_AFTER))
    if drain.grace < needed:
        found.append(Reason.GRACE_PERIOD_TOO_SHORT.said(grace=drain.grace, hook=hook, timeout=timeout, needed=needed))
    return found


def targets_of(parts: Sequence[Part], *, done: bool) -> tuple[TargetStatus, ...]:
    """Each target. `done`: all that was decided was ordered just now.

    Of orders that were carried out in part the next tick tells which.
    """
    return tuple(
        TargetStatus(
            name=one.target,
            replicas=one.replicas if done else one.requested,
            ready=one.ready,
            desired=one.replicas,
            speed=round(one.weight, 2) if one.measured else None,
            cold_start=brief(one.cold_start),
            stuck=one.stuck,
        )
        for one in parts
    )


RANK = (Truth.FALSE, Truth.UNKNOWN, Truth.TRUE)
"""Order in which one of several judged statuses is told."""


def judge_drains(targets: Sequence[SeenTarget], busy: Collection[float]) -> tuple[Reason, str]:
    """Reason and message of DrainReady: of the first target where it is not True, else of the first."""
    judged = [(one.name, *judge_drain(one.workload.drain, busy)) for one in targets]
    name, reason, said = min(judged, key=lambda one: RANK.index(one[1].status))
    return reason, said if len(targets) == 1 or reason.status is Truth.TRUE else f"{name}: {said}"


def judge_targets(parts: Sequence[Part]) -> tuple[Reason, str]:
    """Reason and message of TargetsAvailable."""
    stuck = [f"{one.target}: {one.stuck}" for one in parts if one.stuck is not None]
    if not stuck:
        return Reason.TARGETS_DELIVER.said(targets=len(parts))
    others = [f"{one.replicas} of {one.target}" for one in parts if one.stuck is None and one.replicas > 0]
    instead = f"In its place: {', '.join(others)}." if others else "No other target delivers."
    return Reason.TARGET_NOT_DELIVERING.said(stuck=". ".join(stuck), instead=instead)


WORTH_SAYING = 0.05
"""Share of the requests."""


def estimated(memory: Memory, ttft: float | None, tpot: float | None, *, parted: bool = False) -> list[str]:
    """A sentence for each bound (seconds) for which more than a few requests are estimated.

    `parted`: `ttft` is what the client's bound leaves the engines of one role.
    """
    window, buckets = memory.window.last(KEPT_SECONDS), memory.window.buckets
    at = memory.profile.at_gateway
    count, bucket = (Column.CLIENT_COUNT, buckets.client) if at else (Column.TTFT_COUNT, buckets.ttft)
    bounds = ((ttft, window.split(count), bucket, parted), (tpot, window.split(Column.TPOT_COUNT), buckets.tpot, False))
    return [said for each in bounds if (said := _said(*each))]


def _said(bound: float | None, count: LatencyCount, bucket: tuple[float, float], parted: bool) -> str:
    if bound is None or not count.total or count.straddling < WORTH_SAYING * count.total:
        return ""
    share, (lower, upper) = count.straddling / count.total, bucket
    if math.isinf(upper):
        last = _written(lower)
        return (
            f"{share:.0%} of requests count as late: the last bucket ends at {last}, below {_written(bound)}. "
            f"Use {last} or less."
        )
    edges = [client_bound(edge) if parted else edge for edge in bucket if edge > 0.0]
    handover = ", the bound less the handover" if parted else ""
    return (
        f"For {share:.0%} of requests this is an estimate: the engine has no bucket at {_written(bound)}{handover}. "
        f"A bound of {' or '.join(map(_written, edges))} is counted exactly."
    )


def _written(seconds: float) -> str:
    """A duration as it can be put into the spec: `1s`, `2500ms`."""
    return f"{seconds:g}s" if seconds == int(seconds) else f"{1_000 * seconds:g}ms"
