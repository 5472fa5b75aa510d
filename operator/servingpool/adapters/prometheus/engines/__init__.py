"""Names of the figures that decisions rest on, for each inference engine: a file of data an engine, no code."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from servingpool.adapters.prometheus.engines.profile import EngineMetrics, read_profiles, usable


@cache
def shipped() -> Mapping[str, EngineMetrics]:
    """The profiles of this release, by the name for `spec.engine`."""
    return read_profiles(__name__, EngineMetrics)


def profile_of(engine: str, known: Mapping[str, EngineMetrics] | None = None) -> EngineMetrics:
    """The engine's profile; ValueError if there is none."""
    profiles = shipped() if known is None else known
    if engine not in profiles:
        raise ValueError(f"engine '{engine}' is not supported; use {', '.join(profiles)}")
    return profiles[engine]


__all__ = ["EngineMetrics", "profile_of", "shipped", "usable"]
