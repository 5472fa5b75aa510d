"""Engines that are full long before their steps are long: a simulation that shares no model with the core.

A replica serves `cap` requests at a time, each for the same seconds however many there are, first in, first out. Its
TTFT histogram begins at admission, so it never shows the queue.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servingpool.catalogue.limits import LimitName
from servingpool.decision.decide import Outcome, decide
from servingpool.decision.figures import slo_met
from servingpool.decision.learn.memory import Memory
from servingpool.decision.observation import NOT_EXPOSED, Histogram, Observation, Replica, ReplicaMetrics, Unknown
from servingpool.decision.observe.lateness import Witness
from servingpool.decision.observe.queueing import Queue, overdue, queue
from servingpool.decision.pool import Pool, Slo, Target

START, TICK, COLD_START = 1_700_000_000.0, 15.0, 60.0
TOKENS, STEP, PREFILL = 200, 0.04, 0.25
SERVICE = PREFILL + TOKENS * STEP
"""Seconds that a request takes once it is admitted: 8.25."""
BOUND = 1.0
POOL = Pool(Slo(time_to_first_token=BOUND, time_per_output_token=0.1), min_replicas=1, max_replicas=12)


@dataclass
class Capped:
    """One replica."""

    name: str
    ready_at: float
    cap: int = 8
    waiting: deque[float] = field(default_factory=deque)
    running: deque[tuple[float, float]] = field(default_factory=deque)
    """When each was admitted, and how long it had waited."""
    admitted: int = 0
    finished: int = 0
    steps: float = 0.0
    hangs: bool = False
    """It runs what it has and finishes nothing."""
    hidden: bool = False
    """The queue is not exposed."""
    at_finish: bool = False
    """A first token is counted when the request ends, with the time in the queue."""
    no_ttft: bool = False
    """There is no TTFT histogram; the seconds of prefill are known."""
    prefilled_together: int = 1
    """Requests for which there is one observation of those seconds."""
    queued: float = 0.0
    """Seconds that the requests that ended waited."""

    def advance(self, now: float) -> None:
        """One second, up to `now`."""
        if self.hangs:
            return
        while self.running and self.running[0][0] + SERVICE <= now:
            self.queued += self.running.popleft()[1]
            self.finished += 1
        while self.waiting and len(self.running) < self.cap:
            self.running.append((now, now - self.waiting.popleft()))
            self.admitted += 1
        self.steps += len(self.running) / STEP

    def page(self, now: float) -> ReplicaMetrics:
        def histogram(bounds: tuple[float, ...], count: float, each: float) -> Histogram | Unknown:
            return Histogram(bounds, (count,) * len(bounds), count * each, count) if count else NOT_EXPOSED

        if self.no_ttft:
            batches = self.admitted / self.prefilled_together
            ttft: Histogram | Unknown = Histogram((), (), batches * PREFILL, batches)
        elif self.at_finish:
            ttft = Histogram((), (), self.finished * PREFILL + self.queued, float(self.finished))
        else:
            ttft = histogram((0.5, BOUND), float(self.admitted), PREFILL)
        return ReplicaMetrics(
            replica=self.name,
            scraped_at=now,
            begun=float(self.admitted) if self.at_finish or self.prefilled_together > 1 else NOT_EXPOSED,
            ttft_from_admission=self.no_ttft,
            running=float(len(self.running)),
            waiting=NOT_EXPOSED if self.hidden else float(len(self.waiting)),
            generation_tokens=self.steps or NOT_EXPOSED,
            prompt_tokens=200.0 * self.admitted if self.admitted else NOT_EXPOSED,
            time_to_first_token=ttft,
            inter_token_latency=histogram((0.05, 0.1), self.steps, STEP),
            time_per_output_token=histogram((0.05, 0.1), float(self.finished), STEP),
        )


@dataclass
class Fleet:
    """Replicas behind a router that takes the one with the fewest requests."""

    replicas: int = 3
    pool: Pool = POOL
    now: float = START
    memory: Memory = field(default_factory=Memory)
    engines: list[Capped] = field(default_factory=list)
    ordered: list[float] = field(default_factory=list)
    owed: float = 0.0
    odd: str = ""
    """`at_finish` or `no_ttft`, as of `Capped`; `batches`: that and four requests to a prefill; empty for none."""

    def __post_init__(self) -> None:
        self.engines = [self.engine(f"pod-{number}", START - 3600.0) for number in range(self.replicas)]

    def engine(self, name: str, ready_at: float) -> Capped:
        together = 4 if self.odd == "batches" else 1
        no_ttft = self.odd in {"no_ttft", "batches"}
        return Capped(name, ready_at, at_finish=self.odd == "at_finish", no_ttft=no_ttft, prefilled_together=together)

    @property
    def oldest(self) -> float:
        """Seconds that the request has waited which has waited longest."""
        return max((self.now - engine.waiting[0] for engine in self.engines if engine.waiting), default=0.0)

    def tick(self, rate: float) -> Outcome:
        """Serve for 15 s, observe, decide, scale."""
        for _ in range(int(TICK)):
            self.now += 1.0
            self.owed += rate
            while self.owed >= 1.0:
                self.owed -= 1.0
                engine = min(self.engines, key=lambda one: len(one.waiting) + len(one.running))
                engine.waiting.append(self.now)
            for engine in self.engines:
                engine.advance(self.now)
        due = [at for at in self.ordered if self.now >= at + COLD_START]
        self.ordered = [at for at in self.ordered if at not in due]
        self.engines += [self.engine(f"pod-{self.now:.0f}-{number}", self.now) for number, _ in enumerate(due)]
        ready = tuple(Replica(e.name, self.now - e.ready_at + COLD_START, self.now - e.ready_at) for e in self.engines)
        starting = tuple(Replica(f"new-{number}", self.now - at) for number, at in enumerate(self.ordered))
        observation = Observation(
            requested=len(ready) + len(starting),
            ready=ready,
            starting=starting,
            metrics=tuple(engine.page(self.now) for engine in self.engines),
        )
        outcome = decide(observation, self.pool, self.memory, self.now)
        self.memory = outcome.memory
        wanted = outcome.decision.replicas
        while self.ordered and len(self.engines) + len(self.ordered) > wanted:
            self.ordered.pop()
        while len(self.engines) > wanted:
            self.engines.remove(min(self.engines, key=lambda one: len(one.waiting) + len(one.running)))
        self.ordered += [self.now] * (wanted - len(self.engines) - len(self.ordered))
        return outcome


def test_a_full_fleet_grows_though_no_histogram_shows_that_requests_wait() -> None:
    fleet = Fleet(pool=replace(POOL, max_replicas=20))
    calm = [fleet.tick(1.5) for _ in range(24)]
    assert calm[-1].decision.replicas <= 3
    busy = [fleet.tick(5.0) for _ in range(80)]
    grown = next(number for number, one in enumerate(busy) if one.decision.figures.queue > 0.0)
    ordered = next(number for number, one in enumerate(busy) if one.decision.replicas > 3)
    assert ordered - grown <= 2, "the first order within two ticks of the queue's first growth"
    assert fleet.oldest <= BOUND
    # 5 requests/s of 8.25 s each keep 41 slots busy, 5.2 replicas; a step as high as the last one may come again.
    assert 6 <= len(fleet.engines) + len(fleet.ordered) <= 13
    assert fleet.memory.profile.engine.saturation.batch == pytest.approx(8.0, rel=0.1)


@pytest.mark.parametrize("odd", ["at_finish", "no_ttft"])
def test_a_full_fleet_grows_as_soon_where_first_tokens_are_counted_at_the_end_or_not_at_all(odd: str) -> None:
    ordered = {}
    for kind in ("", odd):
        fleet = Fleet(pool=replace(POOL, max_replicas=20), odd=kind)
        for _ in range(24):
            fleet.tick(1.5)
        assert len(fleet.engines) <= 3
        busy = [fleet.tick(5.0) for _ in range(60)]
        ordered[kind] = next(number for number, one in enumerate(busy) if one.decision.replicas > 3)
        assert fleet.oldest <= BOUND
        assert len(fleet.engines) + len(fleet.ordered) <= 13
    assert ordered[odd] <= ordered[""]


def test_as_large_a_share_is_late_where_several_requests_are_prefilled_together() -> None:
    shown = []
    for odd in ("no_ttft", "batches"):
        fleet = Fleet(pool=replace(POOL, max_replicas=4), odd=odd)
        for rate in (1.5, 4.0, 1.5):
            outcome = [fleet.tick(rate) for _ in range(12)][-1]
        shown.append(outcome.decision.figures.attainment)
    assert 0.1 < shown[0] < 0.9
    assert shown[1] == pytest.approx(shown[0], abs=0.03)


def test_without_a_ttft_histogram_the_queue_counts_from_the_first_scrape_on() -> None:
    fleet = Fleet(pool=replace(POOL, max_replicas=3), odd="no_ttft")
    shown = [fleet.tick(5.0).decision.figures for _ in range(20)]
    assert shown[1].witness is Witness.QUEUE
    assert shown[-1].attainment < 0.5


def test_the_queue_is_believed_where_the_histogram_excludes_it_and_the_reason_says_what_a_full_replica_does() -> None:
    fleet = Fleet(pool=replace(POOL, max_replicas=3))
    outcome = [fleet.tick(5.0) for _ in range(40)][-1]
    figures = outcome.decision.figures
    assert figures.witness is Witness.QUEUE
    assert figures.longest_wait == pytest.approx(fleet.oldest, abs=TICK)
    assert figures.attainment < 0.2
    assert slo_met(figures, 0.95) is False
    assert figures.load > 1.0
    assert "a full replica can serve 0.89 requests/s with 8 running" in outcome.decision.reason


def test_a_queue_is_worked_off_and_the_replicas_for_it_are_removed() -> None:
    fleet = Fleet()
    for _ in range(40):
        fleet.tick(5.0)
    most = len(fleet.engines)
    for _ in range(160):
        fleet.tick(1.0)
    assert fleet.oldest == 0.0
    assert len(fleet.engines) <= 3 < most


def after_a_surge_without_a_request(*, hidden: bool = False) -> Fleet:
    fleet = Fleet()
    for rate, ticks in ((0.5, 16), (5.0, 20), (0.5, 20)):
        for _ in range(ticks):
            fleet.tick(rate)
    assert len(fleet.engines) > 1
    for engine in fleet.engines:
        engine.hidden = hidden
    return fleet


def test_an_idle_pool_keeps_nothing_for_a_surge_that_it_remembers() -> None:
    fleet = after_a_surge_without_a_request()
    said = [fleet.tick(0.0).decision for _ in range(120)]
    assert len(fleet.engines) == 1
    assert "no request in the last 20 minutes" in said[-1].reason


def test_a_pool_with_a_request_now_and_then_is_not_idle() -> None:
    fleet = after_a_surge_without_a_request()
    for tick in range(150):
        said = fleet.tick(2 / TICK if tick % 60 == 0 else 0.0).decision
        assert "no request in the last" not in said.reason


def test_a_pool_whose_queue_is_not_shown_is_never_called_idle() -> None:
    fleet = after_a_surge_without_a_request(hidden=True)
    for _ in range(120):
        assert "no request in the last" not in fleet.tick(0.0).decision.reason


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.sampled_from([0.1, 0.5, 1.5, 3.0, 6.0, 12.0]), st.integers(2, 12)), min_size=2, max_size=6)
)
def test_nothing_is_removed_while_requests_wait_for_longer_than_the_bound(spells) -> None:
    fleet = Fleet()
    for rate, ticks in spells:
        for _ in range(ticks):
            outcome = fleet.tick(rate)
            standing = len(fleet.engines) + len(fleet.ordered)
            # A wait shorter than one tick may not have been seen.
            if outcome.decision.figures.longest_wait > BOUND or fleet.oldest > BOUND + TICK:
                assert outcome.decision.verdict != "ScaleDown", outcome.decision.reason
            assert standing <= max(2 * len(fleet.engines) + 4, 3)


def test_an_order_is_at_most_twice_the_ready_replicas_plus_four() -> None:
    fleet = Fleet(pool=replace(POOL, max_replicas=60))
    first = max(fleet.tick(40.0).decision.replicas for _ in range(3))
    assert first <= 10
    limited = fleet.tick(40.0).decision
    assert {limit.name for limit in limited.limits} & {LimitName.ONE_COLD_START, LimitName.PROPORTION}


def test_replicas_that_expose_no_histogram_before_their_first_request_block_no_scale_down() -> None:
    fleet = Fleet(replicas=6)
    for engine in fleet.engines[2:]:
        engine.cap = 0  # the router never picks them
        engine.waiting = deque()
    fleet.engines[2:] = [Capped(engine.name, engine.ready_at, cap=8) for engine in fleet.engines[2:]]
    for _ in range(60):
        fleet.tick(0.05)
    assert fleet.memory.last.coverage == 1.0
    assert len(fleet.engines) < 6


class TestQueues:
    """How long requests wait, from the length of a queue and a count."""

    def test_a_request_on_its_way_into_a_batch_with_room_does_not_wait(self) -> None:
        line = queue(None, at=0.0, requests=0.0, left=10.0)
        assert queue(line, at=15.0, requests=1.0, left=13.0, room=True).wait == 0.0
        assert queue(line, at=15.0, requests=1.0, left=13.0).wait == pytest.approx(3.75)

    def test_requests_that_have_waited_for_too_long_are_counted(self) -> None:
        line = queue(None, at=0.0, requests=0.0, left=0.0)
        line = queue(line, at=10.0, requests=20.0, left=0.0)
        assert overdue(line, 5.0) == pytest.approx(10.0)
        assert overdue(line, 60.0) == 0.0
        assert overdue(Queue(10.0, 3.0), 5.0) == 0.0

    def test_a_queue_of_hours_is_kept_in_few_points(self) -> None:
        line = queue(None, at=0.0, requests=10.0, left=0.0)
        for tick in range(1, 1_000):
            line = queue(line, at=15.0 * tick, requests=10.0 + 5.0 * tick, left=float(tick))
        assert len(line.joined) <= 65
        assert line.wait > 10_000.0


def test_a_batch_that_grows_while_requests_wait_is_not_full() -> None:
    fleet = Fleet(pool=replace(POOL, max_replicas=3))
    for cap in range(4, 32, 4):
        for engine in fleet.engines:
            engine.cap = cap
        fleet.tick(40.0)
        assert not fleet.memory.profile.engine.saturation.known
    for _ in range(6):
        fleet.tick(40.0)
    assert fleet.memory.profile.engine.saturation.batch == pytest.approx(28.0, rel=0.1), "it has stood since"


def test_a_smaller_limit_than_before_is_found_though_a_larger_batch_ran_once() -> None:
    fleet = Fleet()
    for engine in fleet.engines:
        engine.cap = 64
    for _ in range(20):
        fleet.tick(30.0)
    for engine in fleet.engines:
        engine.cap = 8
    outcomes = [fleet.tick(4.0) for _ in range(60)]
    assert fleet.memory.profile.engine.saturation.batch < 20.0
    assert outcomes[-1].decision.figures.queue == 0.0


def test_a_queue_that_is_not_exposed_any_more_teaches_nothing() -> None:
    fleet = Fleet(pool=replace(POOL, max_replicas=3))
    for _ in range(20):
        fleet.tick(5.0)
    known = fleet.memory.profile.engine.saturation.batch
    for engine in fleet.engines:
        engine.hidden = True
    for _ in range(40):
        fleet.tick(0.5)
    assert fleet.memory.profile.engine.saturation.batch == pytest.approx(known, rel=0.15)


def test_engines_that_serve_nothing_while_requests_wait_are_replaced() -> None:
    fleet = Fleet()
    for _ in range(20):
        fleet.tick(1.5)
    for engine in fleet.engines:
        engine.cap = 0
    most = max(fleet.tick(1.5).decision.replicas for _ in range(30))
    assert most == 5, "three that hang, and the two that the load needs"


def test_engines_that_hang_while_requests_wait_are_not_full_ones() -> None:
    fleet = Fleet(pool=replace(POOL, max_replicas=3))
    for hang in (False, True, False):
        for engine in fleet.engines:
            engine.cap, engine.hangs = 64, hang
        for _ in range(4 if hang else 20):
            fleet.tick(1.5)
    assert not fleet.memory.profile.engine.saturation.known, "a batch from which nothing came is no limit"


def test_a_damaged_sample_takes_no_capacity_away() -> None:
    fleet = Fleet()
    for _ in range(40):
        fleet.tick(5.0)
    known = fleet.memory.profile.engine.saturation.batch
    fleet.engines[0].steps += 1_000_000.0
    fleet.tick(5.0)
    assert fleet.memory.profile.engine.saturation.batch == pytest.approx(known, rel=0.1)


def test_a_limit_in_the_arguments_counts_until_a_replica_was_seen_full() -> None:
    """A queue that clears between two scrapes never shows a full replica."""
    fleet, told = Fleet(replicas=1), Fleet(replicas=1, pool=replace(POOL, targets=(Target(batch_limit=8.0),)))
    for _ in range(20):
        unaware, aware = fleet.tick(0.8), told.tick(0.8)
    assert fleet.memory.profile.engine.saturation.seconds == told.memory.profile.engine.saturation.seconds == 0.0
    capacity = 8.0 / SERVICE
    assert aware.decision.figures.load == pytest.approx(0.8 / capacity, rel=0.15)
    assert isinstance(aware.decision.figures.load, float)
    assert isinstance(unaware.decision.figures.load, float)
    assert unaware.decision.figures.load < 0.5 * aware.decision.figures.load
    assert aware.decision.need > unaware.decision.need == 1.0


def test_what_was_seen_full_counts_more_than_a_limit_in_the_arguments() -> None:
    fleet = Fleet(pool=replace(POOL, targets=(Target(batch_limit=256.0),)))
    for _ in range(20):
        fleet.tick(5.0)
    assert fleet.memory.profile.engine.saturation.batch == pytest.approx(8.0, rel=0.15), "a small KV cache, say"


def test_another_limit_in_the_arguments_counts_at_once_where_none_was_seen_full() -> None:
    fleet = Fleet(replicas=3, pool=replace(POOL, targets=(Target(batch_limit=8.0),)))
    for _ in range(10):
        fleet.tick(0.3)
    fleet.pool = replace(POOL, targets=(Target(batch_limit=16.0),))
    fleet.tick(0.3)
    assert fleet.memory.profile.engine.saturation.batch == 16.0
