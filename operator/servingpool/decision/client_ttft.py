"""The client's time to first token, as the gateway counts it: what came since the last observation."""

from __future__ import annotations

from dataclasses import dataclass

from servingpool.decision.observation import NOT_EXPOSED, Bucket, GatewayMetrics, Histogram, Unknown
from servingpool.decision.slo import Slo

NOTHING = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class ClientTtft:
    """The histogram at its last scrape."""

    at: float
    """Unix time in seconds."""
    bucket: Bucket
    """That holds the SLO's bound."""
    counts: tuple[float, float, float]
    """All, up to the lower and up to the upper end of the bucket."""


def since(
    before: ClientTtft | None, gateway: GatewayMetrics, slo: Slo, longest_gap: float
) -> tuple[ClientTtft | None, tuple[float, float, float]]:
    """The histogram now, and what it counted since; as it was and nothing where the gateway does not tell it.

    Only where the SLO is judged at the gateway.
    """
    ttft, at = gateway.time_to_first_token, gateway.scraped_at
    if not slo.at_gateway:
        return None, NOTHING
    if not isinstance(ttft, Histogram) or at is None or (before is not None and at <= before.at):
        return before, NOTHING
    counts, bucket = ttft.around(slo.time_to_first_token)
    now = ClientTtft(at, bucket, counts)
    if before is None or at - before.at > longest_gap or bucket != before.bucket or counts[0] < before.counts[0]:
        return now, NOTHING  # its counting begins here
    total, lower, upper = (max(0.0, new - old) for new, old in zip(counts, before.counts, strict=True))
    return now, (total, lower, upper)


def unknown(gateway: GatewayMetrics, slo: Slo) -> str | None:
    """Why the client's TTFT is not known, where the SLO is judged by it."""
    ttft = gateway.time_to_first_token
    if not slo.at_gateway or not isinstance(ttft, Unknown):
        return None
    return "the gateway does not tell it" if ttft is NOT_EXPOSED else ttft.reason
