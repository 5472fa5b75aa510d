"""Sentences that fill in or follow the message of a condition or a limit."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from servingpool.catalogue.template import Templated


class Note(Templated, StrEnum):
    """One such sentence."""

    meaning: str

    def __new__(cls, template: str, meaning: str) -> Self:
        """A member is its template."""
        member = str.__new__(cls, template)
        member._value_ = member.template = template
        member.meaning = meaning
        return member

    LEAVE_TO_OTHERS = (
        "Set annotation {setting} on it: then it leaves replicas to others.",
        "In OwnedByParent: the parent has a setting with which it does not set replicas.",
    )
    NAME_ADAPTER = (
        "Name its {kind} in spec.targets[] instead.",
        "In OwnedByParent: the parent reads its replicas from an object that is made for autoscalers.",
    )
    NAME_PARENT = (
        "Name it in spec.targets[] instead.",
        "In OwnedByParent: the parent has a scale subresource itself.",
    )
    SET_AT_PARENT = (
        (
            "Set the replicas there, or name it in spec.targets[] if it has a scale subresource. "
            "If it leaves replicas to others, say so with annotation {setting} on the target."
        ),
        "In OwnedByParent: nothing is known of the parent's kind.",
    )
    AUTO_WOULD_BE = (
        "Auto would be {effect} ({reason}): {message}",
        "Follows Recommending and Paused: what would block or limit mode Auto.",
    )
    STARTS_IN_TURN = (
        (
            "Pods of {target} start one after another, so each waits for all before it. "
            "Recreate it with podManagementPolicy: Parallel, and they start together."
        ),
        "Follows SucceededGetScale: a StatefulSet with podManagementPolicy OrderedReady, the default.",
    )
    NO_NODE = (
        "pods without a node: {pods}",
        "In TargetNotDelivering: other targets are requested instead; one pod stays pending as a probe.",
    )
    NOT_CREATED = (
        "replicas that were requested and have no pod: {replicas}; check quotas and the workload's events",
        "In TargetNotDelivering: other targets are requested instead; one replica stays requested as a probe.",
    )
    IN_ITS_PLACE = (
        "In its place: {others}.",
        "In TargetNotDelivering: the targets that deliver, with the replicas that are wanted of each.",
    )
    NO_OTHER_TARGET = (
        "No other target delivers.",
        "In TargetNotDelivering: nothing can be requested in its place.",
    )
    ALL_SAMPLES_LACK = (
        "Pods are scraped but do not export {names}",
        "In PartialMetrics and FailedGetMetrics: check the engine's version and its metrics options.",
    )
    GATEWAY_LACKS = (
        "The engine exports no metrics, and the gateway does not tell {names}",
        "In MissingFigures: LiteLLM, for one, tells time to first token of streaming requests only.",
    )
    QUEUE_UNKNOWN = (
        "The number of queued requests is unknown: {detail}",
        "In PartialMetrics: without it a fleet could shrink while requests wait.",
    )
    CLIENT_UNKNOWN = (
        "The client's time to first token is unknown: {detail}",
        "In PartialMetrics: slo.measuredAt is Gateway, and the gateway does not tell it.",
    )
    AT_GATEWAY = (
        "Time to first token is measured at the gateway.",
        "In SLOMet: slo.measuredAt is Gateway, so the time in the gateway's queue is in it.",
    )
    AT_ENGINES = (
        "Time to first token is measured at the engines, without the gateway's queue.",
        "In SLOMet: the gateway tells the client's time to first token too. slo.measuredAt Gateway judges by that.",
    )
    MISSED = (
        (
            "{attained:.1f}% of the last hour's requests met the SLO, of the last 5 minutes {recent}, "
            "of the last minute {minute}; the objective is {objective:g}%."
        ),
        "Begins the message of SLOMet where it is False, whatever the reason.",
    )
    READY_IN = (
        "{replicas} of {ordered} replicas are starting, ready in about {time}",
        "In ReplicasStarting: the rest of a cold start.",
    )
    READY_LATE = (
        "{replicas} of {ordered} replicas are starting for {age}, and a start usually takes {cold}",
        "In ReplicasStarting: kubectl describe the pods that are not Ready.",
    )
    WITNESS = (
        "The TTFT histogram excludes queue time, so the queue's length is used instead.",
        "In SLOMet: late requests are counted from the queue's length.",
    )
    TTFT_INFERRED = (
        "The engine exports no time to first token: it is estimated from queue length, gateway arrivals and prefill.",
        "In SLOMet: each request's wait by Little's law, and the mean seconds of prefill after it.",
    )
    WAITING_NOW = (
        "Requests wait {seconds:.0f} s now.",
        "In SLOMet, after the sentence on queue time.",
    )
    ESTIMATED = (
        (
            "For {share:.0%} of requests this is an estimate: the engine has no bucket at {bound}. "
            "A bound of {exact} is counted exactly."
        ),
        "In SLOMet: a histogram does not count the requests that met a bound inside one of its buckets.",
    )
    ESTIMATED_OF_ROLE = (
        (
            "For {share:.0%} of requests this is an estimate: the engine has no bucket at {bound}, "
            "the bound less the handover. A bound of {exact} is counted exactly."
        ),
        "In SLOMet of a pool with roles: the same of a role's TTFT, with bounds to set for exact counts.",
    )
    BEYOND_LAST_BUCKET = (
        "{share:.0%} of requests count as late: the last bucket ends at {last}, below {bound}. Use {last} or less.",
        "In SLOMet: requests beyond the last bucket cannot be told apart.",
    )
    UNKNOWN_BACKENDS = (
        "known backends are {known}",
        "In UnknownBackend: the operator's configuration has no backend of this name.",
    )
    UNKNOWN_ENGINES = (
        "known engines are {known}",
        "In UnknownEngine: neither this release nor the operator's configuration has a profile of this name.",
    )
    ENGINE_LACKS = (
        "it exports no {figures}, which decisions need; engines that can be used are {known}",
        "In UnknownEngine: the engine's metrics do not suffice for this release.",
    )
    ENGINE_NEEDS_GATEWAY = (
        "it exports no count of requests; set spec.metrics.gateway to the gateway that counts them",
        "In UnknownEngine: such an engine's arrivals are read from the gateway in front of it.",
    )
    ENGINE_NEEDS_METER = (
        "it exports no metrics; set spec.metrics.gateway to a gateway that meters its requests ({known})",
        "In UnknownEngine: such an engine's figures are those of the gateway in front of it.",
    )
    ENGINE_NEEDS_ONE_TARGET = (
        "it exports no metrics, so the targets cannot be told apart; use a pool for each target",
        "In UnknownEngine: the gateway counts the requests of all targets together.",
    )
    UNKNOWN_PRICE = (
        "spec.compareTo '{price}' is unknown, so nothing is compared; known prices: {known}. Scaling is not affected.",
        "In warnings: the operator's configuration has no price of this name.",
    )
    NO_COST = (
        "The cost here is unknown: set targets[{place}].costPerReplicaHour. Scaling is not affected.",
        "In warnings: spec.compareTo needs the cost of a replica to compare with.",
    )
    CLOSED_TO_NAMESPACE = (
        "it does not allow namespace {namespace}",
        "In UnknownBackend: the backend's `namespaces` leave this one out.",
    )
    CALM = (
        "scale-up blocked while few requests are late or queued",
        "In the limit Calibrating: the capacity is an estimate so far, and few requests miss the SLO.",
    )
    OBSERVED = (
        "scale-down blocked until the pool was observed for {wanted:.0f} s; so far {seen:.0f} s",
        "In the limit Calibrating: the pool is new, or was not observed for a long time.",
    )
    SET_BY_OTHER = (
        "Another program set the replicas.",
        "In history: the operator had no answer at that time.",
    )
    SET_BY_OTHER_WANTED = (
        "Another program set the replicas; the operator's answer was {replicas}.",
        "In history: the answer is that of the tick before.",
    )
    SET_FOR_OTHER_POOL = (
        "The operator set the replicas for another ServingPool.",
        "In history of a pool that does not scale its target: another pool of the same target does.",
    )
    UNRECORDED_ORDER = (
        "The operator set the replicas and stopped before it wrote the reason.",
        "In history: `servingpool explain --at` explains it from Prometheus.",
    )
    READY_AFTER = (
        "ready after {duration}",
        "Outcome of a scale-up in history: all replicas were Ready.",
    )
    REMOVED_AFTER = (
        "removed after {duration}",
        "Outcome of a scale-down in history: no more pods stood than were asked for.",
    )
    REPLACED_AFTER = (
        "replaced after {duration}",
        "Outcome of a change in history: the next change came first.",
    )
    NEVER_READY = (
        "never ready within {duration}",
        "Outcome of a scale-up in history: find the pods that are Pending or failing.",
    )
    BY_SCHEDULE = (
        "{replicas} by schedule {schedule}",
        "A min or max in TooFewReplicas and TooManyReplicas: that of a schedule which is in force.",
    )
    BEFORE_SCHEDULE = (
        "{replicas} by schedule {schedule}, which begins in {seconds:.0f} s",
        "A min or max in TooFewReplicas and TooManyReplicas: replicas are requested one cold start before the window.",
    )
    BUDGET_AS_BEFORE = ("the last valid one counts", "In InvalidBudget: the pools share what it said.")
    BUDGET_OFF = ("no pool is limited by it", "In InvalidBudget: no valid spec was seen since the operator's start.")
    GPUS_UNKNOWN = (
        "the GPUs of {pool} are unknown ({why})",
        "In the limit GPUBudget: nothing is requested for a pool while its own GPUs are unknown.",
    )
    NO_GPUS_STATED = (
        "neither its pods nor targets[].gpusPerReplica tell them",
        "In NotCounted and the limit GPUBudget: the kind's templates are not known, and no pod exists.",
    )
    TARGET_NOT_READ = (
        "its target cannot be read: {fault}",
        "In NotCounted: pods that the operator does not see may hold GPUs.",
    )
    WAITS_FOR_GPUS = (
        "{held} of {gpus} GPUs are in use; waits for GPUs of {pools}",
        "In the limit GPUBudget: these pools hold GPUs that are due to this one, and give them up.",
    )
    GPUS_LEAVING = (
        "{held} of {gpus} GPUs are in use; waits for terminating pods",
        "In the limit GPUBudget: the GPUs are due to this pool once the pods that hold them are gone.",
    )
    GPUS_WORTH_MORE = (
        "{held} of {gpus} GPUs are in use, and of more use to {pools}",
        "In the limit GPUBudget: by floors, mins, priority and expected misses, the GPUs are due to these pools.",
    )
    GPUS_USED_UP = (
        "{held} of {gpus} GPUs are in use, all by this pool",
        "In the limit GPUBudget: the budget is smaller than what this pool alone needs.",
    )
    GPUS_FOR_BOTH_ROLES = (
        "one replica each of prefill and decode takes {both} GPUs, and of {gpus} fewer are left for this pool",
        "In the limit GPUBudget: one role serves nothing without the other, so both have 0 replicas until both fit.",
    )
    SPEED_UNKNOWN = (
        "scale-down blocked until enough requests were decoded to know the engine's speed",
        "In the limit Calibrating: the pool has served few requests so far.",
    )
    DAMAGED = (
        "left out, because no replica can do so: {figures}",
        "In a decision's reason: one scrape showed a damaged figure.",
    )
    DAMAGED_FIGURES = (
        "No replica can make these figures, so they are left out of this scrape: {figures}",
        "In PartialMetrics: one scrape showed a damaged figure. If it goes on, check the engine's /metrics.",
    )
    QUEUE_STANDS = (
        "{requests:.0f} requests in the gateway's queue since {since}, and none comes or is served: not believed",
        "In a decision's reason: a gateway forgot to count down requests that gave up. Restart it.",
    )
    STANDS_STILL = (
        "no progress at {replicas}: such gauges are not believed",
        "In a decision's reason: an engine shows requests, and none of its figures moves.",
    )
    IDLE = (
        "idle for {idle}",
        "Why a fleet goes to 0, in a decision's reason.",
    )
    STILL_IDLE = (
        "no request at the gateway for {idle}",
        "Why a fleet stays at 0.",
    )
    ARRIVED = (
        "requests that arrived at the gateway at 0 replicas: {requests:.0f}",
        "Why a fleet comes back from 0.",
    )
    HELD = (
        "requests that the gateway holds at 0 replicas: {requests:.0f}",
        "Why a fleet comes back from 0.",
    )
    TRIED = (
        "tries of requests at the gateway at 0 replicas: {tries:.0f}",
        "Why a fleet comes back from 0. Such a gateway counts each try of a request, not the request.",
    )
    USUAL_UNKNOWN = (
        "the usual demand is not learned yet",
        "Why a fleet comes back from 0 with one replica.",
    )
    VANISHED = (
        "while the fleet was at 0, the gateway's metrics vanished ({at}), so requests could not be seen",
        "Why a fleet comes back from 0, and stays.",
    )
    UNKNOWN_AT_ZERO = (
        "demand at the gateway is unknown for {seconds:.0f} s ({reason}), after {longest:.0f} s 1 replica is started",
        "Why a fleet at 0 comes back without a request.",
    )
    FIRST_LOADS = (
        "the first replica after 0 is starting",
        "Why a fleet stays as it is until a replica serves.",
    )
    HOLDS = (
        "holds a request for {time}",
        "In ZeroReady: what the first request meets.",
    )
    RETRIES = (
        "tries a request again for {time}, and refuses it then",
        "In ZeroReady: what the first request meets.",
    )
    REJECTS = (
        "refuses requests",
        "In ZeroReady: what the first request meets.",
    )
    UNKNOWN_TIME = (
        "an unknown time",
        "In ZeroReady: neither the gateway's profile nor spec.metrics.gateway.holdsFor says how long.",
    )
    NO_COLD_START = (
        "no cold start was measured yet",
        "In FirstRequestUnknown.",
    )
    NO_HOLD_TIME = (
        "spec.metrics.gateway.holdsFor is not set, and the gateway's profile does not say",
        "In FirstRequestUnknown.",
    )
    HELD_ARE_LATE = (
        "Requests that arrive then count as late.",
        "In ZeroReady: how SLOMet counts them.",
    )
    REFUSED_ARE_LATE = (
        "Requests that it refuses count as late; those that it tries again are judged from when a replica serves them.",
        "In ZeroReady: how SLOMet counts them.",
    )
    REFUSED_NOT_COUNTED = (
        "Requests that it refuses are not in its time to first token, so SLOMet does not count them.",
        "In ZeroReady: slo.measuredAt is Gateway.",
    )
    TTFT_NOT_JUDGED = (
        "The SLO has no timeToFirstToken, so they do not count as late.",
        "In ZeroReady: how SLOMet counts requests that wait for a cold start.",
    )
