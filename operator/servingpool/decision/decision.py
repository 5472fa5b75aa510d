"""What a decision says: how many replicas, and all that a person needs to believe it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from servingpool.decision.unknown import Reading


class Verdict(StrEnum):
    """What the decision does to the fleet."""

    SCALE_UP = "ScaleUp"
    SCALE_DOWN = "ScaleDown"
    HOLD = "Hold"


@dataclass(frozen=True, slots=True)
class Limit:
    """One step between the raw need and the answer, in the order applied."""

    name: str
    """CamelCase and stable: conditions, metrics and tests refer to it. Those of `limits`."""
    before: int
    after: int
    reason: str
    """A sentence with figures and units."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What the core measured on the way. Unknown where it could not."""

    arrivals: Reading
    """Requests/s over the last half minute, or two scrapes."""
    generation_rate: Reading
    """Output tokens/s, aggregate over the pool."""
    prompt_rate: Reading
    """Prompt tokens/s, aggregate over the pool."""
    queue: Reading
    """Requests waiting in engines and gateway."""
    running: Reading
    """Requests in running batches."""
    time_to_first_token: Reading
    """Seconds at the SLO's percentile over the last 5 minutes, as far as the buckets can tell."""
    time_per_output_token: Reading
    """Seconds at the SLO's percentile over the last 5 minutes."""
    attainment: Reading
    """Share of requests of the last hour that met every bound of the SLO."""
    load: Reading
    """Offered work over what the ready replicas could do; near 1, or where the KV cache fills, queues grow."""
    safe_load: Reading
    """The highest load at which the expected misses are still within the budget; Unknown where none is."""
    forecast: Reading
    """Expected work at the horizon, in replicas kept fully busy."""
    horizon: float
    """Seconds: how long a replica ordered now takes to serve."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer for one pool at one time."""

    at: float
    """Unix time in seconds."""
    replicas: int
    """What `spec.replicas` of the target should be."""
    verdict: Verdict
    need: Reading
    """Raw need in replicas, before any limit."""
    limits: tuple[Limit, ...]
    """Every limit that changed the answer, in order."""
    reason: str
    """One sentence with units that a person at 3 a.m. can act on."""
    figures: Figures
    calibrating: bool = False
    """Still learning: nothing is scaled down but to max."""
    warnings: tuple[str, ...] = field(default=())
    """Sentences on what is wrong but not fatal, such as an SLO that no fleet size can hold."""
