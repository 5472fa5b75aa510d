"""A timetable chosen in hindsight."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from servingpool.decision.pool import Pool, Slo
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.run import SimulationOptions, best_static
from servingpool_simulation.timetable import timetable
from servingpool_simulation.traces import poisson

A100 = engine_profile("a100-70b-tp4")
POOL = Pool(Slo(2.0, 0.15), min_replicas=1, max_replicas=6)
HOUR = 1200.0
THREE_HOURS = poisson("calm, busy, calm", (1.0, 8.0, 1.0), HOUR, prompt=1000, output=150)


def test_each_hour_has_its_fleet_and_it_is_there_when_the_hour_begins() -> None:
    found = timetable(THREE_HOURS, A100, POOL, SimulationOptions(), stretch=HOUR)
    fixed = best_static(THREE_HOURS, A100, POOL, SimulationOptions())
    assert found is not None
    assert fixed is not None
    assert found.score.attainment >= 0.95
    assert found.score.gpu_hours < 0.75 * fixed.score.gpu_hours
    time, ready = np.array(found.series.time), np.array(found.series.ready)
    calm, busy, again = (ready[(time >= hour * HOUR) & (time < (hour + 0.85) * HOUR)] for hour in range(3))
    assert (busy == busy[0]).all(), "all of it is there from the first moment"
    assert calm.max() < busy[0] > again[-1]


def test_the_least_that_is_allowed_stands_at_all_times() -> None:
    found = timetable(THREE_HOURS, A100, replace(POOL, min_replicas=3), SimulationOptions(), stretch=HOUR)
    assert found is not None
    assert min(found.series.requested) == 3


def test_within_its_stretch_it_does_not_move() -> None:
    found = timetable(THREE_HOURS, A100, POOL, SimulationOptions(), stretch=3 * HOUR)
    assert found is not None
    assert len(set(found.series.requested)) == 1


def test_where_no_fleet_attains_there_is_none() -> None:
    one = Pool(Slo(2.0, 0.15), min_replicas=1, max_replicas=1)
    assert timetable(THREE_HOURS, A100, one, SimulationOptions(), stretch=HOUR) is None
