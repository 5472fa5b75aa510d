"""The last twenty minutes of a pool, tick by tick: sums over any part of them, the demand, and the usual figures.

Demand is tokens and steps, not requests: a 4,000-token prompt costs a hundred times a 40-token one. What they cost is
work, in replica-seconds per second, which is the number of replicas that it keeps fully busy. A row keeps rates, which
are facts; work follows from the rates by today's step time, and so does load, which is work over ready replicas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from servingpool.decision.engine import MOST_RATE, MOST_WORK, NO_DEMAND, Rates, StepTime
from servingpool.decision.observation import EPSILON
from servingpool.decision.observe.columns import DEMAND, FIGURES, OFFERED, WORK, Column
from servingpool.decision.observe.counters import RATE_SCRAPES, CounterDelta
from servingpool.decision.observe.latency import LatencyCount, Misses
from servingpool.decision.observe.plausible import Usual
from servingpool.decision.observe.samples import NO_BUCKETS, Buckets
from servingpool.decision.params import DEFAULT, Params

NOTHING = EPSILON
"""Replicas kept busy by the mean demand, below which there is no demand."""
Array = NDArray[np.float64]

KEPT_SECONDS = DEFAULT.idle_window
"""Seconds: the window reaches back as far as anybody asks."""
LEAST_READY = 0.5
"""Replicas that work is divided by at least: the first replica's first second is no load of a hundred."""
PROMPT_INERTIA, LEAST_USUAL = 30.0, 20.0
"""Requests that the ten-minute mean prompt weighs against the rate window's, and requests that tell the usual."""
SEEN = 0.9
"""Share of some time, and of its replica-seconds, that must have been seen to tell of it."""

NOT_NOTED = (np.nan,) * (len(Column) - Column.JUDGED)


class Demand(NamedTuple):
    """Arrivals over the last half minute (or two scrapes), with the work that they bring."""

    arrivals: float
    """Requests/s."""
    prompt: float
    """Mean prompt tokens of a request that are computed."""
    steps: float
    """Mean steps that decode a request: its output tokens, fewer with speculative decoding."""
    work_per_request: float
    """Replica-seconds."""
    queued: float
    """Requests waiting."""

    @property
    def level(self) -> float:
        """Work in replicas kept busy."""
        return min(MOST_WORK, self.arrivals * self.work_per_request)

    @property
    def rates(self) -> Rates:
        """Rates of what arrives."""
        return self.rates_of(self.arrivals)

    def rates_of(self, arrivals: float) -> Rates:
        """Rates of so many requests/s."""
        return Rates(min(MOST_RATE, arrivals * self.prompt), min(MOST_RATE, arrivals * self.steps))


@dataclass(frozen=True, slots=True, eq=False)
class SampleWindow:
    """Rows of ticks, oldest first; a value: adding a tick, or the verdict on it, gives a new one."""

    rows: Array = field(default_factory=lambda: np.zeros((0, len(Column))))
    buckets: Buckets = NO_BUCKETS
    """Buckets that hold the SLO's bounds, as last read."""
    _slices: dict[float, Slice] = field(default_factory=dict, init=False, repr=False)
    """By their seconds: a decision asks for the same few ten times."""

    def __reduce__(self) -> tuple[type[Self], tuple[Array, Buckets]]:
        """Without the slices."""
        return type(self), (self.rows, self.buckets)

    def add(self, *, now: float, span: float, ready: float, delta: CounterDelta) -> SampleWindow:
        """Append a tick of `span` seconds; ticks older than twenty minutes go."""
        gauges = map(float, (delta.waiting, delta.gateway, delta.running))
        row = (*delta.sums, span, delta.covered, now, ready, *gauges, *NOT_NOTED)
        kept = self.rows[self.rows[:, Column.AT].searchsorted(now - KEPT_SECONDS, "right") :]
        buckets = delta.buckets if delta.coverage > 0.0 else self.buckets
        client = self.buckets.client if delta.client is None else delta.client.layout
        return SampleWindow(np.concatenate((kept, [row])), buckets._replace(client=client))

    def noted(self, misses: Misses, *, demand: Rates, offered: Rates) -> SampleWindow:
        """The window with the last tick's requests, late requests, and rates without and with the queue."""
        last = (*self.rows[-1, : Column.JUDGED].tolist(), misses.requests, misses.late, *demand, *offered)
        return SampleWindow(np.concatenate((self.rows[:-1], [last])), self.buckets)

    def per_replica(self, amount: float) -> float:
        """Of work, the load of the last tick's fleet. A replica that turned Ready late in the tick is part of one."""
        return amount / max(float(self.rows[-1, Column.READY]), LEAST_READY)

    def calm_since(self, load: float, step: StepTime) -> float | None:
        """Unix time in seconds since which the offered load is at most this; None where it is above, or unknown."""
        above = (~(loads(self.rows, OFFERED, step) <= load)).nonzero()[0]
        first = int(above[-1]) if len(above) else 0
        return float(self.rows[first, Column.AT]) if first + 1 < len(self.rows) else None

    def last(self, seconds: float) -> Slice:
        """The ticks of the last `seconds`, up to the last tick."""
        if seconds not in self._slices:
            at = self.rows[:, Column.AT]
            begin = at.searchsorted(at[-1] - seconds + 1e-6, "right") if len(at) else 0
            self._slices[seconds] = Slice(self.rows[begin:])
        return self._slices[seconds]

    def lengths(self, interval: float, params: Params) -> tuple[float, float]:
        """Mean prompt tokens of a request, and steps that decode it, where scrapes come every `interval` seconds.

        Both from ten minutes; the prompt leans towards the rate window, since prompt tokens are counted in the same
        instant as the request's first token, while decoding trails it by the request's whole life.
        """
        recent, longer = self.last(rate_window(interval, params)), self.last(params.mean_window)
        requests = longer.sums[Column.TTFT_COUNT]
        if requests <= 0.0:
            return 0.0, 0.0
        usual = longer.computed_prompts / requests
        prompt = (recent.computed_prompts + PROMPT_INERTIA * usual) / (recent.sums[Column.TTFT_COUNT] + PROMPT_INERTIA)
        return prompt, (longer.sums[Column.ITL_COUNT] + requests) / requests

    def tokens_a_step(self, params: Params) -> float:
        """Tokens that a step yields for each request; at least 1."""
        window = self.last(params.mean_window)
        steps = window.sums[Column.ITL_COUNT] + window.sums[Column.TTFT_COUNT]
        return max(1.0, window.sums[Column.GENERATED] / steps) if steps > 0.0 else 1.0

    def demand(self, step: StepTime, interval: float, params: Params) -> Demand | None:
        """Demand now; None where too little was covered to tell."""
        window = self.last(rate_window(interval, params))
        served, queued, rejected = [window.rate(figure) for figure in (Column.BEGUN, Column.QUEUED, Column.REJECTED)]
        if served is None or queued is None or rejected is None:
            return None
        # The gateway's queue before the window's first tick is in the row before it.
        since = Slice(self.rows[-len(window.rows) - 1 :])
        seconds = window.seconds if len(since.rows) > len(window.rows) else float(window.rows[1:, Column.SPAN].sum())
        gateway = since.known(Column.GATEWAY)
        held = float(gateway[-1] - gateway[0]) / seconds if seconds > 0.0 and len(gateway) > 1 else 0.0
        (prompt, steps), waiting = self.lengths(interval, params), window.rows[-1, Column.WAITING]
        return Demand(
            arrivals=max(0.0, served + queued + held + rejected),
            prompt=prompt,
            steps=steps,
            work_per_request=step.work(prompt, steps),
            queued=0.0 if np.isnan(waiting) else float(waiting),
        )

    def served(self, demand: Demand, interval: float, params: Params) -> Rates:
        """Rates of the requests that engines counted, whatever waits."""
        window = self.last(rate_window(interval, params))
        return demand.rates_of(sum([window.rate(figure) or 0.0 for figure in (Column.BEGUN, Column.REJECTED)]))

    @property
    def worked(self) -> bool:
        """Whether any engine worked in the last tick, as far as could be read."""
        last = Slice(self.rows[-1:])
        return last.covered <= 0.0 or any(last.sums[figure] > 0.0 for figure in WORK)

    def idle(self, params: Params) -> bool:
        """Whether it is certain that no request came, waited or ran in the idle window."""
        window = self.last(params.idle_window)
        counted = sum([window.sums[figure] for figure in (*WORK, Column.REJECTED)])
        if counted != 0.0 or window.seconds < SEEN * params.idle_window:
            return False
        ready = float((window.rows[:, Column.READY] * window.rows[:, Column.SPAN]).sum())
        seen = 0.0 < SEEN * ready <= window.covered
        # Gauges are believed for so long after the last thing that moved.
        shown = self.last(params.idle_window - params.stands_still)
        return seen and shown.highest(Column.WAITING) == 0.0 and shown.highest(Column.RUNNING) == 0.0


def rate_window(interval: float, params: Params) -> float:
    """Seconds over which rates are taken, where scrapes come every `interval`."""
    return max(params.rate_window, RATE_SCRAPES * interval)


class Slice:
    """Some ticks in a row."""

    def __init__(self, rows: Array) -> None:
        self.rows = rows
        self.sums: Sequence[float] = np.add.reduce(rows).data
        """Of each column over these ticks, counted on the replicas that were seen: a decision asks for forty."""
        self.seconds, self.covered = self.sums[Column.SPAN], self.sums[Column.COVERED]
        """Their length, and the replica-seconds whose counters were seen."""

    @cached_property
    def ready(self) -> float:
        """Mean number of ready replicas, over the ticks in which anything was covered.

        A tick without a ready replica, or without a scrape, saw no traffic at all: it is not a tick without demand.
        """
        seen = self.rows[self.rows[:, Column.COVERED] > 0.0]
        seconds = float(np.add.reduce(seen[:, Column.SPAN]))
        return float(np.add.reduce(seen[:, Column.READY] * seen[:, Column.SPAN])) / seconds if seconds else 0.0

    @property
    def computed_prompts(self) -> float:
        """Prompt tokens that had to be computed: tokens from the prefix cache cost no time."""
        return max(0.0, self.sums[Column.PROMPTS] - self.sums[Column.CACHED])

    def rate(self, figure: int) -> float | None:
        """Per second and over the whole pool; None where nothing was covered."""
        return self.sums[figure] / self.covered * self.ready if self.covered > 0.0 else None

    def known(self, column: int) -> Array:
        """Values of a column, without unknown ones."""
        values = self.rows[:, column]
        return values[~np.isnan(values)]

    @property
    def misses(self) -> Misses:
        """Requests and late requests, as judged tick by tick."""
        counts = self.rows[:, [Column.JUDGED, Column.LATE]]
        return Misses(*np.add.reduce(np.where(np.isnan(counts), 0.0, counts)).tolist())

    def highest(self, column: int) -> float | None:
        """Largest known value of a column."""
        values = self.known(column)
        return float(values.max()) if len(values) else None

    @cached_property
    def mean_demand(self) -> Rates:
        """Of ticks whose demand was noted. None counts as no demand."""
        rates = self.rows[:, DEMAND]
        known = rates[~np.isnan(rates[:, 0])]
        return Rates(*(known.sum(axis=0) / len(known)).tolist()) if len(known) else NO_DEMAND

    def split(self, count: int) -> LatencyCount:
        """Observations of the histogram with this `count`, of engines or client, split at the SLO's bound."""
        return LatencyCount.split(*self.sums[count : count + 3])

    @property
    def mean_beyond(self) -> float:
        """Mean seconds of TTFT of the requests beyond the lower end of the SLO's bucket; 0 where none tells it.

        Faster requests took nine tenths of what their buckets allow: hardly any bucket's requests take more on average.
        Where fewer than a quarter lie beyond, that error is larger than what they took, and nothing is told. Left out
        are ticks in which more than a hundredth took longer than the bucket's upper end, for their mean is that of a
        few, and ticks in which other buckets are read than before.
        """
        rows = self.rows[:, Column.TTFT_COUNT : Column.TTFT_QUICK + 1]
        told = (0.99 * rows[:, 0] <= rows[:, 2]) & (EPSILON * rows[:, 1] <= rows[:, 4])
        count, within, _, took, quick = np.add.reduce(rows[told]).tolist()
        beyond = count - within
        return (took - 0.9 * quick) / beyond if beyond > 0.25 * count else 0.0


def loads(rows: Array, rates: slice, step: StepTime) -> Array:
    """Load of each tick by the rates in these columns; NaN where the rates are not known."""
    work: Array = step.work(*rows[:, rates].T)
    return work / np.maximum(rows[:, Column.READY], LEAST_READY)


def usual(
    window: SampleWindow,
    step: Callable[[], StepTime | None],
    full_from: Mapping[str, float],
    *,
    short: bool,
    queue_excluded: bool,
) -> Usual:
    """The usual figures, those of the last twenty minutes; the others as learned. See `Usual`."""
    kept = window.last(KEPT_SECONDS)
    most_running = kept.highest(Column.RUNNING)
    requests = kept.sums[Column.TTFT_COUNT] if kept.covered > 0.0 else 0.0
    return Usual(
        kept.sums[:FIGURES],
        requests if requests >= LEAST_USUAL else 0.0,
        kept.covered,
        math.inf if most_running is None else most_running,
        step,
        full_from,
        short,
        queue_excluded,
    )
