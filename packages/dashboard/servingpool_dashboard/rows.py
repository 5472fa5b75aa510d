"""A line of the table for each pool, in the order of the harm to its users."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

from pydantic import ValidationError

from servingpool.api.conditions import ConditionType, Reason, Truth
from servingpool.api.serving_pool import problems
from servingpool.api.spec import Mode, Spec
from servingpool.api.status import Status
from servingpool_dashboard.words import brief, number, percent

Key = tuple[str, str]


class Trouble(StrEnum):
    """Kinds of trouble, from the worst for users to none."""

    word: str

    def __new__(cls, name: str, word: str) -> Self:
        """A member is its name in addresses and styles; `word` is what people read."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.word = word
        return member

    SLO_MISSED = "slo_missed", "SLO missed"
    NOT_READY = "not_ready", "Not ready"
    NO_METRICS = "no_metrics", "No metrics"
    OVER_BOUND = "over_bound", "Over a bound"
    LIMITED = "limited", "Limited"
    UNJUDGED = "unjudged", "Not judged yet"
    CALM = "calm", "Calm"


CAUSES = (
    (Trouble.NOT_READY, ConditionType.READY, Truth.FALSE),
    (Trouble.NO_METRICS, ConditionType.METRICS_AVAILABLE, Truth.FALSE),
    (Trouble.SLO_MISSED, ConditionType.SLO_MET, Truth.FALSE),
    (Trouble.LIMITED, ConditionType.SCALING_LIMITED, Truth.TRUE),
    (Trouble.UNJUDGED, ConditionType.READY, Truth.UNKNOWN),
)
"""What a condition's status means. `Status.cause` says which of them tells why."""
HARM = (
    *((True, trouble) for trouble in Trouble if trouble not in {Trouble.UNJUDGED, Trouble.CALM}),
    # Of a pool that is only advised on nobody is harmed by what the operator cannot do.
    *((False, trouble) for trouble in (Trouble.SLO_MISSED, Trouble.OVER_BOUND, Trouble.LIMITED)),
    *((False, trouble) for trouble in (Trouble.NO_METRICS, Trouble.NOT_READY)),
    *((charge, trouble) for trouble in (Trouble.UNJUDGED, Trouble.CALM) for charge in (True, False)),
)
"""Whether the operator is in charge, and the trouble: the order in which pools are listed."""

_ATTAINED = re.compile(r"^.+?; the objective is [0-9.]+%\. ")
"""The figures with which the message of a missed SLO begins."""


@dataclass(frozen=True, slots=True)
class Row:
    """One pool."""

    key: Key
    spec: Spec | None
    """None where it is not valid."""
    status: Status
    mode: Mode
    troubles: tuple[Trouble, ...]
    """All that it has, the worst first; calm alone where it has none."""
    reason: str
    """Why, in the word of the condition; empty where nothing is wrong."""
    said: str
    """Why, in a sentence."""
    text: str
    """What a search looks at, in lower case."""

    @property
    def trouble(self) -> Trouble:
        """The worst."""
        return self.troubles[0]

    @property
    def cause(self) -> str:
        """`said` without the attainment: the table cuts long sentences, and has a column for that."""
        return _ATTAINED.sub("", self.said)

    @property
    def order(self) -> tuple[int, float, Key]:
        """The worst first: by the harm to users, and among pools that miss their SLO by how much they miss it."""
        missed = 0.0
        if self.trouble is Trouble.SLO_MISSED and self.spec is not None and self.status.attainment is not None:
            missed = self.spec.slo.attainment - self.status.attainment
        return HARM.index((self.mode is not Mode.RECOMMEND, self.trouble)), -missed, self.key


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
            and (self.trouble is None or self.trouble in row.troubles)
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
    troubles, reason, said = _judged(spec, status, wrong)
    mode = Mode.found(raw.get("spec"))
    parts = ["/".join(key), reason, status.why or "", mode.value, *(trouble.word for trouble in troubles)]
    parts += [] if spec is None else [spec.model]
    return Row(key, spec, status, mode, troubles, reason, said, " ".join(parts).lower())


def over_bounds(spec: Spec, status: Status) -> str:
    """What the figures of a status exceed, in a sentence; empty where nothing is."""
    slo, met = spec.slo, status.attainment
    figures = {} if status.last_decision is None else status.last_decision.figures
    found = []
    if met is not None and met < slo.attainment:
        found.append(f"{percent(met)} of the last hour's requests met the SLO, {slo.attainment:g}% must")
    for name, bound, figure in (
        ("TTFT", slo.time_to_first_token, figures.get("timeToFirstToken")),
        ("TPOT", slo.time_per_output_token, figures.get("timePerOutputToken")),
    ):
        if bound is not None and figure is not None and figure > bound:
            found.append(f"{name} is {brief(figure)}, {brief(bound)} is the bound")
    load, safe = figures.get("load"), figures.get("safeLoad")
    if load is not None and safe is not None and load > safe:
        found.append(f"load is {number(load)}, {number(safe)} is safe")
    return f"{'; '.join(found)}." if found else ""


def _judged(spec: Spec | None, status: Status, wrong: str) -> tuple[tuple[Trouble, ...], str, str]:
    """All troubles, and the reason and the sentence of the first cause."""
    told = {(one.type, one.status) for one in status.conditions}
    troubles = {trouble for trouble, type_, truth in CAUSES if (type_, truth) in told}
    if (cause := status.cause) is not None and troubles:
        return tuple(each for each in Trouble if each in troubles), cause.reason, cause.message
    if wrong:
        return (Trouble.NOT_READY,), Reason.INVALID_SPEC.value, wrong
    if not status.conditions:
        return (Trouble.UNJUDGED,), "", "The operator has not looked at this pool yet."
    if spec is not None and spec.asked_slo and (over := over_bounds(spec, status)):
        return (Trouble.OVER_BOUND,), "", over
    decision = status.last_decision
    return (Trouble.CALM,), "", "No decision yet." if decision is None else decision.reason


def as_of(row: Row, status: Status) -> Row:
    """The row with a status of the past."""
    troubles, reason, said = _judged(row.spec, status, "")
    return replace(row, status=status, troubles=troubles, reason=reason, said=said)


def counted(rows: Iterable[Row]) -> dict[Trouble, int]:
    """How many pools have each trouble. A pool may have several."""
    found = Counter(trouble for row in rows for trouble in row.troubles)
    return {each: found[each] for each in Trouble}
