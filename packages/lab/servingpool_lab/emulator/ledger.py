"""The truth about a run: what each request got and what the fleet cost, whoever watches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from servingpool.decision.pool import Slo

WINDOW = 60.0
"""Seconds over which latencies and rates are current."""


class Fate(StrEnum):
    """How a request ended."""

    FINISHED = "finished"
    REJECTED = "rejected"
    """The prompt does not fit into max_model_len."""
    LOST = "lost"
    """Its replica went away before the answer was complete."""


@dataclass(frozen=True, slots=True)
class Ended:
    """One request that ended. Seconds on the emulator's clock."""

    arrival: float
    """At the front door: before any replica had it."""
    at: float
    fate: Fate
    ttft: float | None = None
    """From the front door to the first token."""
    tpot: float | None = None
    """None without a second token."""

    def meets(self, slo: Slo) -> bool:
        """Whether it was answered within every bound; what was lost or rejected was not."""
        if self.fate is not Fate.FINISHED or self.ttft is None:
            return False
        in_time = slo.time_to_first_token is None or self.ttft <= slo.time_to_first_token
        fluent = slo.time_per_output_token is None or self.tpot is None or self.tpot <= slo.time_per_output_token
        return in_time and fluent


@dataclass(slots=True)
class Ledger:
    """Every request that ended, judged by the SLO."""

    slo: Slo
    arrived: int = 0
    attained: int = 0
    fates: dict[Fate, int] = field(default_factory=lambda: dict.fromkeys(Fate, 0))
    _ended: list[Ended] = field(default_factory=list)
    _arrivals: deque[float] = field(default_factory=deque)

    @property
    def ended(self) -> int:
        """Requests that ended, whatever way."""
        return len(self._ended)

    @property
    def requests(self) -> Sequence[Ended]:
        """Those that ended: of one replica in the order of their ends."""
        return self._ended

    @property
    def attainment(self) -> float | None:
        """Share of the requests that ended which met the SLO; None before the first."""
        return self.attained / self.ended if self.ended else None

    def arrive(self, at: float) -> None:
        """A request came to the front door."""
        self.arrived += 1
        self._arrivals.append(at)
        while self._arrivals[0] <= at - WINDOW:
            self._arrivals.popleft()

    def end(self, request: Ended) -> None:
        """A request ended."""
        self._ended.append(request)
        self.fates[request.fate] += 1
        self.attained += request.meets(self.slo)

    def arrival_rate(self, now: float, since: float) -> float:
        """Requests/s over the last minute, or since `since` where that is later."""
        begin = max(since, now - WINDOW)
        return sum(at > begin for at in self._arrivals) / max(now - begin, 1.0)

    def latest(self, now: float) -> tuple[float | None, float | None]:
        """TTFT and TPOT in seconds at the SLO's percentile, of what finished in the last minute."""
        recent: list[Ended] = []
        for request in reversed(self._ended):
            # Ended ones of several replicas are not quite in order of time.
            if request.at <= now - 2 * WINDOW:
                break
            if request.at > now - WINDOW:
                recent.append(request)
        return self._quantile([r.ttft for r in recent]), self._quantile([r.tpot for r in recent])

    def by_minute(self, moments: list[float]) -> dict[str, list[float | None]]:
        """The columns that only the whole truth gives, at each of `moments`.

        As the simulator has them: `ttft` of the requests with their first token in the minute before, `tpot` of
        those that finished in it, `attainment` of all that ended by then.
        """
        return {
            "ttft": self._windows(moments, lambda r: (None if r.ttft is None else r.arrival + r.ttft, r.ttft)),
            "tpot": self._windows(moments, lambda r: (r.at, r.tpot)),
            "attainment": self._attainment_at(moments),
        }

    def _windows(
        self, moments: list[float], point: Callable[[Ended], tuple[float | None, float | None]]
    ) -> list[float | None]:
        points = sorted((at, v) for at, v in map(point, self._ended) if at is not None and v is not None)
        when = np.array([at for at, _ in points])
        begins = np.searchsorted(when, np.array(moments) - WINDOW, side="right")
        ends = np.searchsorted(when, moments, side="right")
        return [self._quantile([v for _, v in points[b:e]]) for b, e in zip(begins, ends, strict=True)]

    def _attainment_at(self, moments: list[float]) -> list[float | None]:
        ordered = sorted(self._ended, key=lambda request: request.at)
        met = np.cumsum([request.meets(self.slo) for request in ordered])
        ended = np.searchsorted([request.at for request in ordered], moments, side="right")
        return [float(met[n - 1] / n) if n else None for n in ended]

    def _quantile(self, values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return float(np.quantile(known, self.slo.attainment)) if known else None
