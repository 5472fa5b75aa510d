"""What other threads may read of the pools: built at the end of a tick, never changed after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from servingpool.adapters.cluster.objects import Key
from servingpool.api.conditions import Condition
from servingpool.decision.decision import Figures
from servingpool.decision.observation import Reading
from servingpool.reconcile.state import PoolState


@dataclass(frozen=True, slots=True)
class Decided:
    """The last decision for a pool, and the fleet that it was made for."""

    desired: int
    """Replicas."""
    need: Reading
    """Replicas, before any limit."""
    figures: Figures
    requested: int
    ready: int
    gpus: int
    """Of all requested replicas."""
    objective: float
    """Share of requests that the SLO asks for, 0 to 1."""


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """One pool. It has conditions even where nothing could be decided."""

    conditions: tuple[Condition, ...]
    decided: Decided | None


Snapshot = Mapping[Key, PoolSnapshot]
NO_POOLS: Snapshot = MappingProxyType({})


def snapshot(states: Mapping[Key, PoolState]) -> Snapshot:
    """All pools as they are now."""
    return MappingProxyType({key: PoolSnapshot(state.conditions, _decided(state)) for key, state in states.items()})


def _decided(state: PoolState) -> Decided | None:
    pool, decision, observation = state.pool, state.decision, state.observation
    if pool is None or decision is None or observation is None:
        return None
    return Decided(
        desired=decision.replicas,
        need=decision.need,
        figures=decision.figures,
        requested=observation.requested,
        ready=len(observation.ready),
        gpus=observation.requested * state.gpus,
        objective=pool.spec.slo.attainment / 100.0,
    )
