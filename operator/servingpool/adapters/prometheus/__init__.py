"""Reads the engines' samples from Prometheus, as cumulative values per pod, for all pools of a backend at once."""

from __future__ import annotations

from servingpool.adapters.prometheus.asked import Asked, Share
from servingpool.adapters.prometheus.backend import PrometheusBackend
from servingpool.adapters.prometheus.backend_config import BackendConfig, BasicAuth, GatewayChoice, SeriesLabels, Tls
from servingpool.adapters.prometheus.diagnosis import Cause, Missing, PodKey
from servingpool.adapters.prometheus.engines import EngineMetrics, shipped, usable
from servingpool.adapters.prometheus.gateways import FirstRequest, GatewayFigure, GatewayProfile, shipped_gateways
from servingpool.adapters.prometheus.http_client import MetricsUnavailable
from servingpool.adapters.prometheus.samples import (
    ANY_MODEL,
    FleetReading,
    NotAsked,
    PodSamples,
    ReadRequest,
    Selection,
    TooLarge,
    sample_of,
    with_own_buckets,
)

__all__ = [
    "ANY_MODEL",
    "Asked",
    "BackendConfig",
    "BasicAuth",
    "Cause",
    "EngineMetrics",
    "FirstRequest",
    "FleetReading",
    "GatewayChoice",
    "GatewayFigure",
    "GatewayProfile",
    "MetricsUnavailable",
    "Missing",
    "NotAsked",
    "PodKey",
    "PodSamples",
    "PrometheusBackend",
    "ReadRequest",
    "Selection",
    "SeriesLabels",
    "Share",
    "Tls",
    "TooLarge",
    "sample_of",
    "shipped",
    "shipped_gateways",
    "usable",
    "with_own_buckets",
]
