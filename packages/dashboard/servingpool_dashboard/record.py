"""The course of a pool from the operator's own metrics, read once for all who look at it."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from servingpool.adapters.prometheus.engines import shipped
from servingpool.adapters.prometheus.http_client import MetricsUnavailable
from servingpool.adapters.prometheus.own_record import AmbiguousRecord, OwnRecord, Record, one
from servingpool.api.spec import Spec
from servingpool.api.status import Change, Status
from servingpool.api.time import from_unix
from servingpool.catalogue.metrics import POOL, Metric
from servingpool.record.past import UNSEEN, changes_in, status_of
from servingpool_dashboard.pods import Load, loads
from servingpool_dashboard.rows import Key

POINTS = 360
"""Points of a chart: more than two a pixel nobody sees."""
LEAST = 10
"""Steps that a chart shows at least, also of a pool that is newer."""
FINEST = 15.0
"""Seconds between two points at least: the operator's usual interval."""
FRESH = 10.0
"""Seconds for which an answer of Prometheus is shown again, so that many tabs ask it as often as one."""
LIVE = 90.0
"""Seconds after which the last figures in Prometheus are no longer called live: six intervals of the operator."""
MOST = 100
"""Answers that are kept: the one that nobody has asked for longest is forgotten first."""
SPANS = {"15m": 900.0, "1h": 3600.0, "6h": 21_600.0, "1d": 86_400.0, "7d": 604_800.0}
"""What can be looked back on, in seconds."""
ASKED = tuple(metric for metric in Metric if metric.labels[:2] == POOL and metric is not Metric.CANDIDATE_MISSES)
RECOMMENDATION = "recommendation"
"""Who changed nothing: the operator in mode Recommend or Paused."""
NAMELESS = "No Prometheus was named: start with --prometheus URL, or set SERVINGPOOL_PROMETHEUS."

T = TypeVar("T")
Column = list[float | None]


@dataclass(frozen=True, slots=True)
class Course:
    """One pool over a span of time."""

    times: list[float] = field(default_factory=list)
    """Unix seconds, evenly spaced; on beyond the present by the horizon, for what is forecast."""
    columns: Mapping[str, Column] = field(default_factory=dict)
    """By name, a figure at each time; None where it is not known."""
    changes: tuple[Change, ...] = ()
    """Changes of the replicas, oldest first. In mode Recommend, changes of the recommendation."""
    live: Status | None = None
    """As of the last point; of what was read last, if that is of now."""
    last: Mapping[str, float | None] = field(default_factory=dict)
    """What the columns of one metric each have as of then."""
    present: float = 0.0
    """The last of the times that is not ahead, Unix seconds."""
    read_at: float | None = None
    """When Prometheus answered last, Unix seconds."""
    failure: str = ""
    """Why there is nothing newer; empty if there is."""


@dataclass(slots=True)
class Answer:
    """What Prometheus said last, for all who ask the same: one of them at a time asks it."""

    said: Any
    at: float = -math.inf
    """When it came, Unix seconds."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class Courses:
    """The courses, and what pods do, that were asked for lately."""

    def __init__(
        self,
        source_of: Callable[[Key], OwnRecord] | None,
        clock: Callable[[], float] = time.time,
        tell: Callable[[str], None] = print,
    ) -> None:
        """`source_of` is None where no Prometheus was named. `tell` is given each failure once, and the end of it."""
        self._source_of, self._clock, self._tell = source_of, clock, tell
        self._failing = ""
        self._known: dict[object, Answer] = {}
        self._lock = threading.Lock()

    def last(self, key: Key, span: str) -> Course:
        """The course as it was last read. Prometheus is not asked: a page does not wait for one that hangs."""
        if self._source_of is None:
            return Course(failure=NAMELESS)
        with self._lock:
            course: Course = self._known.get((key, span, None), Answer(Course())).said
        made = None if course.live is None else course.live.last_decision
        fresh = made is not None and self._clock() - made.at.timestamp() < LIVE
        return course if fresh else replace(course, live=None)

    def of(self, key: Key, span: str, *, recommending: bool, autoscaler: str | None, at: float | None = None) -> Course:
        """A pool's course up to now, or to `at`; where Prometheus does not answer, the last one with the reason."""
        if (source := self._source_of) is None:
            return self.last(key, span)

        def ask(known: Course) -> Course:
            now, why = self._clock(), ""
            try:
                course = course_of(
                    source(key), at or now, SPANS[span], recommending=recommending, autoscaler=autoscaler
                )
            except (MetricsUnavailable, AmbiguousRecord) as error:
                more = " Choose one with --match LABEL=VALUE." if isinstance(error, AmbiguousRecord) else ""
                course = replace(known, failure=(why := f"{error}.{more}"))
            before, self._failing = self._failing, why
            if why != before:
                self._tell(f"The charts cannot be read: {why}" if why else "The charts can be read again.")
            return course

        return self.shared((key, span, at), Course(), ask)

    def loads(self, key: Key, spec: Spec) -> dict[str, Load]:
        """What the engine of each pod has and counts, by the pod's name; empty where Prometheus does not tell."""
        if (source := self._source_of) is None or spec.engine not in shipped():  # another is of the operator's settings
            return {}
        return self.shared(key, {}, lambda _: asyncio.run(loads(source(key).config, key[0], spec, self._clock())))

    def shared(self, asked: object, nothing: T, ask: Callable[[T], T]) -> T:
        """The answer to the same question where it is fresh, else what `ask` makes of the last one."""
        with self._lock:
            mine = self._known[asked] = self._known.pop(asked, Answer(nothing))
            while len(self._known) > MOST:
                del self._known[next(iter(self._known))]
        with mine.lock:
            if self._clock() - mine.at >= FRESH:
                mine.said, mine.at = ask(mine.said), self._clock()
            return cast("T", mine.said)


def course_of(source: OwnRecord, now: float, span: float, *, recommending: bool, autoscaler: str | None) -> Course:
    """Read it. Raises as `OwnRecord.over`."""
    step = max(FINEST, span / POINTS)
    end = float(math.floor(now))
    start = end - math.floor(span / step) * step
    records = dict(source.over(ASKED, start, end, step))
    # Of a new pool the charts begin where its figures do.
    begun = min(min(records, default=start), end - LEAST * step)
    shown = start + max(0, math.floor((begun - start) / step)) * step
    ahead = max((one(record, Metric.HORIZON) or 0.0 for record in records.values()), default=0.0)
    times = [shown + number * step for number in range(round((end - shown) / step) + 1 + math.ceil(ahead / step))]
    newest = records[max(records)] if records else {}
    wanted = source.autoscaler(autoscaler, start, end, step) if autoscaler and records else {}
    return Course(
        times=times,
        columns={**_columns(times, records, step), "hpa": [wanted.get(moment) for moment in times]},
        changes=tuple(_changes(records, start, step, recommending=recommending)),
        live=status_of(newest),
        last={name: one(newest, metric) for name, metric in PLAIN.items()},
        present=end,
        read_at=now,
        failure="" if records else "Prometheus has no record of this pool in this time: does it scrape the operator?",
    )


PLAIN = {
    "requested": Metric.REQUESTED_REPLICAS,
    "ready": Metric.READY_REPLICAS,
    "recommended": Metric.DESIRED_REPLICAS,
    "ttft": Metric.TIME_TO_FIRST_TOKEN,
    "ttft_slo": Metric.TTFT_BOUND,
    "tpot": Metric.TIME_PER_OUTPUT_TOKEN,
    "tpot_slo": Metric.TPOT_BOUND,
    "output": Metric.GENERATION_TOKENS_RATE,
    "prompts": Metric.PROMPT_TOKENS_RATE,
    "cost": Metric.COST,
    "hosted": Metric.COMPARED_COST,
    "gpus": Metric.GPUS,
    "needed": Metric.NEEDED_REPLICAS,
    "backlog": Metric.BATCH_BACKLOG,
    "deadline": Metric.BATCH_DEADLINE,
    "finish": Metric.BATCH_FINISH,
}
"""Columns that are one metric each."""


def _columns(times: list[float], records: Mapping[float, Record], step: float) -> dict[str, Column]:
    at = [records.get(moment, {}) for moment in times]
    found: dict[str, Column] = {name: [one(record, metric) for record in at] for name, metric in PLAIN.items()}
    found["load"] = [_times(record, Metric.LOAD, Metric.READY_REPLICAS) for record in at]
    found["capacity"] = [_times(record, Metric.SAFE_LOAD, Metric.READY_REPLICAS) for record in at]
    found["burn_hour"] = [_burn(record, Metric.ATTAINMENT) for record in at]
    found["burn_now"] = [_burn(record, Metric.RECENT_ATTAINMENT) for record in at]
    found |= {"forecast": [None] * len(times), "burst": [None] * len(times)}
    for number, record in enumerate(at):
        # A forecast is drawn at the time that it is for, one horizon later, beside the load that came.
        then = number + round((one(record, Metric.HORIZON) or 0.0) / step)
        if record and then < len(times):
            found["forecast"][then], found["burst"][then] = one(record, Metric.FORECAST), one(record, Metric.BURST)
    return found


def _changes(records: Mapping[float, Record], start: float, step: float, *, recommending: bool) -> Iterable[Change]:
    for change in changes_in(records.items(), start, lambda moment: status_of(records[moment])):
        coarse = change.why == f"{UNSEEN}." and step > FINEST
        yield change.model_copy(update={"why": "Look at a shorter time for the reason."}) if coarse else change
    if not recommending:
        return
    before: int | None = None
    for moment in sorted(records):
        status = status_of(records[moment])
        decision = None if status is None else status.last_decision
        if decision is None or decision.need is None:
            continue
        if before is not None and decision.replicas != before:
            at = from_unix(decision.at.timestamp())
            yield Change(at=at, from_=before, to=decision.replicas, why=decision.reason, by=RECOMMENDATION)
        before = decision.replicas


def _times(record: Record, share: Metric, of: Metric) -> float | None:
    left, right = one(record, share), one(record, of)
    return None if left is None or right is None else left * right


def _burn(record: Record, attained: Metric) -> float | None:
    """How fast the error budget is spent: 1 is exactly what the objective allows."""
    met, objective = one(record, attained), one(record, Metric.OBJECTIVE)
    if met is None or objective is None or objective >= 1.0:
        return None
    return (1.0 - met) / (1.0 - objective)


def merged(kept: Iterable[Change], recorded: Iterable[Change], since: float) -> list[Change]:
    """Those of the status and of the record, oldest first. The status has the better sentence, so it wins."""
    found = {(int(one.at.timestamp()), one.by == RECOMMENDATION): one for one in (*recorded, *kept)}
    return [found[each] for each in sorted(found) if each[0] >= since]


def to_json(course: Course, changes: Iterable[Change]) -> dict[str, Any]:
    """As the page's script takes it: six digits, times in seconds, and null for what is no number."""
    return {
        "times": course.times,
        "columns": {
            name: [one and float(f"{one:.6g}" if one < 1e9 else f"{one:.0f}") for one in column]
            for name, column in course.columns.items()
        },
        "now": course.present,
        "changes": [{**change.to_dict(), "unix": change.at.timestamp()} for change in changes],
        "failure": course.failure,
    }
