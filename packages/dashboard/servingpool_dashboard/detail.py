"""What the page of one pool says beside its charts."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from servingpool.api.conditions import Condition, Reason
from servingpool.api.spec import Mode, Spec
from servingpool.api.status import Change, Limit, Status
from servingpool.catalogue.limits import LimitName
from servingpool_dashboard.record import Course, merged
from servingpool_dashboard.rows import Row, Trouble, over_bounds

NOTHING = "Nothing."
"""The catalogue's word where nothing is to be done."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A condition or a limit, and what to do."""

    name: str
    said: str
    action: str
    state: str = ""
    """A condition's status and reason."""
    good: bool = False


def detail(row: Row, course: Course, changes: Iterable[Change]) -> dict[str, Any]:
    """What the page shows. Figures are those of Prometheus if it has some of now, else those of the status."""
    status, live = row.status, course.live
    seen = live if live is not None else status
    figures = {} if seen.last_decision is None else seen.last_decision.figures
    troubles, said = row.troubles, row.said
    if row.trouble in {Trouble.CALM, Trouble.OVER_BOUND} and row.spec is not None and row.spec.asked_slo:
        said = over_bounds(row.spec, seen)
        troubles = (Trouble.OVER_BOUND if said else Trouble.CALM,)
    return {
        "row": row,
        "troubles": troubles,
        "said": said,
        "course": course,
        "seen": seen,
        "figures": figures,
        "limits": [_limit(limit) for limit in _limits(status, live)] + list(_of_roles(status)),
        "conditions": sorted((_condition(one) for one in status.conditions), key=lambda one: one.good),
        "decisions": list(reversed(list(enumerate(changes, start=1)))),
    }


def recommending(spec: Spec | None) -> bool:
    """Whether decisions are told without being carried out."""
    return spec is not None and spec.mode is not Mode.AUTO


def decisions(row: Row, course: Course, since: float, until: float) -> list[Change]:
    """The changes between two times, Unix seconds, oldest first."""
    return [one for one in merged(row.status.history, course.changes, since) if one.at.timestamp() <= until]


def _limits(status: Status, live: Status | None) -> tuple[Limit, ...]:
    """Those of the status have the better sentences, if they are still the same."""
    kept = () if status.last_decision is None else status.last_decision.limits
    now = kept if live is None or live.last_decision is None else live.last_decision.limits
    return kept if [one.name for one in kept] == [one.name for one in now] else now


def _of_roles(status: Status) -> Iterator[Advice]:
    """Those of the status: what limits a role is no metric."""
    for one in status.roles or ():
        for limit in () if one.last_decision is None else one.last_decision.limits:
            yield _limit(limit, f"{one.role}: ")


def _limit(limit: Limit, role: str = "") -> Advice:
    action = next((one.action for one in LimitName if one.value == limit.name), NOTHING)
    return Advice(role + limit.name, limit.reason, action, f"{limit.before} → {limit.after}")


def _condition(one: Condition) -> Advice:
    action = next((each.action for each in Reason if each.value == one.reason and each.type is one.type), NOTHING)
    return Advice(one.type.value, one.message, action, f"{one.status.value}: {one.reason}", one.status is one.type.good)


def commands(row: Row, where: Sequence[str]) -> list[str]:
    """What a person may run next on a pool, as a shell takes it, with options for the cluster and the user."""
    verbs = ["explain"]
    if row.mode is not Mode.RECOMMEND:
        verbs.append("resume" if row.mode is Mode.PAUSED else "pause")
    return [shlex.join(["servingpool", verb, row.key[1], "-n", row.key[0], *where]) for verb in verbs]
