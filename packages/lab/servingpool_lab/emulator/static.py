"""What a fleet of fixed size would have cost: the smallest that holds the SLO over the whole trace, in hindsight."""

from __future__ import annotations

from dataclasses import dataclass

from servingpool.decision.pool import Pool
from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.policies import Static
from servingpool_simulation.run import SimulationOptions, simulate
from servingpool_simulation.traces import Trace


@dataclass(frozen=True, slots=True)
class StaticFleet:
    """The smallest static fleet that attains, or the largest that was tried."""

    replicas: int
    attainment: float
    """Share of the trace's requests that meet the SLO with it, simulated."""


def best_static(trace: Trace, profile: EngineProfile, pool: Pool) -> StaticFleet:
    """The first size from min to max whose attainment is at or above the SLO's."""
    replicas = max(1, pool.min_replicas)
    while True:
        options = SimulationOptions(initial_replicas=replicas)
        attainment = simulate(trace, profile, pool, Static(replicas), options).score.attainment
        if attainment >= pool.slo.attainment or replicas >= pool.max_replicas:
            return StaticFleet(replicas, attainment)
        replicas += 1
