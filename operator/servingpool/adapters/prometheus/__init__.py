"""Reads the engines' samples from Prometheus, as cumulative values per pod, for all pools of a backend at once."""

from __future__ import annotations

from servingpool.adapters.prometheus.backend import PrometheusBackend
from servingpool.adapters.prometheus.backend_config import BackendConfig, BasicAuth, GatewayQueue, SeriesLabels, Tls
from servingpool.adapters.prometheus.http_client import MetricsUnavailable
from servingpool.adapters.prometheus.samples import (
    FleetReading,
    GatewayReading,
    Missing,
    NotAsked,
    PodKey,
    PodSamples,
    ReadRequest,
    Selection,
    TooLarge,
    with_own_buckets,
)

__all__ = [
    "BackendConfig",
    "BasicAuth",
    "FleetReading",
    "GatewayQueue",
    "GatewayReading",
    "MetricsUnavailable",
    "Missing",
    "NotAsked",
    "PodKey",
    "PodSamples",
    "PrometheusBackend",
    "ReadRequest",
    "Selection",
    "SeriesLabels",
    "Tls",
    "TooLarge",
    "with_own_buckets",
]
