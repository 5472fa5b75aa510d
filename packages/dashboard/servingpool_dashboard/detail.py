"""What the page of one pool says beside its charts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from servingpool.adapters.cluster.objects import FIELD_MANAGER
from servingpool.api.conditions import Condition, Reason
from servingpool.api.spec import Mode, Spec
from servingpool.api.status import Change, Limit, RoleStatus, Status, TargetStatus
from servingpool.catalogue.limits import LimitName
from servingpool_dashboard.record import SPANS, Course, merged
from servingpool_dashboard.rows import Row, Trouble, over_bounds
from servingpool_dashboard.words import bounds, brief, dollars, number, percent

NOTHING = "Nothing."
"""The catalogue's word where nothing is to be done."""


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure."""

    name: str
    value: str
    aside: str = ""
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Advice:
    """A condition or a limit, and what to do."""

    name: str
    said: str
    action: str
    state: str = ""
    """A condition's status and reason."""
    good: bool = False


@dataclass(frozen=True, slots=True)
class Detail:
    """All of it."""

    row: Row
    troubles: tuple[Trouble, ...]
    """Those of the row; of a calm pool, what the newest figures say."""
    said: str
    """Why, in a sentence; empty where nothing is wrong."""
    course: Course
    tiles: list[Tile]
    limits: list[Advice]
    conditions: list[Advice]
    """The bad ones first."""
    decisions: list[tuple[int, Change]]
    """With the number that the charts show too; newest first."""
    warnings: tuple[str, ...] = ()
    learned: list[tuple[str, str]] = field(default_factory=list)
    """Every figure of the last decision."""
    targets: tuple[TargetStatus, ...] = ()
    """Each of several targets."""
    roles: tuple[RoleStatus, ...] = ()
    """Prefill and decode, where targets have roles."""


def detail(row: Row, course: Course, span: str, autoscaler: Mapping[str, Any] | None, now: float) -> Detail:
    """Figures are those of Prometheus if it has some of now, else those of the status."""
    status, live = row.status, course.live
    decision = status.last_decision
    seen = live if live is not None else status
    troubles, said = row.troubles, row.said
    if row.trouble in {Trouble.CALM, Trouble.OVER_BOUND} and row.spec is not None:
        said = over_bounds(row.spec, seen)
        troubles = (Trouble.OVER_BOUND if said else Trouble.CALM,)
    return Detail(
        row,
        troubles,
        said,
        course,
        tiles=_tiles(row.spec, seen, status, course, autoscaler),
        limits=[_limit(limit) for limit in _limits(status, live)] + list(_of_roles(status)),
        conditions=sorted((_condition(one) for one in status.conditions), key=lambda one: one.good),
        decisions=list(reversed(list(enumerate(decisions(row, course, span, now), start=1)))),
        warnings=() if decision is None else decision.warnings,
        learned=[(name, number(value, 4)) for name, value in sorted(_figures(seen).items())],
        targets=status.targets or (),
        roles=seen.roles or (),
    )


def recommending(spec: Spec | None) -> bool:
    """Whether decisions are told without being carried out."""
    return spec is not None and spec.mode is not Mode.AUTO


def decisions(row: Row, course: Course, span: str, now: float) -> list[Change]:
    """The changes within the time that is shown, oldest first."""
    return merged(row.status.history, course.changes, now - SPANS[span])


def _figures(status: Status) -> Mapping[str, float]:
    return {} if status.last_decision is None else status.last_decision.figures


def _tiles(
    spec: Spec | None, seen: Status, status: Status, course: Course, autoscaler: Mapping[str, Any] | None
) -> list[Tile]:
    figures = _figures(seen)
    tiles = [
        # Replicas that start are no trouble yet: one that never does makes the pool not Ready.
        Tile("Ready", _of(seen), _set_by(status)),
        Tile("Recommended", _count(seen.desired_replicas), _range(spec, seen)),
    ]
    if autoscaler is not None:
        wanted = _count(autoscaler.get("status", {}).get("desiredReplicas"))
        tiles.append(Tile("HPA's", wanted, autoscaler["metadata"]["name"]))
    if seen.roles is None:  # which have a load each
        load, safe = figures.get("load"), figures.get("safeLoad")
        over = load is not None and safe is not None and load > safe
        tiles.append(Tile("Load", number(load), "" if safe is None else f"safe to {number(safe)}", bad=over))
    if spec is not None:
        slo, percentile = spec.slo, f"p{spec.slo.percentile(roles=spec.has_roles):.4g}"
        for name, bound, figure in (
            ("TTFT", slo.time_to_first_token, figures.get("timeToFirstToken")),
            ("TPOT", slo.time_per_output_token, figures.get("timePerOutputToken")),
        ):
            if bound is not None:
                late = figure is not None and figure > bound
                tiles.append(Tile(f"{name} {percentile}", brief(figure), f"SLO {brief(bound)}", bad=late))
        met, allowed = seen.attainment, 100.0 - slo.attainment
        missed = met is not None and met < slo.attainment
        tiles.append(Tile("Attainment", percent(met), f"last hour; SLO {slo.attainment:g}%", bad=missed))
        burn = None if met is None else (100.0 - met) / allowed
        tiles.append(Tile("Budget spent", number(burn, 2), "1 is allowed", bad=missed))
    tiles.append(Tile("Queue", number(seen.queue_depth), "requests wait"))
    tiles.append(_cost(status, course))
    return tiles


def _cost(status: Status, course: Course) -> Tile:
    here, hosted = course.dollars
    if course.live is None and status.cost is not None:
        here, hosted = status.cost.dollars_per_hour, status.cost.compared_dollars_per_hour
    if here is None:
        return Tile("Cost per hour", dollars(None), "not in the spec")
    return Tile("Cost per hour", dollars(here), "" if hosted is None else f"hosted {dollars(hosted)}")


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
    known = next((one for one in LimitName if one.value == limit.name), None)
    action = "" if known is None or known.action == NOTHING else known.action
    return Advice(role + limit.name, limit.reason, action, f"{limit.before} → {limit.after}")


def _condition(one: Condition) -> Advice:
    known = next((reason for reason in Reason if reason.value == one.reason and reason.type is one.type), None)
    action = "" if known is None or known.action == NOTHING else known.action
    return Advice(one.type.value, one.message, action, f"{one.status.value}: {one.reason}", one.status is one.type.good)


def _count(figure: int | None) -> str:
    return "?" if figure is None else str(figure)


def _of(status: Status) -> str:
    return f"{_count(status.ready_replicas)} of {_count(status.replicas)}"


def _set_by(status: Status) -> str:
    if not status.history:
        return ""
    by = status.history[0].by
    return f"set by {'the operator' if by == FIELD_MANAGER else by}"


def _range(spec: Spec | None, status: Status) -> str:
    """The bounds in force: a schedule's, or the spec's."""
    if (told := status.bounds) is not None:
        return f"{told.min} to {told.max}" + ("" if told.schedule is None else f", schedule {told.schedule}")
    return "" if spec is None else f"{spec.min} to {spec.max}"


def headline(spec: Spec | None) -> str:
    """What the pool is about, in one line."""
    if spec is None:
        return "Its spec is not valid."
    targets = ", ".join(f"{target.kind} {target.name}" for target in spec.targets)
    return f"{spec.mode.value}: {spec.model} on {targets}; {bounds(spec.slo)}"


def commands(row: Row, where: Sequence[str]) -> list[str]:
    """What a person may run next on a pool, as a shell takes it, with options for the cluster and the user."""
    verbs = ["explain"]
    if row.mode is not Mode.RECOMMEND:
        verbs.append("resume" if row.mode is Mode.PAUSED else "pause")
    namespace, name = row.key
    return [shlex.join(["servingpool", verb, name, "-n", namespace, *where]) for verb in verbs]
