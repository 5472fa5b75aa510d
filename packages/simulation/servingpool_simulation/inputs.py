"""What a person names on the command line or writes in a file, as the simulator's types."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError

from servingpool.api.duration import DurationBetween
from servingpool.api.part import Part
from servingpool.api.rule import Between
from servingpool.api.serving_pool import ServingPool, problems
from servingpool.api.spec import Spec
from servingpool.api.yaml_text import NotYaml, read_documents
from servingpool.decision.params import HOUR
from servingpool.decision.pool import Pool
from servingpool_simulation.baselines.catalogue import BY_SLUG
from servingpool_simulation.families.resampled import MINUTE, resampled
from servingpool_simulation.fleet import ColdStart, Routing
from servingpool_simulation.hardware import EngineProfile, engine_profile, profile_names
from servingpool_simulation.policies import Ours, Policy, Static
from servingpool_simulation.run import SimulationOptions
from servingpool_simulation.scrape import ScrapeOptions
from servingpool_simulation.traces import (
    COLUMNS,
    Trace,
    azure2023_code,
    azure2023_conv,
    azure2024_conv_reconstructed,
    llmd_ramp,
    load_trace,
)

TRACES: Mapping[str, Callable[[int], Trace]] = MappingProxyType(
    {
        "azure-conv": lambda _: azure2023_conv(),
        "azure-code": lambda _: azure2023_code(),
        "azure-conv-day": lambda seed: azure2024_conv_reconstructed(seed=seed),
        "llmd-ramp": lambda seed: llmd_ramp(seed=seed),
    }
)
"""Shipped traces; a generated one is drawn by the seed."""

POLICIES = ("servingpool", "static:N", *(f"{slug}[:VALUE]" for slug in BY_SLUG))

NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
BLOCK = 10
"""Minutes that stay together in a past drawn from a trace."""


class InputError(ValueError):
    """What was given cannot be used; the message says what was given, what is allowed and what to do."""


class FleetFile(Part):
    """A fleet description: hardware, start-up, how it is watched."""

    model_config = ConfigDict(extra="forbid")

    hardware: str
    """A shipped GPU and model pair, such as `a100-70b-tp4`."""
    cold_start: Annotated[float, DurationBetween("0s", "1h")] = 100.0
    """Mean time from order to ready. 0s to 1h."""
    jitter: Annotated[float, Between(0, 0.99)] = 0.2
    """Share of the mean that a start may take shorter or longer, 0 to 0.99."""
    scrape_interval: Annotated[float, DurationBetween("1s", "5m")] = 5.0
    """Time between two scrapes of a replica. 1s to 5m."""
    lost_scrapes: Annotated[float, Between(0, 1)] = 0.0
    """Share of scrapes that fail, 0 to 1."""
    initial_replicas: Annotated[int, Between(1, 10_000)] | None = None
    """Ready at the start, 1 to 10000. Default: the pool's min."""
    seed: Annotated[int, Between(0, 2**31)] = 0
    """Of start-up times, scrape phases and generated traces."""
    max_num_seqs: Annotated[int, Between(1, 4_096)] = 256
    """vLLM's limit on requests in a batch, 1 to 4096."""
    routing: Annotated[Routing, Field(strict=False)] = Routing.LEAST_LOADED
    """least-loaded or round-robin."""

    def profile(self) -> EngineProfile:
        """What one replica is. Raises InputError for unknown hardware."""
        return named_hardware(self.hardware, max_num_seqs=self.max_num_seqs)

    def options(self, price: float | None = None) -> SimulationOptions:
        """The world around the policy; `price` in dollars a GPU-hour."""
        return SimulationOptions(
            cold_start=ColdStart(self.cold_start, self.jitter),
            scrape=ScrapeOptions(interval=self.scrape_interval, lost_share=self.lost_scrapes),
            initial_replicas=self.initial_replicas,
            routing=self.routing,
            seed=self.seed,
            price=price,
        )


def named_trace(name: str, seed: int = 0) -> Trace:
    """A shipped trace by its name, or the CSV at a path. Raises InputError, TraceError."""
    if name in TRACES:
        return TRACES[name](seed)
    path = Path(name)
    if path.is_file():
        return load_trace(path)
    if path.suffix or len(path.parts) > 1:
        raise InputError(f"trace {name!r}: no such file")
    raise InputError(
        f"trace must be one of {', '.join(TRACES)}, or a CSV file with the columns {', '.join(COLUMNS)}, got {name!r}"
    )


def past_like(trace: Trace, seconds: float, seed: int = 0) -> Trace | None:
    """What may have come before `trace`: its first hour, in blocks of ten minutes drawn anew.

    Made of it: how large its bursts are is told, when they come is not. None for no whole minute, or of a trace that is
    shorter than one.
    """
    minutes, model = int(seconds // MINUTE), trace.between(0.0, min(HOUR, trace.duration))
    whole = int(model.duration // MINUTE)
    return resampled(model, minutes=minutes, block=min(BLOCK, whole), seed=seed) if minutes and whole else None


def named_hardware(name: str, **limits: Any) -> EngineProfile:
    """A shipped GPU and model pair by its name. Raises InputError."""
    try:
        return engine_profile(name, **limits)
    except ValueError as error:
        raise InputError(str(error)) from error


def named_fleet(name: str) -> FleetFile:
    """The description in a YAML file, or shipped hardware with the defaults. Raises InputError."""
    path = Path(name)
    if name in profile_names():
        return FleetFile(hardware=name)
    if not path.is_file():
        raise InputError(f"fleet must be a YAML file, or one of {', '.join(profile_names())}, got {name!r}")
    try:
        return FleetFile.read(_yaml(path))
    except ValidationError as error:
        raise InputError(f"{path}: {problems(error)}") from error


def read_pool(path: Path, *, deadlines: bool = False) -> ServingPool:
    """The one ServingPool manifest in a file, of one target; with deadlines if they may be. Raises InputError."""
    try:
        pool = ServingPool.read(_yaml(path))
    except ValidationError as error:
        raise InputError(f"{path}: {problems(error)}") from error
    spec = pool.spec
    if spec.several:
        why = f"only pools of one target without a role are simulated: leave one of {', '.join(spec.target_names)}"
    elif spec.throughput is not None or (spec.batch is not None and not deadlines):
        why = "a run is judged by an SLO, which batch and throughput lack: give a pool with slo"
    else:
        return pool
    raise InputError(f"{path}: {why}")


def price(spec: Spec, profile: EngineProfile) -> float | None:
    """Dollars a GPU-hour; None without a price. Raises InputError when manifest and fleet speak of other GPUs."""
    (target,) = spec.targets
    if target.gpus_per_replica not in {None, profile.gpus}:
        raise InputError(
            f"the pool's gpusPerReplica is {target.gpus_per_replica}, but a replica of {profile.name} has "
            f"{profile.gpus}: leave it out, or choose other hardware"
        )
    cost = target.cost_per_replica_hour
    return None if cost is None else cost / profile.gpus


def named_policy(name: str, profile: EngineProfile, pool: Pool) -> Policy:
    """A fresh policy, such as `servingpool`, `static:4` or `hpa-running:32`, for this hardware. Raises InputError.

    A baseline's value sets the one parameter that the catalogue tunes.
    """
    kind, colon, text = name.partition(":")
    if kind == "servingpool" and not colon:
        return Ours()
    if kind == "static" and text.isdecimal() and int(text) >= 1:
        return Static(int(text))
    baseline, value = BY_SLUG.get(kind), float(text) if NUMBER.fullmatch(text) else 0.0
    if baseline is not None and not colon:
        return baseline.make(profile, pool)
    if baseline is not None and value > 0.0:
        return baseline.tuned(profile, pool, value)
    raise InputError(f"unknown policy {name!r}: choose {', '.join(POLICIES)}, with N 1 or more and VALUE over 0")


def _yaml(path: Path) -> object:
    try:
        documents = read_documents(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except NotYaml as error:
        raise InputError(f"cannot read {path}: {error}") from error
    if len(documents) != 1:
        raise InputError(f"{path} must hold exactly 1 YAML document, it holds {len(documents)}")
    return documents[0]
