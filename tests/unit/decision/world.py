"""A pool that behaves exactly as the step-time model says, on virtual time: a few lines to tell stories with."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from servingpool.decision.decide import Outcome, decide
from servingpool.decision.engine import StepTime
from servingpool.decision.learn.memory import Memory
from servingpool.decision.observation import Histogram, Observation, Replica, ReplicaMetrics, Unknown
from servingpool.decision.observe.columns import SUMS, Column
from servingpool.decision.observe.counters import CounterDelta
from servingpool.decision.observe.samples import Buckets
from servingpool.decision.pool import Pool, Slo

START = 1_700_000_000.0
ENGINE = StepTime(base=0.016, per_request=0.00008, per_prefill_token=0.00007)
POOL = Pool(slo=Slo(time_to_first_token=2.0, time_per_output_token=0.1), min_replicas=1, max_replicas=10)
TTFT_BOUNDS, TPOT_BOUNDS = (1.0, 2.5), (0.05, 0.1, 0.15)


def counted(sums: Mapping[Column, float], buckets: Buckets, *, tick: float = 15.0) -> CounterDelta:
    """What one replica counted in a tick of so many seconds, by place; 0 of all other figures."""
    figures = tuple(sums.get(place, 0.0) for place in list(Column)[:SUMS])
    return CounterDelta(figures, tick, running=1.0, coverage=1.0, buckets=buckets, interval=tick)


@dataclass
class Engine:
    """One replica's cumulative metrics under smooth load."""

    name: str
    ready_at: float
    requests: float = 0.0
    late: float = 0.0
    first_token_seconds: float = 0.0
    decode_seconds: float = 0.0
    decode_steps: float = 0.0
    prompt: float = 0.0
    output: float = 0.0
    waiting: float = 0.0
    running: float = 10.0

    def serve(self, rate: float, seconds: float, prompt: float, output: float) -> None:
        work = ENGINE.work(prompt, output)
        backlog = self.waiting + rate * seconds
        served = min(backlog, 0.97 * seconds / work)
        queued, self.waiting = self.waiting, backlog - served
        load = served * work / seconds
        itl = ENGINE.base / (1.0 - load)
        self.requests += served
        late = served if queued * work > 2.0 else served * 0.002
        self.late += late
        self.first_token_seconds += served * (0.3 + queued * work) + late * TTFT_BOUNDS[-1]
        self.decode_steps += served * output
        self.decode_seconds += served * output * itl
        self.prompt += served * prompt
        self.output += served * output

    def page(self, now: float) -> ReplicaMetrics:
        on_time = self.requests - self.late
        return ReplicaMetrics(
            replica=self.name,
            scraped_at=now,
            running=self.running,
            waiting=self.waiting,
            kv_cache_usage=0.3,
            generation_tokens=self.output,
            prompt_tokens=self.prompt,
            time_to_first_token=Histogram(TTFT_BOUNDS, (on_time, on_time), self.first_token_seconds, self.requests),
            inter_token_latency=Histogram((0.1,), (self.decode_steps,), self.decode_seconds, self.decode_steps),
            time_per_output_token=Histogram(TPOT_BOUNDS, (self.requests,) * 3, self.requests * 0.03, self.requests),
        )


class Batched(Engine):
    """An engine that serves all at once; 40 requests run while any come, and none while none does."""

    def serve(self, rate: float, seconds: float, prompt: float, output: float) -> None:
        served = rate * seconds
        self.requests += served
        self.first_token_seconds += 0.5 * served
        self.decode_steps += served * (output - 1.0)
        self.decode_seconds += 0.045 * served * (output - 1.0)
        self.prompt += prompt * served
        self.output += output * served
        self.running = 40.0 if served else 0.0


@dataclass
class World:
    """Engines, a clock and the pool's memory. `tick` serves for 15 s, observes and decides."""

    pool: Pool = POOL
    replicas: int = 2
    cold_start: float = 100.0
    obey: bool = True
    now: float = START
    memory: Memory = field(default_factory=Memory)
    engines: list[Engine] = field(default_factory=list)
    ordered: list[float] = field(default_factory=list)
    away: list[Engine] = field(default_factory=list)
    """Not Ready, though they served."""
    lost: set[str] = field(default_factory=set)
    blind: bool = False
    rollout: bool = False
    unschedulable: bool = False
    failing: bool = False
    """Every request misses, whatever the load."""
    serial: int = 0

    def __post_init__(self) -> None:
        self.engines = [self._engine(self.now - 3600.0) for _ in range(self.replicas)]

    def _engine(self, ready_at: float) -> Engine:
        self.serial += 1
        return Engine(f"vllm-{self.serial}", ready_at)

    @property
    def requested(self) -> int:
        return len(self.engines) + len(self.away) + len(self.ordered)

    def observation(self) -> Observation:
        ready = tuple(
            Replica(e.name, age=self.now - e.ready_at + self.cold_start, ready_for=self.now - e.ready_at)
            for e in self.engines
        )
        starting = tuple(
            Replica(f"new-{i}", age=self.now - at, unschedulable=self.unschedulable)
            for i, at in enumerate(self.ordered)
        )
        pages = tuple(e.page(self.now) for e in self.engines if e.name not in self.lost)
        return Observation(
            requested=self.requested,
            ready=ready,
            starting=(*starting, *(Replica(e.name, age=self.now - e.ready_at) for e in self.away)),
            metrics=Unknown("Prometheus did not answer") if self.blind else pages,
            rollout=self.rollout,
        )

    def tick(self, rate: float, *, seconds: float = 15.0, prompt: float = 1000.0, output: float = 200.0) -> Outcome:
        for engine in self.engines:
            on_time = engine.requests - engine.late
            engine.serve(rate / max(len(self.engines), 1), seconds, prompt, output)
            if self.failing:
                engine.first_token_seconds += 3.0 * (engine.requests - engine.late - on_time)
                engine.late = engine.requests - on_time
        self.now += seconds
        if not self.unschedulable:
            due = [at for at in self.ordered if self.now >= at + self.cold_start]
            self.ordered = [at for at in self.ordered if at not in due]
            self.engines += [self._engine(self.now) for _ in due]
        outcome = decide(self.observation(), self.pool, self.memory, self.now)
        self.memory = outcome.memory
        if self.obey:
            self.scale(outcome.decision.replicas)
        return outcome

    def scale(self, replicas: int) -> None:
        while self.requested > replicas:
            (self.ordered or self.engines).pop()
        self.ordered += [self.now] * (replicas - self.requested)

    def run(self, rate: float, minutes: float, **mix: float) -> list[Outcome]:
        return [self.tick(rate, **mix) for _ in range(int(minutes * 4))]


class AtOnce(World):
    """A world whose engines are `Batched`."""

    def _engine(self, ready_at: float) -> Engine:
        engine = super()._engine(ready_at)
        return Batched(engine.name, engine.ready_at, running=0.0)


def restored(memory: Memory) -> Memory:
    """The memory, written and read again."""
    copy = pickle.loads(pickle.dumps(memory))
    assert isinstance(copy, Memory)
    return copy


def plain(value: Any) -> Any:
    """All figures of a memory, so that two can be compared: in a tuple, NaN equals no other NaN."""
    if is_dataclass(value):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value) if one.init and one.compare}
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return str(value.tolist())
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def applied(outcome: Outcome) -> set[str]:
    """Names of the limits that changed the answer."""
    return {limit.name for limit in outcome.decision.limits}
