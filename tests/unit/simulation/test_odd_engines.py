from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from servingpool.decision.observation import NOT_EXPOSED, Histogram, ReplicaMetrics, Unknown
from servingpool.decision.pool import Pool, Slo
from servingpool_simulation import page, traces
from servingpool_simulation.engine import Engine
from servingpool_simulation.fleet import ColdStart, Fleet
from servingpool_simulation.hardware import engine_profile, flat_profile
from servingpool_simulation.policies import Static
from servingpool_simulation.run import SimulationOptions, simulate
from servingpool_simulation.scrape import ScrapeOptions, Scraper

from .test_engine import served

H100 = engine_profile("h100-8b-tp1")
FLAT = flat_profile(0.06, max_num_seqs=8)
SLO = Slo(time_to_first_token=2.0, time_per_output_token=0.1)


def test_a_flat_engine_takes_the_same_time_for_one_request_and_for_a_full_batch() -> None:
    _, alone = served(FLAT, [(0.0, 10, 50)])
    _, many = served(FLAT, [(0.0, 8_000, 50)] * 8)
    assert {outcome.finished_at for outcome in many} == {alone[0].finished_at}
    _, slow_prefill = served(flat_profile(0.06, prefill=0.25), [(0.0, 8_000, 50)] * 8)
    assert slow_prefill[0].ttft == pytest.approx(0.25)
    assert slow_prefill[0].tpot == pytest.approx(0.06)
    with pytest.raises(ValueError, match="prefill >= step"):
        flat_profile(0.06, prefill=0.01)


def test_ttft_from_admission_hides_the_queue_on_the_page_and_not_from_the_user() -> None:
    engine, outcomes = served(replace(FLAT, ttft_from_admission=True), [(0.0, 500, 100)] * 24)
    ttft = engine.metrics().histograms["time_to_first_token_seconds"]
    assert ttft.total == pytest.approx(24 * 0.06)
    assert outcomes[-1].ttft == pytest.approx(12.06)
    queue = engine.metrics().histograms["request_queue_time_seconds"]
    assert queue.total == pytest.approx(8 * (0 + 6 + 12))


def test_beyond_half_of_the_batch_each_request_adds_twice_as_much_to_a_step() -> None:
    bent = flat_profile(0.02, max_num_seqs=32, decode_per_request=0.001, bend=2.0)
    steps = []
    for batch in (8, 16, 24, 32):
        _, outcomes = served(bent, [(0.0, 100, 50)] * batch)
        steps.append(outcomes[-1].tpot)
    assert steps == pytest.approx([0.028, 0.036, 0.052, 0.068])


def test_pauses_come_every_few_minutes_last_one_to_three_seconds_and_no_look_changes_them() -> None:
    profile = flat_profile(0.05, pause_every=200.0, max_model_len=200_000)

    def course(looks: list[float]) -> tuple[Engine, list[float]]:
        engine = Engine(profile, 0.0)
        engine.submit(0.0, 100, 150_000)
        seen = []
        for at in looks:
            engine.advance(at)
            seen.append(engine.metrics().counters["generation_tokens"])
        engine.drain()
        return engine, seen

    watched, seen = course(np.arange(0.5, 7_000.0, 0.5).tolist())
    alone, _ = course([])
    assert watched.take_outcomes() == alone.take_outcomes()
    steps = alone.metrics().histograms["inter_token_latency_seconds"]
    pauses = steps.count - steps.counts[steps.bounds.index(1.0)]
    assert steps.total / 300 < pauses < steps.total / 120
    assert steps.total == pytest.approx(150_000 * 0.05 + 2.0 * pauses, abs=0.7 * pauses)
    standing = [at for at, (before, after) in enumerate(pairwise(seen)) if before == after]
    gaps = np.diff(standing)
    assert gaps[gaps > 1].min() * 0.5 > 90  # one at a time, at half of pause_every or later


def test_replicas_of_a_fleet_pause_at_times_of_their_own_that_the_seed_decides() -> None:
    def starts(seed: int) -> list[int]:
        fleet = Fleet(
            flat_profile(0.05, pause_every=60.0), traces.poisson("none", [0.1], 10.0, prompt=10, output=10), seed=seed
        )
        fleet.start_ready(3)
        return fleet.state.engines.draw[:3].tolist()  # type: ignore[no-any-return]

    assert len({*starts(0), *starts(1)}) == 6
    assert starts(0) == starts(0)


def test_a_replica_at_half_speed_takes_half_of_the_tokens() -> None:
    trace = traces.poisson("plenty", [20.0], 600.0, prompt=500, output=100, seed=1)
    fleet = Fleet(flat_profile(0.06, max_num_seqs=8), trace, half_speed=(1,))
    fleet.start_ready(3)
    fleet.advance(600.0)
    tokens = fleet.state.page[[0, 1, 2], page.GENERATION_TOKENS]
    assert tokens[0] == pytest.approx(tokens[2], rel=0.01)
    assert tokens[1] == pytest.approx(tokens[0] / 2, rel=0.01)
    pool = Pool(SLO, min_replicas=1, max_replicas=4)
    options = SimulationOptions(initial_replicas=3, half_speed=(0,))
    assert simulate(trace, FLAT, pool, Static(3), options).score.attainment < 0.95


@pytest.mark.parametrize(("tokens", "steps"), [(1, 0), (2, 1), (4, 1), (100, 33), (101, 34), (102, 34)])
def test_speculative_decoding_gives_three_tokens_a_step_and_observes_one_latency_for_them(
    tokens: int, steps: int
) -> None:
    engine, (only,) = served(replace(FLAT, tokens_per_step=3), [(0.0, 500, tokens)])
    metrics = engine.metrics()
    between = metrics.histograms["inter_token_latency_seconds"]
    assert (between.count, between.total) == (steps, pytest.approx(0.06 * steps))
    assert metrics.counters["generation_tokens"] == only.output_tokens == tokens
    assert only.finished_at == pytest.approx(0.06 * (1 + steps))
    if tokens > 1:
        assert only.tpot == pytest.approx(0.06 * steps / (tokens - 1))
        assert metrics.histograms["request_time_per_output_token_seconds"].total == pytest.approx(only.tpot)


def seen(options: ScrapeOptions, at: float, rate: float = 6.0) -> tuple[ReplicaMetrics, ...]:
    trace = traces.poisson("steady", [rate], 600.0, prompt=500, output=100, seed=1)
    fleet = Fleet(H100, trace, ColdStart(mean=100.0, jitter=0.0))
    fleet.start_ready(2)
    watch = Scraper(fleet, SLO, options)
    watch.arm(at)
    fleet.advance(at)
    metrics = watch.observe().metrics
    assert not isinstance(metrics, Unknown)
    return metrics


def test_series_are_absent_until_a_replica_first_uses_them_where_the_client_library_does_so() -> None:
    for idle in seen(ScrapeOptions(absent_until_used=True), 10.0, rate=1e-9):
        assert (idle.running, idle.waiting) == (0, 0)
        assert idle.time_to_first_token == idle.inter_token_latency == idle.time_per_output_token == NOT_EXPOSED
        assert idle.queue_time == idle.generation_tokens == idle.prompt_tokens == idle.cached_prompt_tokens
        assert idle.queue_time == NOT_EXPOSED
    for idle in seen(ScrapeOptions(), 10.0, rate=1e-9):
        assert idle.generation_tokens == 0
        assert isinstance(idle.time_to_first_token, Histogram)
    assert seen(ScrapeOptions(absent_until_used=True), 300.0) == seen(ScrapeOptions(), 300.0)


def test_the_engines_own_queue_time_is_shown_around_the_ttft_bound() -> None:
    for shown in seen(ScrapeOptions(), 300.0):
        assert isinstance(shown.queue_time, Histogram)
        assert {2.0, 2.5} <= {*shown.queue_time.bounds}
        assert shown.queue_time.count > 100
