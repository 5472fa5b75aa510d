"""Prefill and decode: the two roles that the targets of one pool may have."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, model_validator

from servingpool.api.part import Part
from servingpool.api.rule import Between, Rule, needs_some, rules, told

_NO_BOUND = "needs min (0.01 to 100), max (0.01 to 100) or both, got neither"
_MIN = "min must be at most max, which is {}"
_OPEN = "!has(self.min) || !has(self.max)"

# Of a pool's list of targets.
ALL_OR_NONE = Rule(
    "self.all(t, has(t.role)) || !self.exists(t, has(t.role))",
    "must give all targets a role (prefill or decode) or none, got none for {}",
    "self.filter(t, !has(t.role))[0].name",
)
BOTH_ROLES = Rule(
    # A list in which some have none breaks the rule above alone.
    "!self.all(t, has(t.role)) || self.size() == 0 || self.exists(t, t.role != self[0].role)",
    "must have both roles, prefill and decode, got {} only",
    "self[0].role",
)
_OF_EACH_ROLE = "['prefill', 'decode'].map(r, self.filter(t, has(t.role) && t.role == r))"
# A min that is not given is 1 for the first target of each role, else 0.
_ZERO_ROLES = f"{_OF_EACH_ROLE}.filter(ts, ts.size() > 0 && has(ts[0].min) && !ts.exists(t, has(t.min) && t.min != 0))"
ZERO_TOGETHER = Rule(
    f"{_ZERO_ROLES}.size() != 1",
    "min must be 0 for both roles or for neither, got 0 for {} only",
    f"{_ZERO_ROLES}[0][0].role",
)

# Two of the same kind are refused as the same target.
_OWN_NAME = "!self.exists(o, o.name == t.name && o.kind != t.kind)"
OWN_NAMES = Rule(
    # Each role is told apart from the other by the names of its targets.
    f"!self.all(t, has(t.role)) || self.all(t, {_OWN_NAME})",
    "must differ in name where they have roles, got {} more than once",
    f"self.filter(t, !{_OWN_NAME})[0].name",
)

# Of a pool's spec.
_NO_ROLES = "!self.targets.exists(t, has(t.role))"
RATIO_NEEDS_ROLES = Rule(
    f"!has(self.prefillPerDecode) || !({_NO_ROLES})",
    "prefillPerDecode needs targets with the roles prefill and decode, got no role",
)
# An SLO without any bound is refused for that alone.
PREFILL_BOUND = Rule(
    f"!has(self.slo) || has(self.slo.timeToFirstToken) || !has(self.slo.timePerOutputToken) || {_NO_ROLES}",
    "prefill targets need slo.timeToFirstToken (1ms to 10m), got none",
)
DECODE_BOUND = Rule(
    "(has(self.slo) ? has(self.slo.timePerOutputToken) || !has(self.slo.timeToFirstToken)"
    f" : !has(self.batch) && !has(self.throughput)) || {_NO_ROLES}",
    "decode targets need slo.timePerOutputToken (1ms to 10s), got none",
)
ROLES_AT_ENGINES = Rule(
    f"!has(self.slo) || self.slo.measuredAt != 'Gateway' || {_NO_ROLES}",
    "slo.measuredAt must be Engine where targets have roles, got Gateway: "
    "a gateway's time to first token spans both roles",
)
ROLES_NO_SCHEDULE = Rule(
    f"!has(self.schedules) || self.schedules.size() == 0 || {_NO_ROLES}",
    "must have no schedules where targets have roles, because a window names no role; got schedule {}",
    "self.schedules[0].name",
)
SPEC_RULES = (RATIO_NEEDS_ROLES, PREFILL_BOUND, DECODE_BOUND, ROLES_AT_ENGINES, ROLES_NO_SCHEDULE)


class Role(StrEnum):
    """What the engines of a target do for each request."""

    PREFILL = "prefill"
    DECODE = "decode"


class RoleRatio(Part):
    """Prefill replicas for each decode replica, the targets of a role counted together."""

    min: Annotated[float, Between(0.01, 100)] | None = None
    """Fewest prefill replicas for each decode replica, 0.01 to 100. Default: no limit."""
    max: Annotated[float, Between(0.01, 100)] | None = None
    """Most prefill replicas for each decode replica, 0.01 to 100. Default: no limit."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule("has(self.min) || has(self.max)", _NO_BOUND),
            # A number out of its range is refused for that alone.
            Rule(f"{_OPEN} || self.min > 100.0 || self.max < 0.01 || self.min <= self.max", _MIN, "string(self.max)"),
        ),
    )

    _given = needs_some(_NO_BOUND, "min", "max")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(told(_MIN, f"{self.max:g}"))
        return self
