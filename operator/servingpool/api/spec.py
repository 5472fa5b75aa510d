"""The spec of a pool."""

from __future__ import annotations

import json
import math
import re
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from servingpool.api.batch import ONE_OBJECTIVE, PRICED, Batch, Throughput
from servingpool.api.duration import DurationBetween
from servingpool.api.mode import Mode as Mode  # noqa: PLC0414, what mypy takes for an export
from servingpool.api.part import Part, keyed
from servingpool.api.role import (
    DECODE_BOUND,
    PREFILL_BOUND,
    RATIO_NEEDS_ROLES,
    ROLES_AT_ENGINES,
    ROLES_NO_SCHEDULE,
    SPEC_RULES,
    RoleRatio,
)
from servingpool.api.rule import DNS_LABEL, DNS_NAME, Between, Matches, Rule, quoted, rules, told
from servingpool.api.schedule import Schedule, cost_factor, occurrences
from servingpool.api.target import MOST_REPLICAS, WORKLOAD_NAME, Targets, by_place, names_of
from servingpool.api.target import Target as Target  # noqa: PLC0414, what mypy takes for an export

BACKEND_NAME = Matches(DNS_LABEL, "the name of a backend in the operator's configuration, never a URL")
ENGINE_NAME = Matches(DNS_LABEL, "the name of an engine, such as vllm, of lower-case letters, digits and -")
PRICE_NAME = Matches(
    DNS_NAME, "the name of a price in the operator's configuration, of lower-case letters, digits, - and ."
)
GATEWAY_NAME = Matches(DNS_LABEL, "the name of a gateway, such as vllm-router, of lower-case letters, digits and -")
DEFAULT_PRIORITY, HIGHEST_PRIORITY = 5, 9
"""Of a pool under a GPUBudget; the lowest is 0."""
LABEL_NAME = "[a-zA-Z_][a-zA-Z0-9_]{0,62}"
RESERVED_LABELS = ("__name__", "le", "model_name", "namespace", "pod")
"""The operator matches these itself, to keep a pool to its own namespace and model."""

_NO_BOUND = "needs timeToFirstToken (1ms to 10m), timePerOutputToken (1ms to 10s) or both, got neither"
_NO_CLIENT_BOUND = "measuredAt Gateway needs timeToFirstToken (1ms to 10m): a gateway measures no other bound"
_LABELS = f"keys must be Prometheus label names other than {', '.join(RESERVED_LABELS)}, got {{}}"
_LABEL_IS_FINE = f"k.matches({quoted(f'^{LABEL_NAME}$')}) && !(k in {json.dumps(RESERVED_LABELS)})"

# Both at once is a manifest that was copied without renaming it: the first fleet would be left running without
# an owner, and what was learned of it would be believed of the second. Either alone is daily life: an upgrade
# in place, a move to other hardware.
_SAME_TARGET = "o.apiVersion == t.apiVersion && o.kind == t.kind && o.name == t.name"
_NOT_ANOTHER_POOL = Rule(
    f"self.model == oldSelf.model || self.targets.exists(t, oldSelf.targets.exists(o, {_SAME_TARGET}))",
    "model and target must not change together: that is another pool, create a new one; got {}",
    "self.model + ' on ' + self.targets[0].name + ' for ' + oldSelf.model + ' on ' + oldSelf.targets[0].name",
)

# The pool's own bounds are the sums over its targets; a min that is not given is 1 for the first target, else 0.
_SUMS = {
    "min": "self.targets.map(t, has(t.min) ? t.min : 0).sum() + (has(self.targets[0].min) ? 0 : 1)",
    "max": "self.targets.map(t, t.max).sum()",
}
_LEAST, _MOST = (f"(has(s.{end}) ? s.{end} : {total})" for end, total in _SUMS.items())
# A number that is refused where it stands is not refused here once more.
_BAD_TARGET = f"t.max < 1 || (has(t.min) && (t.min > {MOST_REPLICAS} || t.min > t.max))"
_BAD_SCHEDULE = f"(has(s.min) && s.min > {MOST_REPLICAS}) || (has(s.max) && s.max < 1)"
# Its name alone: numbers as well would exceed the budget of the whole CRD (see Rule.to_dict).
_ORDERED_SCHEDULES = Rule(
    f"!has(self.schedules) || self.targets.size() == 0 || self.targets.exists(t, {_BAD_TARGET})"
    f" || self.schedules.all(s, {_BAD_SCHEDULE} || {_LEAST} <= {_MOST})",
    "min must be at most max, the targets' sum where a schedule has none; got the contrary in schedule {}",
    f"self.schedules.filter(s, !({_BAD_SCHEDULE}) && {_LEAST} > {_MOST})[0].name",
)

_ZERO_NEEDS_GATEWAY = Rule(
    "has(self.batch) || has(self.metrics.gateway) || self.targets.size() == 0 || !has(self.targets[0].min)"
    " || self.targets.exists(t, has(t.min) && t.min != 0)",
    "min 0 needs metrics.gateway, which shows requests while there is no replica: set it, or min to 1 or more",
)


class Slo(Part):
    """Latency objective. A request is good if it meets every bound that is set."""

    time_to_first_token: Annotated[float, DurationBetween("1ms", "10m")] | None = None
    """Longest time to first token, including the engine's queue: `2500ms`. 1ms to 10m.
    Attainment is exact at vLLM's bucket bounds (100ms, 250ms, 500ms, 750ms, 1s, 2500ms, 5s), else estimated."""
    time_per_output_token: Annotated[float, DurationBetween("1ms", "10s")] | None = None
    """Longest mean time between the output tokens of a request: `100ms`. 1ms to 10s.
    Attainment is exact at vLLM's bucket bounds (25ms, 50ms, 75ms, 100ms, 150ms, 200ms), else estimated."""
    attainment: Annotated[float, Between(50, 99.9)] = 95.0
    """Percent of requests that must meet every bound, 50 to 99.9."""
    measured_at: Literal["Engine", "Gateway"] = "Engine"
    """Where time to first token is measured. Engine: by the engines, so a gateway's queue is not in it. Gateway: by the
    gateway, as the client sees it; time per output token stays the engines'."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "has(self.timeToFirstToken) || has(self.timePerOutputToken) || self.measuredAt == 'Gateway'", _NO_BOUND
            ),
            Rule("self.measuredAt != 'Gateway' || has(self.timeToFirstToken)", _NO_CLIENT_BOUND),
        ),
    )

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.measured_at == "Gateway" and self.time_to_first_token is None:
            raise ValueError(_NO_CLIENT_BOUND)
        if self.time_to_first_token is None and self.time_per_output_token is None:
            raise ValueError(_NO_BOUND)
        return self

    @property
    def attainment_share(self) -> float:
        """Attainment as a share, 0.5 to 0.999. Rounded, for 99.9 / 100 is 0.9990000000000001: out of range."""
        return round(self.attainment / 100, 6)

    def percentile(self, *, roles: bool) -> float:
        """At which latencies are told: prefill and decode each have a part of the misses that the SLO allows."""
        return 100.0 * math.sqrt(self.attainment_share) if roles else self.attainment


BATCH_SLO = Slo.read({"timeToFirstToken": "10m", "attainment": 50})
"""The longest bound and the lowest attainment: what a pool with deadlines is not sized by."""


class Gateway(Part):
    """The gateway or router in front of the engines, in the pool's namespace."""

    name: Annotated[str, Field(max_length=63), GATEWAY_NAME]
    """Gateway: envoy-ai-gateway, inference-extension, litellm, llm-d-epp, production-stack, sglang-router, vllm-router,
    or one whose metrics the operator's configuration describes."""
    workload: Annotated[str, Field(max_length=253), WORKLOAD_NAME] | None = None
    """Name of the gateway's Deployment or StatefulSet. Needed where the gateway's metrics do not name the
    model, as with vllm-router. Default: all gateways of that name in the namespace."""
    holds_for: Annotated[float, DurationBetween("0s", "1h")] | None = None
    """How long it holds or retries a request while no replica is ready, 0s to 1h. Set it where the gateway is not
    configured as by default. It is compared with the cold start where min is 0. Default: the gateway's."""


class Metrics(Part):
    """Where the operator reads the engines' metrics."""

    backend: Annotated[str, Field(max_length=63), BACKEND_NAME] = "default"
    """Name of a Prometheus backend in the operator's configuration."""
    match_labels: Annotated[
        dict[str, Annotated[str, Field(max_length=256)]],
        Field(
            max_length=8,
            json_schema_extra=rules(
                Rule(f"self.all(k, {_LABEL_IS_FINE})", _LABELS, f"self.filter(k, !({_LABEL_IS_FINE}))[0]"),
            ),
        ),
    ] = Field(default_factory=dict)
    """Labels with exact values that the pool's series must have. Set the cluster's label if Prometheus holds several
    clusters (Thanos, Mimir): series are matched by namespace and pod name only."""

    gateway: Gateway | None = None
    """The gateway in front of the engines, for requests that wait there. Default: the backend's, if it has one."""
    adapters: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=256)], ...], Field(strict=False, max_length=32)
    ] = ()
    """LoRA adapters of the model, as the gateway's series name them. Their requests count there as the model's. The
    engines' figures have them already."""

    @field_validator("match_labels")
    @classmethod
    def _allowed(cls, labels: dict[str, str]) -> dict[str, str]:
        for label in labels:
            if not re.fullmatch(LABEL_NAME, label) or label in RESERVED_LABELS:
                raise ValueError(told(_LABELS, label))
        return labels


class Behavior(Part):
    """Tuning. The defaults fit most pools."""

    scale_down_window: Annotated[float, DurationBetween("0s", "1h")] = 120.0
    """Scale-down keeps the replicas needed within this window, or within two cold starts if longer. 0s to 1h."""
    calibration: Annotated[float, DurationBetween("0s", "1h")] = 300.0
    """No scale-down until the pool's metrics were read for this long and the engine's speed is known. 0s to 1h."""
    cold_start: Annotated[float, DurationBetween("1s", "1h")] = 120.0
    """Assumed start-up time of a replica until one was measured. 1s to 1h."""
    idle_after: Annotated[float, DurationBetween("1m", "24h")] = 900.0
    """With min 0: time without a request, at the gateway and the engines, after which the fleet goes to 0; at least
    scaleDownWindow and two cold starts. 1m to 24h. The first request at the gateway brings it back."""
    max_change_per_step: Annotated[int, Between(1, 10_000)] | None = None
    """Most replicas that one change adds or removes, 1 to 10000; of each role where targets have roles. A change comes
    every 15 s at most (the interval). It applies last: min and max are reached in such steps too. Default: no limit."""


class Spec(Part):
    """Desired state: this objective for this model, within these replicas."""

    model: Annotated[str, Field(min_length=1, max_length=256)]
    """Served model name, as the engine's metrics label it. Not compared where an engine has no such label."""
    engine: Annotated[str, Field(max_length=63), ENGINE_NAME] = "vllm"
    """Inference engine of the replicas: vllm, sglang, lmdeploy, nim, tensorrt-llm, tgi; llamacpp and ollama with a
    gateway; or one whose metrics the operator's configuration describes."""
    asked_slo: Annotated[Slo | None, Field(alias="slo")] = None
    """Latency objective: a request is good if it meets every bound that is set. Give one of slo, batch, throughput."""
    batch: Batch | None = None
    """Work with deadlines, in place of slo: all of it is done in time, by the fewest GPU-hours. With min 0 there is no
    replica while nothing is queued and nothing runs."""
    throughput: Throughput | None = None
    """Tokens at a rate, in place of slo: while there is work, as many full replicas as serve it or the money pays."""
    targets: Targets
    """Workloads to scale, 1 to 8: of one GPU type each, spot or on demand. Their order does not matter, but for min."""
    prefill_per_decode: RoleRatio | None = None
    """Prefill replicas for each decode replica, where targets have roles. If the ratio is outside, the role that has
    too few replicas gets more, up to its max. Default: each role is sized alone."""
    mode: Annotated[Mode, Field(strict=False)] = Mode.AUTO
    """Auto: scales. Recommend: computes a replica count and does not apply it. Paused: observes and does not scale."""
    priority: Annotated[int, Between(0, HIGHEST_PRIORITY)] = DEFAULT_PRIORITY
    """Rank among the pools of a GPUBudget, 0 to 9. A miss counts as ten misses at the next lower priority."""
    compare_to: Annotated[str, Field(max_length=63), PRICE_NAME] | None = None
    """Name of a hosted price in the operator's configuration. The status then says what the traffic would cost there.
    It does not change scaling."""
    metrics: Metrics = Metrics()
    """Where the operator reads the engines' metrics."""
    behavior: Behavior = Behavior()
    """Tuning. The defaults fit most pools."""
    schedules: Annotated[tuple[Schedule, ...], keyed(16, "name")] = ()
    """Other bounds or prices at certain hours; at most 16. A window in force replaces min and max of the pool, the sums
    over its targets. Where windows overlap, the highest min, the highest max and the highest costFactor count."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *(ONE_OBJECTIVE, PRICED, _NOT_ANOTHER_POOL, _ORDERED_SCHEDULES, _ZERO_NEEDS_GATEWAY, *SPEC_RULES)
        )
    )

    @property
    def slo(self) -> Slo:
        """The latency objective; of a pool with deadlines or a rate, one that hardly any request misses."""
        return self.asked_slo or BATCH_SLO

    @property
    def min(self) -> int:
        """Fewest replicas of all targets together."""
        return sum(target.min for target in self.targets)

    @property
    def max(self) -> int:
        """Most replicas of all targets together."""
        return sum(target.max for target in self.targets)

    @property
    def several(self) -> bool:
        """Whether its targets are told apart: it has more than one, or is one role's part of a pool."""
        return len(self.targets) > 1 or self.has_roles

    @property
    def has_roles(self) -> bool:
        """Whether prefill and decode run apart. Such a pool has several targets."""
        return self.targets[0].role is not None

    @property
    def target_names(self) -> tuple[str, ...]:
        """What status and metrics call the targets: by name, or `Kind/name` where two have the same."""
        return names_of(self.targets)

    def costs(self, now: float) -> dict[str, float | None]:
        """Dollars of a replica for an hour at that Unix time, by target; None where the target has no price."""
        costs = (one.cost_per_replica_hour for one in self.targets)
        factor = cost_factor(occurrences(self.schedules, now, now)) if self.schedules else 1.0
        return {name: cost and cost * factor for name, cost in zip(self.target_names, costs, strict=True)}

    @property
    def goes_to_zero(self) -> bool:
        """Whether the fleet may have no replica."""
        return self.min == 0

    @model_validator(mode="after")
    def _one_objective(self) -> Self:
        given = sum(one is not None for one in (self.asked_slo, self.batch, self.throughput))
        if given != 1:
            raise ValueError(told(ONE_OBJECTIVE.says, "several" if given else "none"))
        if not self.has_roles:
            if self.prefill_per_decode is not None:
                raise ValueError(RATIO_NEEDS_ROLES.says)
        elif self.slo.time_to_first_token is None:
            raise ValueError(PREFILL_BOUND.says)
        elif self.slo.time_per_output_token is None:
            raise ValueError(DECODE_BOUND.says)
        elif self.slo.measured_at == "Gateway":
            raise ValueError(ROLES_AT_ENGINES.says)
        elif self.schedules:
            raise ValueError(told(ROLES_NO_SCHEDULE.says, self.schedules[0].name))
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.metrics.gateway is None and self.batch is None and self.goes_to_zero:
            raise ValueError(_ZERO_NEEDS_GATEWAY.says)
        if self.throughput is not None and (spend := self.throughput.spend_at_most) is not None:
            prices = [one.cost_per_replica_hour for one in self.targets if one.cost_per_replica_hour is not None]
            if len(prices) < len(self.targets) or min(prices) > spend.dollars_per_hour:
                raise ValueError(told(PRICED.says, f"{spend.dollars_per_hour:g}"))
        names = [one.name for one in self.schedules]
        for one in self.schedules:
            if names.count(one.name) > 1:
                raise ValueError(f"schedules must differ in name, got '{one.name}' more than once")
            least, most = self.min if one.min is None else one.min, one.max or self.max
            if least > most:
                raise ValueError(told(_ORDERED_SCHEDULES.says, one.name))
        return self

    @field_validator("targets")
    @classmethod
    def _by_place(cls, targets: tuple[Target, ...]) -> tuple[Target, ...]:
        return by_place(targets)
