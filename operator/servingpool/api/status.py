"""The status of a pool."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, JsonValue, PlainSerializer, WithJsonSchema

from servingpool.api.conditions import Condition, Conditions, ConditionType, StoredStatus, Truth
from servingpool.api.part import Part, keyed
from servingpool.api.role import Role
from servingpool.api.target import LONGEST_NAME, MOST_TARGETS
from servingpool.api.text import Sentence, Text
from servingpool.api.time import Time
from servingpool.catalogue.conditions import SCALES_ON

Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)]
Word = Annotated[str, Field(max_length=64)]


def _plain(replicas: float) -> float:
    """A whole number without `.0`, as it is of a pool of one target."""
    return int(replicas) if replicas % 1.0 == 0.0 else replicas


Capacity = Annotated[
    float,
    Field(ge=0),
    AfterValidator(_plain),
    PlainSerializer(_plain, return_type=Any),
    WithJsonSchema({"type": "number", "minimum": 0}),
]
"""Replicas; where a pool has several targets those of its reference target, and parts of one count."""
CAUSES = (
    *(ConditionType.METRICS_AVAILABLE, ConditionType.READY, ConditionType.TARGETS_AVAILABLE),
    *(ConditionType.SLO_MET, ConditionType.SCALING_LIMITED),
)
"""Conditions that tell why all is not well, the first cause first."""
_ANY_FORM: dict[str, JsonValue] = {"x-kubernetes-preserve-unknown-fields": True, "maxProperties": 64}
CHANGES = 10
"""Most changes in a status."""


class Throughput(Part):
    """Sum over all replicas, over half a minute or two scrapes. An unknown figure is absent."""

    generation_tokens_per_second: Amount | None = None
    """Output tokens per second."""
    prompt_tokens_per_second: Amount | None = None
    """Prompt tokens per second."""
    tokens_per_second_per_gpu: Amount | None = None
    """Output tokens per second per GPU."""
    dollars_per_million_tokens: Amount | None = None
    """Dollars per million output tokens, from costPerReplicaHour."""
    tokens_per_dollar: Amount | None = None
    """Output tokens per dollar, from costPerReplicaHour."""


class Cost(Part):
    """Cost of the present fleet, and of the same traffic at a hosted price. An unknown figure is absent."""

    dollars_per_hour: Amount | None = None
    """Dollars per hour of all replicas on a node, ready or starting, from costPerReplicaHour."""
    compared_to: Word | None = None
    """Name of the hosted price, from spec.compareTo; absent if the operator's configuration has no such price."""
    noted: Word | None = None
    """Date when the price was noted."""
    compared_dollars_per_hour: Amount | None = None
    """Dollars per hour of the present traffic at that price. All prompt tokens count at the price of input."""
    break_even_tokens_per_second: Amount | None = None
    """Output tokens per second, at the present mix of prompts and output, from which the present fleet is cheaper."""
    break_even_load: Amount | None = None
    """Load of the ready replicas at the break-even. Above lastDecision.safeLoad, this fleet misses its SLO there."""


class BatchStatus(Part):
    """Work with deadlines. An unknown figure is absent."""

    unit: Word
    """What is counted: requests or tokens."""
    backlog: Amount | None = None
    """What waits in broker, gateway and engines; absent while the backlog is unknown."""
    per_second: Amount | None = None
    """What the desired replicas serve per second, when they are ready."""
    due: Amount | None = None
    """Work that is due by `dueAt`, in `unit`."""
    due_at: Time | None = None
    """The deadline with the least time to spare."""
    finishes_at: Time | None = None
    """Time at which the desired replicas, and those that others have for now, will have done that work; absent while
    it waits for cheaper hours."""


class Latency(Part):
    """Latency at the SLO's percentile over the last 5 minutes.

    Of prefill and decode apart at the percentile of each, 97.5 for 95% of requests.
    """

    time_to_first_token: Word | None = None
    """Time to first token, such as `1.32s`."""
    time_per_output_token: Word | None = None
    """Time per output token, such as `48ms`."""


class Bounds(Part):
    """Fewest and most replicas in force."""

    min: Count
    """Lowest number of replicas."""
    max: Count
    """Highest number of replicas: the targets' sum, or the max of a schedule. Limits such as a GPUBudget do not change
    it."""
    schedule: Annotated[str, Field(max_length=128)] | None = None
    """Schedules that give them, joined by a comma; absent where both are those of the targets."""


class Limit(Part):
    """One limit that changed the answer."""

    name: Word
    """Name of the limit, in CamelCase; stable across releases."""
    before: Capacity
    """Replicas before the limit; of several targets, in replicas of the reference target."""
    after: Capacity
    """Replicas after the limit, likewise."""
    reason: Text
    """What the limit did, as a sentence with figures."""


class Candidate(Part):
    """One fleet size that was weighed for the horizon."""

    replicas: Capacity
    """Replicas; of several targets, in replicas of the reference target."""
    misses: Amount
    """Expected misses, in the work of fully busy replicas."""


class LastDecision(Part):
    """Last decision in full."""

    at: Time
    """Time of the decision."""
    replicas: Count
    """Replicas that the targets should have together, after all limits."""
    verdict: Word
    """ScaleUp, ScaleDown or Hold."""
    need: Amount | None = None
    """Replicas needed before any limit, those of the reference target where there are several; absent if unknown."""
    limits: Annotated[tuple[Limit, ...], Field(strict=False, max_length=16)] = ()
    """Limits that changed the answer, in the order applied."""
    reason: Text
    """Reason for the decision, as a sentence with figures."""
    load: Amount | None = None
    """Offered work divided by the capacity of the ready replicas. From 1 on, queues grow without end."""
    safe_load: Amount | None = None
    """Highest load at which the SLO is expected to hold."""
    forecast: Amount | None = None
    """Work expected at the horizon, in fully busy replicas."""
    horizon: Word | None = None
    """How far ahead the forecast looks: the time that a new replica takes to serve."""
    figures: Annotated[dict[str, float], Field(default_factory=dict, json_schema_extra={"maxProperties": 64})]
    """Every figure that the decision rests on, as in the operator's metrics; an unknown one is absent."""
    candidates: Annotated[tuple[Candidate, ...], Field(strict=False, max_length=8)] = ()
    """Fleet sizes around figures.forForecast, which has the least replicas + figures.penalty x misses."""
    warnings: Annotated[tuple[Text, ...], Field(strict=False, max_length=8)] = ()
    """Problems that do not stop scaling."""


class Change(Part):
    """One change of spec.replicas, of several targets of their sum."""

    at: Time
    """Time of the change."""
    from_: Annotated[int, Field(ge=0, alias="from")]
    """Replicas before."""
    to: Count
    """Replicas after."""
    why: Sentence
    """Reason: the decision's sentence, or that another program set the replicas."""
    by: Annotated[str, Field(max_length=128)]
    """Field manager that set the replicas: servingpool-operator or another writer, such as kube-controller-manager."""
    outcome: Word | None = None
    """How it ended, such as `ready after 1m35s`; absent while that is unknown."""


class TargetStatus(Part):
    """One of several targets."""

    name: Annotated[str, Field(max_length=LONGEST_NAME)]
    """Name of the workload, or `Kind/name` if two targets have the same name."""
    replicas: Count
    """Its spec.replicas."""
    ready: Count
    """Its replicas that are Ready."""
    desired: Count
    """Replicas that the last decision wants of it."""
    speed: Amount | None = None
    """What one of its replicas serves, in replicas of the reference target; absent until replicas of both served."""
    cold_start: Word | None = None
    """Start-up time of its replicas, such as `1m35s`; until one has started, what is expected."""
    stuck: Sentence | None = None
    """Why it does not deliver the replicas that were requested; absent if it does."""


class RoleStatus(Part):
    """One role of a pool whose prefill and decode run apart."""

    role: Annotated[Role, Field(strict=False)]
    """The role: prefill or decode."""
    replicas: Count
    """Sum of spec.replicas of its targets."""
    ready_replicas: Count
    """Its replicas that are Ready."""
    desired_replicas: Count
    """Replicas that the last decision wants of it."""
    last_decision: LastDecision | None = None
    """Last decision for this role in full."""


class Status(StoredStatus):
    """Observed state and last decision, written on important changes. Live figures are in the operator's metrics."""

    observed_generation: Count | None = None
    """Generation of the spec that this status is about."""
    conditions: Conditions = ()
    """Conditions: Ready, MetricsAvailable, SLOMet, ScalingLimited, Calibrating, DrainReady; with min 0 ZeroReady; of
    several targets TargetsAvailable."""
    fleet: Word | None = None
    """Ready, desired and max replicas for `kubectl get`, such as `3/4/8`."""
    bounds: Bounds | None = None
    """Fewest and most replicas in force."""
    why: Word | None = None
    """What determines the replicas now, for `kubectl get`: a condition's reason, a limit or a verdict."""
    replicas: Count | None = None
    """The target's spec.replicas; of several targets the sum."""
    ready_replicas: Count | None = None
    """Replicas that are Ready."""
    desired_replicas: Count | None = None
    """Replicas that the last decision wants."""
    targets: Annotated[tuple[TargetStatus, ...], keyed(MOST_TARGETS, "name")] | None = None
    """Each target, in the order of the spec; absent if the pool has one."""
    roles: Annotated[tuple[RoleStatus, ...], keyed(len(Role), "role")] | None = None
    """Each role, prefill first; absent if targets have no role."""
    throughput: Throughput | None = None
    """Tokens per second and their cost."""
    cost: Cost | None = None
    """Cost of the present fleet, and of the same traffic at a hosted price."""
    queue_depth: Amount | None = None
    """Requests that wait in engines and gateway."""
    batch: BatchStatus | None = None
    """Work with deadlines; absent without spec.batch."""
    latency: Latency | None = None
    """Latency at the SLO's percentile."""
    attainment: Annotated[float, Field(ge=0, le=100)] | None = None
    """Percent of the last hour's requests that met the SLO."""
    unattainable_since: Time | None = None
    """Time since which SLOMet tells that no fleet size holds the SLO; absent if some size may."""
    cold_start: Word | None = None
    """Measured start-up time of a replica, such as `1m35s`; of several targets, of a replica of any."""
    operator: Annotated[str, Field(max_length=253)] | None = None
    """Name of the operator's pod that writes for this pool; absent unless several share the pools."""
    profile: Annotated[dict[str, Any], Field(json_schema_extra=_ANY_FORM)] | None = None
    """Learned data about this model on this hardware, for restarts. Internal to the operator; its form may change."""
    last_decision: LastDecision | None = None
    """Last decision in full."""
    last_scale_time: Time | None = None
    """Time when the operator last changed replicas."""
    history: Annotated[tuple[Change, ...], Field(strict=False, max_length=CHANGES)] = ()
    """Last changes of the replicas, of several targets of their sum, whoever made them, newest first. A contest over
    the field is left out."""

    @property
    def cause(self) -> Condition | None:
        """The condition that says why all is not well, what stops the scaling before all else; None where all is."""
        ready = ConditionType.READY
        ill = [one for one in self.conditions if one.status is not one.type.good or one.reason in SCALES_ON]
        ill = [one for one in ill if one.type in CAUSES and (one.status is not Truth.UNKNOWN or one.type is ready)]
        ranks = {one.type: (one.type is not ready or one.reason in SCALES_ON, CAUSES.index(one.type)) for one in ill}
        return min(ill, key=lambda one: ranks[one.type], default=None)

    def condition(self, type_: ConditionType) -> Condition | None:
        """The condition of this type, if it was judged."""
        return next((condition for condition in self.conditions if condition.type == type_), None)
