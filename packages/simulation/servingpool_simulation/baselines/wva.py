"""llm-d's Workload Variant Autoscaler 0.9 (deprecated) with its token-based saturation analyzer, and the HPA on it."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import fmean, median

from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool
from servingpool_simulation.baselines.behavior import Configured, Limit
from servingpool_simulation.baselines.readings import History, gauges, or_zero
from servingpool_simulation.baselines.rules import average_value
from servingpool_simulation.policies import TICK, Answer

SCALE_UP = 0.85
"""Share of the supply that the demand may take before it grows."""


@dataclass(slots=True)
class Saturation:
    """KV tokens in use and queued, against what a replica has shown that it can hold.

    The controller publishes the replicas it wants as a gauge. An HPA reads it at its next sync, so a load shows in
    the fleet about 25 s later on average.
    """

    kv_tokens: int
    """Of one replica, as vLLM's cache_config_info tells."""
    scale_up: float = SCALE_UP
    every_bucket: bool = field(default=False, init=False)
    every: float = field(default=TICK, init=False)
    _lengths: History = field(default_factory=lambda: History(300.0), init=False)
    _peaks: deque[tuple[float, dict[str, float], dict[str, float]]] = field(default_factory=deque, init=False)
    """(when, KV use, queue) by replica: it reads the highest of the last minute."""
    _learned: deque[float] = field(default_factory=lambda: deque(maxlen=10), init=False)
    """KV tokens that were in use on replicas with a queue: more they cannot serve at once."""
    _gauge: int | None = field(default=None, init=False)
    _behavior: Configured = field(init=False)

    SCALE_DOWN = 0.70
    KV_THRESHOLD = 0.80
    QUEUE_THRESHOLD = 5
    PEAK_WINDOW = 60.0
    """Seconds."""

    def __post_init__(self) -> None:
        ten = (Limit(150.0, pods=10),)
        self._behavior = Configured(up=ten, down=ten, down_window=240.0)

    @property
    def name(self) -> str:
        """Such as `llm-d WVA, 0.85`."""
        return f"llm-d WVA, {self.scale_up:g}"

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        """One loop of the controller, and one sync of the HPA on what the loop before published."""
        published, current = self._gauge, observation.requested
        self._gauge = self._analyze(observation, now)
        if published is None or current == 0:
            return Answer(current, "nothing is published yet")
        wanted = average_value(float(published), 1.0, current)
        return Answer(self._behavior.order(wanted, current, pool, now), f"WVA published {published}")

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:  # noqa: ARG002, the protocol
        """The controller looks on, whoever is in charge."""
        self._gauge = self._analyze(observation, now)

    def _analyze(self, observation: Observation, now: float) -> int | None:
        """Replicas to have, loading ones among them; what it said before without metrics."""
        self._lengths.add(now, observation)
        self._peaks.append((now, gauges(observation, "kv_cache_usage"), gauges(observation, "waiting")))
        while self._peaks[0][0] <= now - self.PEAK_WINDOW:
            self._peaks.popleft()
        replicas = [name for name in self._peaks[-1][1] if name in self._peaks[-1][2]]
        if not replicas:
            return self._gauge
        length = self._lengths.mean_prompt() + self._lengths.mean_output()
        demand, capacities = or_zero(observation.gateway.queue) * length, []
        for replica in replicas:
            used = self.kv_tokens * max(usage[replica] for _, usage, _ in self._peaks if replica in usage)
            queued = max(waiting[replica] for _, _, waiting in self._peaks if replica in waiting)
            demand += used + queued * length
            capacities.append(self._capacity(used, queued))
        each = median(capacities)
        ready, pending = len(observation.ready), len(observation.starting)
        required = demand / self.scale_up - (ready + pending) * each
        spare = ready * each - demand / self.SCALE_DOWN
        change = math.ceil(required / each) if required > 0 else -math.floor(max(0.0, spare) / each)
        return max(1, ready + pending + change)

    def _capacity(self, used: float, queued: float) -> float:
        """KV tokens that a replica can serve at once: bound by memory, or by what it had in use when it queued."""
        compute = used
        if queued >= self.QUEUE_THRESHOLD and used > 0:
            self._learned.append(used)
        else:
            compute = fmean(self._learned) if self._learned else math.inf
        return min(self.KV_THRESHOLD * self.kv_tokens, compute)
