"""Queries on worker threads, so that the event loop waits for none: each from expression to samples.

Few threads, a client each: it blocks, and is not to be shared.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import TypeVar, TypeVarTuple

from servingpool.adapters.prometheus import lookup
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.diagnosis import Missing, PodKey, causes, question
from servingpool.adapters.prometheus.engines import EngineMetrics
from servingpool.adapters.prometheus.http_client import Excess, MetricsUnavailable, PrometheusClient, Unsent
from servingpool.adapters.prometheus.lookup import Found
from servingpool.adapters.prometheus.plan import Plan, evaluated_at, gather, gather_range
from servingpool.adapters.prometheus.promql import ADDRESS, Queries, Scope
from servingpool.adapters.prometheus.rows import MOST_SAMPLES, Unread, bound_of
from servingpool.adapters.prometheus.samples import ReadRequest
from servingpool.decision.observation import ReplicaMetrics, TimeLeft, Unknown

GRACE = 1.0
"""Seconds after a job's deadline until it is waited for: a client ends its query at the deadline."""

LOOK_BACK = 300.0
"""Seconds for which Prometheus shows a sample by default (`--query.lookback-delta`)."""
MOST_LOOKS = 24
"""Times in a history at which its buckets are looked up. Each costs Prometheus as much as one step of the history."""

MOST_LOOK_UPS = 4
"""Look-ups in a row, each of which learns further labels that tell targets apart."""
TIMES_COMPARED = 5
"""Rows whose time of evaluation is compared: it is the same in all, unless one is damaged."""

LEAST_BOUND, MOST_BOUND = 300.0, 366 * 86_400.0
"""Seconds at which the buckets of time left end: others are in another unit than was said."""
MOST_BUCKETS = 1_000
"""Buckets of time left, each a deadline to plan for: 300,000 in one answer took seconds of each tick of all pools."""
LEAST_LEFT = 0.1
"""Share of the timeout: a queued query is dropped when less than this remains."""

Given = TypeVarTuple("Given")
T = TypeVar("T")


class Workers:
    """Runner of a backend's blocking jobs within deadlines."""

    def __init__(self, config: BackendConfig) -> None:
        self._config = config
        self._threads = ThreadPoolExecutor(config.concurrency, thread_name_prefix=f"prometheus-{config.name}")
        self._local = threading.local()
        self._clients: list[PrometheusClient] = []

    def deadline(self) -> float:
        """The monotonic time until which a job started now may take."""
        return time.monotonic() + self._config.timeout

    def over(self, deadline: float) -> bool:
        """Whether so little time is left that a query would be in vain."""
        return deadline - time.monotonic() < LEAST_LEFT * self._config.timeout

    def run(self, deadline: float, job: Callable[[PrometheusClient, float, *Given], T], *args: *Given) -> Awaitable[T]:
        """`job(client, seconds left, *args)` on a thread, in the order of the calls, whatever is awaited first.

        The answer raises MetricsUnavailable if it is not there by the deadline, Unsent if no thread was free in time.
        """
        asked, began = time.monotonic(), threading.Event()

        def work() -> T:
            began.set()
            now, least = time.monotonic(), LEAST_LEFT * self._config.timeout
            left = deadline - now
            if left < least < now - asked:
                raise self.unsent()
            if left <= 0:
                raise self._late()
            client = self._client()
            try:
                return job(client, left, *args)
            except MetricsUnavailable as error:
                failure = error
            finally:
                client.release()
            # Without its frames: they hold the answer, and the task that waits makes a cycle with them, which is
            # there until the collector comes by. The answers of one hostile server were 1.2 GiB.
            failure.__context__ = failure.__cause__ = None
            raise failure.with_traceback(None)

        return self._in_time(deadline, asyncio.get_running_loop().run_in_executor(self._threads, work), began)

    async def _in_time(self, deadline: float, answer: Awaitable[T], began: threading.Event) -> T:
        try:
            async with asyncio.timeout(deadline - time.monotonic() + GRACE):
                return await answer
        except TimeoutError:
            raise (self._late() if began.is_set() else self.unsent()) from None

    def close(self) -> None:
        """Let go of threads and connections, also those of queries under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for client in self._clients:
            client.close()

    def _client(self) -> PrometheusClient:
        client: PrometheusClient | None = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = PrometheusClient(self._config)
            self._clients.append(client)
        return client

    def unsent(self) -> Unsent:
        """Error of a job that no thread was free for."""
        return Unsent(self._config.name, f"was busy with other queries for {self._config.timeout:g} s")

    def _late(self) -> MetricsUnavailable:
        return Excess(self._config.name, f"did not answer within {self._config.timeout:g} s")


Samples = dict[PodKey, dict[str, ReplicaMetrics]]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The samples of one slice at one time."""

    at: float
    """Unix seconds, by Prometheus's clock."""
    samples: Samples
    stale: dict[PodKey, float]
    lacks_buckets: bool
    unread: Unread
    several: Collection[PodKey]
    """See `Table.several`."""


def read_layout(
    client: PrometheusClient,
    timeout: float,
    queries: Queries,
    scope: Scope,
    during: tuple[float, float] | None,
) -> Found:
    """The buckets that existed at some time from begin to end (Unix seconds), or that exist now.

    Where the labels that are learned tell too little, it is asked again: what is no longer needed is not kept.

    Those at the end are not enough: no pod may be up then, and without buckets no latency can be compared with a bound.
    """
    at, window, learned = None, "", dict[str, int]()
    if during is not None:
        begin, at = during
        step = max(LOOK_BACK, (at - begin) / MOST_LOOKS)
        # Times of a subquery are multiples of its step: one step more reaches back to the begin.
        window = f"{at - begin + step:.0f}s:{step:.0f}s"
    until = time.monotonic() + timeout
    for _ in range(MOST_LOOK_UPS):
        query = lookup.look_up(queries, scope, (*ADDRESS, *learned), window)
        answer = client.query(query, until - time.monotonic(), at)
        found = lookup.read(queries, answer.rows(), learned)
        learned = dict(found.learned)
        if {*learned} <= {*found.layout.targets}:
            break
    return found


Parts = list[tuple[Plan, Scope, frozenset[str]]]
"""Parts of a reading, a query each, with the namespaces of which another part tells."""


def parts_of(plan: Plan, scope: Scope, apart: Mapping[tuple[str, ...], Sequence[str]]) -> Parts:
    """The parts of a reading. `apart`: see `Found`."""
    own, none = frozenset(name for names in apart.values() for name in names), frozenset[str]()
    again = [(replace(plan, targets=by), replace(scope, namespaces=tuple(names)), none) for by, names in apart.items()]
    return [*((plan, part, own) for part in scope.slices(plan.slices)), *again]


def read_samples(
    client: PrometheusClient, timeout: float, plan: Plan, scope: Scope, without: Collection[str]
) -> Evaluation:
    """The samples of a scope now, `without` those of some namespaces."""
    answer = client.whole(client.query(plan.query(scope), timeout))
    table = gather(answer.rows(), plan.columns)
    for sample in [each for each in table.rows if each[0] in without]:
        del table.rows[sample]
    if len(table.rows) > MOST_SAMPLES:
        raise Excess(client.config.name, f"answered with samples of more than {MOST_SAMPLES} pods")
    at = evaluated_at(islice(answer.rows(), TIMES_COMPARED), plan.columns)
    fresh, stale = table.samples(at, client.config.staleness)
    lacks = table.lacks_buckets or bool(table.several)
    return Evaluation(at, fresh, stale, lacks, table.unread, table.several)


def read_range(
    client: PrometheusClient, timeout: float, plan: Plan, scope: Scope, times: tuple[float, float, float]
) -> dict[float, Samples]:
    """The samples of a scope by time of evaluation, from, to and by a step (seconds)."""
    answer = client.whole(client.query_range(plan.query(scope), times, timeout))
    tables = gather_range(answer.rows(), plan.columns, *times[:2])
    return {at: table.samples(at, client.config.staleness)[0] for at, table in tables.items()}


def read_line(
    client: PrometheusClient, timeout: float, query: str, times: tuple[float, float, float]
) -> list[tuple[float, float]]:
    """One series over time, as (Unix seconds, value), from, to and by a step; empty where there is none.

    Where there are several at a time, or a number is none that counts something, that time has none.
    """
    answer = client.query_range(query, times, timeout)
    lines = Unread().readable(answer.rows(), lambda row: [(float(at), float(value)) for at, value in row["values"]])
    points = sorted(point for line in lines for point in line if 0.0 <= point[1] < math.inf)
    known = Counter(at for at, _ in points)
    return [point for point in points if known[point[0]] == 1]


def read_number(client: PrometheusClient, timeout: float, query: str) -> float | Unknown:
    """The number that a query of a user returns; Unknown, with the reason, where it is none that counts something."""
    numbers = list(Unread().readable(client.query(query, timeout).rows(), lambda row: float(row["value"][1])))
    if len(numbers) != 1:
        hint = "sum() makes one of several" if numbers else "where its series ends add `or 0 * max(EXPORTER_up == 1)`"
        return Unknown(f"the query returns {len(numbers)} series, not 1; {hint}")
    if not 0.0 <= numbers[0] < math.inf:
        return Unknown(f"the query returns {numbers[0]:g}, not a number from 0 on")
    return numbers[0]


def read_time_left(client: PrometheusClient, timeout: float, query: str, scale: float) -> TimeLeft:
    """When requests are due, by the buckets that a query of a user returns; `scale`: so many of their unit in a second.

    Each counts as due as soon as its bucket allows. Unknown, with the reason, where the buckets cannot be used, or are
    empty: the query is asked while requests wait.
    """
    answer = client.whole(client.query(query, timeout))
    buckets = sorted(
        Unread().readable(answer.rows(), lambda row: (bound_of(row["metric"]["le"]) / scale, float(row["value"][1])))
    )
    bounds, counts = [bound for bound, _ in buckets], [count for _, count in buckets]
    if bounds[-1:] != [math.inf]:
        return Unknown('the query returns no bucket le="+Inf"; it must be as `sum by (le) (NAME_bucket{...})`')
    if not len({*bounds}) == len(bounds) <= MOST_BUCKETS:
        several = f"several series for a bucket, or more than {MOST_BUCKETS:,} buckets"
        return Unknown(f"the query returns {several}; sum by (le) makes one series of each bucket")
    if not all(0.0 <= less <= more < math.inf for less, more in pairwise((0.0, *counts))):
        return Unknown("the query returns buckets whose counts are no numbers from 0 on that grow with le")
    if not LEAST_BOUND <= max(bounds[:-1], default=0.0) <= MOST_BOUND:
        return Unknown(f"the buckets end at {max(bounds[:-1], default=0.0):g} s, not at 5m to 8784h; check unit")
    if not counts[-1]:
        return Unknown("its buckets are empty: all is due after the last one, or the queue could not be read")
    begins = (0.0 if bound <= 0.0 else max(before, 1.0) for before, bound in pairwise((0.0, *bounds)))
    return tuple(zip(begins, counts, strict=True))


def read_causes(
    client: PrometheusClient,
    timeout: float,
    queries: Queries,
    known: Mapping[str, EngineMetrics],
    request: ReadRequest,
    pods: Collection[PodKey],
) -> Mapping[PodKey, Missing]:
    """Why these pods have no sample; nothing where the answer may lack series."""
    answer = client.query(question(queries, known, pods), timeout)
    found = causes(queries, request.engine, known, pods, answer.rows(), request.match_labels)
    return {} if answer.partial else found
