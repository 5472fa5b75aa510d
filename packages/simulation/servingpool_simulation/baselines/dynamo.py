"""NVIDIA Dynamo's planner for workers that prefill and decode: by load, and by profile and forecast (`sla`)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool
from servingpool_simulation.baselines.behavior import bounded
from servingpool_simulation.baselines.measured import StepModel
from servingpool_simulation.baselines.readings import History, gauges
from servingpool_simulation.policies import Answer

UP_ABOVE, DOWN_BELOW = 1.0, 0.6
"""Shares of a worker's KV cache, in use and queued."""
KEPT = 480
"""Intervals: a day."""
FEWEST = 5
"""Values from which the forecast is more than the last one."""


@dataclass(slots=True)
class LoadPlanner:
    """One worker more when one has more work than its KV cache holds, one less when all have little.

    Waits while a worker loads, and where not every worker reports.
    """

    kv_tokens: int
    """Of one worker."""
    up_above: float = UP_ABOVE
    every_bucket: bool = field(default=False, init=False)
    every: float = field(default=5.0, init=False)
    _lengths: History = field(default_factory=lambda: History(300.0), init=False)

    @property
    def name(self) -> str:
        """Such as `Dynamo load, 1`."""
        return f"Dynamo load, {self.up_above:g}"

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        """One tick."""
        self._lengths.add(now, observation)
        n = observation.requested
        if observation.starting:
            return Answer(n, "hold: a worker loads")
        used, waiting = gauges(observation, "kv_cache_usage"), gauges(observation, "waiting")
        if not used or len(used) != len(observation.ready) or used.keys() != waiting.keys():
            return Answer(n, "hold: not every worker reports")
        prompt = self._lengths.mean_prompt()
        loads = [used[worker] + waiting[worker] * prompt / self.kv_tokens for worker in used]
        change = 0
        if max(loads) > self.up_above:
            change = 1
        elif max(loads) < self.up_above * DOWN_BELOW / UP_ABOVE:
            change = -1
        return Answer(bounded(n + change, pool), f"the fullest worker is at {max(loads):.2f} of its KV cache")

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:  # noqa: ARG002, the protocol
        """Lengths are known from the past."""
        self._lengths.add(now, observation)


@dataclass(slots=True)
class SlaPlanner:
    """Forecast requests over what one worker serves within the SLO by its profile, without any room for queues."""

    model: StepModel
    headroom: float = 1.0
    """Times the replicas that the forecast needs; what its user would raise when it misses."""
    every_bucket: bool = field(default=False, init=False)
    every: float = field(default=180.0, init=False)
    _counts: History = field(default_factory=lambda: History(180.0), init=False)
    _finished: History = field(default_factory=lambda: History(900.0), init=False)
    """Longer: its frontend knows the output of each request, here it is tokens over requests that end much later."""
    _waiting: dict[str, float] = field(default_factory=dict, init=False)
    """By worker, an interval ago."""
    _past: tuple[deque[float], deque[float], deque[float]] = field(
        default_factory=lambda: (deque(maxlen=KEPT), deque(maxlen=KEPT), deque(maxlen=KEPT)), init=False
    )
    """Requests/s, prompt and output tokens of each interval."""

    @property
    def name(self) -> str:
        """Such as `Dynamo sla`."""
        return "Dynamo sla" if self.headroom == 1 else f"Dynamo sla, times {self.headroom:g}"

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        """One interval."""
        if not self._look(observation, now):
            return Answer(observation.requested, "hold: no traffic was seen")
        rate, prompt, output = (max(0.0, forecast(past)) for past in self._past)
        each = self.model.capacity(pool.slo, max(1.0, prompt), max(1.0, output))
        wanted = math.ceil(self.headroom * rate / each)
        reason = f"{rate:.2f} requests/s of {prompt:.0f} and {output:.0f} tokens at {each:.2f} a worker wants {wanted}"
        return Answer(bounded(wanted, pool), reason)

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:  # noqa: ARG002, the protocol
        """The forecast is warmed up on a past trace."""
        self._look(observation, now)

    def _look(self, observation: Observation, now: float) -> bool:
        """Notes what came since the last interval: first tokens, and what waits now and did not then.

        Its own frontend counts requests. By worker the sum is the same: one that was given up takes its queue along.
        """
        before = self._counts.kept[-1][0] if self._counts.kept else now
        self._counts.add(now, observation)
        self._finished.add(now, observation)
        waiting = gauges(observation, "waiting")
        grown = math.fsum(queue - self._waiting.get(worker, 0.0) for worker, queue in waiting.items())
        self._waiting = waiting
        started = self._counts.observed("time_to_first_token").count
        if now > before and self._counts.newest:
            rate, *lengths = self._past
            rate.append(max(0.0, started + grown) / (now - before))
            for past, value in zip(lengths, (self._counts.mean_prompt(), self._finished.mean_output()), strict=True):
                if value > 0:
                    past.append(value)
        return all(self._past)


def forecast(past: Sequence[float]) -> float:
    """The next value, by ARIMA(1,1,0): the last change goes on by a factor fitted with least squares.

    Dynamo searches the order with auto-ARIMA; one order stands in for that. It too repeats the last value until it
    has five.
    """
    if len(past) < FEWEST:
        return past[-1]
    values = list(past)
    changes = [b - a for a, b in pairwise(values)]
    squares = math.fsum(change * change for change in changes[:-1])
    products = math.fsum(a * b for a, b in pairwise(changes))
    factor = max(-1.0, min(1.0, products / squares)) if squares > 0 else 0.0
    return values[-1] + factor * changes[-1]
