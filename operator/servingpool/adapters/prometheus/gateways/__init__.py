"""What each gateway calls the figures of requests before the engines: one file of data a gateway, no code."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

import yaml

from servingpool.adapters.prometheus.gateways.profile import GatewayFigure, GatewayProfile


@cache
def shipped_gateways() -> Mapping[str, GatewayProfile]:
    """The profiles of this release, by the name for `gateway`."""
    found = {}
    for file in sorted(files(__package__).iterdir(), key=lambda one: one.name):
        name, _, ending = file.name.rpartition(".")
        if ending == "yaml":
            found[name] = GatewayProfile.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    return MappingProxyType(found)


def gateway_of(name: str, known: Mapping[str, GatewayProfile]) -> GatewayProfile:
    """The gateway's profile; ValueError if there is none."""
    if name not in known:
        raise ValueError(f"gateway '{name}' is not supported; use {', '.join(known)}")
    return known[name]


__all__ = ["GatewayFigure", "GatewayProfile", "gateway_of", "shipped_gateways"]
