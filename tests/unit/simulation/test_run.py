from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import orjson
import pytest

from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool, Slo
from servingpool_simulation import traces
from servingpool_simulation.baselines import hpa
from servingpool_simulation.fleet import ColdStart
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.policies import Answer, Static
from servingpool_simulation.run import SimulationOptions, best_static, simulate
from servingpool_simulation.scrape import EPOCH, ScrapeOptions

A100 = engine_profile("a100-70b-tp4")
POOL = Pool(Slo(2.0, 0.15), min_replicas=1, max_replicas=16)
CONV = traces.azure2023_conv()
TEN_MINUTES = CONV.between(0.0, 600.0)


def test_a_run_repeats_to_the_last_bit_for_a_seed_and_differs_for_another() -> None:
    options = SimulationOptions(scrape=ScrapeOptions(lost_share=0.1), seed=7)
    runs = [simulate(TEN_MINUTES, A100, POOL, hpa.on_running(), options) for _ in range(2)]
    assert orjson.dumps(runs[0].to_dict()) == orjson.dumps(runs[1].to_dict())
    other = simulate(TEN_MINUTES, A100, POOL, hpa.on_running(), replace(options, seed=8))
    assert other.score != runs[0].score


def test_how_the_fleet_is_watched_does_not_change_the_truth() -> None:
    truths = [
        simulate(TEN_MINUTES, A100, POOL, Static(2), SimulationOptions(scrape=scrape, initial_replicas=2)).outcomes
        for scrape in (ScrapeOptions(), ScrapeOptions(interval=30.0), ScrapeOptions(lost_share=0.7))
    ]
    for truth in truths[1:]:
        assert np.array_equal(truth.ttft, truths[0].ttft)
        assert np.array_equal(truth.ended, truths[0].ended)


def test_attainment_counts_all_arrivals_against_both_bounds() -> None:
    result = simulate(CONV, A100, POOL, Static(2), SimulationOptions(initial_replicas=2))
    truth, score = result.outcomes, result.score
    assert score.requests == len(CONV)
    met = (truth.ttft <= 2.0) & (truth.tpot <= 0.15)
    assert score.attained == met.sum()
    assert score.attainment == met.mean() < 0.9
    assert score.goodput == pytest.approx(met.sum() / CONV.duration)


def test_what_does_not_finish_or_is_rejected_is_a_miss() -> None:
    trace = traces.poisson("heavy", [2.0], 100.0, prompt=9000, output=500)
    slow = simulate(trace, A100, POOL, Static(1), SimulationOptions(initial_replicas=1, tail=0.0))
    assert slow.score.unfinished > 50
    assert slow.score.attained <= slow.score.requests - slow.score.unfinished
    short = replace(A100, max_model_len=8192)
    refused = simulate(trace, short, POOL, Static(1), SimulationOptions(initial_replicas=1))
    assert (refused.score.rejected, refused.score.attainment) == (refused.score.requests, 0.0)


def test_gpu_hours_are_replicas_times_gpus_over_the_scored_time_only() -> None:
    options = SimulationOptions(initial_replicas=3, history=300.0, price=2.5)
    score = simulate(TEN_MINUTES, A100, POOL, Static(3), options).score
    hours = (TEN_MINUTES.duration - 300.0) / 3600
    assert score.average_replicas == pytest.approx(3.0)
    assert score.gpu_hours == pytest.approx(3 * 4 * hours)
    assert score.cost == pytest.approx(2.5 * score.gpu_hours)


class Notebook:
    """A policy that orders nothing and writes down what it is shown."""

    name, every_bucket, every = "notebook", False, 15.0

    def __init__(self) -> None:
        self.decided: list[tuple[float, Observation]] = []
        self.learned: list[tuple[float, Pool]] = []

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        self.decided.append((now, observation))
        return Answer(observation.requested, "as it is")

    def learn(self, observation: Observation, pool: Pool, now: float) -> None:
        self.learned.append((now, pool))


def test_history_is_learned_from_and_not_decided_on() -> None:
    notebook = Notebook()
    result = simulate(TEN_MINUTES, A100, POOL, notebook, SimulationOptions(history=300.0, initial_replicas=2))
    assert [now - EPOCH for now, _ in notebook.learned] == [15.0 * k for k in range(20)]
    assert not any(pool.in_charge for _, pool in notebook.learned)
    assert notebook.decided[0][0] == EPOCH + 300.0
    assert result.series.time[0] == -300.0
    assert result.score.requests == len(TEN_MINUTES.between(300.0, 600.0))


def test_the_series_tells_the_course_of_the_run() -> None:
    result = simulate(TEN_MINUTES, A100, POOL, Static(4), SimulationOptions(cold_start=ColdStart(100.0, 0.0)))
    series = result.series
    columns = asdict(series)
    assert {len(column) for column in columns.values()} == {40}
    assert series.loading[:8] == [3] * 7 + [0]
    assert series.ready[:8] == [1] * 7 + [4]
    served = sum(rate * 15 for rate in series.arrivals)
    assert served == pytest.approx(((CONV.arrival > 0) & (CONV.arrival <= 585.0)).sum())
    assert max(t for t in series.ttft if t is not None) > min(t for t in series.ttft if t is not None)
    assert series.attainment[-1] == pytest.approx(result.score.attainment, abs=0.02)
    assert sum(tokens * 15 for tokens in series.output_tokens) == pytest.approx(TEN_MINUTES.output.sum(), rel=0.05)


@pytest.mark.parametrize(
    ("trace", "profile", "slo", "replicas"),
    [
        pytest.param(CONV, "a100-70b-tp4", Slo(2.0, 0.15), 3, id="conv"),
        pytest.param(traces.azure2023_code(), "h100-70b-tp4", Slo(2.0, 0.1), 7, id="code"),
        pytest.param(traces.llmd_ramp(), "h100-70b-tp4", Slo(3.0, 0.1), 7, id="ramp"),
    ],
)
def test_best_static_fleet_agrees_with_an_independent_simulation(
    trace: traces.Trace, profile: str, slo: Slo, replicas: int
) -> None:
    best = best_static(trace, engine_profile(profile), Pool(slo, 1, 32))
    assert best is not None
    assert best.policy == f"static {replicas}"


def test_there_is_no_best_static_fleet_for_an_objective_out_of_reach() -> None:
    assert best_static(TEN_MINUTES, A100, Pool(Slo(0.001), 1, 3)) is None
