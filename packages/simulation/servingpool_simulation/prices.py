"""What a GPU costs for an hour: list prices of one cloud, so that their ratios are those of a real choice."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

DOLLARS_PER_GPU_HOUR: Mapping[str, float] = MappingProxyType({"h100": 6.88, "a100": 3.43, "l40s": 1.861})
"""On demand, AWS us-east-1, autumn of 2026: p5.48xlarge / 8, p4de.24xlarge / 8 (80 GB), g6e.xlarge."""
SPOT = 0.5
"""Of the price on demand. Comparisons of 2025 and 2026 tell 0.50 of an H100 and 0.59 of an L40S of the same cloud; spot
prices move by the hour."""


def price(profile: str, *, spot: bool = False) -> float:
    """Dollars of a replica's hour, by the name of its profile, such as `h100-70b-tp4`."""
    gpu, gpus = profile.partition("-")[0], int(profile.rpartition("tp")[2])
    return DOLLARS_PER_GPU_HOUR[gpu] * gpus * (SPOT if spot else 1.0)
