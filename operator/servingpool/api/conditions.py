"""Conditions in a status, with types and reasons from the catalogue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationError

from servingpool.api.part import Part, keyed
from servingpool.api.text import Text
from servingpool.api.time import Time, from_unix
from servingpool.catalogue.condition_types import ConditionType, Truth
from servingpool.catalogue.conditions import Reason

__all__ = ["Condition", "ConditionType", "Conditions", "Reason", "Truth", "condition_of", "updated"]


Generation = Annotated[int, BeforeValidator(lambda given: max(0, given) if type(given) is int else 0)]
"""Of an object's spec. A damaged one is read as 0: no condition that names less can be written."""


class Condition(Part):
    """A metav1.Condition."""

    type: Annotated[ConditionType, Field(strict=False)]
    """Type of the condition, in CamelCase."""
    status: Annotated[Truth, Field(strict=False)]
    """True, False or Unknown."""
    reason: Annotated[str, Field(min_length=1, max_length=64)]
    """Reason for the status, as one CamelCase word."""
    message: Text = ""
    """Reason for the status, as a sentence."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """Generation of the spec that the condition is about."""
    last_transition_time: Time
    """Time when `status` last changed."""


TYPES = tuple(ConditionType)


def _of_this_version(given: Any) -> Any:
    """The conditions whose types this version has: one unknown type would make the whole status unreadable."""
    if not isinstance(given, list):
        return given
    return [one for one in given if not isinstance(one, dict) or one.get("type") in TYPES]


Conditions = Annotated[tuple[Condition, ...], keyed(16, "type"), BeforeValidator(_of_this_version)]
"""At most one of each type."""


class StoredStatus(Part):
    """A status with `conditions`, as the operator itself wrote it, maybe in another version."""

    _unread: bool = PrivateAttr(default=False)
    """Compared too: such a status equals none that the operator has built."""

    @property
    def unread(self) -> bool:
        """Whether the stored status cannot be read, or has an unknown condition: all of it is to be written anew."""
        return self._unread

    @classmethod
    def found(cls, raw: Any) -> Self:
        """The status from its stored form: begun afresh if it cannot be read."""
        if isinstance(raw, cls):
            return raw
        try:
            status = cls() if raw is None else cls.read(raw)
        except ValidationError:
            status = cls()
        if raw:
            status._unread = status == cls() or _of_this_version(raw.get("conditions")) != raw.get("conditions")
        return status


def updated(held: Iterable[Condition], judged: Iterable[Condition]) -> tuple[Condition, ...]:
    """`held` with `judged` in place of the same types. A condition whose status stays keeps its transition time."""
    merged = {condition.type: condition for condition in held}
    for condition in judged:
        before = merged.get(condition.type)
        since = before if before is not None and before.status == condition.status else condition
        merged[condition.type] = condition.model_copy(update={"last_transition_time": since.last_transition_time})
    return tuple(merged.values())


def condition_of(reason: Reason, message: str, *, generation: int | None, at: float) -> Condition:
    """The condition of a reason's own type and status, judged at Unix time `at`; pass it through `updated`."""
    return Condition(
        type=reason.type,
        status=reason.status,
        reason=reason.value,
        message=message,
        observed_generation=generation,
        last_transition_time=from_unix(at),
    )
