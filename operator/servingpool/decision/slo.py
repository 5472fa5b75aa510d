"""The latency objective of a pool."""

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
    at_gateway: bool = False
    """TTFT is the client's, as the gateway measures it, and not the engines'."""

    def __post_init__(self) -> None:
        if self.time_to_first_token is None and self.time_per_output_token is None:
            raise ValueError("an SLO needs a bound on time to first token, on time per output token, or on both")
        if not 0.5 <= self.attainment <= 0.999:
            raise ValueError(f"attainment must be 0.5 to 0.999, got {self.attainment}")

    @property
    def allowed(self) -> float:
        """Share of requests that may miss."""
        return 1.0 - self.attainment

    @property
    def queue_bound(self) -> float:
        """Seconds that a request may wait before its queue counts as standing; 10 where no TTFT is asked for."""
        return 10.0 if self.time_to_first_token is None else self.time_to_first_token
