"""A Prometheus, asked by all its pools together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TypeVar, TypeVarTuple

from servingpool.adapters.cluster.fair_order import in_turns
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.diagnosis import Cause, Missing, PodKey, explained
from servingpool.adapters.prometheus.engines import EngineMetrics, profile_of, shipped
from servingpool.adapters.prometheus.gateways import GatewayProfile, gateway_of, shipped_gateways
from servingpool.adapters.prometheus.http_client import Excess, MetricsUnavailable, PrometheusClient, Unsent
from servingpool.adapters.prometheus.inspection import Inspection, inspect
from servingpool.adapters.prometheus.lookup import Found
from servingpool.adapters.prometheus.plan import Plan
from servingpool.adapters.prometheus.promql import Queries, Scope
from servingpool.adapters.prometheus.rows import Unread, shown
from servingpool.adapters.prometheus.samples import (
    FleetReading,
    NotAsked,
    PodSamples,
    ReadRequest,
    TooLarge,
)
from servingpool.adapters.prometheus.workers import (
    Evaluation,
    Samples,
    Workers,
    parts_of,
    read_causes,
    read_layout,
    read_line,
    read_number,
    read_range,
    read_samples,
    read_time_left,
)
from servingpool.decision.observation import Reading, TimeLeft, Unknown

T = TypeVar("T")
Given = TypeVarTuple("Given")
_Which = tuple[str, bool, Scope]
"""Name, whether it is a gateway's, and what is read of it."""

log = logging.getLogger(__name__)

AMBIGUOUS = "Gauges have several series that differ in a label which the engine's profile does not name"
MOST_TOLD = 1_000
"""Pods with unreadable series that are logged in the life of the operator; all are counted."""
NOBODY = "servingpool-check"
"""A namespace without pods: its reading is small, and asked for as any other."""
LAYOUT_LASTS = 600.0
"""Seconds until the buckets are looked up again: they change with a rollout of the engine, at most."""

LAYOUT_LACKING_WAIT = 15.0
"""Seconds after which buckets are first looked up again while some pod has none of the known ones; twice as many each
time. A sample whose buckets relabelling drops would else cost a count over all buckets of all pods in every tick."""


@dataclass(frozen=True, slots=True)
class _Known:
    found: Found
    since: float
    lacking: bool = False
    """Whether some pod has none of these buckets: it came after them, of another version."""
    wait: float = LAYOUT_LACKING_WAIT
    """Seconds to look again in while some pod lacks them."""

    def good(self, now: float) -> bool:
        engines, lasts = self.found.layout.engines, self.wait if self.lacking else LAYOUT_LASTS
        return engines > 0 and 0 <= now - self.since < lasts


class PrometheusBackend:
    """Reader of samples from one Prometheus. Keep it for the life of the operator, and `close` it."""

    def __init__(
        self,
        config: BackendConfig,
        engines: Mapping[str, EngineMetrics] | None = None,
        gateways: Mapping[str, GatewayProfile] | None = None,
    ) -> None:
        """A reader with the profiles of `engines` and `gateways` by name; those of this release by default."""
        self.config = config
        self._engines = shipped() if engines is None else engines
        self._gateways = shipped_gateways() if gateways is None else gateways
        self._workers = Workers(config)
        self._gate = asyncio.Semaphore(config.concurrency)
        self._known: dict[_Which, _Known] = {}
        self._queries: dict[tuple[str, bool, bool], Queries] = {}
        """Queries by the arguments of `_queries_for`."""
        self._told: set[tuple[PodKey, str]] = set()
        """Log lines written about pods."""

    async def read(self, request: ReadRequest, now: float) -> FleetReading | Unknown:
        """Every pod's sample as last scraped; Unknown, with a reason fit for status, if Prometheus did not answer.

        NotAsked if other reads had all the time there was. Takes at most the configured timeout, all its queries
        together. `now` (seconds, any clock) only ages what is remembered of the buckets. It is not the time asked for:
        that is Prometheus's own, so that a skewed clock here makes nothing look stale. Of an engine that exports
        nothing there is no sample, and none is asked for. ValueError for an engine without a profile.
        """
        queries = self._queries_for(request.engine, gateway=request.gateway, recorded=request.recorded)
        if queries.profile.metered:
            return FleetReading(at=now, samples={}, stale={}, profile=queries.profile)
        deadline = self._workers.deadline()
        # Each read with its look-up in the order of the calls: else the look-ups of all would come before the first.
        try:
            async with asyncio.timeout(self.config.timeout):
                await self._gate.acquire()
        except TimeoutError:
            return _why([self._workers.unsent()], of=1)
        try:
            if self._workers.over(deadline):
                return _why([self._workers.unsent()], of=1)
            return await self._read(request, queries, now, deadline)
        finally:
            self._gate.release()

    async def _read(
        self, request: ReadRequest, queries: Queries, now: float, deadline: float
    ) -> FleetReading | Unknown:
        scope = Scope(request.match_labels, tuple(sorted(request.namespaces)), models=tuple(sorted(request.models)))
        which = (request.engine, request.gateway, scope)
        known = self._known.get(which)
        looked_up = known is None or not known.good(now)
        try:
            if known is None or looked_up:
                wait = (
                    LAYOUT_LACKING_WAIT if known is None or not known.lacking else min(2.0 * known.wait, LAYOUT_LASTS)
                )
                looked = await self._workers.run(deadline, read_layout, queries, scope, None)
                known = _Known(looked, now, wait=wait)
                # Kept at once: thrown away where its samples come late, it would make the next ones late too, for ever.
                # What nobody asked for during two look-ups is forgotten, such as the labels of a preview environment.
                self._known = {one: kept for one, kept in self._known.items() if now - kept.since < 2.0 * LAYOUT_LASTS}
                self._known[which] = known
            layout = known.found.layout
            slices = parts_of(Plan.of(queries, layout, request), scope, known.found.apart)
        except MetricsUnavailable as error:
            return _why([error], of=1)
        # All are on their way before the first is awaited: else the look-ups of others would get in between.
        asked = [self._workers.run(deadline, read_samples, *part) for part in slices]
        pods = request.explain and explained(queries, self._engines, in_turns(sorted(request.explain), itemgetter(0)))
        hints = [self._workers.run(deadline, read_causes, queries, self._engines, request, pods)] if pods else []
        answers = await asyncio.gather(*(_caught(answer) for answer in asked))
        causes = [found for hint in hints if not isinstance(found := await _caught(hint), MetricsUnavailable)]
        failures = [answer for answer in answers if isinstance(answer, MetricsUnavailable)]
        if failures:
            return _why(failures, of=len(answers))
        parts = [answer for answer in answers if isinstance(answer, Evaluation)]
        self._known[which] = replace(known, lacking=any(part.lacks_buckets for part in parts))
        ambiguous = {pod: Missing(AMBIGUOUS, Cause.AMBIGUOUS) for part in parts for pod in part.several}
        return FleetReading(
            at=max(part.at for part in parts),
            samples={pod: each for part in parts for pod, each in part.samples.items()},
            stale={pod: age for part in parts for pod, age in part.stale.items()},
            queries=len(slices) + looked_up + len(hints),
            profile=queries.profile,
            causes={**(causes[0] if causes else {}), **ambiguous},
            doubled=layout.doubled,
            native=layout.native,
            unread=self._tell([layout.unread, *(part.unread for part in parts)]),
        )

    async def history(
        self,
        request: ReadRequest,
        *,
        start: float,
        end: float,
        step: float,
        namespaces: Collection[str],
        most_samples: int = 1_000_000,
    ) -> Sequence[tuple[float, PodSamples]] | Unknown:
        """The samples of these namespaces' pods as they were at `start`, `start + step` ... up to `end` (Unix seconds).

        Times without any sample have an empty mapping: all if no namespace is named, or the engine exports nothing.
        Unknown if any part could not be read, for what is learned from part of a fleet is wrong; TooLarge where there
        are more than `most_samples` (of one pod at one time each), for memory. All its queries together take at most
        the timeout.
        """
        queries = self._queries_for(request.engine, recorded=request.recorded)
        models = tuple(sorted(request.models))
        scope = Scope(request.match_labels, tuple(sorted(namespaces)), models=models, pods=request.pods)
        steps = int((end - start) / step + 1e-6) + 1
        found: dict[int, Samples] = {index: {} for index in range(steps)}
        if not namespaces or queries.profile.metered:
            return [(start + index * step, {}) for index in found]
        run, deadline = self._workers.run, self._workers.deadline()
        try:
            looked = await run(deadline, read_layout, queries, scope, (start, end))
            plan = Plan.of(queries, looked.layout, request)
            for first in range(0, steps, plan.points):
                last = min(first + plan.points, steps) - 1
                times = (start + first * step, start + last * step, step)
                for each, part, _ in parts_of(plan, scope, looked.apart):
                    for at, samples in (await run(deadline, read_range, each, part, times)).items():
                        found[round((at - start) / step)].update(samples)
                    if sum(map(len, found.values())) > most_samples:
                        said = f"returned more than {most_samples} samples"
                        return TooLarge(f"Prometheus backend '{self.config.name}' {said}")
        except MetricsUnavailable as error:
            return Unknown(str(error))
        return [(start + index * step, samples) for index, samples in found.items()]

    async def line(self, query: str, times: tuple[float, float, float]) -> Sequence[tuple[float, float]] | Unknown:
        """One series as it was, as (Unix seconds, number), from, to and by a step; empty where there is none."""
        return await self._answer(read_line, query, times)

    async def inspect(self, engine: str, pods: Collection[PodKey], *, gateway: bool = False) -> Inspection | Unknown:
        """All figures that this Prometheus has of a few pods, as series of an engine or gateway.

        ValueError for one without a profile.
        """
        queries = self._queries_for(engine, gateway=gateway)
        return await self._answer(inspect, queries, {} if gateway else self._engines, pods)

    async def number(self, query: str) -> Reading:
        """The number that a query of a user returns; Unknown, with the reason, where it returns none."""
        return await self._answer(read_number, query)

    async def time_left(self, query: str, scale: float) -> TimeLeft:
        """What a query of a user tells of waiting requests, see `read_time_left`."""
        return await self._answer(read_time_left, query, scale)

    async def check(self) -> Unknown | None:
        """Why this Prometheus does not answer what the operator asks; None where it answers."""
        reading = await self.read(ReadRequest(ttft_bounds=frozenset({1.0}), namespaces=frozenset({NOBODY})), 0.0)
        return reading if isinstance(reading, Unknown) else None

    async def _answer(self, job: Callable[[PrometheusClient, float, *Given], T], *args: *Given) -> T | Unknown:
        """What a job of one query returns; Unknown, with the reason, where Prometheus does not answer."""
        try:
            return await self._workers.run(self._workers.deadline(), job, *args)
        except MetricsUnavailable as error:
            return Unknown(str(error))

    async def aclose(self) -> None:
        """Let go of connections and threads."""
        self._workers.close()

    def _queries_for(self, name: str, *, gateway: bool = False, recorded: bool = True) -> Queries:
        if (which := (name, gateway, recorded)) not in self._queries:
            profile = gateway_of(name, self._gateways).metrics if gateway else profile_of(name, self._engines)
            self._queries[which] = Queries(profile if recorded else profile.deciding, self.config.labels)
        return self._queries[which]

    def _tell(self, answers: Collection[Unread]) -> Unread:
        """Log rows that could not be read, of several answers together. Each pod is logged once."""
        whole = Unread()
        for one in answers:
            whole.include(one)
        for pod, why in whole.pods.items():
            if (pod, why) not in self._told and len(self._told) < MOST_TOLD:
                self._told.add((pod, why))
                said = "Prometheus backend '%s': pod %s/%s has series that cannot be read and are left out: %s"
                log.warning(said, self.config.name, *map(shown, pod), why)
        return whole


async def _caught(answer: Awaitable[T]) -> T | MetricsUnavailable:
    try:
        return await answer
    except MetricsUnavailable as error:
        return error


def _why(failures: Sequence[MetricsUnavailable], *, of: int) -> Unknown:
    """Why a read in so many queries failed. A read of a single query has had its turn."""
    sent = [error for error in failures if not isinstance(error, Unsent)]
    if sent:
        heavy = next((error for error in sent if isinstance(error, Excess)), None)
        return Unknown(str(sent[0])) if heavy is None else TooLarge(str(heavy))
    said = str(failures[0])
    return NotAsked(said) if len(failures) == of else Unknown(f"{said}, after {of - len(failures)} of {of} parts")
