"""What a decision says: how many replicas, and all that a person needs to believe it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from servingpool.decision.unknown import Reading, Unknown


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
    """Share of requests of the last hour that met every bound of the SLO, by the witness that is believed."""
    attainment_now: Reading
    """The same of the last 5 minutes."""
    witness: str
    """Who tells whether a first token was late: one of `Witness`."""
    longest_wait: float
    """Seconds that the request has waited that has waited longest, by the length of the queues."""
    full_batch: Reading
    """Requests that one replica decodes at a time while requests wait for it."""
    full_requests: Reading
    """Requests/s that one replica served while requests waited for it."""
    full_tokens: Reading
    """Output tokens/s that one replica yielded while requests waited for it."""
    load: Reading
    """Offered work over what the ready replicas could do; near 1, or where the KV cache fills, queues grow."""
    safe_load: Reading
    """The highest load at which the expected misses are still within the budget; Unknown where none is."""
    forecast: Reading
    """Expected work at the horizon, in replicas kept fully busy."""
    horizon: float
    """Seconds: how long a replica ordered now takes to serve."""


FAST_BURN = 2.0
"""Multiple of the allowed misses, over the last 5 minutes, above which the SLO counts as missed now."""


def slo_met(figures: Figures, attainment: float) -> bool | None:
    """Whether the SLO holds: over the last hour, and roughly now; None where no request was judged."""
    if isinstance(figures.attainment, Unknown):
        return None
    now = figures.attainment_now
    burning = not isinstance(now, Unknown) and 1.0 - now > FAST_BURN * (1.0 - attainment)
    return figures.attainment >= attainment and not burning


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
