"""What the user asked for, in the core's own units."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slo:
    """The latency objective. At least one bound is set."""

    time_to_first_token: float | None = None
    """Seconds; None where it does not matter."""
    time_per_output_token: float | None = None
    """Seconds; None where it does not matter."""
    attainment: float = 0.95
    """Share of requests, 0.5 to 0.999, that must meet every bound that is set."""

    def __post_init__(self) -> None:
        if self.time_to_first_token is None and self.time_per_output_token is None:
            raise ValueError("an SLO needs a bound on time to first token, on time per output token, or on both")
        if not 0.5 <= self.attainment <= 0.999:
            raise ValueError(f"attainment must be 0.5 to 0.999, got {self.attainment}")


@dataclass(frozen=True, slots=True)
class Behavior:
    """The few knobs. Nobody should need one."""

    scale_down_window: float = 120.0
    """Seconds. A scale-down keeps what was worth keeping in this window, or in two cold starts where longer."""
    calibration: float = 300.0
    """Seconds from first sight during which nothing is scaled down."""
    cold_start: float = 120.0
    """Seconds from order to Ready to assume until a start was measured."""


@dataclass(frozen=True, slots=True)
class Pool:
    """What a decision needs to know of a ServingPool's spec."""

    slo: Slo
    min_replicas: int
    max_replicas: int
    in_charge: bool = True
    """False in Recommend and Paused: what it decides is not carried out, so nothing may wind up."""
    behavior: Behavior = Behavior()

    def __post_init__(self) -> None:
        if not 0 <= self.min_replicas <= self.max_replicas:
            raise ValueError(f"need 0 <= min <= max replicas, got min {self.min_replicas}, max {self.max_replicas}")
