"""A history as `servingpool record` writes it, made by a simulated fleet: whose truth is known."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from servingpool.decision.observation import Observation, ReplicaMetrics, Unknown
from servingpool.decision.pool import Pool
from servingpool.recording.format import Chunk, Header
from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.policies import Answer, Policy, Wrapped
from servingpool_simulation.run import Result, SimulationOptions, simulate
from servingpool_simulation.scrape import EPOCH
from servingpool_simulation.traces import Trace

CHUNK = 3600.0
"""Seconds."""


@dataclass(slots=True)
class Recorder(Wrapped):
    """Notes what a policy sees, every bucket of it."""

    samples: list[tuple[float, ReplicaMetrics]] = field(default_factory=list)

    @property
    def every_bucket(self) -> bool:
        return True

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        self._note(observation, now)
        return self.policy.decide(observation, pool, now)

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:
        self._note(observation, now)
        self.policy.learn(observation, pool, now)

    def _note(self, observation: Observation, now: float) -> None:
        if not isinstance(observation.metrics, Unknown):
            self.samples += [(now, one) for one in observation.metrics]


def header_of(begin: float, end: float, gpus: int = 4, most: int = 16) -> Header:
    """Of chat/llama."""
    return Header(
        namespace="chat",
        target="llama",
        engine="vllm",
        model="llama",
        begin=begin,
        end=end,
        step=15.0,
        gpus=gpus,
        starts=(100.0,),
        bounds=(1, most),
    )


def recorded(
    trace: Trace,
    profile: EngineProfile,
    pool: Pool,
    policy: Policy,
    options: SimulationOptions,
    outages: Collection[tuple[float, float]] = (),
) -> tuple[Header, list[Chunk], Result]:
    """What Prometheus keeps of a policy's run, and the run. `outages`: (begin, end) seconds without a scrape."""
    recorder = Recorder(policy)
    result = simulate(trace, profile, pool, recorder, options)
    header = header_of(EPOCH, EPOCH + trace.duration, profile.gpus, pool.max_replicas)
    seen = [
        (at, one)
        for at, one in recorder.samples
        if not any(begin <= one.scraped_at - EPOCH < end for begin, end in outages)
    ]
    chunks, begin = [], header.begin
    while begin < header.end:
        end = min(begin + CHUNK, header.end)
        chunks.append(Chunk.of(begin, end, [one for at, one in seen if begin < at <= end]))
        begin = end
    return header, chunks, result
