"""A history as `servingpool record` writes it, made by a simulated fleet."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from servingpool.backtest.recording import Chunk, Header, encode, encode_header
from servingpool.decision.observation import Observation, ReplicaMetrics, Unknown
from servingpool.decision.pool import Pool
from servingpool.decision.slo import Slo
from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.policies import Answer, Policy, Static
from servingpool_simulation.run import Result, SimulationOptions, simulate
from servingpool_simulation.scrape import EPOCH, ScrapeOptions
from servingpool_simulation.traces import Trace

SLO = Slo(2.0, 0.15)


def header_of(begin: float, end: float, gpus: int = 4) -> Header:
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
        bounds=(1, 16),
    )


@dataclass
class Recorder:
    """Notes what a policy sees."""

    policy: Policy
    every_bucket: bool = True
    samples: list[tuple[float, ReplicaMetrics]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.policy.name

    @property
    def every(self) -> float:
        return self.policy.every

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        self.note(observation, now)
        return self.policy.decide(observation, pool, now)

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:
        self.note(observation, now)
        self.policy.learn(observation, pool, now)

    def note(self, observation: Observation, now: float) -> None:
        if not isinstance(observation.metrics, Unknown):
            self.samples += [(now, one) for one in observation.metrics]


def recorded(
    trace: Trace, profile: EngineProfile, replicas: int, *, interval: float = 15.0, history: float = 0.0
) -> tuple[Header, list[Chunk], Result]:
    """The history of a fixed fleet, in chunks of an hour, and what was true of it."""
    recorder = Recorder(Static(replicas))
    options = SimulationOptions(
        scrape=ScrapeOptions(interval=interval), initial_replicas=replicas, history=history, seed=0
    )
    result = simulate(trace, profile, Pool(SLO, 1, 16), recorder, options)
    header = header_of(EPOCH, EPOCH + trace.duration, profile.gpus)
    chunks, begin = [], EPOCH
    while begin < header.end:
        end = min(begin + 3600.0, header.end)
        chunks.append(Chunk.of(begin, end, [one for at, one in recorder.samples if begin < at <= end]))
        begin = end
    return header, chunks, result


def write(path: Path, header: Header, chunks: list[Chunk]) -> None:
    path.write_bytes(encode_header(header) + b"".join(map(encode, chunks)))
