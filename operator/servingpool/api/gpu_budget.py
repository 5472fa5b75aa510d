"""The GPUBudget: how many GPUs many pools have together. Cluster-scoped, for whoever owns the GPUs."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator

from servingpool.api.conditions import Conditions, Generation, StoredStatus
from servingpool.api.part import Part, keyed
from servingpool.api.rule import DNS_LABEL, DNS_NAME, Between, Matches, Rule, quoted, rules, told
from servingpool.api.status import Count, Word
from servingpool.api.text import Sentence

_LABEL_KEY = rf"({DNS_NAME}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"
_LABEL_VALUE = "([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
RESOURCE = Matches(rf"{DNS_NAME}/[A-Za-z0-9][-A-Za-z0-9_.]*", "an extended resource, such as nvidia.com/gpu")
DEVICE_CLASS = Matches(DNS_NAME, "the name of a DeviceClass, such as gpu.nvidia.com")
LABEL_KEY = Matches(_LABEL_KEY, "a label's name, such as team or example.com/tier")
LABEL_VALUE = Matches(_LABEL_VALUE, "a label's value, of at most 63 letters, digits, -, _ and .")
NAME = Matches(DNS_NAME, "the name of a ServingPool, of lower-case letters, digits, - and .")
NAMESPACE = Matches(DNS_LABEL, "the name of a namespace, of lower-case letters, digits and -")

_KEYS = "keys must be label names, such as team or example.com/tier, got {}"
_VALUES = "values must be label values of at most 63 letters, digits, -, _ and ., got '{}'"
_KEY_IS_FINE = f"k.matches({quoted(f'^({_LABEL_KEY})$')})"
_VALUE_IS_FINE = f"self[k].matches({quoted(f'^({_LABEL_VALUE})$')})"
_NEEDS_VALUES = "operator In and NotIn need values (1 to 16), got none"
_NO_VALUES = "operator Exists and DoesNotExist take no values, got {}"
_FLOORS = "floors must be at most gpus together, and gpus is {}"


def _checked(labels: dict[str, str]) -> dict[str, str]:
    for key, value in labels.items():
        LABEL_KEY.check(key)
        LABEL_VALUE.check(value)
    return labels


Labels = Annotated[
    dict[str, Annotated[str, Field(max_length=63)]],
    Field(
        max_length=16,
        json_schema_extra=rules(
            Rule(f"self.all(k, {_KEY_IS_FINE})", _KEYS, f"self.filter(k, !{_KEY_IS_FINE})[0]"),
            Rule(f"self.all(k, {_VALUE_IS_FINE})", _VALUES, f"self[self.filter(k, !{_VALUE_IS_FINE})[0]]"),
        ),
    ),
    AfterValidator(_checked),
]
"""Labels with their values."""


class Requirement(Part):
    """One condition on a label."""

    key: Annotated[str, Field(max_length=317), LABEL_KEY]
    """Name of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """In, NotIn, Exists or DoesNotExist."""
    values: Annotated[
        tuple[Annotated[str, Field(max_length=63), LABEL_VALUE], ...], Field(strict=False, max_length=16)
    ] = ()
    """Values, 1 to 16 for In and NotIn; none for the others."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule("!(self.operator in ['In', 'NotIn']) || size(self.values) > 0", _NEEDS_VALUES),
            Rule("self.operator in ['In', 'NotIn'] || size(self.values) == 0", _NO_VALUES, "self.values[0]"),
        ),
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        listed = self.operator in {"In", "NotIn"}
        if listed and not self.values:
            raise ValueError(_NEEDS_VALUES)
        if self.values and not listed:
            raise ValueError(told(_NO_VALUES, self.values[0]))
        return self


class LabelSelector(Part):
    """A Kubernetes label selector: all conditions must hold; an empty one selects everything."""

    match_labels: Labels = Field(default_factory=dict)
    """Labels with their values."""
    match_expressions: Annotated[tuple[Requirement, ...], Field(strict=False, max_length=16)] = ()
    """Conditions on labels; at most 16."""

    def admits(self, labels: dict[str, str]) -> bool:
        """Whether an object with these labels is selected. As in Kubernetes, an absent label meets NotIn."""
        if any(labels.get(key) != value for key, value in self.match_labels.items()):
            return False
        return all(_admits(one, labels) for one in self.match_expressions)

    def excludes(self, other: LabelSelector) -> bool:
        """Whether some label keeps each object from being selected by both."""
        mine, theirs = self._by_label, other._by_label
        return any(not _satisfiable((*mine[key], *theirs[key])) for key in mine.keys() & theirs.keys())

    @cached_property
    def _by_label(self) -> Mapping[str, tuple[Requirement, ...]]:
        """Its conditions by the label that they are about."""
        found: defaultdict[str, tuple[Requirement, ...]] = defaultdict(tuple)
        for key, value in self.match_labels.items():
            found[key] += (Requirement(key=key, operator="In", values=(value,)),)
        for one in self.match_expressions:
            found[one.key] += (one,)
        return found


def _satisfiable(about: Sequence[Requirement]) -> bool:
    """Whether some object meets all these conditions on one label."""
    key, listed = about[0].key, {value for one in about for value in one.values}
    other = "x" * 64  # no value has so many letters, so that none of the conditions lists it
    return any(
        all(_admits(one, labels) for one in about) for labels in ({}, *({key: value} for value in (*listed, other)))
    )


def _admits(one: Requirement, labels: dict[str, str]) -> bool:
    if one.operator in {"In", "NotIn"}:
        return (labels.get(one.key) in one.values) == (one.operator == "In")
    return (one.key in labels) == (one.operator == "Exists")


class Floor(Part):
    """GPUs that one pool has before others."""

    namespace: Annotated[str, Field(max_length=63), NAMESPACE]
    """Namespace of the ServingPool."""
    pool: Annotated[str, Field(max_length=253), NAME]
    """Name of the ServingPool."""
    gpus: Annotated[int, Between(1, 100_000)]
    """GPUs that are this pool's before any other pool's min and need, 1 to 100000."""


class BudgetSpec(Part):
    """Desired state: at most so many GPUs for these pools together."""

    gpus: Annotated[int, Between(0, 100_000)]
    """GPUs that the pools may hold together, 0 to 100000: those of pods that load and drain included."""
    resource_name: Annotated[str, Field(max_length=253), RESOURCE] = "nvidia.com/gpu"
    """Extended resource that is counted, as pods ask for it in their limits."""
    device_class_name: Annotated[str, Field(max_length=253), DEVICE_CLASS] = "gpu.nvidia.com"
    """DeviceClass that is counted as well, for pods with ResourceClaims (DRA)."""
    node_selector: Labels = Field(default_factory=dict)
    """Nodes whose GPUs the budget is about. A target is left out only if the node selector of its pods asks for another
    value of one of these labels. Default: all nodes."""
    pool_selector: LabelSelector = LabelSelector()
    """ServingPools that share the budget, by their labels. Default: all."""
    namespace_selector: LabelSelector = LabelSelector()
    """Namespaces of these pools, by the namespaces' labels. Default: all."""
    floors: Annotated[tuple[Floor, ...], keyed(64, "namespace", "pool")] = ()
    """GPUs that pools have before others, at most `gpus` together; at most 64 pools."""
    lending: bool = True
    """Whether GPUs of a floor that its pool does not want are lent to others. They come back once the others' pods are
    gone."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                # A number out of its range is refused for that alone.
                "!has(self.floors) || self.gpus < 0 || self.floors.exists(f, f.gpus > 100000)"
                " || self.floors.map(f, f.gpus).sum() <= self.gpus",
                _FLOORS,
                "string(self.gpus)",
            ),
        ),
    )

    @model_validator(mode="after")
    def _floors(self) -> Self:
        if sum(one.gpus for one in self.floors) > self.gpus:
            raise ValueError(told(_FLOORS, self.gpus))
        named = [(one.namespace, one.pool) for one in self.floors]
        twice = next((one for one in named if named.count(one) > 1), None)
        if twice is not None:
            raise ValueError(f"floors must differ in pool, got {json.dumps('/'.join(twice))} more than once")
        return self

    def floor(self, namespace: str, pool: str) -> int:
        """GPUs that this pool has before others."""
        return next((one.gpus for one in self.floors if (one.namespace, one.pool) == (namespace, pool)), 0)


class BudgetedPool(Part):
    """One pool of a budget."""

    namespace: Annotated[str, Field(max_length=63)]
    """Namespace of the ServingPool."""
    name: Annotated[str, Field(max_length=253)]
    """Name of the ServingPool."""
    priority: Count
    """Priority of the pool."""
    held: Count | None = None
    """GPUs that its pods hold: requested, loading and draining; absent if unknown."""
    due: Count | None = None
    """GPUs that are its due; absent if unknown."""
    firm: Count | None = None
    """GPUs of its floor and its min that no other pool's min, priority or need takes."""
    wanted: Count | None = None
    """GPUs that its decision asks for; absent if unknown."""


class BudgetStatus(StoredStatus):
    """Observed state, written on important changes. Live figures are in the operator's metrics."""

    observed_generation: Count | None = None
    """Generation of the spec that this status is about."""
    conditions: Conditions = ()
    """Conditions: Counted, Exclusive, Sufficient."""
    use: Word | None = None
    """Held GPUs and the budget for `kubectl get`, such as `12/16`."""
    held: Count | None = None
    """GPUs that the pools' pods hold: requested, loading and draining; absent if unknown."""
    waiting: Count | None = None
    """GPUs that are due to pools and not theirs yet, because other pods hold them."""
    why: Sentence | None = None
    """What determines the budget now, for `kubectl get`: a condition's reason."""
    pools: Annotated[tuple[BudgetedPool, ...], Field(strict=False, max_length=1_000)] = ()
    """Pools of the budget; of more than 100, those with firm GPUs, at most 1000."""


class BudgetMetadata(Part):
    """The part of an object's metadata that the operator uses."""

    name: str
    uid: str = ""
    generation: Generation = 0
    creation_timestamp: str = ""


class GPUBudget(Part):
    """GPUs that many ServingPools have together, shared by floors, mins, priority and expected misses."""

    api_version: Literal["servingpool.dev/v1alpha1"] = "servingpool.dev/v1alpha1"
    kind: Literal["GPUBudget"] = "GPUBudget"
    metadata: BudgetMetadata
    spec: BudgetSpec
    status: Annotated[BudgetStatus, Field(validate_default=False)] = BudgetStatus()

    @field_validator("status", mode="before")
    @classmethod
    def _readable(cls, value: Any) -> BudgetStatus:
        # A status that cannot be read must not switch the budget off.
        return BudgetStatus.found(value)
