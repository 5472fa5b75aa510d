"""Reads a workload's history from Prometheus, stretch by stretch, at a load that is stated beforehand.

Queries run one at a time, with a bound on the samples of each. A pause follows that is at least as long as the query
took: the server spends at most half of a core on it.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from servingpool.adapters.cluster.names import pods_of, pods_of_any
from servingpool.adapters.prometheus.promql import requested_replicas
from servingpool.adapters.prometheus.samples import PodSamples, ReadRequest, sample_of
from servingpool.decision.observation import Unknown
from servingpool.recording.format import Chunk, Header, RecordingError

SERIES_PER_POD = 90
"""vLLM's figures and buckets."""
FIRST, LONGEST, SHORTEST = 900.0, 7200.0, 120.0
"""Seconds that a query covers: the first query, at most, at least."""
TRIES = 4
"""Times that a stretch is asked for, each time half as long."""
LADDER = tuple(0.001 * 1.2**power for power in range(74))
"""Seconds, 1 ms to 10 min: every bucket of an engine lies around one of these, so any SLO can be backtested."""


class Source(Protocol):
    """Part of a Prometheus client that a recording needs."""

    async def history(
        self,
        request: ReadRequest,
        *,
        start: float,
        end: float,
        step: float,
        namespaces: Sequence[str],
        most_samples: int,
    ) -> Sequence[tuple[float, PodSamples]] | Unknown:
        """Samples as they were."""

    async def line(self, query: str, times: tuple[float, float, float]) -> Sequence[tuple[float, float]] | Unknown:
        """One series as it was, from, to and by a step; empty where there is none."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The load that the server may bear."""

    samples: int = 200_000
    """Samples in a query's answer, at most."""
    pause: float = 0.2
    """Seconds after each query, at least."""


async def record(
    source: Source,
    header: Header,
    since: float,
    pace: Pace,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Chunk]:
    """The chunks from `since` (Unix seconds) to the header's end, in order. Raises RecordingError."""
    own = re.compile(pods_of(header.target, header.sort)).fullmatch
    bounds, replicas = frozenset(LADDER), requested_replicas(header.namespace, header.target, header.sort)
    request = ReadRequest(
        header.engine, bounds, bounds, pods=pods_of_any([(header.target, header.sort)]), recorded=True
    )
    at, length, failed = since, FIRST, 0
    while at < header.end:
        steps = max(1, int(min(length, header.end - at) // header.step))
        end = at + steps * header.step
        began = clock()
        # The first time is the last one of the chunk before.
        found = await source.history(
            request,
            start=at + header.step,
            end=end,
            step=header.step,
            namespaces=[header.namespace],
            most_samples=10 * pace.samples,
        )
        requested, waits = [
            () if query is None or isinstance(line := await source.line(query, (at, end, step)), Unknown) else line
            for query, step in ((replicas, 60.0), (header.backlog, header.step))
        ]
        took = clock() - began
        if isinstance(found, Unknown):
            failed += 1
            if failed >= TRIES:
                raise RecordingError(f"is not finished: {found.reason}. Run the same command again to go on")
            length = max(SHORTEST, length / 2.0)
            await sleep(max(pace.pause, took))
            continue
        failed = 0
        samples = [
            sample
            for _, pods in found
            for (namespace, pod), models in pods.items()
            if namespace == header.namespace and own(pod) and (sample := sample_of(models, header.model)) is not None
        ]
        pods = len({one.replica for one in samples})
        yield Chunk.of(at, end, samples, requested, waits)
        at = end
        length = min(LONGEST, max(SHORTEST, pace.samples / (SERIES_PER_POD * max(1, pods)) * header.step))
        if at < header.end:
            await sleep(max(pace.pause, took))
