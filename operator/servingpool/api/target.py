"""The targets of a pool: workloads whose replicas the operator sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Protocol, Self

from pydantic import ConfigDict, Field, model_validator

from servingpool.api.part import Part, keyed
from servingpool.api.role import ALL_OR_NONE, BOTH_ROLES, OWN_NAMES, ZERO_TOGETHER, Role
from servingpool.api.rule import DNS_NAME, Between, Matches, Rule, rules, told

MOST_TARGETS = 8
"""Most targets of a pool. Admission and the operator's own types follow it."""
MOST_REPLICAS = 10_000
"""Highest min and max of a target or a schedule."""
LONGEST_NAME = 63 + 1 + 253
"""Characters of a target's name in status and metrics, as `Kind/name`."""

WORKLOAD_NAME = Matches(
    DNS_NAME, "a workload's name in the pool's own namespace, of lower-case letters, digits, - and ."
)
API_VERSION = Matches(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/v[0-9][a-z0-9]*", "an API group and version, such as apps/v1")
KIND = Matches("[A-Z][A-Za-z0-9]*", "a kind with a scale subresource, such as Deployment or StatefulSet")

_MIN, _BASE = "min must be at most max, which is {}", "base must be at most max, which is {}"
_ENOUGH = "self.max < 1 || self.{} <= self.max"
_SIZE = f"must hold 1 to {MOST_TARGETS} targets, got {{}}"
_TWICE = "must name each workload once, got {} more than once"
# By kind and name, whatever the API group: that is what status and metrics call a target. The API server itself refuses
# two that have the group in common.
_ONCE = "!self.exists(o, o.kind == t.kind && o.name == t.name && o.apiVersion != t.apiVersion)"
_LIST_RULES = rules(
    Rule("self.size() >= 1", _SIZE, "string(self.size())"),
    Rule(f"self.all(t, {_ONCE})", _TWICE, f"self.filter(t, !{_ONCE})[0].name"),
    *(ALL_OR_NONE, BOTH_ROLES, ZERO_TOGETHER, OWN_NAMES),
)


def _without_default(schema: dict[str, Any]) -> None:
    """The API server knows no default that depends on the place in a list."""
    schema.pop("default", None)


class Target(Part):
    """A workload whose replicas the operator sets through the scale subresource."""

    api_version: Annotated[str, Field(max_length=253), API_VERSION] = "apps/v1"
    """API group and version of the workload."""
    kind: Annotated[str, Field(max_length=63), KIND] = "Deployment"
    """Kind of the workload: any with a scale subresource. Other kinds than Deployment and StatefulSet need rights, see
    the chart's extraTargets."""
    name: Annotated[str, Field(max_length=253), WORKLOAD_NAME]
    """Name of the workload in the pool's namespace."""
    role: Annotated[Role, Field(strict=False)] | None = None
    """What its engines do, where prefill and decode run apart: prefill engines compute prompts and are sized by time to
    first token; decode engines generate tokens and are sized by time per output token. If one target has a role, all
    need one, and both roles must be there. Default: its engines do both."""
    min: Annotated[int, Between(0, MOST_REPLICAS), Field(json_schema_extra=_without_default)] = 1
    """Lowest number of replicas, 0 to 10000. Default: 1 for the first target, or the first of each role; 0 for the
    others. If all are 0, the pool needs metrics.gateway, see behavior.idleAfter. It is 0 for both roles or neither."""
    max: Annotated[int, Between(1, MOST_REPLICAS)]
    """Highest number of replicas, 1 to 10000."""
    base: Annotated[int, Between(0, MOST_REPLICAS)] = 0
    """Replicas that always stay, whatever the other targets cost, 0 to 10000: on demand below spot. A pool at zero has
    none of them."""
    gpus_per_replica: Annotated[int, Between(1, 1_024)] | None = None
    """GPUs of one replica, 1 to 1024. Default: the resource limits of its pods, of any vendor."""
    cost_per_replica_hour: Annotated[float, Between(0, 100_000)] | None = None
    """Cost of one replica in dollars per hour, 0 to 100000. It adds the cost of fleet and tokens to the status. Among
    several targets the cheapest mix is chosen by it if all have one, else by GPUs. See schedules[].costFactor."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            # A message tells one number (see Rule.to_dict). A number out of its range is refused for that alone.
            Rule(f"!has(self.min) || self.min > {MOST_REPLICAS} || {_ENOUGH.format('min')}", _MIN, "string(self.max)"),
            Rule(f"self.base > {MOST_REPLICAS} || {_ENOUGH.format('base')}", _BASE, "string(self.max)"),
        ),
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(told(_MIN, self.max))
        if self.base > self.max:
            raise ValueError(told(_BASE, self.max))
        return self


Targets = Annotated[tuple[Target, ...], keyed(MOST_TARGETS, "apiVersion", "kind", "name", **_LIST_RULES)]


def by_place(targets: tuple[Target, ...]) -> tuple[Target, ...]:
    """The targets of one pool, each with the min that its place gives where none was given.

    ValueError if there are none, if a workload is named twice, or if their roles do not fit together.
    """
    if not targets:
        raise ValueError(told(_SIZE, 0))
    count = Counter((one.kind, one.name) for one in targets)
    for (_, name), times in count.items():
        if times > 1:
            raise ValueError(told(_TWICE, name))
    placed: list[Target] = []
    for one in targets:
        first = one.role not in {before.role for before in placed}
        placed.append(one if first or "min" in one.model_fields_set else one.model_copy(update={"min": 0}))
    _check_roles(placed)
    return tuple(placed)


def _check_roles(targets: Sequence[Target]) -> None:
    if not any(one.role for one in targets):
        return
    for one in targets:
        if one.role is None:
            raise ValueError(told(ALL_OR_NONE.says, one.name))
    least = {role: [one.min for one in targets if one.role is role] for role in Role}
    if not all(least.values()):
        raise ValueError(told(BOTH_ROLES.says, targets[0].role))
    zero = [role for role in Role if not any(least[role])]
    if len(zero) == 1:
        raise ValueError(told(ZERO_TOGETHER.says, zero[0]))
    for name, times in Counter(one.name for one in targets).items():
        if times > 1:
            raise ValueError(told(OWN_NAMES.says, name))


class Named(Protocol):
    """What a target is called by."""

    @property
    def kind(self) -> str:
        """Kind of the workload."""

    @property
    def name(self) -> str:
        """Its name."""


def names_of(targets: Sequence[Named]) -> tuple[str, ...]:
    """What status and metrics call them: by name, or `Kind/name` where two have the same."""
    names = [one.name for one in targets]
    return tuple([one.name if names.count(one.name) == 1 else f"{one.kind}/{one.name}" for one in targets])
