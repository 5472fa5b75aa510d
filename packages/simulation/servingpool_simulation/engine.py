"""One replica of vLLM V1, step by step, on a clock that the caller moves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from servingpool_simulation import page
from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.kernel import settle, submit
from servingpool_simulation.tables import (
    FINISHED,
    REQUEST,
    TURNED_AWAY,
    UNSENT,
    Floats,
    engine_rows,
    records,
    request_table,
    start_engine,
)


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram as a Prometheus page prints it."""

    bounds: tuple[float, ...]
    """Upper bounds, ascending, without `+Inf`."""
    counts: tuple[float, ...]
    """Observations at or below each bound."""
    total: float
    """Sum of all observed values."""
    count: float
    """Observations in all, the `+Inf` bucket."""


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """Everything that one replica exposes. Names as in `page`."""

    gauges: Mapping[str, float]
    counters: Mapping[str, float]
    histograms: Mapping[str, Buckets]
    row: Floats = field(default_factory=lambda: np.zeros(page.SIZE), compare=False, repr=False)
    """The whole page, with what other engines than vLLM count."""
    edges: Floats = field(default_factory=lambda: np.zeros((0, 0)), compare=False, repr=False)
    """The bounds of the row's histograms, see `page.bounds_matrix`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request. Seconds, on the clock of the engine."""

    request: int
    arrival: float
    prompt_tokens: int
    output_tokens: int
    """Generated; fewer than asked for where max_model_len cut it."""
    ttft: float | None
    """Arrival to first token; None when it was turned away."""
    tpot: float | None
    """(E2E - TTFT) / (output tokens - 1); None for a single token or none."""
    finished_at: float
    preemptions: int

    @property
    def rejected(self) -> bool:
        """Turned away: max_model_len does not hold the prompt and one token."""
        return self.ttft is None


class Engine:
    """One replica that serves from `start` on. Nothing moves but by `advance` and `drain`.

    Submit requests in order of time and before advancing past them. The first call compiles the
    model (seconds, cached on disk) where numba is installed.
    """

    def __init__(self, profile: EngineProfile, start: float) -> None:
        self.profile = profile
        self._state = engine_rows(profile, 1)
        start_engine(self._state, 0, start)
        self._requests = records(REQUEST, 0)
        self._free: list[int] = []
        self._names: dict[int, int] = {}
        self._submitted = 0

    def submit(self, at: float, prompt_tokens: int, output_tokens: int) -> int:
        """Hands in a request that arrives at `at` (seconds) and returns its number, counted from 0."""
        if prompt_tokens < 1 or output_tokens < 1:
            raise ValueError(f"a request has 1 token or more each way, got {prompt_tokens} and {output_tokens}")
        if not self._free:
            self._grow()
        record = self._free.pop()
        self._requests[record] = request_table([at], [prompt_tokens], [output_tokens])[0]
        number = self._submitted
        self._submitted += 1
        self._names[record] = number
        submit(self._state, self._requests, 0, record, at)
        return number

    def advance(self, until: float) -> None:
        """Runs every step that ends by `until` (seconds); the gauges and counters show that moment."""
        settle(self._state, self._requests, 0, until)

    def drain(self) -> float:
        """Runs until nothing is left. Returns when that was, in seconds; requests may still be handed in."""
        settle(self._state, self._requests, 0, math.inf)
        return float(self._state.engines[0].now)

    @property
    def running(self) -> int:
        """Requests in the batch, at the last `advance`; so are the next two."""
        return int(self._state.page[0, page.RUNNING])

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return int(self._state.page[0, page.WAITING])

    @property
    def kv_cache_usage(self) -> float:
        """Share of KV cache blocks in use, 0 to 1."""
        return float(self._state.page[0, page.KV_USAGE])

    @property
    def in_flight(self) -> int:
        """Requests handed in and not finished: what a load balancer counts."""
        return int(self._state.engines[0].in_flight)

    def metrics(self) -> EngineMetrics:
        """All that it exposes, at the last `advance`."""
        row = self._state.page[0].copy()
        told = read_page(row, page.bounds(self.profile.max_model_len, self.profile.conduct.bounds))
        return replace(told, row=row, edges=self._state.bounds)

    def take_outcomes(self) -> list[Outcome]:
        """The requests that ended since the last call, in order of their number."""
        q = self._requests
        ended = np.flatnonzero((q.status == FINISHED) | (q.status == TURNED_AWAY))
        outcomes = [self._outcome(int(record)) for record in ended]
        q.status[ended] = UNSENT
        self._free.extend(int(record) for record in ended)
        return sorted(outcomes, key=lambda outcome: outcome.request)

    def _outcome(self, record: int) -> Outcome:
        request = self._requests[record]
        generated, first, finished = int(request.generated), float(request.first), float(request.finished)
        return Outcome(
            request=self._names.pop(record),
            arrival=float(request.arrival),
            prompt_tokens=int(request.prompt),
            output_tokens=generated,
            ttft=None if request.status == TURNED_AWAY else first - float(request.arrival),
            tpot=(finished - first) / (generated - 1) if generated > 1 else None,
            finished_at=finished,
            preemptions=int(request.preemptions),
        )

    def _grow(self) -> None:
        """Doubles the table of requests; records of ended ones are used again."""
        old = len(self._requests)
        more = max(old, 256)
        self._requests = np.concatenate((self._requests, records(REQUEST, more))).view(np.recarray)
        self._free.extend(range(old + more - 1, old - 1, -1))


def read_page(row: Floats, bounds: Mapping[str, tuple[float, ...]]) -> EngineMetrics:
    """A page's row of numbers as named metrics. `bounds` as `page.bounds` gives them."""
    histograms: dict[str, Buckets] = {}
    for which, (name, edges) in enumerate(bounds.items()):
        places = page.histogram(row, which)
        cumulative = np.cumsum(places[: len(edges) + 1]).tolist()
        histograms[name] = Buckets(edges, tuple(cumulative[:-1]), float(places[page.SUM]), cumulative[-1])
    values = row[: page.FIRST_HISTOGRAM].tolist()
    gauges = len(page.GAUGES)
    return EngineMetrics(
        gauges=dict(zip(page.GAUGES, values[:gauges], strict=True)),
        counters=dict(zip(page.COUNTERS, values[gauges:], strict=True)),
        histograms=histograms,
    )
