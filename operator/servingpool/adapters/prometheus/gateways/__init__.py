"""Names of the figures of requests before the engines, for each gateway: a file of data a gateway, no code."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from servingpool.adapters.prometheus.engines.profile import read_profiles
from servingpool.adapters.prometheus.gateways.profile import FirstRequest, GatewayFigure, GatewayProfile


@cache
def shipped_gateways() -> Mapping[str, GatewayProfile]:
    """The profiles of this release, by the name for `gateway`."""
    return read_profiles(__name__, GatewayProfile)


def gateway_of(name: str, known: Mapping[str, GatewayProfile]) -> GatewayProfile:
    """The gateway's profile; ValueError if there is none."""
    if name not in known:
        raise ValueError(f"gateway '{name}' is not supported; use {', '.join(known)}")
    return known[name]


__all__ = ["FirstRequest", "GatewayFigure", "GatewayProfile", "gateway_of", "shipped_gateways"]
