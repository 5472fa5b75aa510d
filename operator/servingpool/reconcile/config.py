"""The operator's own configuration: a file, validated as a whole before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.engines import EngineMetrics, shipped
from servingpool.adapters.prometheus.gateways import GatewayProfile, shipped_gateways
from servingpool.api.duration import DurationBetween
from servingpool.api.serving_pool import each, said
from servingpool.api.serving_pool import path as where
from servingpool.api.spec import ENGINE_NAME, GATEWAY_NAME, PRICE_NAME
from servingpool.api.yaml_text import NotYaml, read_yaml


class ConfigError(Exception):
    """The configuration cannot be used. The message names the file, the field, the range and the value."""


class _Section(BaseModel):
    # A misspelt key is an error: silently ignoring `leaderElecton` would run two leaders.
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid", use_attribute_docstrings=True
    )


class LeaderElection(_Section):
    """One of several operators writes. Disable it only where one operator runs."""

    enabled: bool = True
    """If false, every operator that runs writes."""
    namespace: str | None = None
    """Namespace of the Lease. Default: the operator's own, from POD_NAMESPACE."""
    name: Annotated[str, Field(max_length=63)] = "servingpool-operator"
    """Name of the Lease."""
    duration: Annotated[float, DurationBetween("3s", "5m")] = 15.0
    """Seconds after the last renewal, after which another operator takes over."""
    deadline: Annotated[float, DurationBetween("2s", "5m")] = 10.0
    """The leader stops writing this long after its last renewal. Less than duration."""
    retry: Annotated[float, DurationBetween("500ms", "1m")] = 2.0
    """Time between two renewals. Less than deadline."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.retry < self.deadline < self.duration:
            raise ValueError(
                f"needs retry < deadline < duration, got {self.retry:g}s, {self.deadline:g}s and {self.duration:g}s"
            )
        return self


class ShardsConfig(_Section):
    """Several operators write, each for its share of the pools. It replaces leader election."""

    enabled: bool = False
    """If true, every operator that runs writes for its share, and `leaderElection` names the Leases alone."""


class PodDeletionCost(_Section):
    """Scale-down removes the pods with the fewest requests in flight, marked by annotation."""

    enabled: bool = True
    """If false, no pod is patched and Kubernetes chooses the pods to remove."""


EngineName = Annotated[str, Field(pattern=f"^{ENGINE_NAME.pattern}$", max_length=63)]
GatewayName = Annotated[str, Field(pattern=f"^{GATEWAY_NAME.pattern}$", max_length=63)]
PriceName = Annotated[str, Field(pattern=f"^{PRICE_NAME.pattern}$", max_length=63)]
Dollars = Annotated[float, Field(ge=0.0001, le=10_000)]
"""Dollars per million tokens."""


class Price(_Section):
    """Price of a hosted model, as somebody has noted it. It may be out of date: none is shipped."""

    input: Dollars
    """Dollars per million prompt tokens."""
    output: Dollars
    """Dollars per million output tokens."""
    noted: date
    """Date when the price was noted, such as 2026-11-01."""
    note: Annotated[str, Field(max_length=256)] = ""
    """Origin of the price, for readers of the configuration."""

    @field_validator("noted", mode="before")
    @classmethod
    def _dated(cls, value: object) -> date:
        if type(value) is date:  # as YAML reads it unquoted
            return value
        try:
            return date.fromisoformat(str(value))
        except ValueError:
            raise ValueError(f"must be a date such as 2026-11-01, got '{value}'") from None


class OperatorConfig(_Section):
    """The operator's configuration."""

    interval: Annotated[float, DurationBetween("1s", "1m")] = 15.0
    """Time between two ticks."""
    backends: Annotated[tuple[BackendConfig, ...], Field(min_length=1, max_length=64)]
    """Prometheus servers, by the name in spec.metrics.backend."""
    engines: dict[EngineName, EngineMetrics] = Field(default_factory=dict)
    """Metrics of engines by the name for spec.engine. An entry replaces this release's of the same name."""
    gateways: dict[GatewayName, GatewayProfile] = Field(default_factory=dict)
    """Metrics of gateways by the name for `gateway`. An entry replaces this release's of the same name."""
    prices: dict[PriceName, Price] = Field(default_factory=dict, max_length=256)
    """Hosted prices to compare pools with, by the name for spec.compareTo."""
    namespaces: tuple[str, ...] = ()
    """Namespaces to watch. Default: all."""
    leader_election: LeaderElection = LeaderElection()
    shards: ShardsConfig = ShardsConfig()
    pod_deletion_cost: PodDeletionCost = PodDeletionCost()
    health_port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """Port of /healthz; 0 for none."""
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 9090
    """Port of the operator's own /metrics; 0 for none."""
    history: Annotated[float, DurationBetween("0s", "6h")] = 7200.0
    """History to load from Prometheus for a new pool, and after a restart."""

    @field_validator("backends")
    @classmethod
    def _answer_within_the_interval(
        cls, backends: tuple[BackendConfig, ...], info: ValidationInfo
    ) -> tuple[BackendConfig, ...]:
        interval: float | None = info.data.get("interval")  # None where it is wrong itself
        return backends if interval is None else tuple(_within(backend, interval) for backend in backends)

    @field_validator("engines")
    @classmethod
    def _sufficient(cls, engines: dict[str, EngineMetrics]) -> dict[str, EngineMetrics]:
        for name, profile in engines.items():
            if profile.lacks:
                raise ValueError(f"{name}.figures must have {', '.join(profile.lacks)} too: decisions need them")
        return engines

    @property
    def known_engines(self) -> Mapping[str, EngineMetrics]:
        """The profiles of this release and of the configuration, by the name for spec.engine."""
        return {**shipped(), **self.engines}

    @property
    def known_gateways(self) -> Mapping[str, GatewayProfile]:
        """The profiles of this release and of the configuration, by the name for `gateway`."""
        return {**shipped_gateways(), **self.gateways}

    @model_validator(mode="after")
    def _backends_fit(self) -> Self:
        names = [backend.name for backend in self.backends]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"backends must have different names, got {', '.join(twice)} twice")
        for name in (backend.gateway.name for backend in self.backends if backend.gateway is not None):
            if name not in self.known_gateways:
                raise ValueError(f"backends[].gateway must be one of {', '.join(self.known_gateways)}, got {name}")
            if self.known_gateways[name].model_label is None:
                raise ValueError(
                    f"backends[].gateway must be a gateway whose metrics name the model, got {name}: "
                    "set spec.metrics.gateway of each pool instead"
                )
        return self


def _within(backend: BackendConfig, interval: float) -> BackendConfig:
    """A backend that answers later than the next tick is due is read less often than configured."""
    if backend.timeout <= interval:
        return backend
    if "timeout" in backend.model_fields_set:
        raise ValueError(
            f"timeout of backend '{backend.name}' must be 1s to {interval:g}s, which is the interval, "
            f"got {backend.timeout:g}s"
        )
    return backend.model_copy(update={"timeout": interval})


def load(path: Path, changes: Mapping[str, object] | None = None) -> OperatorConfig:
    """Read the file and validate it with these `changes` made; ConfigError says what is wrong in words."""
    raw = _yaml(path)
    if isinstance(raw, dict) and raw.get("kind") == "ConfigMap":
        raise ConfigError(f'{path} is a ConfigMap. Give the text under its data."config.yaml", in a file of its own.')
    try:
        return OperatorConfig.model_validate({**raw, **(changes or {})} if isinstance(raw, dict) else raw)
    except ValidationError as error:
        raise _invalid(path, [_line(problem) for problem in each(error)]) from error


def load_profile(path: Path) -> EngineMetrics:
    """Read one engine's profile from a file, or from a configuration with one; ConfigError says what is wrong."""
    raw = _yaml(path)
    named = raw.get("engines") if isinstance(raw, dict) else None
    if isinstance(named, dict):
        if len(named) != 1:
            raise ConfigError(f"{path} must hold one profile under engines, got {len(named)}")
        [raw] = named.values()
    try:
        return EngineMetrics.model_validate(raw)
    except ValidationError as error:
        raise _invalid(path, [_line(problem, public=True) for problem in each(error)]) from error


def _yaml(path: Path) -> Any:
    try:
        return read_yaml(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except NotYaml as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error


def _invalid(path: Path, lines: Sequence[str]) -> ConfigError:
    return ConfigError(f"{path} is not valid: " + (lines[0] if len(lines) == 1 else "\n  " + "\n  ".join(lines)))


def _line(problem: ErrorDetails, *, public: bool = False) -> str:
    # Texts are left out: a wrong one is often a secret in the wrong place. The types that need to tell theirs do.
    # Profiles and prices hold none.
    public = public or problem["loc"][:1] in {("engines",), ("gateways",), ("prices",)}
    field = where(problem["loc"])
    return f"{field and f'{field}: '}{said(problem, tell=public)}"
