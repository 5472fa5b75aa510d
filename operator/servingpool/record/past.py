"""A past decision, and past changes, from the operator's own metrics in Prometheus."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from servingpool.adapters.cluster.objects import FIELD_MANAGER
from servingpool.adapters.prometheus.own_record import OwnRecord, Record, one
from servingpool.api.conditions import Condition, ConditionType, Reason, Truth
from servingpool.api.duration import brief, write
from servingpool.api.role import Role
from servingpool.api.spec import Slo
from servingpool.api.status import (
    BatchStatus,
    Candidate,
    Change,
    LastDecision,
    Latency,
    Limit,
    RoleStatus,
    Status,
    TargetStatus,
    Throughput,
)
from servingpool.api.time import from_unix
from servingpool.catalogue.limits import LimitName
from servingpool.catalogue.metrics import Metric
from servingpool.catalogue.template import render
from servingpool.decision.decision import Verdict, move, verdict_of
from servingpool.decision.figures import ROWS
from servingpool.decision.pool import Bound, Bounds
from servingpool.decision.words import shown
from servingpool.reconcile.keep.history import Ready, judged, replaced
from servingpool.status.builder import FIGURE_NAMES, told_bounds

T = TypeVar("T")
ASKED = (
    *(Metric.LAST_CHANGE, Metric.LAST_CHANGE_FROM, Metric.LAST_CHANGE_TO, Metric.LAST_CHANGE_OUTCOME),
    Metric.READY_REPLICAS,
)
LOOKS_APART = 5.0
"""Seconds between two looks for the scrape that follows a change."""
NEXT_TICK = 16.0
"""Seconds after a decision in which the next one is made, by the default interval of 15 s."""
UNSEEN = "Its decision was not scraped"
NOT_SCRAPED = "not scraped"
"""The outcome of a change where it may have been known between two scrapes."""
EXPLAINED_WITHIN = 60.0
"""Seconds after a change in which the decision that made it must have been scraped to be told as its reason."""


def status_of(record: Record) -> Status | None:
    """The status that a pool had, as far as it is in metrics; None where no decision was recorded."""
    at, desired = one(record, Metric.DECIDED_AT), one(record, Metric.DESIRED_REPLICAS)
    if at is None or desired is None:
        return None
    ready, most, bounds = one(record, Metric.READY_REPLICAS), one(record, Metric.MAX_REPLICAS), _bounds(record)
    return Status(
        conditions=tuple(_conditions(record, at)),
        fleet="/".join("?" if each is None else f"{each:.0f}" for each in (ready, desired, most)),
        bounds=None if bounds is None else told_bounds(bounds),
        replicas=_as(round, one(record, Metric.REQUESTED_REPLICAS)),
        ready_replicas=_as(round, ready),
        desired_replicas=round(desired),
        targets=_targets(record),
        roles=_roles(record, at),
        throughput=Throughput(
            generation_tokens_per_second=_rounded(one(record, Metric.GENERATION_TOKENS_RATE), 1),
            prompt_tokens_per_second=_rounded(one(record, Metric.PROMPT_TOKENS_RATE), 1),
            tokens_per_second_per_gpu=_rounded(one(record, Metric.TOKENS_PER_GPU), 1),
        ),
        queue_depth=_rounded(one(record, Metric.QUEUE_DEPTH), 1),
        batch=_batch(record),
        latency=Latency(
            time_to_first_token=_as(brief, one(record, Metric.TIME_TO_FIRST_TOKEN)),
            time_per_output_token=_as(brief, one(record, Metric.TIME_PER_OUTPUT_TOKEN)),
        ),
        attainment=_percent(one(record, Metric.ATTAINMENT)),
        last_decision=_decision(record, at, round(desired)),
    )


def _targets(record: Record) -> tuple[TargetStatus, ...] | None:
    """The status of each target. Whether a target delivers is in the condition TargetsAvailable."""
    asked = (Metric.TARGET_REQUESTED, Metric.TARGET_READY, Metric.TARGET_DESIRED, Metric.TARGET_SPEED)
    requested, ready, desired, speed = (
        {point.labels["target"]: point.value for point in record.get(metric, ())} for metric in asked
    )
    told = tuple(
        TargetStatus(
            name=name,
            replicas=round(requested[name]),
            ready=round(ready[name]),
            desired=round(desired[name]),
            speed=_rounded(speed.get(name), 2),
        )
        for name in requested
        if name in ready and name in desired
    )
    return told or None


def _batch(record: Record) -> BatchStatus | None:
    """The work with deadlines. How much of it is due first is no metric."""
    points = (*record.get(Metric.BATCH_BACKLOG, ()), *record.get(Metric.BATCH_RATE, ()))
    if not points:
        return None
    return BatchStatus(
        unit=points[0].labels["unit"],
        backlog=one(record, Metric.BATCH_BACKLOG),
        per_second=one(record, Metric.BATCH_RATE),
        due_at=_as(from_unix, one(record, Metric.BATCH_DEADLINE)),
        finishes_at=_as(from_unix, one(record, Metric.BATCH_FINISH)),
    )


def record_at(source: OwnRecord, time: float) -> Record:
    """What was recorded of the decision that stood at `time`, in Unix seconds. Raises as `OwnRecord.at`.

    A decision is scraped seconds after it was made, so the scrape that explains a change follows it. Where the decision
    that made a change was never scraped, the first one after it is told, as in `changes`.
    """
    before = source.at(time)
    later = [record for _, record in source.over(Metric, time, time + EXPLAINED_WITHIN, LOOKS_APART)]
    found = max((one for one in (before, *later) if _decided(one) < time + 1.0), key=_decided, default=before)
    if _decided(found) > time - 1.0:
        return found
    changed = (record for record in later if (last := _change(record)) and abs(last.at.timestamp() - time) < 1.0)
    return next(changed, found)


def _decided(record: Record) -> float:
    at = one(record, Metric.DECIDED_AT)
    return -math.inf if at is None else at


def slo_of(record: Record) -> Slo | None:
    """The objective at that time; None where it was not recorded."""
    ttft, tpot, share = (one(record, m) for m in (Metric.TTFT_BOUND, Metric.TPOT_BOUND, Metric.OBJECTIVE))
    bounds = {"timeToFirstToken": ttft, "timePerOutputToken": tpot}
    given = {name: write(seconds) for name, seconds in bounds.items() if seconds is not None}
    return Slo.read({**given, "attainment": _percent(share)}) if given and share is not None else None


def changes(source: OwnRecord, start: float, end: float, step: float) -> Iterator[Change]:
    """The changes of the replicas from `start` to `end`, Unix seconds, oldest first, each with its outcome.

    Raises as `OwnRecord.over`. A change that another followed before the next scrape is not seen.
    """
    records = source.over(ASKED, start, end, step)
    for change in changes_in(records, start, lambda time: status_of(source.at(time))):
        # Two scrapes may lie between two looks: the decision is looked for by its own time.
        late = change.why.startswith(UNSEEN)
        yield _explained(change, status_of(record_at(source, change.at.timestamp()))) if late else change


def changes_in(
    records: Iterable[tuple[float, Record]], start: float, status_at: Callable[[float], Status | None]
) -> Iterator[Change]:
    """The changes since `start` in a record; `status_at` is the status at one of its times."""
    last: Change | None = None
    before = -math.inf
    for seen_at, record in records:
        change = _change(record)
        if change is None or change.at.timestamp() < start:
            continue
        if last is None or change.at != last.at:
            if last is not None:
                yield _ended(last, change, record, before)
            last = _explained(change, status_at(seen_at))
        if last.outcome is None and (outcome := record.get(Metric.LAST_CHANGE_OUTCOME)):
            ended = f"{outcome[0].labels['outcome']} {write(round(outcome[0].value))}"
            last = last.model_copy(update={"outcome": ended})
        before = _decided(record)
    if last is not None:
        yield last


def _ended(last: Change, change: Change, record: Record, before: float) -> Change:
    """A change that another change followed, as `record` shows first, with the outcome that the status has.

    `before`: Unix time of the decision in the record before. Where further decisions lie between the two, the outcome
    may have been known meanwhile; but a replica that is still not ready was not ready then either.
    """
    ready, at = one(record, Metric.READY_REPLICAS), change.at.timestamp()
    if last.outcome is not None or ready is None:
        return last
    if _decided(record) - before <= NEXT_TICK:
        if change.by == FIELD_MANAGER:  # its last replica may have become ready in the tick of this order
            (last,) = judged((last,), last.to, Ready(round(ready)), at)
        return last if last.outcome is not None else replaced(last, at)
    if ready < last.to == change.from_ < change.to:
        return replaced(last, at)
    return last.model_copy(update={"outcome": NOT_SCRAPED})


def _change(record: Record) -> Change | None:
    before, after = one(record, Metric.LAST_CHANGE_FROM), one(record, Metric.LAST_CHANGE_TO)
    points = record.get(Metric.LAST_CHANGE)
    if not points or before is None or after is None:
        return None
    newest = max(points, key=lambda point: point.value)
    at = from_unix(newest.value)
    return Change(at=at, from_=round(before), to=round(after), why="", by=newest.labels["by"])


def _explained(change: Change, status: Status | None) -> Change:
    """The change with its reason: the decision that made it, or what the operator wanted meanwhile."""
    decision = None if status is None else status.last_decision
    if decision is None:
        return change
    late = (decision.at - change.at).total_seconds()
    if change.by != FIELD_MANAGER:
        why = f"The operator's answer was {decision.replicas}."
    elif abs(late) < 1.0:
        why = decision.reason
    elif late <= EXPLAINED_WITHIN:
        why = f"{UNSEEN}; {late:.0f} s later: {decision.reason}"
    else:
        why = f"{UNSEEN}."
    return change.model_copy(update={"why": why})


def _decision(record: Record, at: float, desired: int) -> LastDecision:
    requested, need = one(record, Metric.REQUESTED_REPLICAS), one(record, Metric.NEEDED_REPLICAS)
    figures = {
        FIGURE_NAMES[name]: float(f"{value:.6g}")
        for name, row in ROWS.items()
        if row.metric is not None and (value := one(record, row.metric)) is not None
    }
    candidates = tuple(
        Candidate(replicas=float(point.labels["replicas"]), misses=float(f"{point.value:.6g}"))
        for point in sorted(record.get(Metric.CANDIDATE_MISSES, ()), key=lambda point: float(point.labels["replicas"]))
    )
    limits, verdict = tuple(_limits(record, need)), _verdict(record, requested, desired)
    said = _sentence(_moved(record, requested, desired), _counted(record, need), figures, limits)
    told = _told(at, desired, verdict, need, said, figures)
    return told.model_copy(update={"limits": limits, "candidates": candidates})


def _roles(record: Record, at: float) -> tuple[RoleStatus, ...] | None:
    """Prefill and decode, where targets have roles. Their limits are no metric."""
    found: dict[str, dict[str, float]] = {role: {} for role in Role}
    for point in record.get(Metric.ROLE_FIGURE, ()):
        found[point.labels["role"]][point.labels["figure"]] = point.value
    told = []
    for role, known in found.items():
        if {"requested", "ready", "replicas"} <= known.keys():
            requested, ready, desired = (round(known[name]) for name in ("requested", "ready", "replicas"))
            figures = {name: float(f"{known[name]:.6g}") for name in FIGURE_NAMES.values() if name in known}
            reason = _sentence(move(requested, desired), known.get("need"), figures, ())
            verdict = verdict_of(desired, requested)
            decision = _told(at, desired, verdict, known.get("need"), reason, figures)
            counts = {"replicas": requested, "ready_replicas": ready, "desired_replicas": desired}
            told.append(RoleStatus(role=Role(role), **counts, last_decision=decision))
    return tuple(told) or None


def _told(
    at: float, desired: int, verdict: Verdict, need: float | None, reason: str, figures: dict[str, float]
) -> LastDecision:
    return LastDecision(
        at=from_unix(at),
        replicas=desired,
        verdict=verdict.value,
        need=_rounded(need, 2),
        reason=reason,
        load=_rounded(figures.get("load"), 3),
        safe_load=_rounded(figures.get("safeLoad"), 3),
        forecast=_rounded(figures.get("forecast"), 2),
        horizon=_as(brief, figures.get("horizon")),
        figures=figures,
    )


def _limits(record: Record, need: float | None) -> Iterator[Limit]:
    """Limits in the order applied: each starts where the limit before ended."""
    meanings, bounds = {limit.value: limit.meaning for limit in LimitName}, _bounds(record)
    if bounds is not None:
        meanings[LimitName.MINIMUM] = render(LimitName.MINIMUM.template, {"minimum": bounds.least})
        meanings[LimitName.MAXIMUM] = render(LimitName.MAXIMUM.template, {"maximum": bounds.most})
    several = Metric.TARGET_DESIRED in record  # need and limits are counted in replicas of one of them
    before = one(record, Metric.REQUESTED_REPLICAS) if need is None and not several else _counted(record, need)
    for point in sorted(record.get(Metric.LIMIT, ()), key=lambda point: int(point.labels["order"])):
        after, name = round(point.value, 2), point.labels["limit"]
        meaning = meanings.get(name, "A limit that this release does not know.")
        yield Limit(name=name, before=after if before is None else round(before, 2), after=after, reason=meaning)
        before = after


def _counted(record: Record, need: float | None) -> float | None:
    """The raw need in whole replicas; of several targets in replicas of one of them, of which parts count."""
    return need if need is None or Metric.TARGET_DESIRED in record else math.ceil(need)


def _bounds(record: Record) -> Bounds | None:
    """The bounds in force at that time, and the schedules that gave them; None where they were not recorded."""
    least, most = one(record, Metric.MIN_REPLICAS), one(record, Metric.MAX_REPLICAS)
    schedules = {point.labels["bound"]: point.labels["schedule"] for point in record.get(Metric.SCHEDULE_BOUND, ())}
    if least is None or most is None:
        return None
    return Bounds(Bound(round(least), schedules.get("min")), Bound(round(most), schedules.get("max")))


def _conditions(record: Record, at: float) -> Iterator[Condition]:
    """Conditions without their messages, which are no metric: the catalogue says what the reasons mean."""
    meanings = {reason.value: reason.meaning for reason in Reason}
    found = {point.labels["type"]: point.labels for point in record.get(Metric.CONDITION, ())}
    for type_ in ConditionType:
        if (labels := found.get(type_)) is not None:
            yield Condition(
                type=type_,
                status=Truth(labels["status"]),
                reason=labels["reason"],
                message=meanings.get(labels["reason"], ""),
                last_transition_time=from_unix(at),
            )


def _moved(record: Record, requested: float | None, desired: int) -> str:
    """The beginning of the decision's sentence."""
    verbs = {Verdict.SCALE_UP: "scale up", Verdict.SCALE_DOWN: "scale down"}
    moved = verbs.get(_verdict(record, requested, desired))
    changed = [
        f"{one.name} {one.replicas} -> {one.desired}" for one in _targets(record) or () if one.desired != one.replicas
    ]
    if changed:
        return f"{moved} {', '.join(changed)}"
    return f"hold {desired}" if moved is None else f"{moved} {requested:.0f} -> {desired}"


def _sentence(moved: str, need: float | None, figures: Mapping[str, float], limits: tuple[Limit, ...]) -> str:
    """The decision in one sentence, from its figures. `need`: the raw need, as limits begin with."""
    told = []
    if (arrivals := figures.get("arrivals")) is not None:
        told.append(f"{arrivals:.2g} requests/s")
    if (forecast := figures.get("forecast")) is not None:
        ahead = f"in {figures.get('horizon', 0.0):.0f} s (cold start)"
        told.append(f"{ahead} traffic should keep {forecast:.2g} replicas busy")
    told.append("the need is unknown" if need is None else f"{shown(need)} {'is' if need == 1.0 else 'are'} needed")
    told += [f"{limit.name} {limit.before} -> {limit.after}" for limit in limits]
    return f"{moved}: {'; '.join(told)}"


def _verdict(record: Record, requested: float | None, desired: int) -> Verdict:
    targets = _targets(record) or ()
    if any(one.desired > one.replicas for one in targets):  # a replacement begins as a scale-up
        return Verdict.SCALE_UP
    return Verdict.HOLD if requested is None else verdict_of(desired, round(requested))


def _as(form: Callable[[float], T], figure: float | None) -> T | None:
    return None if figure is None else form(figure)


def _rounded(figure: float | None, digits: int) -> float | None:
    return None if figure is None else round(figure, digits)


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100.0 * share, 2)
