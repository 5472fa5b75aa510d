"""The last twenty minutes of a pool, tick by tick, and sums over any part of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from servingpool.decision.columns import (
    CACHED,
    FIELDS,
    PROMPTS,
    QUEUE_TIME_COUNT,
    QUEUE_TIME_LOWER,
    QUEUE_TIME_UPPER,
    TPOT_COUNT,
    TPOT_LOWER,
    TPOT_UPPER,
    TTFT_COUNT,
    TTFT_LOWER,
    TTFT_UPPER,
)
from servingpool.decision.intake import Intake
from servingpool.decision.slo_count import SloCount, late_share_of_straddling
from servingpool.decision.unknown import Unknown

Array = NDArray[np.float64]

KEPT_SECONDS = 1200.0
KEPT_TICKS = 240
"""A bound on memory where the loop is faster than 5 s."""
LEAST_READY = 0.5
"""Replicas that work is divided by at least: the first one's first second is no load of a hundred."""

# Columns: when, how long, the fleet then, what was covered, the intake's sums, gauges, and the verdicts.
AT, SPAN, READY, COVERED, SUMS = range(5)
WAITING, GATEWAY, RUNNING, LOAD, WORK = range(SUMS + FIELDS, SUMS + FIELDS + 5)
WIDTH = SUMS + FIELDS + 5


@dataclass(frozen=True, slots=True, eq=False)
class Ledger:
    """Rows of ticks, oldest first. Never changed in place: adding a tick gives a new ledger."""

    rows: Array
    _windows: dict[float, Window] = field(default_factory=dict, init=False, repr=False)
    """Those that were asked for, by their seconds: a decision asks for the same few ten times."""

    def __eq__(self, other: object) -> bool:
        """As of any value; what is not known equals what is not known."""
        return np.array_equal(self.rows, other.rows, equal_nan=True) if isinstance(other, Ledger) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of any value that holds an array

    @classmethod
    def empty(cls) -> Self:
        """A ledger without a tick."""
        return cls(np.zeros((0, WIDTH)))

    def add(self, *, now: float, span: float, ready: float, intake: Intake) -> Ledger:
        """Append a tick of `span` seconds; ticks older than twenty minutes go."""
        row = np.full((1, WIDTH), np.nan)
        row[0, AT], row[0, SPAN], row[0, READY], row[0, COVERED] = now, span, ready, intake.covered
        row[0, SUMS : SUMS + FIELDS] = intake.sums
        row[0, WAITING] = np.nan if isinstance(intake.waiting, Unknown) else intake.waiting
        row[0, GATEWAY] = np.nan if isinstance(intake.gateway, Unknown) else intake.gateway
        row[0, RUNNING] = np.nan if isinstance(intake.running, Unknown) else intake.running
        kept = self.rows[self.rows[:, AT] > now - KEPT_SECONDS][-(KEPT_TICKS - 1) :]
        return Ledger(np.concatenate((kept, row)))

    def judged(self, *, load: float, work: float) -> Ledger:
        """The same ledger with the last tick's offered load and work noted."""
        rows = self.rows.copy()
        rows[-1, LOAD], rows[-1, WORK] = load, work
        return Ledger(rows)

    def in_other_units(self, ratio: float) -> Ledger:
        """The same where what was work of 1 is work of `ratio`."""
        rows = self.rows.copy()
        rows[:, [LOAD, WORK]] *= ratio
        return Ledger(rows)

    def load_of(self, work: float) -> float:
        """Load that `work` is to the fleet of the last tick; who turned Ready late in it is a part of a replica."""
        return work / max(float(self.rows[-1, READY]), LEAST_READY)

    def last(self, seconds: float) -> Window:
        """The ticks of the last `seconds`, up to the last tick."""
        window = self._windows.get(seconds)
        if window is None:
            at = self.rows[:, AT]
            begin = at.searchsorted(at[-1] - seconds + 1e-6, "right") if len(at) else 0
            window = self._windows[seconds] = Window(self.rows[begin:])
        return window


@dataclass(frozen=True, eq=False)
class Window:
    """Some ticks in a row."""

    rows: Array

    @cached_property
    def _sums(self) -> list[float]:
        """Of each column, at once: a decision asks for forty."""
        sums: list[float] = self.rows.sum(axis=0).tolist()
        return sums

    @property
    def seconds(self) -> float:
        """Their length."""
        return self._sums[SPAN]

    @property
    def covered(self) -> float:
        """Replica-seconds whose counters were seen."""
        return self._sums[COVERED]

    @cached_property
    def ready(self) -> float:
        """Mean number of ready replicas, over the ticks in which anything was covered.

        A tick without a ready replica, or without a scrape, saw no traffic at all: it is not a tick without demand.
        """
        seen = self.rows[self.rows[:, COVERED] > 0.0]
        seconds = float(seen[:, SPAN].sum())
        return float((seen[:, READY] * seen[:, SPAN]).sum()) / seconds if seconds else 0.0

    @property
    def steady(self) -> bool:
        """The number of ready replicas did not change."""
        return len(self.rows) > 0 and bool((self.rows[:, READY] == self.rows[0, READY]).all())

    def total(self, figure: int) -> float:
        """Of one of the intake's sums (see there), over the replicas that were seen."""
        return self._sums[SUMS + figure]

    @property
    def computed_prompts(self) -> float:
        """Prompt tokens that had to be computed: what the prefix cache supplied costs no time."""
        return max(0.0, self.total(PROMPTS) - self.total(CACHED))

    def rate(self, figure: int) -> float | None:
        """Per second and over the whole pool; None where nothing was covered."""
        return self.total(figure) / self.covered * self.ready if self.covered > 0.0 else None

    def span_of(self, column: int) -> float:
        """Last value minus first of a gauge column; 0 where either is missing."""
        values = self.rows[:, column]
        values = values[~np.isnan(values)]
        return float(values[-1] - values[0]) if len(values) > 1 else 0.0

    @cached_property
    def _splits(self) -> tuple[SloCount, SloCount, SloCount]:
        """Observations of TTFT, of TPOT and of the time in the queue, split at their bounds."""
        places = (
            (TTFT_COUNT, TTFT_LOWER, TTFT_UPPER),
            (TPOT_COUNT, TPOT_LOWER, TPOT_UPPER),
            (QUEUE_TIME_COUNT, QUEUE_TIME_LOWER, QUEUE_TIME_UPPER),
        )
        first, finished, queued = (_split(*(self.total(place) for place in each)) for each in places)
        return first, finished, queued

    def first_tokens(self) -> SloCount:
        """TTFT observations."""
        return self._splits[0]

    def finished(self) -> SloCount:
        """TPOT observations."""
        return self._splits[1]

    def queue_times(self) -> SloCount:
        """Times in the engine's queue, at the bound of TTFT."""
        return self._splits[2]

    def highest_load(self) -> float:
        """Largest work per ready replica, queues left aside; 0 where none is known."""
        return float(np.fmax.reduce(self.rows[:, WORK] / np.maximum(self.rows[:, READY], LEAST_READY), initial=0.0))

    def highest_offered(self) -> float:
        """Largest load, queues included; 0 where none is known."""
        return float(np.fmax.reduce(self.rows[:, LOAD], initial=0.0))

    def highest(self, column: int) -> float | None:
        """Largest known value of a column."""
        values = self.rows[:, column]
        values = values[~np.isnan(values)]
        return float(values.max()) if len(values) else None


def _split(total: float, within: float, up_to: float) -> SloCount:
    return SloCount(within, max(0.0, up_to - within), max(0.0, total - up_to))


@dataclass(frozen=True, slots=True)
class Misses:
    """Requests and how many were late, one bound after the other."""

    requests: float
    late: float

    @property
    def share(self) -> float:
        """Share that was late; 0 without requests."""
        return self.late / self.requests if self.requests else 0.0


def misses(count: SloCount, pooled: SloCount, bucket: tuple[float, float], bound: float | None) -> Misses:
    """Late requests of `count`, with the straddling bucket divided as in the longer window `pooled`."""
    if bound is None:
        return Misses(count.total, 0.0)
    if count.straddling <= 0.0:
        return Misses(count.total, count.late)
    return Misses(count.total, count.late + count.straddling * late_share_of_straddling(pooled, bucket, bound))
