"""llm-d's guides for KEDA: `slo-aware`, its token-aware variant, and the one on queue and running requests."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from servingpool.decision.observation import Observation, Unknown
from servingpool.decision.pool import Pool
from servingpool_simulation.baselines.behavior import DOWN, Configured, Limit
from servingpool_simulation.baselines.hpa import RUNNING, Hpa, SumPerReplica, Wish
from servingpool_simulation.baselines.readings import History, histogram_quantile, or_zero, total
from servingpool_simulation.baselines.rules import average_value
from servingpool_simulation.baselines.windows import Means

UP_ABOVE = 0.55
"""Share of the SLO's bound, published."""
DOWN_BELOW = 0.40
"""Share of the SLO's bound, published."""
BACKLOG = 1.5
"""Seconds of prefill that a replica may have waiting, published."""


@dataclass(slots=True)
class LatencyRatio:
    """The worst P90 over its bound, a mean of 45 s, and the formula that KEDA makes replicas of it with.

    Its queries end in `or vector(0)`, so a lost scrape looks idle.
    """

    up_above: float = UP_ABOVE
    down_below: float = DOWN_BELOW
    _history: History = field(default_factory=lambda: History(60.0), init=False)
    """Its recording rules take bucket rates over a minute, every 15 s."""
    _signal: Means = field(default_factory=lambda: Means(45.0), init=False)

    QUANTILE = 0.9
    CLAMP = 2.0

    def wish(self, observation: Observation, pool: Pool, now: float) -> Wish:
        """One evaluation of its recording rules and its formula, which credits loading pods."""
        signal = self._mean_signal(observation, pool, now)
        n, r = observation.requested, len(observation.ready)
        wanted = n
        credit = r / n if 0 < r < n else 1.0
        if signal > self.up_above:
            wanted = n + math.ceil(n * (signal * credit / self.up_above - 1))
        elif signal < self.down_below:
            wanted = n - math.floor(n * (1 - signal / self.down_below))
        wanted = average_value(max(wanted, 0), 1.0, n)
        return Wish(wanted, f"worst P90 at {signal:.2f} of its bound wants {wanted}")

    def _mean_signal(self, observation: Observation, pool: Pool, now: float) -> float:
        self._history.add(now, observation)
        slo = pool.slo
        ratios = [
            histogram_quantile(self.QUANTILE, self._history.observed(name)) / bound
            for name, bound in (
                ("time_to_first_token", slo.time_to_first_token),
                ("time_per_output_token", slo.time_per_output_token),
            )
            if bound is not None
        ]
        self._signal.add(now, min(max(ratios), self.CLAMP))
        return self._signal.over(45.0)


def slo_aware(up_above: float = UP_ABOVE) -> Hpa:
    """Up max(100%, 4 pods) a minute after 30 s, down 1 pod in 120 s after 180 s.

    The threshold to go down keeps its proportion to the one to go up.
    """
    return Hpa(
        "llm-d slo-aware" if up_above == UP_ABOVE else f"llm-d slo-aware, {up_above:g}",
        (LatencyRatio(up_above, up_above * DOWN_BELOW / UP_ABOVE),),
        Configured(
            up=(Limit(60.0, percent=100), Limit(60.0, pods=4)),
            down=(Limit(120.0, pods=1),),
            up_window=30.0,
            down_window=180.0,
        ),
        every_bucket=True,
    )


@dataclass(slots=True)
class PrefillBacklog:
    """Prompt tokens that were dispatched and have not been computed, as seconds of one replica's prefill.

    llm-d's router counts them; what an engine shows of them is its queue, so it is waiting requests times the mean
    prompt of the last five minutes.
    """

    prefill_rate: float
    """Prompt tokens/s of one replica, measured by its user."""
    seconds: float
    """Of backlog that a replica may have."""
    _history: History = field(default_factory=lambda: History(300.0), init=False)

    def wish(self, observation: Observation, pool: Pool, now: float) -> Wish:  # noqa: ARG002, the protocol
        """The fleet's backlog over what one replica may have; nothing reads as 0 (`or vector(0)`)."""
        self._history.add(now, observation)
        backlog = or_zero(total(observation, "waiting")) * self._history.mean_prompt() / self.prefill_rate
        wanted = average_value(backlog, self.seconds, observation.requested)
        return Wish(wanted, f"{backlog:.1f} s of prefill over {self.seconds:g} s a replica wants {wanted}")


@dataclass(frozen=True, slots=True)
class KvInUse:
    """`sum(vllm:kv_cache_usage_perc)`: replicas' worth of full KV cache."""

    target: float = 0.8

    def wish(self, observation: Observation, pool: Pool, now: float) -> Wish:  # noqa: ARG002, the protocol
        """The sum over the target; nothing reads as 0 (`or vector(0)`)."""
        value = or_zero(total(observation, "kv_cache_usage"))
        wanted = average_value(value, self.target, observation.requested)
        return Wish(wanted, f"{value:.2f} KV caches full over {self.target:g} a replica wants {wanted}")


@dataclass(frozen=True, slots=True)
class Queued:
    """Requests in the flow control queue of llm-d's router; without a gateway, in the engines' own."""

    target: float = 1.0

    def wish(self, observation: Observation, pool: Pool, now: float) -> Wish | Unknown:  # noqa: ARG002, the protocol
        """The queue over the target."""
        queued = observation.gateway.queue
        value = total(observation, "waiting") if isinstance(queued, Unknown) else queued
        if isinstance(value, Unknown):
            return value
        wanted = average_value(value, self.target, observation.requested)
        return Wish(wanted, f"{value:g} queued over {self.target:g} a replica wants {wanted}")


def token_aware(prefill_rate: float, seconds: float = BACKLOG) -> Hpa:
    """The higher of prefill backlog and KV use; up 1 pod in 180 s, down 1 pod in 300 s after 300 s, as published."""
    return Hpa(
        "llm-d token-aware" if seconds == BACKLOG else f"llm-d token-aware, {seconds:g} s",
        (PrefillBacklog(prefill_rate, seconds), KvInUse()),
        Configured(up=(Limit(180.0, pods=1),), down=(Limit(300.0, pods=1),)),
    )


def queue(running: float = RUNNING) -> Hpa:
    """The higher of queue and running requests; doubling at most, both windows 300 s, as published."""
    return Hpa(
        "llm-d queue" if running == RUNNING else f"llm-d queue, {running:g} running",
        (Queued(), SumPerReplica("running", running)),
        Configured(up=(Limit(15.0, percent=100),), down=DOWN, up_window=300.0),
    )
