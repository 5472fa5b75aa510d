"""Figures that are missing, late or wrong for a while. Unknown is not zero."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from servingpool.catalogue.limits import LimitName
from servingpool.decision.decide import decide
from servingpool.decision.observation import NOT_EXPOSED, GatewayMetrics, Reading, Replica, ReplicaMetrics, Unknown
from servingpool.decision.observe.columns import Column

from .world import POOL, Engine, World, applied, plain, restored

NAN = Unknown("it is nan")


@dataclass
class Patchy(World):
    """Samples changed by `patch`, and new ones only at each `every`-th observation."""

    patch: Mapping[str, Any] = field(default_factory=dict)
    every: int = 1
    observed: int = 0
    kept: dict[str, ReplicaMetrics] = field(default_factory=dict)
    gateway_queue: Reading = NOT_EXPOSED

    def observation(self):
        seen = replace(super().observation(), gateway=GatewayMetrics(queue=self.gateway_queue))
        if self.observed % self.every == 0 and not self.blind:
            self.kept = {sample.replica: replace(sample, **self.patch) for sample in seen.metrics}
        self.observed += 1
        return seen if self.blind else replace(seen, metrics=tuple(self.kept.values()))


def test_a_counter_that_is_nan_once_was_not_reset():
    world = Patchy(replicas=3, obey=False, patch={"admission_rejections": 50_000.0, "cached_prompt_tokens": 1e7})
    before = world.run(6.0, 20)[-1].decision
    world.patch = {"admission_rejections": NAN, "cached_prompt_tokens": 1e7}
    world.tick(6.0)
    assert plain(restored(world.memory)) == plain(world.memory)
    world.patch = {"admission_rejections": 50_300.0, "cached_prompt_tokens": 1e7}
    after = world.tick(6.0).decision
    # Three times 300 rejections in three observations, on top of 6 requests/s.
    assert after.figures.arrivals == pytest.approx(before.figures.arrivals + 20.0, rel=0.05)


def test_cached_tokens_unknown_at_every_second_observation_do_not_make_prompts_cheap():
    whole, patchy = Patchy(replicas=3, obey=False), Patchy(replicas=3, obey=False)
    for number in range(240):
        cached = {"cached_prompt_tokens": 0.5 * sum(engine.prompt for engine in whole.engines) / 3.0}
        whole.patch = cached
        patchy.patch = cached if number % 2 else {"cached_prompt_tokens": NAN}
        expected, found = whole.tick(6.0), patchy.tick(6.0)
    assert found.decision.figures.load == pytest.approx(expected.decision.figures.load, rel=0.1)


def test_a_histogram_that_the_slo_does_not_need_may_be_missing():
    pool = replace(POOL, slo=replace(POOL.slo, time_per_output_token=None))
    world = Patchy(replicas=3, pool=pool, obey=False)
    world.run(6.0, 30)
    world.patch = {"time_per_output_token": NAN}
    world.tick(6.0)
    world.patch = {}
    world.tick(6.0)
    window = world.memory.window.last(45.0)
    assert window.sums[Column.TPOT_COUNT] == pytest.approx(window.sums[Column.TTFT_COUNT])
    world.failing = True
    attainment = world.run(6.0, 30)[-1].decision.figures.attainment
    assert attainment == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("every", [1, 2, 3, 4], ids=lambda every: f"scrapes each {15 * every} s")
def test_time_passes_as_fast_where_scrapes_are_slower_than_ticks(every):
    world = Patchy(replicas=1, obey=False, every=every)
    outcomes = world.run(3.0, 60)
    calibrated = next(place for place, one in enumerate(outcomes) if not one.decision.calibrating)
    assert calibrated * 15.0 <= POOL.params.calibration + 60.0
    assert world.memory.profile.forecast.seen == pytest.approx(3600.0, abs=15.0 * (2 * every + 1))
    assert not any(isinstance(one.decision.need, Unknown) for one in outcomes[2 * every :])


def test_a_hole_teaches_nothing():
    world = World(replicas=2, obey=False)
    world.run(3.0, 20)
    learned = world.memory.profile.learned
    world.blind = True
    world.run(3.0, 20)
    assert world.memory.profile.at == world.memory.covered_at < world.now
    world.blind = False
    world.run(3.0, 5)
    # The first observation after it has nothing to be compared with.
    assert world.memory.profile.learned == pytest.approx(learned + 19 * 15.0)


def test_nothing_is_removed_while_the_queue_is_unknown():
    world = Patchy(replicas=6)
    world.run(20.0, 30)
    world.patch = {"waiting": NAN}
    outcomes = world.run(0.5, 60)
    assert world.requested >= 6
    assert LimitName.QUEUE_UNKNOWN in applied(outcomes[-1])
    assert plain(restored(world.memory)) == plain(world.memory)
    world.patch = {}
    world.run(0.5, 60)
    assert world.requested < 6


@pytest.mark.parametrize(
    ("engines", "gateway"),
    [pytest.param({}, NAN, id="gateway unknown"), pytest.param({"waiting": NAN}, 0.0, id="engines unknown")],
)
def test_a_queue_known_in_part_is_unknown(engines, gateway):
    world = Patchy(replicas=6, patch=engines, gateway_queue=gateway)
    world.run(20.0, 20)
    standing = world.requested
    last = world.run(0.5, 60)[-1]
    assert LimitName.QUEUE_UNKNOWN in applied(last)
    assert "scale-down blocked: the queue is not known (it is nan)" in last.decision.reason
    assert world.requested >= standing


def test_a_queue_that_one_replica_does_not_expose_is_unknown_with_a_gateway_too():
    class Half(Patchy):
        def observation(self):
            seen = super().observation()
            first, *others = seen.metrics
            return replace(seen, metrics=(replace(first, waiting=NOT_EXPOSED), *others))

    world = Half(replicas=6, gateway_queue=0.0)
    world.run(20.0, 20)
    last = world.run(0.5, 30)[-1]
    assert LimitName.QUEUE_UNKNOWN in applied(last)
    assert "replicas expose no queue: the engine does not expose it" in last.decision.reason


def test_for_engines_without_a_queue_that_of_the_gateway_is_enough():
    world = Patchy(replicas=6, patch={"waiting": NOT_EXPOSED}, gateway_queue=0.0)
    world.run(20.0, 20)
    world.run(0.5, 60)
    assert world.requested < 6


def test_it_grows_while_the_queue_is_unknown():
    world = Patchy(replicas=2, patch={"waiting": NAN})
    world.run(8.0, 20)
    before = world.requested
    world.run(45.0, 15)
    assert world.requested > before


def test_the_attainment_of_the_last_hour_is_unknown_after_an_hour_without_metrics():
    world = World(replicas=3)
    world.run(6.0, 30)
    world.blind = True
    assert not isinstance(world.run(6.0, 20)[-1].decision.figures.attainment, Unknown)
    assert isinstance(world.run(6.0, 60)[-1].decision.figures.attainment, Unknown)


class Punctual(Engine):
    """No request is late."""

    def serve(self, rate: float, seconds: float, prompt: float, output: float) -> None:
        super().serve(rate, seconds, prompt, output)
        self.late = 0.0


def test_misses_rarer_than_the_evidence_are_not_claimed():
    world = World(replicas=4, pool=replace(POOL, slo=replace(POOL.slo, attainment=0.999)), obey=False)
    world.engines = [Punctual(engine.name, engine.ready_at) for engine in world.engines]
    early = world.run(6.0, 3)[-1].decision
    assert "too few requests were seen to tell whether the SLO can hold" in early.reason
    assert early.figures.safe_load == Unknown("too few requests were seen to tell")
    assert early.warning is None
    late = world.run(6.0, 30)[-1].decision
    assert "too few requests" not in late.reason
    assert not isinstance(late.figures.safe_load, Unknown)
    assert 0.1 <= late.figures.safe_load < 0.2


def test_where_all_requests_fail_no_load_is_called_safe():
    world = World(replicas=4)
    world.run(6.0, 30)
    world.failing = True
    assert isinstance(world.run(6.0, 60)[-1].decision.figures.safe_load, Unknown)


def test_new_replicas_without_a_sample_beside_a_long_queue_are_no_surge():
    world = World(replicas=3, obey=False)
    world.run(45.0, 30)
    assert sum(engine.waiting for engine in world.engines) > 10_000.0
    world.scale(10)
    world.lost = {f"vllm-{ordinal}" for ordinal in range(4, 11)}
    ticks = world.run(45.0, 2.5)
    world.lost = set()
    ticks += world.run(45.0, 2)
    assert len(world.engines) == 10
    # A window with both fleets in it errs by half; each new replica's queue taken for an old one's made 1,699 of 45.
    assert all(40.0 < tick.decision.figures.arrivals < 70.0 for tick in ticks)


@pytest.mark.parametrize("hidden", [1, 3, 7, 11])
def test_queues_that_were_unknown_for_a_while_are_no_surge_afterwards(hidden):
    world = Patchy(replicas=4, obey=False)
    world.run(90.0, 10)
    world.patch = {"waiting": NAN}
    for _ in range(hidden):
        world.tick(90.0)
    world.patch = {}
    assert all(85.0 < tick.decision.figures.arrivals < 115.0 for tick in world.run(90.0, 3))


def test_a_queue_keeps_only_its_own_engine_busy_however_long_it_is():
    needs = []
    for queued in (0.0, 9_000.0, 90_000.0):
        world = World(replicas=4, obey=False, pool=replace(POOL, max_replicas=40))
        world.engines[0].waiting = queued
        *_, outcome = world.run(8.0, 1)
        needs.append(outcome.decision.need)
    assert "queued requests keep 1.0 more busy" in outcome.decision.reason
    assert needs[0] < needs[2] <= needs[1], needs  # who waited for longer than the window teaches nothing


def test_requests_at_the_gateway_count_as_arrivals_and_as_work():
    world = Patchy(replicas=3, obey=False, gateway_queue=0.0)
    world.run(20.0, 15)
    for tick in range(1, 9):
        world.gateway_queue = 75.0 * tick
        outcome = world.tick(20.0)
    assert outcome.decision.figures.arrivals == pytest.approx(25.0, rel=0.02)
    assert outcome.decision.figures.queue == pytest.approx(600.0, abs=30.0)
    needs = []
    for held in (0.0, 2_300.0):
        world.gateway_queue = held
        needs.append(world.run(20.0, 1)[-1].decision.need)
    # 2,300 requests at 86 ms of work each, within the 135 s that a replica takes to come: one more at least.
    assert needs[1] >= needs[0] + 1.0


def test_a_lost_scrape_of_the_replica_with_the_longest_queue_is_no_surge():
    world = World(replicas=3, obey=False)
    world.engines[0].waiting = 8_000.0
    world.run(45.0, 30)
    ticks = []
    for number in range(24):
        world.lost = {world.engines[0].name} if number % 3 == 0 else set()
        ticks.append(world.tick(45.0))
    assert all(40.0 < tick.decision.figures.arrivals < 50.0 for tick in ticks)


def test_a_sum_of_seconds_that_falls_in_its_last_digit_is_no_restart():
    world = World(replicas=3, obey=False)
    world.run(6.0, 20)
    for engine in world.engines:
        engine.first_token_seconds = math.nextafter(engine.first_token_seconds, 0.0)
        engine.decode_seconds = math.nextafter(engine.decode_seconds, 0.0)
    assert world.tick(0.0).decision.figures.arrivals < 6.0


def test_a_failed_probe_is_no_cold_start():
    world = World(replicas=3, obey=False)
    world.run(6.0, 20)
    expected = world.memory.profile.cold_start
    blip = world.engines.pop()
    seen = world.observation()
    unready = Replica(blip.name, age=1500.0)
    world.now += 15.0
    world.memory = decide(replace(seen, requested=3, starting=(unready,)), world.pool, world.memory, world.now).memory
    blip.ready_at = world.now
    world.engines.append(blip)
    world.tick(6.0)
    assert world.memory.profile.cold_start.seconds == expected.seconds


def test_without_a_ready_replica_there_is_no_load():
    world = World(replicas=3, obey=False)
    world.run(6.0, 20)
    world.now += 15.0
    seen = replace(world.observation(), ready=(), starting=())
    assert isinstance(decide(seen, world.pool, world.memory, world.now).decision.figures.load, Unknown)


def test_misses_teach_nothing_until_it_is_known_whether_any_fleet_meets_tpot():
    pool = replace(POOL, slo=replace(POOL.slo, time_per_output_token=0.012))
    world = World(replicas=3, pool=pool, obey=False)
    world.run(3.0, 1)
    assert not world.memory.profile.engine.fit.known
    assert sum(world.memory.profile.curve.requests) == 0.0
    world.run(3.0, 2)
    assert sum(world.memory.profile.curve.requests) > 0.0


def test_a_hole_after_the_first_observation_is_no_scrape_interval():
    world = World(replicas=3, obey=False)
    world.tick(6.0)
    world.blind = True
    world.run(6.0, 2.5)
    world.blind = False
    world.tick(6.0)
    assert world.memory.interval <= 60.0
