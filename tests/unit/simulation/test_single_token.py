"""Requests that ask for a single token, as classifiers and prefill engines serve them: no step decodes."""

from __future__ import annotations

from servingpool.decision.pool import Pool
from servingpool.decision.slo import Slo
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.policies import Ours
from servingpool_simulation.run import SimulationOptions, best_static, simulate
from servingpool_simulation.traces import poisson


def test_a_pool_of_single_tokens_grows_and_shrinks_with_its_traffic() -> None:
    trace = poisson("prefill", [4.0, 7.0, 12.0, 7.0, 4.0], 1200.0, prompt=4000, output=1)
    pool, profile = Pool(Slo(time_to_first_token=1.0), 1, 12), engine_profile("a100-8b-tp1")
    best = best_static(trace, profile, pool)
    assert best is not None
    ours = simulate(trace, profile, pool, Ours(), SimulationOptions(initial_replicas=2))
    assert ours.score.attainment >= 0.95
    assert ours.score.gpu_hours <= 1.1 * best.score.gpu_hours
    assert max(ours.series.requested) >= best.score.peak_replicas > ours.series.requested[-1]
