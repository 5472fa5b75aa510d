"""The engine changes while it serves: a new vLLM release, FP8 switched on, another prefix cache or batch limit.

All replicas change at one moment, between two steps, and keep what they have. A real rolling update would spread it
over minutes, cost cold starts and mix two profiles in the fleet's means meanwhile; here the edge is sharp, so
that the time to learn the new figures can be read off.
"""

from __future__ import annotations

from dataclasses import dataclass

from servingpool_simulation.compiled import compiled
from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.kernel import cut_plan
from servingpool_simulation.tables import Ints, State, engine_rows


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Another profile from some second on."""

    at: float
    """Seconds since the start of the scored time."""
    profile: EngineProfile
    """Of the same max_model_len: the histograms of token counts end there."""


def with_profile(state: State, profile: EngineProfile) -> State:
    """The same engines under the figures of `profile`."""
    fresh = engine_rows(profile, 0)
    return state._replace(limits=fresh.limits, dense=fresh.dense)


@compiled
def end_plans(s: State, rows: Ints, at: float) -> None:
    """Ends every engine's plan with the step under way at `at`: what comes after is planned anew.

    The engines were brought to `at` before.
    """
    for row in rows:
        if s.engines[row].steps > 0:
            cut_plan(s.engines[row], at, 0)
