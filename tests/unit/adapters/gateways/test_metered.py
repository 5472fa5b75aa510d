"""Engines that export nothing, as Ollama: the gateway's figures scale the pool, and what it does not tell is unknown."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from servingpool.adapters.gateways.completed import NOTHING, Completing, completed
from servingpool.adapters.gateways.metered import NO_FLIGHT, NO_LIMIT, Shares, with_shares
from servingpool.catalogue.limits import LimitName
from servingpool.decision.decide import decide
from servingpool.decision.decision import Decision
from servingpool.decision.learn.memory import Memory
from servingpool.decision.observation import (
    NOT_EXPOSED,
    GatewayMetrics,
    Histogram,
    Observation,
    Reading,
    Replica,
    ReplicaMetrics,
    Unknown,
)
from servingpool.decision.observe.lateness import Witness
from servingpool.decision.pool import Pool, Slo, Target

START, TICK, SECOND = 1_700_000_000.0, 15.0, 0.1
SLO = Slo(time_to_first_token=2.0, time_per_output_token=0.1, at_gateway=True)
TOKENS, PER_TOKEN, PREFILL, SLOTS = 50, 0.02, 0.1, 2
COLD_START = 45.0


@dataclass
class World:
    """Replicas with two slots each and one queue before them; the gateway counts a request when it ends."""

    rate: float
    now: float = START
    ready: list[float] = field(default_factory=lambda: [START - 3600.0])
    """When each replica became Ready."""
    ordered: list[float] = field(default_factory=list)
    """When each of those that start was created."""
    queue: list[float] = field(default_factory=list)
    """When each request that waits came."""
    running: list[tuple[float, float]] = field(default_factory=list)
    """When each ends, and its TTFT."""
    due: float = 0.0
    ended: float = 0.0
    first: list[float] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    before: Completing = NOTHING
    flight: Unknown | None = None
    """Why requests in flight are not told."""
    pool: Pool = field(default_factory=lambda: Pool(SLO, 1, 8, targets=(Target(batch_limit=SLOTS),)))

    def serve(self, seconds: float) -> None:
        for _ in range(round(seconds / SECOND)):
            self.now += SECOND
            while self.ordered and self.now >= self.ordered[0] + COLD_START:
                self.ordered.pop(0)
                self.ready.append(self.now)
            self.due += self.rate * SECOND
            while self.due >= 1.0:
                self.due -= 1.0
                self.queue.append(self.now)
            over = [ttft for end, ttft in self.running if end <= self.now]
            self.running = [one for one in self.running if one[0] > self.now]
            self.ended += len(over)
            self.first += over
            while self.queue and len(self.running) < SLOTS * len(self.ready):
                ttft = self.now - self.queue.pop(0) + PREFILL
                self.running.append((self.now + PREFILL + TOKENS * PER_TOKEN, ttft))

    def gateway(self) -> GatewayMetrics:
        bounds = (0.5, 1.0, 2.0, 5.0)
        counts = tuple(float(sum(one <= bound for one in self.first)) for bound in bounds)
        seconds, tokens = self.ended * (TOKENS - 1) * PER_TOKEN, self.ended * TOKENS
        return GatewayMetrics(
            scraped_at=self.now,
            arrivals=self.ended,
            time_to_first_token=Histogram(bounds, counts, sum(self.first), self.ended) if self.first else NOT_EXPOSED,
            in_flight=float(len(self.queue) + len(self.running)) if self.flight is None else self.flight,
            generation_tokens=tokens if self.ended else NOT_EXPOSED,
            prompt_tokens=100.0 * self.ended if self.ended else NOT_EXPOSED,
            inter_token_latency=Histogram((), (), seconds, tokens - self.ended) if self.ended else NOT_EXPOSED,
        )

    def observation(self) -> Observation:
        ready = tuple(
            Replica(f"ollama-{at:.0f}-{number}", self.now - at + COLD_START, self.now - at)
            for number, at in enumerate(self.ready)
        )
        starting = tuple(Replica(f"new-{at:.0f}", self.now - at) for at in self.ordered)
        replicas = len(self.ready) + len(self.ordered)
        return Observation(replicas, ready, starting, (), self.gateway(), metered=True)

    def step(self, *, minutes: float, scale: bool = True) -> Decision:
        for _ in range(round(minutes * 60 / TICK)):
            self.serve(TICK)
            observation, self.before = completed(self.observation(), SLOTS, self.before, self.now)
            decision, self.memory = decide(observation, self.pool, self.memory, self.now)
            if scale:
                self.scale(decision.replicas)
        return decision

    def scale(self, replicas: int) -> None:
        while len(self.ready) + len(self.ordered) > replicas:
            (self.ordered or self.ready).pop()
        self.ordered += [self.now] * (replicas - len(self.ready) - len(self.ordered))


def test_a_pool_grows_with_the_load_and_shrinks_again_by_the_gateways_figures_alone() -> None:
    """One replica serves 1.8 requests/s."""
    world = World(rate=0.6)
    assert world.step(minutes=20).replicas == 1
    world.rate = 5.0
    peak = world.step(minutes=20)
    assert 3 <= peak.need <= 6
    assert not world.queue
    assert peak.figures.arrivals == pytest.approx(5.0, rel=0.1)
    assert peak.figures.generation_rate == pytest.approx(5.0 * TOKENS, rel=0.1)
    world.rate = 0.6
    assert world.step(minutes=20).replicas < peak.replicas
    assert not world.queue


def test_requests_in_flight_beyond_the_slots_of_the_ready_replicas_are_the_queue() -> None:
    world = World(rate=4.0)
    decision = world.step(minutes=2, scale=False)
    assert decision.figures.queue == len(world.queue) > 0
    assert decision.figures.running == SLOTS
    assert decision.figures.longest_wait == pytest.approx(world.now - world.queue[0], abs=TICK)


def test_the_slo_is_judged_by_the_clients_ttft() -> None:
    world = World(rate=2.2)
    figures = world.step(minutes=15, scale=False).figures
    assert figures.witness == Witness.GATEWAY
    late = sum(one > SLO.time_to_first_token for one in world.first) / len(world.first)
    assert not isinstance(figures.attainment, Unknown)
    assert figures.attainment == pytest.approx(1.0 - late, abs=0.1)


def test_arrivals_are_counted_when_they_come_though_the_gateway_counts_them_when_they_end() -> None:
    """A queue grows by two requests/s: the gateway's own count tells of 1.8 of 4."""
    assert World(rate=4.0).step(minutes=3, scale=False).figures.arrivals == pytest.approx(4.0, rel=0.1)


def test_without_a_count_of_requests_in_flight_nothing_is_removed_and_lateness_still_adds_replicas() -> None:
    world = World(rate=0.6, flight=NOT_EXPOSED)
    world.ready *= 4
    calm = world.step(minutes=40)
    assert calm.replicas == 4
    assert LimitName.QUEUE_UNKNOWN in {one.name for one in calm.limits}
    assert isinstance(calm.figures.queue, Unknown)
    assert isinstance(calm.figures.running, Unknown)
    world.rate = 12.0
    assert world.step(minutes=20).replicas > 4


def test_a_pool_without_any_request_goes_to_its_min_once_that_is_certain() -> None:
    world = World(rate=1.0)
    world.ready *= 4
    world.step(minutes=5, scale=False)
    world.rate = 0.0
    decision = world.step(minutes=25)
    assert decision.replicas == 1
    assert "no request in the last 20 minutes" in decision.reason


# One replica's share


def seen(arrivals: float, *ready_for: float, at: float = START, flight: Reading = 0.0, **told: Reading) -> Observation:
    """After so many requests of 10 tokens, all on time, with replicas Ready for so many seconds."""
    gateway = GatewayMetrics(
        scraped_at=at,
        arrivals=arrivals,
        time_to_first_token=Histogram((2.0,), (arrivals,), 0.5 * arrivals, arrivals),
        in_flight=flight,
        generation_tokens=10.0 * arrivals,
        prompt_tokens=100.0 * arrivals,
        inter_token_latency=Histogram((), (), 0.2 * arrivals, 9.0 * arrivals),
    )
    ready = tuple(Replica(f"{number}", 9_999.0, seconds) for number, seconds in enumerate(ready_for))
    return Observation(len(ready), ready, metrics=(), gateway=replace(gateway, **told), metered=True)  # type: ignore[arg-type]


def shared(*observations: Observation, limit: float = 2.0) -> tuple[tuple[ReplicaMetrics, ...], GatewayMetrics]:
    shares: Shares | None = None
    for one in observations:
        filled, shares = with_shares(one, limit, shares)
    assert not isinstance(filled.metrics, Unknown)
    return filled.metrics, filled.gateway


def test_each_ready_replica_has_an_even_share_of_what_was_counted_since_the_last_scrape() -> None:
    samples, _ = shared(seen(1000.0, 900.0, 900.0), seen(1030.0, 900.0, 900.0, at=START + TICK))
    assert [one.begun for one in samples] == [15.0, 15.0]
    assert [one.generation_tokens for one in samples] == [150.0, 150.0]
    assert samples[0].time_to_first_token == Histogram((2.0,), (15.0,), 7.5, 15.0)
    assert samples[0].inter_token_latency == samples[0].time_per_output_token == Histogram((), (), 3.0, 135.0)


def test_a_replica_that_was_ready_for_a_third_of_the_time_has_served_a_third_of_a_share() -> None:
    samples, _ = shared(seen(0.0, 900.0), seen(40.0, 915.0, 5.0, at=START + TICK))
    assert samples[0].begun == pytest.approx(30.0)


def test_nothing_is_lost_of_what_came_while_the_gateway_was_not_read() -> None:
    blind = replace(seen(0.0, 915.0), metrics=Unknown("did not answer"))
    samples, _ = shared(seen(0.0, 900.0), blind, seen(60.0, 930.0, at=START + 2 * TICK))
    assert samples[0].begun == 60.0


def test_a_reader_that_starts_anew_makes_no_surge_and_no_negative_count() -> None:
    samples, _ = shared(seen(5_000.0, 900.0), seen(0.0, 915.0, at=START + TICK), seen(8.0, 930.0, at=START + 2 * TICK))
    assert samples[0].begun == 8.0


def test_figures_that_one_scrape_lacks_are_no_surge_once_they_are_there_again() -> None:
    none = {"generation_tokens": NOT_EXPOSED, "prompt_tokens": NOT_EXPOSED, "inter_token_latency": NOT_EXPOSED}
    lacking = seen(5_001.0, 915.0, at=START + TICK, **none)  # LiteLLM anew, and its first request has failed
    samples, _ = shared(seen(5_000.0, 900.0), lacking, seen(5_008.0, 930.0, at=START + 2 * TICK))
    assert (samples[0].generation_tokens, samples[0].prompt_tokens) == (80.0, 800.0)
    between = samples[0].inter_token_latency
    assert isinstance(between, Histogram)
    assert (between.total, between.count) == (pytest.approx(1.6), 72.0)


def test_what_is_in_flight_has_begun_unless_it_waits() -> None:
    samples, gateway = shared(seen(0.0, 900.0), seen(10.0, 915.0, at=START + TICK, flight=5.0))
    assert (samples[0].begun, samples[0].running, gateway.queue) == (12.0, 2.0, 3.0)


@pytest.mark.parametrize(
    ("flight", "limit", "reason"),
    [
        (NOT_EXPOSED, 2.0, NO_FLIGHT),
        (Unknown("several models"), 2.0, Unknown("several models")),
        (5.0, float("inf"), NO_LIMIT),
    ],
)
def test_a_queue_that_cannot_be_told_is_unknown_and_not_empty(flight: Reading, limit: float, reason: Unknown) -> None:
    samples, gateway = shared(seen(10.0, 900.0, flight=flight), limit=limit)
    assert gateway.queue == reason
    assert samples[0].waiting is NOT_EXPOSED


def test_figures_of_answers_are_empty_before_the_first_one_and_missing_after_it() -> None:
    samples, _ = shared(seen(0.0, 900.0, generation_tokens=NOT_EXPOSED, time_to_first_token=NOT_EXPOSED))
    assert (samples[0].generation_tokens, samples[0].time_to_first_token) == (0.0, Histogram((), (), 0.0, 0.0))
    samples, _ = shared(seen(10.0, 900.0, time_to_first_token=NOT_EXPOSED))
    assert samples[0].time_to_first_token is NOT_EXPOSED, "no request streamed"
