from __future__ import annotations

from dataclasses import replace

import pytest

from servingpool.decision.pool import Pool, Slo
from servingpool_simulation.baselines.catalogue import Baseline
from servingpool_simulation.hardware import EngineProfile, engine_profile
from servingpool_simulation.hindsight import tune
from servingpool_simulation.policies import Policy, Static
from servingpool_simulation.run import SimulationOptions
from servingpool_simulation.traces import poisson

A100 = engine_profile("a100-70b-tp4")
POOL = Pool(Slo(2.0, 0.15), min_replicas=1, max_replicas=12)
STEADY = poisson("steady", (9.0,), 300.0, prompt=1000, output=150)
"""Needs 3 replicas."""
OPTIONS = SimulationOptions(initial_replicas=3)


def fixed(profile: EngineProfile, pool: Pool, value: float) -> Policy:
    return Static(int(value))


SIZES = Baseline("fixed", "fixed", "replicas", 6.0, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0), fixed)
"""A policy whose parameter is its fleet: the cheapest that attains is the best static fleet."""


def backwards(profile: EngineProfile, pool: Pool, value: float) -> Policy:
    return Static(int(12 - value))


def test_the_whole_grid_finds_the_cheapest_value_that_attains() -> None:
    found = tune(SIZES, STEADY, A100, POOL, OPTIONS, whole=True)
    assert list(found.tried) == list(SIZES.grid)
    assert found.value == 3.0
    assert found.best is not None
    assert found.best.score.average_replicas == pytest.approx(3.0)
    assert found.default.score.average_replicas == pytest.approx(6.0, abs=0.1)


@pytest.mark.parametrize("default", SIZES.grid)
def test_bisection_finds_the_same_from_any_default_with_fewer_runs(default: float) -> None:
    found = tune(replace(SIZES, default=default), STEADY, A100, POOL, OPTIONS, whole=False)
    assert found.value == 3.0
    assert default in found.tried
    assert len(found.tried) <= 5


def test_it_does_not_matter_which_end_of_the_grid_is_the_frugal_one() -> None:
    baseline = replace(SIZES, tuned=backwards, grid=(2.0, 4.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0), default=4.0)
    assert tune(baseline, STEADY, A100, POOL, OPTIONS, whole=False).value == 9.0


def test_where_no_value_attains_there_is_no_best() -> None:
    found = tune(SIZES, STEADY, A100, Pool(Slo(0.001), 1, 12), OPTIONS, whole=False)
    assert found.value is None
    assert found.best is None


def test_a_baseline_of_one_value_has_nothing_to_tune() -> None:
    found = tune(replace(SIZES, grid=(6.0,)), STEADY, A100, POOL, OPTIONS, whole=False)
    assert (found.value, list(found.tried)) == (6.0, [6.0])
