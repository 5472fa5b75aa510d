"""What became of one request, by its client's clock."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

OK = "ok"
REFUSED = "refused"
"""No connection."""
CUT = "cut"
"""The connection broke, the stream said so, or it ended without a token or a finish_reason, inside HTTP 200."""
TIMEOUT = "timeout"


@dataclass(slots=True)
class Record:
    """Seconds since the course began. None: it did not come to that."""

    number: int
    scheduled: float
    """When the user asked; all latencies count from here, also where the generator was late."""
    prompt_tokens: int
    output_tokens: int
    """Asked for."""
    sent: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    ended: float | None = None
    tokens: int = 0
    """Got."""
    outcome: str | None = None
    """`ok`, `http_STATUS`, `cut`, `timeout` or `refused`; None while it is in flight."""
    detail: str = ""
    """What the server or the system said of a failure."""

    @property
    def ttft(self) -> float | None:
        """Scheduled to first token."""
        return None if self.first_token is None else self.first_token - self.scheduled

    @property
    def tpot(self) -> float | None:
        """Mean time of the tokens behind the first, as vLLM's request_time_per_output_token; None for one token."""
        if self.first_token is None or self.last_token is None or self.tokens < 2:
            return None
        return (self.last_token - self.first_token) / (self.tokens - 1)

    def meets(self, ttft: float | None, tpot: float | None) -> bool:
        """Whether it was answered in full and within the bounds given."""
        if self.outcome != OK or self.ttft is None:
            return False
        return (ttft is None or self.ttft <= ttft) and (tpot is None or self.tpot is None or self.tpot <= tpot)

    def as_json(self) -> dict[str, Any]:
        """All fields, with the latencies."""
        return {**asdict(self), "ttft": self.ttft, "tpot": self.tpot}
