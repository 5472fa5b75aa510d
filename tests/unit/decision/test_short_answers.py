"""Requests that ask for a few tokens each: their work is learned, whatever the number of output tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from servingpool.decision.decide import Outcome, decide
from servingpool.decision.learn.memory import Memory
from servingpool.decision.observation import Histogram, Observation, Replica, ReplicaMetrics, Unknown
from servingpool.decision.pool import Pool, Slo

START, SCRAPE, COLD_START = 1_700_000_000.0, 15.0, 120.0
POOL = Pool(Slo(time_to_first_token=2.5), min_replicas=1, max_replicas=8)


@dataclass
class Overloaded:
    """Replicas of which each begins 12 requests of 6,000 prompt tokens a scrape, while 120 arrive in all."""

    output: float
    """Tokens of an answer."""
    now: float = START
    memory: Memory = field(default_factory=Memory)
    ready: list[str] = field(default_factory=lambda: ["vllm-0"])
    ordered: list[float] = field(default_factory=list)
    begun: dict[str, float] = field(default_factory=dict)
    waiting: dict[str, float] = field(default_factory=dict)

    def page(self, name: str) -> ReplicaMetrics:
        begun = self.begun[name]
        decoded = (self.output - 1.0) * begun
        return ReplicaMetrics(
            name,
            self.now,
            running=10.0,
            waiting=self.waiting[name],
            generation_tokens=self.output * begun,
            prompt_tokens=6000.0 * begun,
            time_to_first_token=Histogram((2.5,), (0.0,), 10.0 * begun, begun),
            inter_token_latency=Histogram((0.1,), (0.0,), 1.0 * decoded, decoded),
            time_per_output_token=Histogram((0.1,), (0.0,), 1.0 * begun, begun),
        )

    def tick(self) -> Outcome:
        self.now += SCRAPE
        due = [at for at in self.ordered if self.now - at >= COLD_START]
        self.ready += [f"vllm-{at:.0f}-{number}" for number, at in enumerate(due)]
        self.ordered = [at for at in self.ordered if at not in due]
        for name in self.ready:
            self.begun[name] = self.begun.get(name, 0.0) + 12.0
            self.waiting[name] = max(0.0, self.waiting.get(name, 0.0) + 120.0 / len(self.ready) - 12.0)
        observation = Observation(
            requested=len(self.ready) + len(self.ordered),
            ready=tuple(Replica(name, 9e3, 8e3) for name in self.ready),
            starting=tuple(Replica(f"new-{number}", self.now - at) for number, at in enumerate(self.ordered)),
            metrics=tuple(map(self.page, self.ready)),
        )
        outcome = decide(observation, POOL, self.memory, self.now)
        self.memory = outcome.memory
        self.ordered += [self.now] * (outcome.decision.replicas - observation.requested)
        return outcome


@pytest.mark.parametrize("output", [1.0, 1.25, 2.0, 3.5, 5.0, 6.0])
def test_the_work_of_an_answer_of_any_length_is_learned_while_a_queue_grows(output: float) -> None:
    world = Overloaded(output)
    decisions = [world.tick().decision for _ in range(40)]
    assert not any(isinstance(one.need, Unknown) for one in decisions[2:])
    # A replica serves 12 of them a scrape at most, and 120 arrive: all 8 that there may be.
    assert decisions[-1].replicas == 8
    assert decisions[-1].figures.work_per_request == pytest.approx(SCRAPE / 12.0, rel=0.25)
