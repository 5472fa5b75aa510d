"""Which requests are late, by what the last minutes' rows say."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from servingpool.decision.decide import Outcome, decide
from servingpool.decision.learn.memory import Memory
from servingpool.decision.observation import Histogram, Observation, Replica, ReplicaMetrics
from servingpool.decision.pool import Pool, Slo

START, TICK = 1_700_000_000.0, 15.0
POOL = Pool(Slo(time_to_first_token=2.0, time_per_output_token=0.02), min_replicas=1, max_replicas=1)


@dataclass
class OneReplica:
    """Requests that begin and end within a tick, all with the same time per output token."""

    tokens: float
    """Of an answer."""
    pool: Pool = POOL
    now: float = START
    requests: float = 0.0
    steps: float = 0.0
    decoding: float = 0.0
    memory: Memory = field(default_factory=Memory)
    by_token: bool = False
    """TPOT is observed once a token, not once a request."""
    late_first: float = 0.0
    """First tokens beyond the bound so far."""

    def tick(self, requests: float, each: float = 0.0, *, late: bool = False) -> Outcome:
        """`each` seconds for a token after the first, which is `late` or not."""
        self.now += TICK
        self.late_first += requests * late
        self.requests += requests
        self.steps += requests * (self.tokens - 1.0)
        self.decoding += requests * (self.tokens - 1.0) * each
        counted = self.requests
        page = ReplicaMetrics(
            replica="pod",
            scraped_at=self.now,
            running=0.0,
            waiting=0.0,
            generation_tokens=self.steps + counted,
            prompt_tokens=100.0 * counted,
            time_to_first_token=Histogram((1.0, 2.0), (counted - self.late_first,) * 2, 0.1 * counted, counted),
            inter_token_latency=Histogram((), (), self.decoding, self.steps),
            time_per_output_token=self.tpot(),
        )
        observed = Observation(requested=1, ready=(Replica("pod", 9_999.0, 9_000.0),), metrics=(page,))
        outcome = decide(observed, self.pool, self.memory, self.now)
        self.memory = outcome.memory
        return outcome

    def tpot(self) -> Histogram:
        """All within the bucket that holds the bound, but one token in a hundred."""
        if not self.by_token:
            return Histogram((0.01, 0.025), (0.0, self.requests), 0.02 * self.requests, self.requests)
        return Histogram((0.01, 0.025), (0.0, 0.99 * self.steps), 0.02 * self.steps, self.steps)


@pytest.mark.parametrize("by_token", [False, True])
def test_tokens_that_are_counted_one_by_one_are_not_taken_for_requests(by_token: bool) -> None:
    replica = OneReplica(tokens=200.0, by_token=by_token)
    figures = [replica.tick(30.0, 0.014) for _ in range(16)][-1].decision.figures
    # Each token is as slow as all others: of a log-normal of 0.2 around 14 ms, 4.6% lie beyond 20 ms.
    assert figures.attainment_now == pytest.approx(0.96, abs=0.02)


def test_a_minute_without_a_token_does_not_put_the_four_before_it_on_time() -> None:
    replica = OneReplica(tokens=200.0)
    slow = [replica.tick(30.0, 0.024) for _ in range(16)][-1].decision.figures.attainment_now
    after = [replica.tick(0.0) for _ in range(4)][-1].decision.figures.attainment_now
    assert slow < 0.5
    assert after == pytest.approx(slow, abs=0.05)


class EndsLater(OneReplica):
    """Its requests end a tick after their first token."""

    begun = 0.0

    def tpot(self) -> Histogram:
        ended, self.begun = self.begun, self.requests
        return Histogram((0.01, 0.025), (0.0, 0.0), 0.03 * ended, ended)


def test_who_has_not_ended_yet_is_as_slow_as_those_that_have() -> None:
    """14% were told to meet 10 ms a token beside an idle engine's 29 ms: traffic rose, so more began than ended."""
    replica = EndsLater(tokens=200.0, pool=replace(POOL, slo=Slo(time_to_first_token=2.0, time_per_output_token=0.01)))
    figures = [replica.tick(rate, 0.03) for rate in (30.0, 30.0, 40.0, 50.0, 60.0)][-1].decision.figures
    assert figures.attainment_now == 0.0


@pytest.mark.parametrize("tokens", [2.0, 3.0, 200.0])
def test_a_short_answer_is_as_slow_as_a_long_one_with_the_same_time_per_token(tokens: float) -> None:
    # No time per output token passes before the first token, so that is none of the tokens to divide by.
    replica = OneReplica(tokens=tokens)
    shown = [replica.tick(60.0, 0.024) for _ in range(16)][-1].decision.figures.attainment_now
    assert shown == pytest.approx(1.0 - 0.663, abs=0.02)


def test_requests_that_broke_both_bounds_within_a_minute_are_late_once() -> None:
    replica = OneReplica(tokens=200.0)
    for _ in range(10):
        replica.tick(30.0, 0.01)
    figures = [replica.tick(30.0, 0.06, late=True) for _ in range(10)][-1].decision.figures
    # Of five minutes as a whole, half were late by each bound: independent of each other that would be three in four.
    assert figures.attainment_now == pytest.approx(0.5, abs=0.1)
