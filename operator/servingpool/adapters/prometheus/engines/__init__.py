"""What each inference engine calls the figures that decisions rest on: one file of data an engine."""

from __future__ import annotations

from servingpool.adapters.prometheus.engines.profile import EngineProfile
from servingpool.adapters.prometheus.engines.vllm import VLLM

_PROFILES = {profile.engine: profile for profile in (VLLM,)}


def profile_of(engine: str) -> EngineProfile:
    """The engine's profile; ValueError if there is none yet."""
    try:
        return _PROFILES[engine]
    except KeyError:
        raise ValueError(f"engine '{engine}' is not supported; use {', '.join(_PROFILES)}") from None


__all__ = ["EngineProfile", "profile_of"]
