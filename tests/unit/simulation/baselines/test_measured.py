from __future__ import annotations

import pytest

from servingpool.decision.pool import Pool, Slo
from servingpool_simulation.baselines.measured import StepModel, generation_rate, prefill_rate
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.policies import Static
from servingpool_simulation.run import SimulationOptions, simulate
from servingpool_simulation.traces import poisson

H100 = engine_profile("h100-70b-tp4")


def test_the_prefill_rate_is_a_full_step_over_its_time() -> None:
    # The reference has 638 ms for 8192 tokens.
    assert prefill_rate(H100) == pytest.approx(8192 / 0.638, rel=0.01)
    assert prefill_rate(H100.scaled(2.0)) == pytest.approx(prefill_rate(H100) / 2)


def test_the_step_model_is_the_engines_own_step() -> None:
    # The reference has 20.5 ms for 64 requests at 1k context, without 0.65 ms on the host.
    assert StepModel(H100).step(64, 1000, 0, 0) == pytest.approx(0.0205 + 0.00065, rel=0.02)


def test_capacity_is_what_a_replica_serves_within_the_slo_and_not_much_less() -> None:
    slo = Slo(2.0, 0.1)
    capacity = StepModel(H100).capacity(slo, 1000.0, 200.0)
    pool, options = Pool(slo, 1, 1), SimulationOptions(initial_replicas=1)

    def attained(share: float) -> float:
        trace = poisson("steady", [share * capacity], 600.0, prompt=1000, output=200)
        return simulate(trace, H100, pool, Static(1), options).score.attainment

    assert attained(0.85) > 0.95
    assert attained(1.15) < 0.5


def test_the_benchmarks_output_rate_is_its_capacity_times_its_answers() -> None:
    slo = Slo(2.0, 0.1)
    assert generation_rate(H100, slo) == pytest.approx(128 * StepModel(H100).capacity(slo, 1024, 128))
