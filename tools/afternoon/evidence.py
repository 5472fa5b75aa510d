"""What the record proves: who wrote when, what the users got, what it cost, and what went wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from afternoon.record import Record, Write
from servingpool_lab.workload import OPERATOR_ACCOUNT, OPERATOR_NAMESPACE

HPA, OPERATOR = "HPA controller", "operator"
ROBOTS: Mapping[str, str] = {
    "system:serviceaccount:kube-system:horizontal-pod-autoscaler": HPA,
    f"system:serviceaccount:{OPERATOR_NAMESPACE}:{OPERATOR_ACCOUNT}": OPERATOR,
}
STEP_SECONDS = 15.0
"""Between two decisions, of the HPA controller and of the operator alike."""


@dataclass(frozen=True)
class Phase:
    """A part of the afternoon, and what its users got."""

    name: str
    begin: float
    """Unix time in seconds."""
    end: float
    sent: int
    lost: int
    rejected: int
    attainment: float | None
    """Share of the requests that ended in it; None where none did."""
    replica_hours: float
    replicas: float
    """Mean, loading and draining ones too."""


def phases(record: Record) -> list[Phase]:
    """One after the other, without a gap."""
    marks = record.marks
    begins = [
        ("HPA", marks["hpa"]),
        ("Recommend", marks["recommend"]),
        ("Auto", marks["hpa_deleted"]),
        ("HPA again", marks["hpa_created"]),
    ]
    ends = [begin for _, begin in begins[1:]] + [marks["end"]]
    return [_phase(record, name, begin, end) for (name, begin), end in zip(begins, ends, strict=True)]


def _phase(record: Record, name: str, begin: float, end: float) -> Phase:
    first, last = record.observation(begin), record.observation(end)
    lost, rejected = last.lost - first.lost, last.rejected - first.rejected
    ended = last.finished - first.finished + lost + rejected
    seconds = last.replica_seconds - first.replica_seconds
    return Phase(
        name,
        begin,
        end,
        sent=last.arrived - first.arrived,
        lost=lost,
        rejected=rejected,
        attainment=(last.attained - first.attained) / ended if ended else None,
        replica_hours=seconds / 3600,
        replicas=seconds / (last.at - first.at) if last.at > first.at else float(last.ready),
    )


def by_robots(record: Record) -> list[tuple[str, Write]]:
    """Writer and write, without those of people, in order."""
    return [(ROBOTS[one.user], one) for one in record.writes if one.user in ROBOTS]


def least_between_writers(record: Record) -> float | None:
    """Seconds between two writes of different writers that follow each other, the least; None where one wrote alone."""
    found = [(b.at - a.at) for (first, a), (second, b) in pairwise(by_robots(record)) if first != second]
    return min(found, default=None)


def by_minute(record: Record) -> dict[int, dict[str, list[int]]]:
    """The numbers that each writer set, by whole minutes since the HPA's begin; without the minutes of no write."""
    found: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for writer, one in by_robots(record):
        found[int((one.at - record.marks["hpa"]) // 60)][writer].append(one.replicas)
    return {minute: dict(each) for minute, each in found.items()}


def faults(record: Record) -> Iterator[str]:
    """Each thing that must not have happened, as a sentence."""
    last, marks = record.observations[-1], record.marks
    for command in record.commands:
        if command.failed:
            yield f"`{command.typed}` ended with {command.status}."
    if last.lost:
        yield f"{last.lost} requests were lost."
    for writer, one in by_robots(record):
        operators_turn = marks["hpa_deleted"] <= one.at < marks["hpa_created"]
        if (writer == OPERATOR) != operators_turn:
            minute = (one.at - marks["hpa"]) / 60
            yield f"The {writer} set {one.replicas} replicas in minute {minute:.1f}, when the other was in charge."
    least = least_between_writers(record)
    if least is not None and least < STEP_SECONDS:
        yield f"Two writers set replicas within {least:.1f} s."
    yield from record.faults
