"""A line of the table for each pool, in the order in which a person should look at them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Self

from pydantic import ValidationError

from servingpool.api.conditions import ConditionType, Reason, Truth
from servingpool.api.serving_pool import problems
from servingpool.api.spec import Spec
from servingpool.api.status import Status

Key = tuple[str, str]


class Trouble(IntEnum):
    """Kinds of trouble, from the worst to none. Pools are sorted by it."""

    word: str

    def __new__(cls, rank: int, word: str) -> Self:
        """A member is its rank; `word` is what people read."""
        member = int.__new__(cls, rank)
        member._value_ = rank
        member.word = word
        return member

    NOT_READY = 0, "Not ready"
    SLO_MISSED = 1, "SLO missed"
    NO_METRICS = 2, "No metrics"
    LIMITED = 3, "Limited"
    UNJUDGED = 4, "Not judged yet"
    CALM = 5, "Calm"


TURNS = (
    (Trouble.NOT_READY, ConditionType.READY, Truth.FALSE),
    (Trouble.SLO_MISSED, ConditionType.SLO_MET, Truth.FALSE),
    (Trouble.NO_METRICS, ConditionType.METRICS_AVAILABLE, Truth.FALSE),
    (Trouble.LIMITED, ConditionType.SCALING_LIMITED, Truth.TRUE),
    (Trouble.UNJUDGED, ConditionType.READY, Truth.UNKNOWN),
)
"""The first condition that is so gives a pool its trouble."""


@dataclass(frozen=True, slots=True)
class Row:
    """One pool."""

    key: Key
    spec: Spec | None
    """None where it is not valid."""
    status: Status
    trouble: Trouble
    reason: str
    """Why, in the word of the condition; empty where nothing is wrong."""
    said: str
    """Why, in a sentence."""
    text: str
    """What a search looks at, in lower case."""

    @property
    def order(self) -> tuple[int, float, Key]:
        """Worst first; among pools that miss their SLO, those that miss it most."""
        missed = 0.0
        if self.trouble is Trouble.SLO_MISSED and self.spec is not None and self.status.attainment is not None:
            missed = self.spec.slo.attainment - self.status.attainment
        return self.trouble, -missed, self.key


@dataclass(frozen=True, slots=True)
class Filter:
    """Which pools are asked for; what is empty leaves none out."""

    text: str = ""
    namespace: str = ""
    trouble: Trouble | None = None

    def wants(self, row: Row) -> bool:
        """Whether this one is. Each word of the text must be in the pool's."""
        return (
            self.namespace in {"", row.key[0]}
            and (self.trouble is None or row.trouble is self.trouble)
            and all(word in row.text for word in self.text.lower().split())
        )


def row_of(raw: Mapping[str, Any]) -> Row:
    """The row of a ServingPool as the API server stores it, valid or not."""
    key = raw["metadata"].get("namespace", "default"), raw["metadata"]["name"]
    status = Status.found(raw.get("status"))
    try:
        spec, wrong = Spec.read(raw.get("spec")), ""
    except ValidationError as error:
        spec, wrong = None, problems(error)
    trouble, reason, said = _judged(status, wrong)
    parts = ["/".join(key), reason, status.why or "", trouble.word]
    parts += [] if spec is None else [spec.model, spec.mode.value]
    return Row(key, spec, status, trouble, reason, said, " ".join(parts).lower())


def _judged(status: Status, wrong: str) -> tuple[Trouble, str, str]:
    for trouble, type_, truth in TURNS:
        found = status.condition(type_)
        if found is not None and found.status is truth:
            return trouble, found.reason, found.message
    if wrong:
        return Trouble.NOT_READY, Reason.INVALID_SPEC.value, wrong
    if not status.conditions:
        return Trouble.UNJUDGED, "", "The operator has not looked at this pool yet."
    decision = status.last_decision
    return Trouble.CALM, "", "No decision yet." if decision is None else decision.reason


def counted(rows: Iterable[Row]) -> dict[Trouble, int]:
    """How many pools have each trouble."""
    found = dict.fromkeys(Trouble, 0)
    for row in rows:
        found[row.trouble] += 1
    return found
