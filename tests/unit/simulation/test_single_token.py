"""Requests that ask for a token or a few, as classifiers and prefill engines serve them: hardly a step decodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from servingpool.decision.pool import Pool, Slo
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


SHORT = Pool(Slo(time_to_first_token=2.5), 1, 8)


@pytest.mark.parametrize("output", [2, 4])
def test_long_prompts_with_short_answers_are_served_by_about_the_fleet_that_they_need(output: int) -> None:
    trace = poisson("short answers", [2.0], 3600.0, prompt=6000, output=output)
    ours = simulate(trace, engine_profile("a100-70b-tp4"), SHORT, Ours(), SimulationOptions(initial_replicas=1))
    # Four fixed replicas attain 99.5%, three 88%.
    assert ours.score.settled_attainment >= 0.97
    assert ours.score.average_replicas <= 4.5


def test_answers_that_turn_longer_are_learned_by_their_steps_again() -> None:
    short = poisson("short answers", [2.0], 1800.0, prompt=6000, output=2)
    long = replace(poisson("chat", [2.0], 1800.0, prompt=600, output=200), name=short.name)
    policy = Ours()
    simulate(short.then(long), engine_profile("a100-70b-tp4"), SHORT, policy, SimulationOptions(initial_replicas=4))
    assert policy.memory.profile.engine.fit.decodes
    assert policy.memory.profile.engine.fit.known
