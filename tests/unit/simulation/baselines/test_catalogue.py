from __future__ import annotations

from itertools import pairwise

import pytest

from servingpool.decision.pool import Pool, Slo
from servingpool_simulation.baselines.catalogue import BASELINES, BY_SLUG, Baseline
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.inputs import InputError, named_policy
from servingpool_simulation.run import SimulationOptions, simulate
from servingpool_simulation.traces import poisson

PROFILE = engine_profile("a100-70b-tp4")
POOL = Pool(Slo(2.0, 0.15), 1, 8)
HUMP = poisson("hump", (1.0, 8.0, 12.0, 1.0), 300.0, prompt=1000, output=120)


@pytest.mark.parametrize("baseline", BASELINES, ids=lambda baseline: baseline.slug)
def test_it_can_be_tuned_around_its_default(baseline: Baseline) -> None:
    assert 8 <= len(baseline.grid) <= 12
    assert all(a < b for a, b in pairwise(baseline.grid))
    assert baseline.default in baseline.grid
    assert baseline.tuned(PROFILE, POOL, baseline.grid[0]).name != baseline.make(PROFILE, POOL).name


@pytest.mark.parametrize("baseline", BASELINES, ids=lambda baseline: baseline.slug)
def test_it_scales_within_bounds_and_says_why(baseline: Baseline) -> None:
    result = simulate(HUMP, PROFILE, POOL, baseline.make(PROFILE, POOL), SimulationOptions(initial_replicas=2))
    assert all(POOL.min_replicas <= n <= POOL.max_replicas for n in result.series.requested)
    assert len(set(result.series.requested)) > 1
    assert all(result.series.reason)


@pytest.mark.parametrize(
    ("slug", "every"), [("hpa-running", 15.0), ("knative-kpa", 2.0), ("aibrix-apa", 10.0), ("dynamo-sla", 180.0)]
)
def test_it_decides_at_its_own_pace(slug: str, every: float) -> None:
    short = HUMP.between(0.0, 600.0)
    policy = BY_SLUG[slug].make(PROFILE, POOL)
    assert simulate(short, PROFILE, POOL, policy).series.time[:3] == [0.0, every, 2 * every]
    forced = simulate(short, PROFILE, POOL, BY_SLUG[slug].make(PROFILE, POOL), SimulationOptions(decide_every=60.0))
    assert forced.series.time[:3] == [0.0, 60.0, 120.0]


def test_the_command_line_names_them_with_a_value_or_without() -> None:
    assert named_policy("knative-kpa", PROFILE, POOL).name == "Knative KPA, 70"
    assert named_policy("llmd-slo-aware:0.7", PROFILE, POOL).name == "llm-d slo-aware, 0.7"
    for wrong in ("knative-kpa:", "knative-kpa:0", "knative-kpa:nan", "knative-kpa:x", "static:0", "servingpool:1"):
        with pytest.raises(InputError, match="unknown policy"):
            named_policy(wrong, PROFILE, POOL)
