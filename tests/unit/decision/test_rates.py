"""Demand is remembered as tokens and steps: what an engine costs may change, and what came stays what it was."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from servingpool.decision.allocate import counted
from servingpool.decision.engine import Rates, StepTime
from servingpool.decision.figures import Figures
from servingpool.decision.learn.forecast import Forecast
from servingpool.decision.learn.kinds import Kind
from servingpool.decision.learn.memory import Memory, Profile
from servingpool.decision.observation import Observation, Ordered, Replica
from servingpool.decision.pool import Pool, Slo, Target

from . import world
from .test_full_replicas import Fleet

WAVE = 40
"""Ticks: ten minutes."""


def at_the_peaks(pool: world.World, waves: int) -> list[Figures]:
    """Of each wave of 12 to 36 requests/s."""
    found = []
    for tick in range(waves * WAVE):
        outcome = pool.tick(24.0 + 12.0 * math.sin(math.tau * tick / WAVE))
        if tick % WAVE == WAVE // 4:
            found.append(outcome.decision.figures)
    return found


def test_bursts_of_before_an_upgrade_cost_what_they_cost_the_faster_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    # Were they remembered as work, they would cost twice as much for two hours: the burst would fall to 0.71 of what
    # it was and not to 0.53.
    pool = world.World(replicas=8, obey=False)
    before = at_the_peaks(pool, 8)[-1]
    came = pool.memory.profile.forecast.pairs[:, 2]
    slow = world.ENGINE
    halves = (0.5 * each for each in (slow.base, slow.per_request, slow.per_prefill_token))
    monkeypatch.setattr(world, "ENGINE", StepTime(*halves))
    after = at_the_peaks(pool, 2)[-1]
    assert after.step_base == pytest.approx(0.5 * before.step_base, rel=0.05), "the new speed is learned"
    assert after.burst == pytest.approx(0.5 * before.burst, rel=0.1)
    assert after.for_forecast < before.for_forecast
    kept = pool.memory.profile.forecast.pairs[:, 2]
    assert kept.max(axis=0) == pytest.approx(came.max(axis=0), rel=0.02)


def test_the_first_full_replica_changes_the_load_and_not_what_is_remembered() -> None:
    # Until a replica is seen full, eight requests at a time seem to be a sixteenth of what its steps could carry.
    fleet = Fleet()
    for _ in range(40):
        fleet.tick(1.5)
    light, before = fleet.tick(1.5).decision.figures.load, fleet.memory
    while not fleet.memory.profile.engine.saturation.known:
        before, heavy = fleet.memory, fleet.tick(6.0).decision.figures.load
    pairs, now = before.profile.forecast.pairs, fleet.memory.profile.forecast.pairs
    assert heavy > 5.0 * (6.0 / 1.5) * light
    assert len(pairs) > 10
    assert now[: len(pairs)].tolist() == pairs.tolist()


def test_another_reference_keeps_the_forecast_though_its_speed_is_not_known() -> None:
    pairs = np.arange(30.0).reshape(5, 3, 2)
    forecast = Forecast(pairs=pairs, mean=Rates(9_000.0, 1_800.0), seen=3600.0, initial_replicas=3)
    profile = Profile(forecast=forecast, kinds=(Kind("left"), Kind("b")), reference="left")
    pool = Pool(Slo(2.0), 1, 20, targets=(Target("b", 1.0, most=10), Target("c", 1.0, most=10)))
    ready = (Replica("b-0", 5000.0, 4000.0, target="b"),)
    observation = Observation(1, ready, targets=(Ordered("b", 1), Ordered("c", 0)))
    found = counted(Memory(profile), observation, pool, 10_000.0).profile
    assert found.reference == "b"
    assert world.plain(found.forecast) == world.plain(replace(forecast, initial_replicas=0)), (
        "three of the other target say nothing of this one"
    )
