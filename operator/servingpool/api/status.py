"""What the operator tells of a pool."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from servingpool.api.conditions import Condition, ConditionType
from servingpool.api.part import Part
from servingpool.api.text import Text
from servingpool.api.time import Time

Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)]
Word = Annotated[str, Field(max_length=64)]


class Throughput(Part):
    """Aggregate over all replicas, over the last half minute, or two scrapes. What is not known is absent."""

    generation_tokens_per_second: Amount | None = None
    """Output tokens per second."""
    prompt_tokens_per_second: Amount | None = None
    """Prompt tokens per second."""
    tokens_per_second_per_gpu: Amount | None = None
    """Output tokens per second and GPU."""
    dollars_per_million_tokens: Amount | None = None
    """Dollars per million output tokens, at the target's costPerReplicaHour."""


class Latency(Part):
    """At the percentile that the SLO's attainment names, over the last 5 minutes."""

    time_to_first_token: Word | None = None
    """TTFT, such as `1.32s`."""
    time_per_output_token: Word | None = None
    """TPOT, such as `48ms`."""


class Limit(Part):
    """One step between the raw need and the answer."""

    name: Word
    """CamelCase and stable."""
    before: Count
    """Replicas before it."""
    after: Count
    """Replicas after it."""
    reason: Text
    """A sentence with figures and units."""


class LastDecision(Part):
    """The last decision, in full."""

    at: Time
    """When it was taken."""
    replicas: Count
    """Replicas that the target should have."""
    verdict: Word
    """ScaleUp, ScaleDown or Hold."""
    need: Amount | None = None
    """Raw need in replicas, before any limit."""
    limits: Annotated[tuple[Limit, ...], Field(strict=False, max_length=16)] = ()
    """Every limit that changed the answer, in the order applied."""
    reason: Text
    """Why, as one sentence with units."""
    load: Amount | None = None
    """Offered work over capacity of the ready replicas; from 1 queues grow without end."""
    safe_load: Amount | None = None
    """The highest load at which expected misses stay within the budget."""
    forecast: Amount | None = None
    """Expected work at the horizon, in replicas kept fully busy."""
    horizon: Word | None = None
    """How far ahead the forecast looks: what a replica ordered now takes to serve."""
    warnings: Annotated[tuple[Text, ...], Field(strict=False, max_length=8)] = ()
    """What is wrong but not fatal."""


class Status(Part):
    """What was observed and decided. Written when a person would care; live figures are in the operator's metrics."""

    observed_generation: Count | None = None
    """The spec's generation that this status speaks of."""
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            strict=False,
            max_length=16,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()
    """Ready, MetricsAvailable, SLOMet, ScalingLimited, Calibrating, DrainReady."""
    fleet: Word | None = None
    """Ready, desired and most replicas for `kubectl get`, such as `3/4/8`."""
    why: Word | None = None
    """What decides the number now, for `kubectl get`: a condition's reason, a limit's name or a verdict."""
    replicas: Count | None = None
    """Replicas that the target's spec asks for."""
    ready_replicas: Count | None = None
    """Replicas that serve."""
    desired_replicas: Count | None = None
    """Replicas that the last decision wants."""
    throughput: Throughput | None = None
    """Tokens per second and what they cost."""
    queue_depth: Amount | None = None
    """Requests that wait."""
    latency: Latency | None = None
    """TTFT and TPOT at the SLO's percentile."""
    attainment: Annotated[float, Field(ge=0, le=100)] | None = None
    """Percent of the last hour's requests that met the SLO."""
    cold_start: Word | None = None
    """Measured time from order to Ready, such as `1m35s`."""
    profile: (
        Annotated[
            dict[str, Any],
            Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True, "maxProperties": 64}),
        ]
        | None
    ) = None
    """What was learned of this model on this hardware, so that a restart resumes. Its form belongs to the operator."""
    last_decision: LastDecision | None = None
    """The last decision, in full."""
    last_scale_time: Time | None = None
    """When the operator last changed the target's replicas."""

    def condition(self, type_: ConditionType) -> Condition | None:
        """The condition of this type, if it was judged."""
        return next((condition for condition in self.conditions if condition.type == type_), None)
