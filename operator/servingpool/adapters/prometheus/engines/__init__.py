"""What each inference engine calls the figures that decisions rest on: one file of data an engine, no code."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

import yaml

from servingpool.adapters.prometheus.engines.profile import EngineMetrics, usable


@cache
def shipped() -> Mapping[str, EngineMetrics]:
    """The profiles of this release, by the name for `spec.engine`."""
    found = {}
    for file in sorted(files(__package__).iterdir(), key=lambda one: one.name):
        name, _, ending = file.name.rpartition(".")
        if ending == "yaml":
            found[name] = EngineMetrics.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    return MappingProxyType(found)


def profile_of(engine: str, known: Mapping[str, EngineMetrics] | None = None) -> EngineMetrics:
    """The engine's profile; ValueError if there is none."""
    profiles = shipped() if known is None else known
    if engine not in profiles:
        raise ValueError(f"engine '{engine}' is not supported; use {', '.join(profiles)}")
    return profiles[engine]


__all__ = ["EngineMetrics", "profile_of", "shipped", "usable"]
